"""Which type would hold these strings?

The order of trial is Spark's (`CSVInferSchema`, Spark 4.3): int, long, decimal without fraction,
double (with `prefersDecimal` a decimal, if it fits), date, timestamp, boolean, string. Spark's
result depends on the order of the values; here each value has a type of its own, and types are
merged, so that it does not.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import numpy as np
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

from airflow_cloudfiles.engine.formats.csv.converters import CsvConverters
from airflow_cloudfiles.engine.formats.datetimes.names import ENGLISH
from airflow_cloudfiles.engine.formats.scalars.decimals import decimal_type
from airflow_cloudfiles.engine.formats.scalars.string_casts import Cast, data_of, only_has
from airflow_cloudfiles.engine.formats.scalars.strings import MISFIT, decimal_text, java_double
from airflow_cloudfiles.engine.formats.tables.inference import STRING
from airflow_cloudfiles.engine.types import MAX_DECIMAL_PRECISION, merge_types

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.formats.csv import CsvOptions

_SAMPLE: Final = 100
"""So many strings are looked at one by one to find a type that the others are then checked for."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ISO_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_ISO_LENGTH: Final = 10
_ISO_DASHES: Final = (4, 7)
_DATES_AS_TIMESTAMPS: Final = frozenset(
    {"yyyy-MM-dd", "yyyy-M-d", "yyyy-M-dd", "yyyy-MM-d", "yyyy-MM", "yyyy-M", "yyyy"}
)
"""Patterns whose dates the default timestamp parser takes too."""
_ARROW: Final[dict[type[DataType], pa.DataType]] = {
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    DoubleType: pa.float64(),
    BooleanType: pa.bool_(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", "UTC"),
}


class TypeFinder:
    """Finds the types of strings.

    Args:
        options: Words for what is no number, patterns of times.
    """

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self._converters = CsvConverters(options)
        self._locale = self._converters.times.locale
        self._words = {options.nan_value, options.positive_inf, options.negative_inf}
        self._iso_date = re.compile(_ISO_DATE) if options.date_format is None else None
        self._merges_dates = (
            options.timestamp_format is None
            and (options.date_format or "yyyy-MM-dd") in _DATES_AS_TIMESTAMPS
        )

    def of(self, strings: pa.StringArray, known: DataType) -> DataType:
        """The type that holds these strings and what is of a known type.

        Nulls and empty strings say nothing.
        """
        strings = strings.filter(pc.not_equal(strings, ""))
        found = self._of_all(strings[:_SAMPLE], known)
        rest = strings[_SAMPLE:]
        while len(rest) and not isinstance(found, StringType):
            rest = self._unlike(rest, found)
            some = rest[:_SAMPLE]
            found = self._of_all(some, found)
            rest = rest[len(some) :]
        return found

    def _of_all(self, strings: pa.StringArray, known: DataType) -> DataType:
        """Look at each distinct text."""
        found = known
        for text in strings.unique().to_pylist():
            found = self.merge(found, self.of_one(text))
            if isinstance(found, StringType):
                break
        return found

    def _unlike(self, strings: pa.StringArray, kind: DataType) -> pa.StringArray:
        """The strings that may not be of a type, at least."""
        if isinstance(kind, DateType) and self._iso_date is not None and not _are_iso(strings):
            like = pc.match_substring_regex(strings, _ISO_DATE)
            if not pc.all(like).as_py():
                return strings.filter(pc.invert(like))
        arrow = _ARROW.get(type(kind))
        if arrow is None or not len(strings):
            return strings
        cast = Cast(arrow, self._converters.to(kind, ""), self._converters.times)
        _, misfits = cast(strings)
        return strings.take(pa.array(misfits))

    def of_one(self, text: str) -> DataType:
        """The type of one text that is neither null nor empty."""
        if _INTEGER.fullmatch(text) and len(text) <= MAX_DECIMAL_PRECISION + 1:
            return _integer_type(int(text))
        # As in Spark: a comma between thousands is no number of English here.
        plain = text if self._locale is ENGLISH else decimal_text(text, self._locale)
        number = _NUMBER.fullmatch(plain)
        if number is not None and number[2] is None:
            digits = number[1].removesuffix(".").lstrip("0")
            if "." not in digits and len(digits) <= MAX_DECIMAL_PRECISION:
                return DecimalType(max(1, len(digits)), 0)
        if number is not None and self._options.prefers_decimal:
            return decimal_type(Decimal(plain))
        if _NUMBER.fullmatch(text) is not None:
            return DoubleType()
        if text in self._words or java_double(text) is not None:
            return DoubleType()
        return self._time_type(text) or self._word_type(text)

    def _time_type(self, text: str) -> DataType | None:
        times = self._converters.times
        is_date = self._options.prefer_date and (
            self._iso_date is None or self._iso_date.fullmatch(text) is not None
        )
        if is_date and times.date_days(text) is not None:
            return DateType()
        return None if times.timestamp_micros(text) is None else TimestampType()

    def _word_type(self, text: str) -> DataType:
        is_boolean = self._converters.to(BooleanType(), "")(text) is not MISFIT
        return BooleanType() if is_boolean else STRING

    def merge(self, left: DataType, right: DataType) -> DataType:
        """The type that holds the values of both."""
        if {type(left), type(right)} == {DateType, TimestampType}:
            return TimestampType() if self._merges_dates else STRING
        if isinstance(left, NullType):
            return right
        return merge_types(left, right)


def _are_iso(strings: pa.StringArray) -> bool:
    """Whether all strings have the shape of `2024-01-31`, if they are dates at all."""
    ends = pc.min_max(pc.binary_length(strings)).as_py()
    if set(ends.values()) != {_ISO_LENGTH} or not only_has(strings, b"-0123456789"):
        return False
    characters = np.frombuffer(data_of(strings), np.uint8).reshape(-1, _ISO_LENGTH)
    return bool((characters[:, _ISO_DASHES] == ord("-")).all())


def _integer_type(number: int) -> DataType:
    if -(2**31) <= number < 2**31:
        return IntegerType()
    if -(2**63) <= number < 2**63:
        return LongType()
    digits = len(str(abs(number)))
    return DecimalType(digits, 0) if digits <= MAX_DECIMAL_PRECISION else DoubleType()
