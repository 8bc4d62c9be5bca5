"""Which moment does a text name?

The texts Spark's JSON reader takes for dates and timestamps when no pattern is given
(`SparkDateTimeUtils.stringToDate` and `parseTimestampString`, Spark 4.3), in pure Python. Where a
text means something else on another day or drops part of itself, it names no moment here:

- a time without a date (`12:30:00`; Spark takes today's date);
- a date followed by a time that is not midnight (Spark drops the time);
- a day number instead of a date (`"19723"`; Spark 1.5 wrote dates so).

Digits after the microsecond are cut off, as Spark does.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

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

_ONE_DIGIT_HOUR: Final = re.compile(r"([+-])([0-9]):")
_ONE_DIGIT_MINUTE: Final = re.compile(r"([+-])([0-9][0-9]):([0-9])$")
_OFFSET: Final = re.compile(
    r"([+-])(?:([0-9])|([0-9]{2})|([0-9]{2}):?([0-9]{2})|([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"|([0-9]{2})([0-9]{2})([0-9]{2}))"
)
_PREFIXED: Final = re.compile(r"(UTC|GMT|UT)([+-].*)?")
_MAX_OFFSET_SECONDS: Final = 18 * 3600
_MAX_MICROS: Final = 2**63 - 1
_MICROS: Final = 1_000_000
_EPOCH_ORDINAL: Final = 719_163

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


def date_days(text: str) -> int | None:
    """Days since 1970-01-01 of a date text; `None` when it is no date."""
    found = _DATE.fullmatch(text.strip(_TRIMMED))
    if found is None:
        return None
    sign, year, month, day, rest = found.groups()
    if rest and not _MIDNIGHT.fullmatch(rest):
        return None
    return _days(-int(year) if sign == "-" else int(year), int(month or 1), int(day or 1))


def timestamp_micros(text: str) -> int | None:
    """Microseconds since the epoch of a timestamp text; one without a zone is UTC."""
    parsed = _parse(text)
    if parsed is None and "GMT" in text:
        # Spark's fallback for what versions 1.x and 2.x wrote.
        parsed = _parse(text.replace("GMT", ""))
    if parsed is None:
        return None
    local, zone = parsed
    offset = _offset_seconds(zone, local) if zone is not None else 0
    return None if offset is None else _in_range(local - offset * _MICROS)


def local_micros(text: str) -> int | None:
    """Microseconds since the epoch of a timestamp text without a zone (`timestamp_ntz`)."""
    parsed = _parse(text)
    if parsed is None or parsed[1] is not None:
        return None
    return _in_range(parsed[0])


def _parse(text: str) -> tuple[int, str | None] | None:
    """Split a timestamp into local microseconds and the name of its zone."""
    found = _TIMESTAMP.fullmatch(text.strip(_TRIMMED))
    if found is None:
        return None
    sign, year, month, day, hour, minute, second, fraction, zone = found.groups()
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:  # noqa: PLR2004 - a clock
        return None
    days = _days(-int(year) if sign == "-" else int(year), int(month or 1), int(day or 1))
    if days is None:
        return None
    clock = hours * 3600 + minutes * 60 + seconds
    micros = int((fraction or "").ljust(6, "0")[:6])
    return (days * 86_400 + clock) * _MICROS + micros, zone


def _days(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, for any year."""
    cycles, year_of_cycle = divmod(year - 2000, 400)
    try:
        ordinal = datetime(2000 + year_of_cycle, month, day, tzinfo=UTC).toordinal()
    except ValueError:
        return None
    return ordinal - _EPOCH_ORDINAL + cycles * 146_097


def _in_range(micros: int) -> int | None:
    return micros if -_MAX_MICROS - 1 <= micros <= _MAX_MICROS else None


def _offset_seconds(zone: str, local_micros: int) -> int | None:
    """Seconds east of UTC at a local time; `None` when there is no such zone."""
    found = _zone(zone.strip("".join(map(chr, range(0x21)))))
    if found is None:
        return None
    if isinstance(found, timezone):
        return round(found.utcoffset(None).total_seconds())
    try:
        moment = datetime(1970, 1, 1) + timedelta(microseconds=local_micros)  # noqa: DTZ001
        offset = moment.replace(tzinfo=found).utcoffset()
    except OverflowError:
        return None
    return None if offset is None else round(offset.total_seconds())


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo | None:
    """The zone that Java's `ZoneId.of(name, SHORT_IDS)` and Spark's `getZoneId` find."""
    name = _ONE_DIGIT_HOUR.sub(r"\g<1>0\g<2>:", name, count=1)
    name = _ONE_DIGIT_MINUTE.sub(r"\g<1>\g<2>:0\g<3>", name, count=1)
    name = _SHORT_IDS.get(name, name)
    if name == "Z":
        return UTC
    if name[:1] in {"+", "-"}:
        return _fixed(name)
    prefixed = _PREFIXED.fullmatch(name)
    if prefixed is not None:
        return UTC if prefixed[2] is None else _fixed(prefixed[2])
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _fixed(offset: str) -> timezone | None:
    """The zone of an offset such as `+5`, `+05`, `+0530`, `+05:30`, `+05:30:15`."""
    found = _OFFSET.fullmatch(offset)
    if found is None:
        return None
    parts = [int(part) for part in found.groups()[1:] if part is not None]
    hours, minutes, seconds = (*parts, 0, 0)[:3]
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _MAX_OFFSET_SECONDS:  # noqa: PLR2004 - a clock
        return None
    return timezone(timedelta(seconds=-total if found[1] == "-" else total))
