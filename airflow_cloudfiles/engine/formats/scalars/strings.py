"""Does a string stand for a value of a column type, and for which?

What the formats share of their conversions, one string at a time: the numbers of Java, decimals of
a precision, scale and language, dates and timestamps. Which strings a format takes beyond these,
or takes them for, is its own business (`converters` of JSON and CSV, `casts` of XML).

A value that Spark would change into another one does not fit where a rescued data column takes it:
a decimal with more digits than the column has, a number beyond the largest double. A double is the
nearest one to its text; which of them are too far from it, `record_policy` says.

Decimal types are those that hold a number exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.formats.datetimes.names import ENGLISH, Locale
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.record_policy import NumberRule
from airflow_cloudfiles.engine.types import MAX_DECIMAL_PRECISION

Convert = Callable[[str], object]
"""From a string that is not null to the value Arrow stores, or `MISFIT`.

Timestamps are microseconds, dates are days since 1970-01-01.
"""


class _Misfit:
    """The type of `MISFIT`."""

    def __repr__(self) -> str:
        return "MISFIT"


MISFIT: Final = _Misfit()
"""The value does not fit the type."""

INTEGER_BITS: Final[dict[type[DataType], int]] = {
    ByteType: 8,
    ShortType: 16,
    IntegerType: 32,
    LongType: 64,
}
JAVA_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""A number in decimal, as Java's `BigDecimal` and `parseDouble` take it."""
_PLAIN_DECIMAL: Final = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:E-?[0-9]+)?")
_INTEGER: Final = re.compile(r"[+-]?\d{1,400}")
_NO_WORDS: Final[Mapping[str, float]] = {}
_MAX_DIGITS: Final = 38
_DIGIT: Final = re.compile(r"\d")
_JAVA_WORDS: Final = {
    "NaN": math.nan,
    "+NaN": math.nan,
    "-NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
}
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))


def to_boolean(text: str) -> object:
    """`true` and `false`, in any case."""
    return {"true": True, "false": False}.get(text.lower(), MISFIT)


def to_exact_number(kind: DataType, locale: Locale, *, exact: bool) -> Convert | None:
    """The conversion to a whole number or a decimal as Java takes them; `None` for other types."""
    if type(kind) in INTEGER_BITS:
        return to_integer(INTEGER_BITS[type(kind)])
    if not isinstance(kind, DecimalType):
        return None
    fit = to_decimal(kind, exact=exact)
    return lambda text: fit(ascii_digits(decimal_text(text, locale)))


def to_floating(
    rule: NumberRule,
    *,
    is_float: bool,
    words: Mapping[str, float] = _NO_WORDS,
    exact: bool = True,
) -> Convert:
    """The conversion to a double or a float as Java takes it.

    Args:
        rule: Which numbers it holds.
        is_float: Whether the column is a float.
        words: Other texts that are a number.
        exact: Whether a hexadecimal number that is no float does not fit.
    """

    def convert(text: str) -> object:
        if text in words:
            return words[text]
        plain = java_decimal(text)
        if plain is not None:
            return floating(plain, rule, is_float=is_float)
        number = java_double(text)
        if number is None or not is_float or not math.isfinite(number):
            return MISFIT if number is None else number
        nearest = pa.scalar(number).cast(pa.float32()).as_py()
        return nearest if number == nearest or not exact else MISFIT

    return convert


def to_integer(bits: int, grammar: re.Pattern[str] = _INTEGER) -> Convert:
    """The conversion to whole numbers of so many bits.

    Args:
        bits: Of the column.
        grammar: Which strings are numbers: a sign if any, and digits of whatever script.
    """
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def convert(text: str) -> object:
        if not grammar.fullmatch(text):
            return MISFIT
        number = int(text.lstrip("+-0") or "0")
        number = -number if text[0] == "-" else number
        return number if low <= number <= high else MISFIT

    return convert


def to_time(kind: DataType, patterns: TimePatterns) -> Convert | None:
    """The conversion to dates or timestamps; `None` for another type."""
    parsers: dict[type[DataType], Callable[[str], int | None]] = {
        DateType: patterns.date_days,
        TimestampType: patterns.timestamp_micros,
        TimestampNTZType: patterns.local_micros,
    }
    parse = parsers.get(type(kind))
    return None if parse is None else or_misfit(parse)


def or_misfit(parse: Callable[[str], int | None]) -> Convert:
    """The conversion of a parser."""

    def convert(text: str) -> object:
        found = parse(text)
        return MISFIT if found is None else found

    return convert


