"""Which moment does a text name?

The strings Spark's JSON reader takes for dates and timestamps when no pattern is given
(`SparkDateTimeUtils.stringToDate` and `parseTimestampString`, Spark 4.3), in pure Python. A time
without a date (`12:30:00`), which Spark takes for one of today, names no moment here. Where a text
is more than the moment that Spark makes of it, it names that moment only if it need not be exact:

- a date followed by a time that is not midnight, or by any other text (Spark drops it);
- a day number instead of a date (`"19723"`; Spark 1.5 wrote dates so), in JSON;
- a fraction finer than a microsecond (`59.1234567`; Spark cuts it off). Zeros there are fine.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import Final

from airflow_cloudfiles.engine.formats.datetimes.zones import offset_of, offset_seconds

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
    """The date of a day number, which Spark counts in the calendar that was in use then."""
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


def local_micros(text: str, *, exact: bool = True) -> int | None:
    """Microseconds since the epoch of a timestamp text without a zone (`timestamp_ntz`)."""
    parsed = _parse(text, exact=exact)
    if parsed is None or parsed[1] is not None:
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
    """The number when 64 bits hold it."""
    return micros if -_MAX_MICROS - 1 <= micros <= _MAX_MICROS else None
