"""Does a cell fit a column type, and as what?

A cell has a kind already: a number never becomes a date, nor a date a number. A cell of text is
read as CSV's values are, except that a number with zeros before it (`007`) stays a text: numbers
that are meant as numbers are numbers in a workbook.

A number in a DECIMAL column has the 15 digits that Excel keeps: what is computed as 0.1 + 0.2 is
0.3 there, though the double is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    StringType,
)

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.datetimes.names import ENGLISH, Locale
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.excel.cells import CellKind
from airflow_cloudfiles.engine.formats.record_policy import NumberRule
from airflow_cloudfiles.engine.formats.scalars.string_casts import NONE, Cast
from airflow_cloudfiles.engine.formats.scalars.strings import (
    JAVA_NUMBER,
    MISFIT,
    Convert,
    floating,
    to_boolean,
    to_exact_number,
    to_time,
)
from airflow_cloudfiles.engine.types import short_type

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import Bytes, Positions
    from airflow_cloudfiles.engine.options.formats.excel import ExcelOptions

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
            return _without_errors(texts, kinds).cast(self.kind), _invalid(kinds)
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
        self.times = TimePatterns.of(options, exact=exact)
        self._own = TimePatterns(time_zone=options.time_zone, exact=exact)

    def to(self, kind: DataType, arrow: pa.DataType, column: str) -> CellCast:
        """The conversion to the type of a column, which Arrow has a type for.

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
            return self._floating(is_float=isinstance(kind, FloatType))
        return to_exact_number(kind, locale, exact=self._exact)

    def _floating(self, *, is_float: bool) -> Convert:
        def convert(text: str) -> object:
            if not JAVA_NUMBER.fullmatch(text):
                return MISFIT
            return floating(text.removeprefix("+"), self._numbers, is_float=is_float)

        return convert


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


def _without_errors(texts: pa.StringArray, kinds: Bytes) -> pa.StringArray:
    errors = (kinds == CellKind.ERROR) | (kinds == CellKind.INVALID)
    if not errors.any():
        return texts
    return pc.if_else(pa.array(errors), pa.scalar(None, pa.string()), texts)


def _invalid(kinds: Bytes) -> Positions:
    return np.flatnonzero(kinds == CellKind.INVALID)
