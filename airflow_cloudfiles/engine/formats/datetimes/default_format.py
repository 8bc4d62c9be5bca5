"""Read the moment that a text names, with the names that Spark takes.

The strings Spark's JSON reader takes for dates and timestamps when no pattern is given
(`SparkDateTimeUtils.stringToDate` and `parseTimestampString`, Spark 4.3), in pure Python. A time
without a date (`12:30:00`), which Spark takes for one of today, names no moment here. Where a text
is more than the moment that Spark makes of it, it names that moment only if it need not be exact:

- a date followed by a time that is not midnight, or by any other text (Spark drops it);
- a day number instead of a date (`"19723"`; Spark 1.5 wrote dates so), in JSON;
- a fraction finer than a microsecond (`59.1234567`; Spark cuts it off). Zeros there are fine.

Names of time zones mean what they mean for Java.

Time zones have the names that Spark takes: Java's `ZoneId.of` with its short names, offsets in many
forms.

The names of months in the languages of the option `locale` are those of the Unicode locale data in
Java 17, which Spark's formatters use.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache, cached_property, lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_cloudfiles.engine.errors import OptionError


@dataclass(frozen=True)
class Locale:
    """How a language writes dates and numbers.

    Attributes:
        tag: Its name, for instance `de-DE`.
        full: Full names of the months within a date, separated by blanks.
        short: Abbreviated names, likewise.
        halves: Names of morning and afternoon.
        group: Separates thousands.
        decimal: Separates the fraction.
    """

    tag: str
    full: str
    short: str
    halves: tuple[str, str]
    group: str
    decimal: str

    @cached_property
    def months(self) -> dict[str, int]:
        """Numbers of the months by full name, in lower case."""
        return _numbered(self.full)

    @cached_property
    def short_months(self) -> dict[str, int]:
        """Numbers of the months by abbreviated name, in lower case."""
        return _numbered(self.short)


def _numbered(names: str) -> dict[str, int]:
    return {name.lower(): number for number, name in enumerate(names.split(), start=1)}


_TABLE: Final = """\
en-US|AM|PM|,|.
January February March April May June July August September October November December
Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec
en-GB|am|pm|,|.
January February March April May June July August September October November December
Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec
de-DE|AM|PM|.|,
Januar Februar März April Mai Juni Juli August September Oktober November Dezember
Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez.
fr-FR|AM|PM|\u202f|,
janvier février mars avril mai juin juillet août septembre octobre novembre décembre
janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.
es-ES|a.\u00a0m.|p.\u00a0m.|.|,
enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
ene feb mar abr may jun jul ago sept oct nov dic
it-IT|AM|PM|.|,
gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre
gen feb mar apr mag giu lug ago set ott nov dic
nl-NL|a.m.|p.m.|.|,
januari februari maart april mei juni juli augustus september oktober november december
jan. feb. mrt. apr. mei jun. jul. aug. sep. okt. nov. dec.
pt-BR|AM|PM|.|,
janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro
jan. fev. mar. abr. mai. jun. jul. ago. set. out. nov. dez.
pl-PL|AM|PM|\u00a0|,
stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia
sty lut mar kwi maj cze lip sie wrz paź lis gru
sv-SE|fm|em|\u00a0|,
januari februari mars april maj juni juli augusti september oktober november december
jan. feb. mars apr. maj juni juli aug. sep. okt. nov. dec.
da-DK|AM|PM|.|,
januar februar marts april maj juni juli august september oktober november december
jan. feb. mar. apr. maj jun. jul. aug. sep. okt. nov. dec.
cs-CZ|dop.|odp.|\u00a0|,
ledna února března dubna května června července srpna září října listopadu prosince
led úno bře dub kvě čvn čvc srp zář říj lis pro"""
"""A language in three lines: its tag, morning, afternoon and its separators of thousands and of the
fraction; the full names of its months; the abbreviated ones."""


def _locales(lines: list[str]) -> Iterator[Locale]:
    for marks, full, short in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        tag, morning, afternoon, group, decimal = marks.split("|")
        yield Locale(tag, full, short, (morning, afternoon), group, decimal)


_LOCALES: Final = tuple(_locales(_TABLE.split("\n")))
_BY_TAG: Final = {each.tag.lower(): each for each in _LOCALES}
_BY_LANGUAGE: Final = {each.tag.partition("-")[0]: each for each in reversed(_LOCALES)}
ENGLISH: Final = _LOCALES[0]


_JAVA_NAMES: Final = {"us": "en-us", "locale.us": "en-us"}
"""The documented default of the option, which is the name of a constant of Java."""


def find_locale(tag: str) -> Locale:
    """Find the locale of an option's value, such as `de-DE`, `de_DE` or `de`.

    Raises:
        OptionError: It is none of those that are known here.
    """
    name = tag.strip().lower().replace("_", "-")
    found = _BY_TAG.get(_JAVA_NAMES.get(name, name)) or _BY_LANGUAGE.get(name)
    if found is None:
        known = ", ".join(each.tag for each in _LOCALES)
        raise OptionError(f"locale={tag!r} is not known here. Give one of {known}.")
    return found


ZONE_NAME: Final = (
    r"(?:UTC|UT|GMT)(?:[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2})?)?(?![A-Za-z])"
    r"|[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2})?|[A-Za-z][A-Za-z0-9/_+-]*"
)
"""Expression of a zone within a longer text."""

_ONE_DIGIT_HOUR: Final = re.compile(r"([+-])([0-9]):")
_ONE_DIGIT_MINUTE: Final = re.compile(r"([+-])([0-9][0-9]):([0-9])$")
_OFFSET: Final = re.compile(
    r"([+-])(?:([0-9])|([0-9]{2})|([0-9]{2}):?([0-9]{2})|([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"|([0-9]{2})([0-9]{2})([0-9]{2}))"
)
_PREFIXED: Final = re.compile(r"(UTC|GMT|UT)([+-].*)?")
_MAX_OFFSET_SECONDS: Final = 18 * 3600
_CYCLE: Final = 146_097 * 86_400_000_000
_YEAR_1: Final = -719_162 * 86_400_000_000
_YEAR_9999: Final = (2_932_897 - 366) * 86_400_000_000
"""Microseconds of 400 years; of the beginnings of the years that Python's calendar has."""

