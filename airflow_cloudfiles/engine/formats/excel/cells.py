"""Hold the cells of a sheet, whatever kind of workbook it is from, and convert them.

A `Cells` holds the cells that are not empty, row by row: where each stands, of which kind it is,
and its value as a text. Numbers have the shortest text that gives the same number, as Excel would
have shown it: 42 is never `42.0`. Whole numbers beyond 2**53 have the 15 digits that Excel keeps.
Dates and times are written as Spark writes them.

Workbooks hold dates as numbers; only the format of a cell tells.

A cell has a kind already: a number never becomes a date, nor a date a number. A cell of text is
read as CSV's values are, except that a number with zeros before it (`007`) stays a text: numbers
that are meant as numbers are numbers in a workbook.

A number in a DECIMAL column has the 15 digits that Excel keeps: what is computed as 0.1 + 0.2 is
0.3 there, though the double is not.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, BooleanType, DataType, DoubleType, FloatType, StringType

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.datetimes.default_format import ENGLISH, Locale
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.record_policy import NumberRule
from airflow_cloudfiles.engine.formats.scalars import (
    NONE,
    Cast,
    Convert,
    plain_floating,
    to_boolean,
    to_exact_number,
    to_time,
)
from airflow_cloudfiles.engine.options.formats.base import StringValueOptions
from airflow_cloudfiles.engine.types import short_type

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import Bytes, Positions
    from airflow_cloudfiles.engine.options.formats.excel import ExcelOptions

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
        """Split off the first cells."""
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
    """Parse the number of a text; `None` where it is not one, or no workbook can hold it."""
    try:
        number = float(raw)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in raw else None


def plain_number(raw: str) -> tuple[CellKind, str]:
    """Return the kind and text of a number that is a text in a workbook."""
    if raw.isdecimal() and raw.isascii() and len(raw) < _PLAIN_DIGITS and raw[0] != "0":
        return CellKind.NUMBER, raw
    number = _number_of(raw)
    return (CellKind.INVALID, raw) if number is None else (CellKind.NUMBER, number_text(number))


def boolean(raw: str) -> tuple[CellKind, str]:
    """Return the kind and text of a boolean, which programs write in any case."""
    value = {"1": "true", "true": "true", "0": "false", "false": "false"}.get(raw.strip().lower())
    return (CellKind.INVALID, raw) if value is None else (CellKind.BOOLEAN, value)


def number_text(number: float) -> str:
    """Format a number as its shortest text, without a fraction where it has none."""
    if number == (whole := math.trunc(number)) and abs(number) < _LONGEST:
        if abs(whole) <= _EXACT:
            return str(whole)
        digits, _, exponent = f"{number:.14e}".partition("e")
        return digits.replace(".", "") + "0" * (int(exponent) - 14)
    text, _, exponent = repr(number).partition("e")
    return f"{text.removesuffix('.0')}E{int(exponent)}" if exponent else text


def moment(serial: float, shown: CellKind, *, is_1904: bool) -> tuple[CellKind, str]:
    """Convert a number that is shown as a date or a time.

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
    """Format a number that is shown as hours, minutes and seconds beyond a day."""
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
    """Find what a format shows that has a number alone."""
    return _BUILT_IN.get(number, CellKind.NUMBER)


@lru_cache(maxsize=1024)
def shown_by(code: str) -> CellKind:
    """Find what a format shows, by its code such as `yyyy-mm-dd`."""
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


_ZEROS: Final = r"^[+-]?0[0-9]"
_KEPT_DIGITS: Final = 15
"""Excel shows no more digits of a number."""


