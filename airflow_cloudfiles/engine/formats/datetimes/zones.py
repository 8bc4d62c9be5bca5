"""Which time zone does a name mean, and how far is it from UTC?

The names that Spark takes: Java's `ZoneId.of` with its short names, offsets in many forms.
"""

from __future__ import annotations

import re
import zoneinfo
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache, lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

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
    """The same for a zone.

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
    """The zone that Java's `ZoneId.of(name, SHORT_IDS)` and Spark's `getZoneId` find.

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


@cache
def _names() -> dict[str, str]:
    """The names of all zones by their lower-case form."""
    return {name.lower(): name for name in zoneinfo.available_timezones()}
