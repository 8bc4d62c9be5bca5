"""Does a string of a CSV file fit a column type, and as what?

The reference for every value: the conversions of Spark's CSV reader
(`UnivocityParser.makeConverter`, Spark 4.3), one string at a time. The columnar conversions of
`csv.casts` must agree with it for whatever they take on themselves, and hand the rest to it.
"""

from __future__ import annotations

import math
import re
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    StringType,
)

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.datetimes.names import Locale
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.scalars.exact_numbers import SPARK, NumberRule
from airflow_cloudfiles.engine.formats.scalars.strings import (
    INTEGER_BITS,
    MISFIT,
    Convert,
    ascii_digits,
    decimal_text,
    floating,
    java_decimal,
    java_double,
    to_decimal,
    to_integer,
    to_time,
)
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions
from airflow_cloudfiles.engine.types import short_type

_INTEGER: Final = re.compile(r"[+-]?\d{1,400}")


class CsvConverters:
    """The conversions to the types of columns, as the options say.

    Args:
        options: Words for what is no number, patterns and zone of times.
        numbers: Which numbers doubles and floats hold.
        exact: Whether a text that Spark would change does not fit.

    Raises:
        OptionError: A pattern, a zone or a locale that does not exist.
    """

    def __init__(
        self, options: CsvOptions, numbers: NumberRule = SPARK, *, exact: bool = True
    ) -> None:
        self._numbers, self._exact = numbers, exact
        self.times = TimePatterns.of(options, exact=exact)
        self._words = {
            options.positive_inf: math.inf,
            options.negative_inf: -math.inf,
            options.nan_value: math.nan,
        }

    def to(self, kind: DataType, column: str) -> Convert:
        """The conversion to the type of a column.

        Raises:
            IncompatibleSchemaError: A type that no single text is a value of.
        """
        bits = INTEGER_BITS.get(type(kind))
        if bits is not None:
            return to_integer(bits, _INTEGER)
        if isinstance(kind, DecimalType):
            return _to_decimal(kind, self.times.locale, exact=self._exact)
        found = {
            StringType: _to_string,
            BinaryType: _to_binary,
            BooleanType: _to_boolean,
            DoubleType: self._to_double,
            FloatType: self._to_float,
        }
        for base, convert in found.items():
            if isinstance(kind, base):
                return convert
        time = to_time(kind, self.times)
        if time is not None:
            return time
        raise IncompatibleSchemaError(
            f"Column {column} has type {short_type(kind)}, but a value of a CSV file is one "
            "text. Give it an atomic type; a nested one can be parsed from a string column."
        )

    def _to_double(self, text: str) -> object:
        found = self._words.get(text)
        if found is not None:
            return found
        plain = java_decimal(text)
        if plain is not None:
            return floating(plain, self._numbers, is_float=False)
        number = java_double(text)
        return MISFIT if number is None else number

    def _to_float(self, text: str) -> object:
        plain = java_decimal(text)
        if plain is not None:
            return floating(plain, self._numbers, is_float=True)
        number = self._to_double(text)
        if not isinstance(number, float) or not math.isfinite(number):
            return number
        return MISFIT if number != pa.scalar(number).cast(pa.float32()).as_py() else number


def _to_string(text: str) -> object:
    return text


def _to_binary(text: str) -> object:
    return text.encode()


def _to_boolean(text: str) -> object:
    return {"true": True, "false": False}.get(text.lower(), MISFIT)


def _to_decimal(kind: DecimalType, locale: Locale, *, exact: bool) -> Convert:
    fit = to_decimal(kind, exact=exact)
    return lambda text: fit(ascii_digits(decimal_text(text, locale)))
