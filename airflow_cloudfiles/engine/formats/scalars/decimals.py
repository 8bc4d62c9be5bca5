"""Which decimal type holds a number?"""

from __future__ import annotations

from decimal import Decimal

from pyspark.sql.types import DataType, DecimalType, DoubleType

from airflow_cloudfiles.engine.types import MAX_DECIMAL_PRECISION


def decimal_type(value: Decimal) -> DataType:
    """The decimal of just the digits of a fraction, or double."""
    precision, scale = digits_of(value)
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    return DecimalType(precision, scale) if precision <= MAX_DECIMAL_PRECISION else DoubleType()


def digits_of(value: Decimal) -> tuple[int, int]:
    """Precision and scale as Java counts them: leading zeros do not."""
    _, digits, exponent = value.as_tuple()
    scale = -exponent if isinstance(exponent, int) else 0
    return (len(digits) if any(digits) else 1), scale
