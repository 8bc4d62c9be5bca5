"""Does one text fit one column type, and as what?

The reference for every value: the conversions of Spark's CSV reader
(`UnivocityParser.makeConverter`, Spark 4.3), one text at a time. The columnar conversions of
`formats.csv.casts` must agree with it for whatever they take on themselves, and hand the rest to
it.

A text that Spark would change into another value does not fit where a rescued data column takes it:
a decimal with more digits than the column has, a number beyond the largest double. A double is the
nearest one to its text; which of them are too far from it, `exact_numbers` says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.datetimes.names import Locale
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.scalars import json_values as json_scalars
from airflow_cloudfiles.engine.formats.scalars.exact_numbers import SPARK, NumberRule
from airflow_cloudfiles.engine.formats.scalars.json_values import INTEGER_BITS, MISFIT, ScalarRules
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions
from airflow_cloudfiles.engine.types import short_type

Convert = Callable[[str], object]
"""From a text that is not null to the value Arrow stores, or `MISFIT`.

Timestamps are microseconds, dates are days since 1970-01-01.
"""

_INTEGER: Final = re.compile(r"[+-]?\d{1,400}")
_DIGIT: Final = re.compile(r"\d")
_NUMBER: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", flags=re.ASCII
)
_JAVA_WORDS: Final = {
    "NaN": math.nan,
    "+NaN": math.nan,
    "-NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
}
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))


class Converters:
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
        self.times = TimePatterns(
            date=options.date_format,
            timestamp=options.timestamp_format,
            timestamp_ntz=options.timestamp_ntz_format,
            time_zone=options.time_zone,
            locale=options.locale,
            exact=exact,
        )
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
            return _to_integer(bits)
        if isinstance(kind, DecimalType):
            return _to_decimal(kind, self.times.locale, exact=self._exact)
        found = {
            StringType: _to_string,
            BinaryType: _to_binary,
            BooleanType: _to_boolean,
            DoubleType: self._to_double,
            FloatType: self._to_float,
            DateType: _or_misfit(self.times.date_days),
            TimestampType: _or_misfit(self.times.timestamp_micros),
            TimestampNTZType: _or_misfit(self.times.local_micros),
        }
        for base, convert in found.items():
            if isinstance(kind, base):
                return convert
        raise IncompatibleSchemaError(
            f"Column {column} has type {short_type(kind)}, but a value of a CSV file is one "
            "text. Give it an atomic type; a nested one can be parsed from a string column."
        )

    def _to_double(self, text: str) -> object:
        found = self._words.get(text)
        if found is not None:
            return found
        plain = _decimal(text)
        if plain is not None:
            return json_scalars.floating(plain, self._numbers, is_float=False)
        number = java_double(text)
        return MISFIT if number is None else number

    def _to_float(self, text: str) -> object:
        plain = _decimal(text)
        if plain is not None:
            return json_scalars.floating(plain, self._numbers, is_float=True)
        number = self._to_double(text)
        if not isinstance(number, float) or not math.isfinite(number):
            return number
        return MISFIT if number != pa.scalar(number).cast(pa.float32()).as_py() else number


def java_double(text: str, *, infinite: bool = False) -> float | None:
    """What Java's `Double.parseDouble` reads; `None` when it is none.

    What is beyond all doubles is none either, unless it is to be infinity.
    """
    text = text.strip(_JAVA_BLANKS)
    found = _JAVA_WORDS.get(text)
    if found is not None:
        return found
    plain = _decimal(text)
    if plain is None:
        return _hexadecimal(text[:-1] if text[-1:] in {"f", "F", "d", "D"} else text)
    number = float(plain)
    return None if math.isinf(number) and not infinite else number


def _decimal(text: str) -> str | None:
    """A number in decimal, without what Java takes around it; `None` when it is none."""
    plain = text.strip(_JAVA_BLANKS)
    plain = plain[:-1] if plain[-1:] in {"f", "F", "d", "D"} else plain
    return plain.removeprefix("+") if _NUMBER.fullmatch(plain) else None


def _hexadecimal(text: str) -> float | None:
    """A number such as `0x1.8p3`, which must have its exponent."""
    if "p" not in text.lower() or "0x" not in text.lower():
        return None
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError):
        return None


def _or_misfit(convert: Callable[[str], int | None]) -> Convert:
    def converted(text: str) -> object:
        found = convert(text)
        return MISFIT if found is None else found

    return converted


def _to_string(text: str) -> object:
    return text


def _to_binary(text: str) -> object:
    return text.encode()


def _to_boolean(text: str) -> object:
    return {"true": True, "false": False}.get(text.lower(), MISFIT)


def _to_integer(bits: int) -> Convert:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def convert(text: str) -> object:
        if not _INTEGER.fullmatch(text):
            return MISFIT
        number = int(text)  # reads the digits of any script, as Java does
        return number if low <= number <= high else MISFIT

    return convert


def _to_decimal(kind: DecimalType, locale: Locale, *, exact: bool) -> Convert:
    fit = json_scalars.converter(kind, ScalarRules(exact=exact))

    def convert(text: str) -> object:
        plain = ascii_digits(json_scalars.decimal_text(text, locale))
        return fit(b'"' + plain.encode() + b'"') if _NUMBER.fullmatch(plain) else MISFIT

    return convert


def ascii_digits(text: str) -> str:
    """The text with the digits of any script as those of ours."""
    return text if text.isascii() else _DIGIT.sub(lambda found: str(int(found[0])), text)
