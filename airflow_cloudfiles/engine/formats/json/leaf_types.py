"""Which type does one value that is neither null, empty nor nested tell of its column?

Spark's rules (`JsonInferSchema.inferField`), with the options `primitivesAsString`,
`prefersDecimal` and `inferTimestamp`. A decimal with a negative scale, which Spark refuses together
with its record, is a whole number here.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    TimestampType,
)

from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.scalars.decimals import decimal_type, digits_of
from airflow_cloudfiles.engine.formats.scalars.strings import (
    JAVA_NUMBER,
    decimal_text,
    exact_decimal,
)
from airflow_cloudfiles.engine.types import MAX_DECIMAL_PRECISION

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.formats.json import JsonOptions


def _fraction(text: str) -> Decimal | float:
    """A number with a fraction or an exponent; a double where no `Decimal` has such an exponent."""
    found = exact_decimal(text)
    return float(text) if found is None else found


PLAIN: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()
_EXACT: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(float_hook=_fraction)

STRING: Final = StringType()
BOOLEAN: Final = BooleanType()
LONG: Final = LongType()
DOUBLE: Final = DoubleType()
_TIMESTAMP: Final = TimestampType()
_LONGEST: Final = 100


class LeafTypes:
    """Tells types by the options of a source.

    Args:
        options: The options of JSON.
        typed: Whether there are other types than strings (`cloudFiles.inferColumnTypes`; B23).

    Attributes:
        decoder: Decodes records so that `of` can tell.
    """

    def __init__(self, options: JsonOptions, *, typed: bool) -> None:
        self._typed = typed
        self._has_primitives = typed and not options.primitives_as_string
        self._decimals = typed and options.prefers_decimal
        self._patterns = TimePatterns.of(options)
        self._timestamps = typed and options.infer_timestamp
        self.decoder = _EXACT if self._decimals else PLAIN

    def of(self, value: object) -> DataType:
        """The type of a value as `decoder` gives it, or of something nested taken as text."""
        if not self._typed or isinstance(value, dict | list):
            return STRING
        if isinstance(value, str):
            return self._of_text(value)
        if not self._has_primitives:
            return STRING
        if isinstance(value, bool):
            return BOOLEAN
        if isinstance(value, int):
            return _integer_type(value)
        return decimal_type(value) if isinstance(value, Decimal) else DOUBLE

    def _of_text(self, text: str) -> DataType:
        if self._decimals:
            found = _text_type(decimal_text(text, self._patterns.locale))
            if found is not None:
                return found
        if self._timestamps and self._patterns.timestamp_micros(text) is not None:
            return _TIMESTAMP
        return STRING


def _integer_type(value: int) -> DataType:
    """Long, or the decimal of just its digits, or double past 38 digits."""
    if -(2**63) <= value < 2**63:
        return LONG
    if abs(value) >= 10**MAX_DECIMAL_PRECISION:
        return DOUBLE
    return DecimalType(len(str(abs(value))), 0)


def _text_type(text: str) -> DataType | None:
    """The decimal that a text is, if it is one that Spark can name."""
    if len(text) > _LONGEST or not JAVA_NUMBER.fullmatch(text):
        return None
    number = exact_decimal(text)
    if number is None:
        return None
    precision, scale = digits_of(number)
    named = 0 <= scale <= precision <= MAX_DECIMAL_PRECISION
    return DecimalType(precision, scale) if named else None
