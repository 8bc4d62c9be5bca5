"""What is in the cells of a sheet, whatever kind of workbook it is from?

A `Cells` holds the cells that are not empty, row by row: where each stands, of which kind it is,
and its value as a text. Numbers have the shortest text that gives the same number, as Excel would
have shown it: 42 is never `42.0`. Whole numbers beyond 2**53 have the 15 digits that Excel keeps.
Dates and times are written as Spark writes them.

A number format shows a date, a time, or a number.

Workbooks hold dates as numbers; only the format of a cell tells.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Final

from airflow_cloudfiles.engine.options.formats import excel_address

MAX_ROWS: Final = excel_address.MAX_ROWS
MAX_COLUMNS: Final = excel_address.MAX_COLUMNS
"""No sheet is larger; a file that says so is damaged."""
BLOCK_CELLS: Final = 2**16
"""About so many cells are held at a time."""
_EXACT: Final = 2**53
_LONGEST: Final = 1e38
"""Whole numbers are written out up to here: the largest that a decimal column takes."""
_PLAIN_DIGITS: Final = 16
_DAY_MS: Final = 86_400_000
_LAST_SERIAL: Final = 2_958_466
"""The day after 9999-12-31, the last that Excel knows."""
_BETWEEN_EPOCHS: Final = 1462
_LEAP_DAY: Final = 60
"""1900-02-29, which there never was."""
_EPOCH_1900: Final = dt.date(1899, 12, 30)
_EPOCH_1904: Final = dt.date(1904, 1, 1)


class CellKind(IntEnum):
    """What a cell holds."""

    TEXT = 0
    NUMBER = 1
    BOOLEAN = 2
    DATE = 3
    TIMESTAMP = 4
    TIME = 5
    """A time of day or a duration, which no column type holds but a string."""
    ERROR = 6
    """Such as `#N/A`: no value, but not empty."""
    DURATION = 7
    """What a format may show; a cell with one is a `TIME`."""
    INVALID = 8
    """No value of the kind that the cell names, such as the number `NaN`."""


class DamagedWorkbookError(ValueError):
    """The file is no workbook, or damaged; the text says what is wrong with it."""


@dataclass(slots=True)
class Cells:
    """Cells that are not empty, in the order of rows and of columns.

    Attributes:
        rows: The row of each, from 0.
        columns: The column of each, from 0.
        kinds: The kind of each.
        texts: The value of each.
    """

    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    kinds: bytearray = field(default_factory=bytearray)
    texts: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: int, column: int, kind: CellKind, text: str) -> None:
        """Add the next cell."""
        self.rows.append(row)
        self.columns.append(column)
        self.kinds.append(kind)
        self.texts.append(text)

    def split(self, count: int) -> tuple[Cells, Cells]:
        """The first so many cells, and the others."""
        if count == len(self):
            return self, Cells()
        first = Cells(
            self.rows[:count], self.columns[:count], self.kinds[:count], self.texts[:count]
        )
        rest = Cells(
            self.rows[count:], self.columns[count:], self.kinds[count:], self.texts[count:]
        )
        return first, rest

    def add_number(
        self, row: int, column: int, raw: str, shown: CellKind, *, is_1904: bool
    ) -> None:
        """Add a number that is a text in a workbook, as its format shows it."""
        if shown is CellKind.NUMBER:
            self.add(row, column, *plain_number(raw))
            return
        number = _number_of(raw)
        found = (
            (CellKind.INVALID, raw) if number is None else moment(number, shown, is_1904=is_1904)
        )
        self.add(row, column, *found)


def _number_of(raw: str) -> float | None:
    """The number of a text; `None` where it is none, or one that no workbook can hold."""
    try:
        number = float(raw)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in raw else None


def plain_number(raw: str) -> tuple[CellKind, str]:
    """The kind and text of a number that is a text in a workbook."""
    if raw.isdecimal() and raw.isascii() and len(raw) < _PLAIN_DIGITS and raw[0] != "0":
        return CellKind.NUMBER, raw
    number = _number_of(raw)
    return (CellKind.INVALID, raw) if number is None else (CellKind.NUMBER, number_text(number))


def boolean(raw: str) -> tuple[CellKind, str]:
    """The kind and text of a boolean, which programs write in any case."""
    value = {"1": "true", "true": "true", "0": "false", "false": "false"}.get(raw.strip().lower())
    return (CellKind.INVALID, raw) if value is None else (CellKind.BOOLEAN, value)


def number_text(number: float) -> str:
    """The shortest text of a number, without a fraction where it has none."""
    if number == (whole := math.trunc(number)) and abs(number) < _LONGEST:
        if abs(whole) <= _EXACT:
            return str(whole)
        digits, _, exponent = f"{number:.14e}".partition("e")
        return digits.replace(".", "") + "0" * (int(exponent) - 14)
    text, _, exponent = repr(number).partition("e")
    return f"{text.removesuffix('.0')}E{int(exponent)}" if exponent else text


def moment(serial: float, shown: CellKind, *, is_1904: bool) -> tuple[CellKind, str]:
    """A number that is shown as a date or a time.

    Args:
        serial: Days since the epoch of the workbook.
        shown: What its format shows. A date with a time of day is a timestamp whatever that is.
        is_1904: Whether days are counted from 1904-01-01, rather than 1900-01-01.

    Returns:
        Its kind and text; a number where Excel shows none, as for one below 0.
    """
    if shown is CellKind.DURATION:
        return CellKind.TIME, _duration(serial)
    if not 0 <= serial < (_LAST_SERIAL - _BETWEEN_EPOCHS * is_1904):
        return CellKind.NUMBER, number_text(serial)
    days, ms = divmod(round(serial * _DAY_MS), _DAY_MS)
    clock = _clock(ms)
    if shown is CellKind.TIME and not days:
        return CellKind.TIME, clock
    if not days and not is_1904:  # 1900-01-00, with which Excel shows a time of day alone
        return (CellKind.TIME, clock) if ms else (CellKind.DATE, "1900-01-00")
    date = _date(days, is_1904=is_1904)
    if shown is CellKind.DATE and not ms:
        return CellKind.DATE, date
    return CellKind.TIMESTAMP, f"{date} {clock}"


def _duration(serial: float) -> str:
    """A number that is shown as hours, minutes and seconds beyond a day."""
    ms = round(abs(serial) * _DAY_MS)
    hours, rest = divmod(ms, 3_600_000)
    sign = "-" if serial < 0 and ms else ""
    return f"{sign}{hours:02d}{_clock(rest)[2:]}"


def _clock(ms: int) -> str:
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{ms:03d}".rstrip("0") if ms else ""
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{fraction}"


def _date(days: int, *, is_1904: bool) -> str:
    if is_1904:
        return (_EPOCH_1904 + dt.timedelta(days)).isoformat()
    if days == _LEAP_DAY:
        return "1900-02-29"
    early = days < _LEAP_DAY
    return (_EPOCH_1900 + dt.timedelta(days + early)).isoformat()


_BUILT_IN: Final[Mapping[int, CellKind]] = {
    **dict.fromkeys((14, 15, 16, 17, *range(27, 32), 36, *range(50, 59)), CellKind.DATE),
    **dict.fromkeys((18, 19, 20, 21, 45, 47, *range(32, 36)), CellKind.TIME),
    22: CellKind.TIMESTAMP,
    46: CellKind.DURATION,
}
"""Formats that have numbers alone (ECMA-376, 18.8.30), of all languages."""
_DURATION: Final = re.compile(r"\[(?:h+|m+|s+)\]", re.IGNORECASE)
_NO_CODE: Final = re.compile(r'"[^"]*"?|\\.|_.|\*.|\[[^\]]*\]', re.DOTALL)
"""Texts, escaped characters, spaces of a width, fillers, colors, conditions and languages."""
_TEXTS: Final = re.compile(r'"[^"]*"?|\\.')
_AM_PM: Final = re.compile(r"am/pm|a/p", re.IGNORECASE)


def built_in(number: int) -> CellKind:
    """What a format shows that has a number alone."""
    return _BUILT_IN.get(number, CellKind.NUMBER)


@lru_cache(maxsize=1024)
def shown_by(code: str) -> CellKind:
    """What a format shows, by its code such as `yyyy-mm-dd`."""
    if code.strip().lower() == "general":
        return CellKind.NUMBER
    if _DURATION.search(_TEXTS.sub("", code)):
        return CellKind.DURATION
    first, _, _ = _NO_CODE.sub("", code).partition(";")
    letters = set(_AM_PM.sub("h", first).lower())
    has_time = bool(letters & {"h", "s"})
    has_date = bool(letters & {"y", "d"}) or ("m" in letters and not has_time)
    if letters & {"#", "?"} or ("0" in letters and not has_time and not letters & {"y", "d"}):
        return CellKind.NUMBER
    if has_date:
        return CellKind.TIMESTAMP if has_time else CellKind.DATE
    return CellKind.TIME if has_time else CellKind.NUMBER
