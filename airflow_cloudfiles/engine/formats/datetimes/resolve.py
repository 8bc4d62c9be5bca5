"""Which day and which time of day do the fields of a text make?

Java's strict rules of resolution, and Spark's defaults for what is missing: 1970, January, the
first, midnight.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Final

from airflow_cloudfiles.engine.formats.datetimes import default_format
from airflow_cloudfiles.engine.formats.datetimes.zones import find_zone, offset_of

Fields = Mapping[str, int | str]

_LIMITS: Final = {
    "M": (1, 12), "D": (1, 366), "d": (1, 31), "H": (0, 23), "k": (1, 24), "h": (1, 12),
    "K": (0, 11), "m": (0, 59), "s": (0, 59), "year_of_era": (1, 999_999_999),
}  # fmt: skip
_DAY_MICROS: Final = 86_400_000_000
_NOON: Final = 12
_MIDNIGHT: Final = 24


def day_of(fields: Fields) -> int | None:
    """Days since 1970-01-01 of what a text says; `None` when there is no such day."""
    if not all(
        low <= int(fields[name]) <= high for name, (low, high) in _LIMITS.items() if name in fields
    ):
        return None
    year = _year(fields)
    if year is None:
        return None
    month, day = fields.get("M"), fields.get("d")
    if "D" in fields:
        return _day_of_year(year, int(fields["D"]), month, day)
    return default_format.days_of(year, int(month or 1), int(day or 1))


def moment_of(fields: Fields, *, exact: bool = True) -> int | None:
    """Local microseconds since 1970-01-01 of what a text says.

    `None` when there is no such moment, or, if it is to be exact, microseconds do not hold it:
    Spark cuts off the rest.
    """
    days, hour = day_of(fields), _hour(fields)
    micros, rest = divmod(int(fields.get("S", 0)), 1000)
    if days is None or hour is None or (exact and rest):
        return None
    clock = (hour * 60 + int(fields.get("m", 0))) * 60 + int(fields.get("s", 0))
    return default_format.in_range(days * _DAY_MICROS + clock * 1_000_000 + micros)


def offset_of_text(zone: str, local_micros: int) -> int | None:
    """Seconds east of UTC that the text of a zone means at a local time."""
    name = zone
    if name[:3].upper() == "GMT":
        name = name[3:] or "Z"
    elif name.upper() == "Z":
        name = "Z"
    found = find_zone(name, any_case=True)
    return None if found is None else offset_of(found, local_micros)


def _year(fields: Fields) -> int | None:
    """The year; `None` when only an era could tell it."""
    if "year" in fields:
        return int(fields["year"])
    if "year_of_era" not in fields:
        return 1970
    era = fields.get("era")
    if era is None:
        return None
    return int(fields["year_of_era"]) if era else 1 - int(fields["year_of_era"])


def _day_of_year(
    year: int, number: int, month: int | str | None, day: int | str | None
) -> int | None:
    """The day of a year's day number, if month and day, where given, agree."""
    first = default_format.days_of(year, 1, 1)
    after = default_format.days_of(year + 1, 1, 1)
    if first is None or after is None or first + number - 1 >= after:
        return None
    # Months are as long in every 400 years.
    found = date(2000 + year % 400, 1, 1).toordinal() + number - 1
    that = date.fromordinal(found)
    agrees = month in {None, that.month} and day in {None, that.day}
    return first + number - 1 if agrees else None


def _hour(fields: Fields) -> int | None:
    """The hour of the day; `None` when the fields contradict each other."""
    hours = {int(fields["H"])} if "H" in fields else set()
    if "k" in fields:
        hours.add(int(fields["k"]) % _MIDNIGHT)
    halves = {int(fields["h"]) % _NOON} if "h" in fields else set()
    if "K" in fields:
        halves.add(int(fields["K"]))
    if len(hours) > 1 or len(halves) > 1:
        return None
    half = fields.get("a")
    if hours:
        hour = hours.pop()
        agrees = half in {None, hour // _NOON} and halves <= {hour % _NOON}
        return hour if agrees else None
    return (halves.pop() if halves else 0) + (_NOON if half == 1 else 0)