_SHORT_IDS: Final = {
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00", "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires", "ART": "Africa/Cairo",
    "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago",
    "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""Java's `ZoneId.SHORT_IDS`."""


def offset_seconds(zone: str, local_micros: int) -> int | None:
    """Seconds east of UTC at a local time; `None` when there is no such zone.

    As in Java, a time that is there twice is the first one; one that a clock skips is as far from
    UTC as the times before.
    """
    found = find_zone(zone.strip("".join(map(chr, range(0x21)))))
    return None if found is None else offset_of(found, local_micros)


def offset_of(zone: tzinfo, local_micros: int) -> int:
    """Return the same for a zone.

    Before the year 1 no clock had changed yet; past 9999 rules repeat every 400 years.
    """
    if isinstance(zone, timezone):
        return round(zone.utcoffset(None).total_seconds())
    if not _YEAR_1 <= local_micros < _YEAR_9999:
        begin = _YEAR_1 if local_micros < _YEAR_1 else _YEAR_9999 - _CYCLE
        local_micros = begin + (local_micros - begin) % _CYCLE
    moment = datetime(1970, 1, 1) + timedelta(microseconds=local_micros)  # noqa: DTZ001
    offset = moment.replace(tzinfo=zone).utcoffset()
    return 0 if offset is None else round(offset.total_seconds())


@lru_cache(maxsize=1024)
def find_zone(name: str, *, any_case: bool = False) -> tzinfo | None:
    """Find the zone as Java's `ZoneId.of(name, SHORT_IDS)` and Spark's `getZoneId` do.

    Args:
        name: For instance `Europe/Paris`, `PST`, `+05:30`, `UTC-3`.
        any_case: Whether `europe/paris` will do, as it does within a pattern; `PST` will not then.
    """
    name = _ONE_DIGIT_HOUR.sub(r"\g<1>0\g<2>:", name, count=1)
    name = _ONE_DIGIT_MINUTE.sub(r"\g<1>\g<2>:0\g<3>", name, count=1)
    if not any_case:
        name = _SHORT_IDS.get(name, name)
    if name == "Z":
        return UTC
    if name[:1] in {"+", "-"}:
        return _fixed(name)
    prefixed = _PREFIXED.fullmatch(name)
    if prefixed is not None:
        return UTC if prefixed[2] is None else _fixed(prefixed[2])
    try:
        return ZoneInfo(_names().get(name.lower(), name) if any_case else name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _fixed(offset: str) -> timezone | None:
    """Parse the zone of an offset such as `+5`, `+05`, `+0530`, `+05:30`, `+05:30:15`."""
    found = _OFFSET.fullmatch(offset)
    if found is None:
        return None
    parts = [int(part) for part in found.groups()[1:] if part is not None]
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _MAX_OFFSET_SECONDS:  # noqa: PLR2004 - a clock
        return None
    return timezone(timedelta(seconds=-total if found[1] == "-" else total))


@cache
def _names() -> dict[str, str]:
    """Map the names of all zones from their lower-case form."""
    return {name.lower(): name for name in zoneinfo.available_timezones()}


_TRIMMED: Final = "".join(map(chr, (*range(0x21), 0x7F)))
"""What Spark trims: white space and control characters."""

_DATE: Final = re.compile(
    r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T](.*))?)?)?", re.DOTALL
)
_MIDNIGHT: Final = re.compile(r"\s*(?:0{1,2}(?::0{1,2}(?::0{1,2}(?:\.0*)?)?)?)?(?:Z|[+-]00:?00)?")
_TIMESTAMP: Final = re.compile(
    r"([+-]?)([0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T]"
    r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9.].*)?)?)?)?)?)?",
    re.DOTALL,
)