def floating(text: str, rule: NumberRule, *, is_float: bool) -> object:
    """The double, or float, of a number in decimal."""
    # Straight to 32 bits: rounding twice, by way of a double, can miss the nearest one.
    number = pa.scalar(text).cast(pa.float32()).as_py() if is_float else float(text)
    if math.isinf(number):
        return number if rule.infinite else MISFIT
    return number if rule.holds(text, number, is_float=is_float) else MISFIT


def to_decimal(kind: DecimalType, *, exact: bool) -> Convert:
    """The conversion of numbers as Java writes them to decimals.

    Args:
        kind: Of the column.
        exact: Whether a number with more digits than the column has does not fit; else rounded.
    """
    fit = _fit_decimal if exact else _round_decimal
    return lambda text: fit(text, kind.precision, kind.scale)


def decimal_text(text: str, locale: Locale) -> str:
    """A decimal of a language as Java writes one; an empty text when it is none."""
    if locale is ENGLISH:
        return text.replace(",", "")
    whole, mark, fraction = text.partition(locale.decimal)
    plain = whole.replace(locale.group, "") + mark.replace(locale.decimal, ".") + fraction
    # Other languages are parsed by Java's `DecimalFormat`, which is stricter than `BigDecimal`.
    usual = _PLAIN_DECIMAL.fullmatch(plain) and (mark or not text.endswith(locale.group))
    return plain if usual else ""


def _fit_decimal(text: str, precision: int, scale: int) -> object:
    """The decimal, when its digits fit exactly."""
    if not JAVA_NUMBER.fullmatch(text):
        return MISFIT
    number = exact_decimal(text)
    if number is None:
        return MISFIT
    if not number:
        return Decimal(0).scaleb(-scale)
    if not -scale <= number.adjusted() < precision - scale:
        return MISFIT
    with localcontext() as context:
        context.prec = max(len(text), _MAX_DIGITS * 2)
        fitted = number.normalize(context)
        if int(fitted.as_tuple().exponent) < -scale:
            return MISFIT
        return fitted.quantize(Decimal(1).scaleb(-scale), context=context)


def _round_decimal(text: str, precision: int, scale: int) -> object:
    """The decimal, rounded half up to the scale, when its whole digits fit."""
    if not JAVA_NUMBER.fullmatch(text):
        return MISFIT
    number = exact_decimal(text)
    if number is None or (number and number.adjusted() >= precision - scale):
        return MISFIT
    unit = Decimal(1).scaleb(-scale)
    if number.adjusted() < -scale - 1:
        return 0 * unit
    with localcontext() as context:
        context.prec = max(len(text), _MAX_DIGITS * 2)
        rounded = number.quantize(unit, ROUND_HALF_UP, context)
        return MISFIT if rounded and rounded.adjusted() >= precision - scale else rounded


def exact_decimal(text: str) -> Decimal | None:
    """A number of `JAVA_NUMBER`; `None` where no `Decimal` has such an exponent.

    Ask `adjusted` before anything that writes its digits down: `1e999999999` has a gigabyte.
    """
    try:
        return Decimal(text)
    except ArithmeticError:
        return None


def java_double(text: str, *, infinite: bool = False) -> float | None:
    """What Java's `Double.parseDouble` reads; `None` when it is none.

    What is beyond all doubles is none either, unless it is to be infinity.
    """
    text = text.strip(_JAVA_BLANKS)
    found = _JAVA_WORDS.get(text)
    if found is not None:
        return found
    plain = java_decimal(text)
    if plain is None:
        return _hexadecimal(text[:-1] if text[-1:] in {"f", "F", "d", "D"} else text)
    number = float(plain)
    return None if math.isinf(number) and not infinite else number


def java_decimal(text: str) -> str | None:
    """A number in decimal, without what Java takes around it; `None` when it is none."""
    plain = text.strip(_JAVA_BLANKS)
    plain = plain[:-1] if plain[-1:] in {"f", "F", "d", "D"} else plain
    return plain.removeprefix("+") if JAVA_NUMBER.fullmatch(plain) else None


def _hexadecimal(text: str) -> float | None:
    """A number such as `0x1.8p3`, which must have its exponent."""
    if "p" not in text.lower() or "0x" not in text.lower():
        return None
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError):
        return None


def ascii_digits(text: str) -> str:
    """The text with the digits of any script as those of ours."""
    return text if text.isascii() else _DIGIT.sub(lambda found: str(int(found[0])), text)


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
