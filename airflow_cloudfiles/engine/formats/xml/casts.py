"""Cast a text of an XML file to a column type.

One value at a time (`converter`) and whole columns (`cast`), which agree. The conversions are those
of Spark's XML reader (`StaxXmlParser.convertTo`, Spark 4.3), but a text that Spark would change
into another value does not fit where a rescued data column takes it: a number with something behind
it, out of range, or with more digits than the column has.
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
    IntegerType,
    LongType,
    StringType,
)

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.base import Positions
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.record_policy import SPARK, NumberRule
from airflow_cloudfiles.engine.formats.scalars import (
    INTEGER_BITS,
    MISFIT,
    Cast,
    Convert,
    decimal_text,
    java_double,
    plain_floating,
    to_decimal,
    to_integer,
    to_time,
)
from airflow_cloudfiles.engine.options.formats.xml import XmlOptions
from airflow_cloudfiles.engine.types import short_type

_INTEGER: Final = re.compile(r"[+-]?0*[0-9]{1,19}")
_NOT_FINITE: Final = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
}
_BEGINNING: Final = re.compile(r"(-?)(?=,*\.?\d)([\d,]*)(?:\.(\d*))?(?:E(-?\d+))?", flags=re.DOTALL)
"""A number at the beginning of a text, with commas between its digits."""
_NEGATED: Final = {"+": "-", "-": "+"}
_HEXADECIMAL: Final = re.compile(r"(?:[0-9A-Fa-f]{2})*")
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


class TextCasts:
    """Converts texts as the options say.

    Args:
        options: Patterns, zone and locale.
        numbers: Which numbers doubles and floats hold.
        exact: Whether a text that Spark would change does not fit.

    Attributes:
        locale: How decimals are written.

    Raises:
        OptionError: A pattern, a time zone or a locale is none.
    """

    def __init__(
        self, options: XmlOptions, numbers: NumberRule = SPARK, *, exact: bool = True
    ) -> None:
        self._numbers, self._exact = numbers, exact
        # Spark's XML reader takes dates by this pattern where its JSON reader takes more.
        self._moments = TimePatterns.of(options, default_date="yyyy-MM-dd", exact=exact)
        self.locale = self._moments.locale

    def converter(self, kind: DataType) -> Convert:
        """Find the conversion to a leaf type.

        Raises:
            IncompatibleSchemaError: The type has none.
        """
        if isinstance(kind, StringType):
            return str
        if isinstance(kind, DecimalType):
            fit = to_decimal(kind, exact=self._exact)
            return lambda text: fit(decimal_text(text, self.locale))
        if type(kind) in INTEGER_BITS:
            convert = to_integer(INTEGER_BITS[type(kind)], _INTEGER)
            may_be_signed_twice = isinstance(kind, IntegerType | LongType) and not self._exact
            return _signed_twice(convert) if may_be_signed_twice else convert
        simple: dict[type[DataType], Convert] = {
            BooleanType: lambda text: _BOOLEANS.get(text.lower(), MISFIT),
            DoubleType: self._floating(is_float=False),
            FloatType: self._floating(is_float=True),
            BinaryType: lambda text: (
                bytes.fromhex(text) if _HEXADECIMAL.fullmatch(text) else MISFIT
            ),
        }
        found = simple.get(type(kind)) or to_time(kind, self._moments)
        if found is None:
            raise IncompatibleSchemaError(
                f"XML cannot be read into a column of type {short_type(kind)}. Declare it as "
                "string, or leave it out."
            )
        return found

    def _floating(self, *, is_float: bool) -> Convert:
        convert = plain_floating(self._numbers, is_float=is_float, words=_NOT_FINITE)
        return convert if self._exact else _or_its_beginning(convert, is_float=is_float)

    def cast(
        self, texts: pa.Array, kind: pa.DataType, convert: Convert
    ) -> tuple[pa.Array, Positions]:
        """Convert a column.

        Args:
            texts: Strings; what is null stays null.
            kind: Of the result.
            convert: The conversion of one text to that type.

        Returns:
            The array, and which values do not fit, which are null in it.
        """
        cast = Cast(kind, convert, self._moments, self._numbers)
        return cast.one_by_one(texts) if pa.types.is_binary(kind) else cast(texts)


def _signed_twice(convert: Convert) -> Convert:
    """Spark takes a sign off and parses the rest, which may have one of its own."""

    def converted(text: str) -> object:
        if text[:1] in {"+", "-"} and text[1:2] in {"+", "-"}:
            text = text[1:] if text[0] == "+" else _NEGATED[text[1]] + text[2:]
        return convert(text)

    return converted


def _or_its_beginning(convert: Convert, *, is_float: bool) -> Convert:
    """Spark also takes the number that a text begins with (Java's `NumberFormat.parse`)."""

    def converted(text: str) -> object:
        number = convert(text)
        if number is MISFIT:
            number = _beginning_of(text)
        is_wide = is_float and isinstance(number, float)
        return pa.scalar(number).cast(pa.float32(), safe=False).as_py() if is_wide else number

    return converted


def _beginning_of(text: str) -> object:
    sign, plain = (-1.0, text[1:]) if text[:1] == "-" else (1.0, text.removeprefix("+"))
    number = java_double(plain, infinite=True)
    if number is not None:
        return sign * number
    found = _BEGINNING.match(plain)
    if found is None:
        return MISFIT
    minus, whole, fraction, exponent = found.groups()
    number = float(f"{minus}{whole.replace(',', '') or 0}.{fraction or 0}e{exponent or 0}")
    return sign * number