_MAX_MICROS: Final = 2**63 - 1
_MAX_DAYS: Final = 2**31 - 1
_MICROS: Final = 1_000_000
_MICRO_DIGITS: Final = 6
_EPOCH_ORDINAL: Final = 719_163
_DAY_NUMBER: Final = re.compile(r"[+-]?\d{1,10}")
_GREGORIAN_DAYS: Final = -141_427
"""1582-10-15, the first day of the Gregorian calendar."""
_JULIAN_EPOCH_DAY: Final = 719_470
"""Days from 1 March of the year 0 to 1970-01-01, in the Julian calendar."""


def date_days(text: str, *, exact: bool = True) -> int | None:
    """Days since 1970-01-01 of a date text; `None` when it is no date."""
    found = _DATE.fullmatch(text.strip(_TRIMMED))
    if found is None:
        return None
    sign, year, month, day, rest = found.groups()
    if exact and rest and not _MIDNIGHT.fullmatch(rest):
        return None
    days = days_of(-int(year) if sign == "-" else int(year), int(month or 1), int(day or 1))
    return None if days is None or abs(days) > _MAX_DAYS else days


def numbered_days(text: str) -> int | None:
    """Convert a day number, which Spark counts in the calendar that was in use then."""
    if not _DAY_NUMBER.fullmatch(text):
        return None
    days = int(text)
    if abs(days) > _MAX_DAYS:
        return None
    if days >= _GREGORIAN_DAYS:
        return days
    return days_of(*_julian(days))


def timestamp_micros(text: str, default: tzinfo = UTC, *, exact: bool = True) -> int | None:
    """Microseconds since the epoch of a timestamp text; `default` is the zone of one without."""
    parsed = _parse(text, exact=exact)
    if parsed is None and "GMT" in text:
        # Spark's fallback for what versions 1.x and 2.x wrote.
        parsed = _parse(text.replace("GMT", ""), exact=exact)
    if parsed is None:
        return None
    local, zone = parsed
    offset = offset_of(default, local) if zone is None else offset_seconds(zone, local)
    return None if offset is None else in_range(local - offset * _MICROS)


def local_micros(text: str, *, exact: bool = True, drops_zone: bool = False) -> int | None:
    """Microseconds since the epoch of a timestamp text without a zone (`timestamp_ntz`)."""
    parsed = _parse(text, exact=exact)
    if parsed is None or (parsed[1] is not None and not drops_zone):
        return None
    return in_range(parsed[0])


def _parse(text: str, *, exact: bool) -> tuple[int, str | None] | None:
    """Split a timestamp into local microseconds and the name of its zone."""
    found = _TIMESTAMP.fullmatch(text.strip(_TRIMMED))
    if found is None:
        return None
    sign, year, month, day, hour, minute, second, fraction, zone = found.groups()
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:  # noqa: PLR2004 - a clock
        return None
    days = days_of(-int(year) if sign == "-" else int(year), int(month or 1), int(day or 1))
    if days is None:
        return None
    clock = hours * 3600 + minutes * 60 + seconds
    fraction = (fraction or "").rstrip("0")
    if exact and len(fraction) > _MICRO_DIGITS:
        return None
    micros = int(fraction[:_MICRO_DIGITS].ljust(_MICRO_DIGITS, "0"))
    return (days * 86_400 + clock) * _MICROS + micros, zone


def days_of(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, for any year."""
    cycles, year_of_cycle = divmod(year - 2000, 400)
    try:
        ordinal = datetime(2000 + year_of_cycle, month, day, tzinfo=UTC).toordinal()
    except ValueError:
        return None
    return ordinal - _EPOCH_ORDINAL + cycles * 146_097


def _julian(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day in the Julian calendar."""
    cycle, day_of_cycle = divmod(days + _JULIAN_EPOCH_DAY, 1461)
    year_of_cycle = min(day_of_cycle // 365, 3)
    day_of_year = day_of_cycle - 365 * year_of_cycle
    month = (5 * day_of_year + 2) // 153  # from March
    year = 4 * cycle + year_of_cycle + (month > 9)  # noqa: PLR2004 - January and February
    return year, (month + 2) % 12 + 1, day_of_year - (153 * month + 2) // 5 + 1


def in_range(micros: int) -> int | None:
    """Return the number when 64 bits hold it."""
    return micros if -_MAX_MICROS - 1 <= micros <= _MAX_MICROS else None
