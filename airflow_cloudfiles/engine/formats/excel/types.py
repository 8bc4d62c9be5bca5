"""Which type would hold these cells?

Workbooks say what a cell is: a number, a boolean, a date. Whole numbers are INT, BIGINT or a
decimal by their size, fractions doubles (with `prefersDecimal` decimals, if they fit). A cell of
text is a string, whatever it looks like, unless `dateFormat` or `timestampFormat` says that texts
are dates: `007` stays as it is.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    TimestampType,
)

from airflow_cloudfiles.engine.formats.excel.cells import Kind
from airflow_cloudfiles.engine.formats.excel.converters import CellConverters, kept_digits
from airflow_cloudfiles.engine.formats.scalars.decimals import decimal_type
from airflow_cloudfiles.engine.formats.scalars.exact_numbers import SPARK
from airflow_cloudfiles.engine.formats.tables.inference import STRING
from airflow_cloudfiles.engine.types import MAX_DECIMAL_PRECISION, merge_types

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.excel.rows import Rows
    from airflow_cloudfiles.engine.options.formats.excel import ExcelOptions

_SIMPLE: Final[dict[Kind, DataType]] = {
    Kind.BOOLEAN: BooleanType(),
    Kind.DATE: DateType(),
    Kind.TIMESTAMP: TimestampType(),
    Kind.TIME: STRING,
    Kind.ERROR: NullType(),
}
_WHOLE: Final = r"^-?[0-9]+$"
_LONG_DIGITS: Final = 18


class TypeFinder:
    """Finds the types of cells.

    Args:
        options: Patterns of times, and what fractions are.

    Raises:
        OptionError: A pattern, a time zone or a locale that does not exist.
    """

    def __init__(self, options: ExcelOptions) -> None:
        self._options = options
        self._times = CellConverters(options, SPARK, exact=True).times

    def of(self, cells: Rows, known: DataType) -> DataType:
        """The type that holds these cells and what is of a known type."""
        found = known
        for each in pc.unique(pa.array(cells.kinds)).to_pylist():
            if isinstance(found, StringType):
                break
            found = self.merge(found, self._of_kind(cells, Kind(each)))
        return found

    def merge(self, left: DataType, right: DataType) -> DataType:
        """The type that holds the values of both."""
        if isinstance(left, NullType):
            return right
        if isinstance(right, NullType):
            return left
        if {type(left), type(right)} == {DateType, TimestampType}:
            return TimestampType()
        return merge_types(left, right)

    def _of_kind(self, cells: Rows, kind: Kind) -> DataType:
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        texts = cells.texts.filter(pa.array(cells.kinds == kind))
        return self._of_numbers(texts) if kind is Kind.NUMBER else self._of_texts(texts)

    def _of_numbers(self, texts: pa.StringArray) -> DataType:
        is_whole = pc.match_substring_regex(texts, _WHOLE)
        found = _of_whole(texts.filter(is_whole))
        fractions = texts.filter(pc.invert(is_whole))
        if not len(fractions):
            return found
        if not self._options.prefers_decimal:
            return self.merge(found, DoubleType())
        for text in kept_digits(fractions).unique().to_pylist():
            found = self.merge(found, decimal_type(Decimal(text)))
            if isinstance(found, DoubleType):
                break
        return found

    def _of_texts(self, texts: pa.StringArray) -> DataType:
        """A string, unless there is a pattern that all texts follow."""
        if self._options.date_format is not None and all(
            self._times.date_days(each) is not None for each in texts.unique().to_pylist()
        ):
            return DateType()
        if self._options.timestamp_format is not None and all(
            self._times.timestamp_micros(each) is not None for each in texts.unique().to_pylist()
        ):
            return TimestampType()
        return STRING


def _of_whole(texts: pa.StringArray) -> DataType:
    if not len(texts):
        return NullType()
    digits = pc.max(pc.binary_length(pc.utf8_ltrim(texts, characters="-"))).as_py()
    if digits > _LONG_DIGITS:
        return DecimalType(digits, 0) if digits <= MAX_DECIMAL_PRECISION else DoubleType()
    ends = pc.min_max(texts.cast(pa.int64())).as_py()
    fits = ends["min"] >= -(2**31) and ends["max"] < 2**31
    return IntegerType() if fits else LongType()
