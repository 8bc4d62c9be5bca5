"""Which moment does a text name?

The texts Spark's JSON reader takes for dates and timestamps when no pattern is given
(`SparkDateTimeUtils.stringToDate` and `parseTimestampString`, Spark 4.3), in pure Python. Where a
text means something else on another day or drops part of itself, it names no moment here:

- a time without a date (`12:30:00`; Spark takes today's date);
- a date followed by a time that is not midnight (Spark drops the time);
- a day number instead of a date (`"19723"`; Spark 1.5 wrote dates so);
- a fraction finer than a microsecond (`59.1234567`; Spark cuts it off). Zeros there are fine.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import Final

from airflow_cloudfiles.engine.formats.patterns_zones import offset_of, offset_seconds

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


def date_days(text: str) -> int | None:
    """Days since 1970-01-01 of a date text; `None` when it is no date."""
    found = _DATE.fullmatch(text.strip(_TRIMMED))
    if found is None:
        return None
    sign, year, month, day, rest = found.groups()
    if rest and not _MIDNIGHT.fullmatch(rest):
        return None
    days = days_of(-int(year) if sign == "-" else int(year), int(month or 1), int(day or 1))
    return None if days is None or abs(days) > _MAX_DAYS else days


def timestamp_micros(text: str, default: tzinfo = UTC) -> int | None:
    """Microseconds since the epoch of a timestamp text; `default` is the zone of one without."""
    parsed = _parse(text)
    if parsed is None and "GMT" in text:
        # Spark's fallback for what versions 1.x and 2.x wrote.
        parsed = _parse(text.replace("GMT", ""))
    if parsed is None:
        return None
    local, zone = parsed
    offset = offset_of(default, local) if zone is None else offset_seconds(zone, local)
    return None if offset is None else in_range(local - offset * _MICROS)


def local_micros(text: str) -> int | None:
    """Microseconds since the epoch of a timestamp text without a zone (`timestamp_ntz`)."""
    parsed = _parse(text)
    if parsed is None or parsed[1] is not None:
        return None
    return in_range(parsed[0])


def _parse(text: str) -> tuple[int, str | None] | None:
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
    if len(fraction) > _MICRO_DIGITS:
        return None
    micros = int(fraction.ljust(_MICRO_DIGITS, "0"))
    return (days * 86_400 + clock) * _MICROS + micros, zone


def days_of(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, for any year."""
    cycles, year_of_cycle = divmod(year - 2000, 400)
    try:
        ordinal = datetime(2000 + year_of_cycle, month, day, tzinfo=UTC).toordinal()
    except ValueError:
        return None
    return ordinal - _EPOCH_ORDINAL + cycles * 146_097


def in_range(micros: int) -> int | None:
    """The number when 64 bits hold it."""
    return micros if -_MAX_MICROS - 1 <= micros <= _MAX_MICROS else None