@dataclass(frozen=True, slots=True)
class CellCast:
    """The conversion of the cells of one column.

    Attributes:
        kind: What they become.
        casts: How cells of a kind are converted; cells of another kind do not fit.
        exact: Whether what Spark would change does not fit.
    """

    kind: pa.DataType
    casts: dict[CellKind, Cast]
    exact: bool

    def __call__(self, texts: pa.StringArray, kinds: Bytes) -> tuple[pa.Array, Positions]:
        """Convert cells.

        Returns:
            The array, and the positions of the cells that do not fit, which are null in it. An
            error is null and fits; what is no value of its kind fits nowhere.
        """
        if pa.types.is_string(self.kind) or pa.types.is_binary(self.kind):
            errors = (kinds == CellKind.ERROR) | (kinds == CellKind.INVALID)
            if errors.any():
                texts = pc.if_else(pa.array(errors), pa.scalar(None, pa.string()), texts)
            return texts.cast(self.kind), np.flatnonzero(kinds == CellKind.INVALID)
        there = np.unique(kinds).tolist()
        if len(there) == 1:
            return self._of_kind(texts, CellKind(there[0]))
        arrays, lost, order = [], [], []
        for each in there:
            places = np.flatnonzero(kinds == each)
            array, misfits = self._of_kind(texts.take(pa.array(places)), CellKind(each))
            arrays.append(array)
            lost.append(places[misfits])
            order.append(places)
        back = np.argsort(np.concatenate(order))
        return pa.concat_arrays(arrays).take(pa.array(back)), np.sort(np.concatenate(lost))

    def _of_kind(self, texts: pa.StringArray, kind: CellKind) -> tuple[pa.Array, Positions]:
        cast = self.casts.get(kind)
        if cast is None:
            all_lost = NONE if kind is CellKind.ERROR else np.arange(len(texts))
            return pa.nulls(len(texts), self.kind), all_lost
        if kind is CellKind.NUMBER and pa.types.is_decimal(self.kind):
            texts = kept_digits(texts)
        if kind is not CellKind.TEXT or not self.exact or pa.types.is_temporal(self.kind):
            return cast(texts)
        padded = pc.match_substring_regex(texts, _ZEROS)
        if not pc.any(padded).as_py():
            return cast(texts)
        array, lost = cast(pc.if_else(padded, pa.scalar(None, pa.string()), texts))
        zeros = np.flatnonzero(padded.to_numpy(zero_copy_only=False))
        return array, np.union1d(lost, zeros)


class CellConverters:
    """The conversions to the types of columns, as the options say.

    Args:
        options: Patterns and zone of times.
        numbers: Which numbers doubles and floats hold.
        exact: Whether what Spark would change does not fit.

    Raises:
        OptionError: A pattern, a zone or a locale that does not exist.
    """

    def __init__(self, options: ExcelOptions, numbers: NumberRule, *, exact: bool) -> None:
        self._numbers, self._exact = numbers, exact
        self.times = TimePatterns(options, exact=exact)
        self._own = TimePatterns(StringValueOptions(time_zone=options.time_zone), exact=exact)

    def to(self, kind: DataType, arrow: pa.DataType, column: str) -> CellCast:
        """Find the conversion to the type of a column, which Arrow has a type for.

        Raises:
            IncompatibleSchemaError: A type that no cell is a value of.
        """

        def cast(convert: Convert, times: TimePatterns = self._own) -> Cast:
            return Cast(arrow, convert, times, self._numbers)

        casts: dict[CellKind, Cast] = {}
        text_time, own_time = to_time(kind, self.times), to_time(kind, self._own)
        if isinstance(kind, BooleanType):
            casts = dict.fromkeys((CellKind.BOOLEAN, CellKind.TEXT), cast(to_boolean))
        elif text_time is not None and own_time is not None:
            casts = dict.fromkeys((CellKind.DATE, CellKind.TIMESTAMP), cast(own_time))
            casts[CellKind.TEXT] = cast(text_time, self.times)
        elif (number := self._to_number(kind, ENGLISH)) is not None:
            text = self._to_number(kind, self.times.locale) or number
            casts = {CellKind.NUMBER: cast(number), CellKind.TEXT: cast(text, self.times)}
        elif not isinstance(kind, StringType | BinaryType):
            raise IncompatibleSchemaError(
                f"Column {column} has type {short_type(kind)}, but a cell is one value. Give it an "
                "atomic type; a nested one can be parsed from a string column."
            )
        return CellCast(arrow, casts, self._exact)

    def _to_number(self, kind: DataType, locale: Locale) -> Convert | None:
        if isinstance(kind, DoubleType | FloatType):
            return plain_floating(self._numbers, is_float=isinstance(kind, FloatType))
        return to_exact_number(kind, locale, exact=self._exact)


def kept_digits(texts: pa.StringArray) -> pa.StringArray:
    """Numbers with the digits that Excel keeps."""
    long = pc.greater(pc.binary_length(texts), _KEPT_DIGITS)
    if not pc.any(long).as_py():
        return texts
    found = [
        text if text is None or len(text) <= _KEPT_DIGITS else _kept(text)
        for text in texts.to_pylist()
    ]
    return pa.array(found, pa.string())


def _kept(text: str) -> str:
    if "." not in text and "E" not in text:
        return text
    return f"{float(text):.{_KEPT_DIGITS}g}"
