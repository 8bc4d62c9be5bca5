"""Does one JSON value fit one column type, and as what?

The reference for every leaf: the conversions of Spark's JSON reader (`JacksonParser.makeConverter`,
Spark 4.3), one value at a time. The columnar conversions of `formats.json.columns` must agree with
it for whatever they take on themselves, and hand the rest to it.

A value that Spark would change into another one does not fit where a rescued data column takes it:
a byte from 128, a decimal with more digits than the column has, a number beyond the largest double.
Where nothing takes it, it becomes what Spark makes of it (`ScalarRules.exact`). A double is the
nearest one to its text; which of them are too far from it, `exact_numbers` says.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cloudfiles.engine.formats.datetimes.default_format import numbered_days
from airflow_cloudfiles.engine.formats.datetimes.names import ENGLISH, Locale
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.scalars.exact_numbers import SPARK, NumberRule


class _Misfit:
    """The type of `MISFIT`."""

    def __repr__(self) -> str:
        return "MISFIT"


MISFIT: Final = _Misfit()
"""The value does not fit the type."""

Convert = Callable[[bytes], object]
"""From the strict JSON text of a value that is not `null` to the value Arrow stores, or `MISFIT`.

Timestamps are microseconds, dates are days since 1970-01-01.
"""

INTEGER_BITS: Final[dict[type[DataType], int]] = {
    ByteType: 8,
    ShortType: 16,
    IntegerType: 32,
    LongType: 64,
}
NUMBER_STARTS: Final = b"-0123456789"
_NOT_FINITE: Final = {
    "NaN": math.nan,
    "+INF": math.inf,
    "+Infinity": math.inf,
    "Infinity": math.inf,
    "-INF": -math.inf,
    "-Infinity": -math.inf,
}
_MAX_DIGITS: Final = 38
_MICROS: Final = 1_000_000
_INTEGER: Final = re.compile(rb"-?[0-9]+")
JAVA_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PLAIN_DECIMAL: Final = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:E-?[0-9]+)?")
_BASE64: Final = re.compile(
    r"[\x00- ]*+(?:[A-Za-z0-9+/]{4}[\x00- ]*+)*+"
    r"(?:(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)[\x00- ]*+)?"
)
"""White space between groups of four, and padding: Jackson's default variant."""
_STRING: Final = msgspec.json.Decoder(str)


def text_of(value: bytes) -> str | None:
    """The text of a JSON string; `None` when the value is no string or has no UTF-8."""
    if value[:1] != b'"':
        return None
    if b"\\" not in value:
        return value[1:-1].decode()
    try:
        return _STRING.decode(value)
    except msgspec.DecodeError:
        return None  # a lone surrogate: no UTF-8, so no string column can hold it


@dataclass(frozen=True, slots=True)
class ScalarRules:
    """How leaves are written.

    Attributes:
        patterns: Of dates and timestamps; `None` for the default ones.
        not_finite: Whether the texts `NaN`, `Infinity` and their kind are numbers.
        locale: Of decimals in texts.
        numbers: Which numbers doubles and floats hold.
        exact: Whether a value that Spark would change does not fit.
    """

    patterns: TimePatterns | None = None
    not_finite: bool = True
    locale: Locale = ENGLISH
    numbers: NumberRule = SPARK
    exact: bool = True


DEFAULT_RULES: Final = ScalarRules()
_ISO: Final = {
    exact: TimePatterns(
        date=None, timestamp=None, timestamp_ntz=None, time_zone=None, locale=None, exact=exact
    )
    for exact in (False, True)
}


def converter(kind: DataType, rules: ScalarRules = DEFAULT_RULES) -> Convert:
    """The conversion to a leaf type; types without one are refused by `types.to_arrow`."""
    bits = INTEGER_BITS.get(type(kind))
    if bits is not None:
        return _to_wrapped_byte if bits == 8 and not rules.exact else _to_integer(bits)  # noqa: PLR2004
    if isinstance(kind, DecimalType):
        return _to_decimal(kind, rules)
    if isinstance(kind, DoubleType | FloatType):
        convert = _to_floating(rules.numbers, is_float=isinstance(kind, FloatType))
        return convert if rules.not_finite else _only_numbers(convert)
    patterns = rules.patterns or _ISO[rules.exact]
    has_day_numbers = rules.patterns is None and not rules.exact
    times: dict[type[DataType], Convert] = {
        DateType: _to_time(
            _or_numbered(patterns.date_days) if has_day_numbers else patterns.date_days
        ),
        TimestampType: _to_timestamp(patterns.timestamp_micros, exact=rules.exact),
        TimestampNTZType: _to_time(patterns.local_micros),
    }
    for base, convert in (_CONVERTERS | times).items():
        if isinstance(kind, base):
            return convert
    raise TypeError(f"{kind.simpleString()} is no leaf type of a JSON column")


def _only_numbers(convert: Convert) -> Convert:
    return lambda value: convert(value) if value[0] in NUMBER_STARTS else MISFIT


def _to_string(value: bytes) -> object:
    if value[:1] != b'"':
        return value.decode()  # numbers, objects and arrays keep their text as it stands
    text = text_of(value)
    return MISFIT if text is None else text


def _to_boolean(value: bytes) -> object:
    return {b"true": True, b"false": False}.get(value, MISFIT)


def _to_integer(bits: int) -> Convert:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def convert(value: bytes) -> object:
        if not _INTEGER.fullmatch(value) or len(value) > 20:  # noqa: PLR2004 - of a long
            return MISFIT
        number = int(value)
        return number if low <= number <= high else MISFIT

    return convert


def _to_wrapped_byte(value: bytes) -> object:
    """A byte, as Jackson reads one: what would fit without a sign is taken for a negative one."""
    number = _to_integer(16)(value)
    if not isinstance(number, int) or not -(2**7) <= number < 2**8:
        return MISFIT
    return number if number < 2**7 else number - 2**8


def _to_floating(rule: NumberRule, *, is_float: bool) -> Convert:
    def convert(value: bytes) -> object:
        if value[0] in NUMBER_STARTS:
            return floating(value.decode(), rule, is_float=is_float)
        text = text_of(value)
        return MISFIT if text is None else _NOT_FINITE.get(text, MISFIT)

    return convert


def floating(text: str, rule: NumberRule, *, is_float: bool) -> object:
    """The double, or float, of a number in decimal."""
    # Straight to 32 bits: rounding twice, by way of a double, can miss the nearest one.
    number = pa.scalar(text).cast(pa.float32()).as_py() if is_float else float(text)
    if math.isinf(number):
        return number if rule.infinite else MISFIT
    return number if rule.holds(text, number, is_float=is_float) else MISFIT


def _to_decimal(kind: DecimalType, rules: ScalarRules) -> Convert:
    precision, scale = kind.precision, kind.scale
    fit = fit_decimal if rules.exact else round_decimal

    def convert(value: bytes) -> object:
        if value[0] in NUMBER_STARTS:
            text = value.decode()
        else:
            text = decimal_text(text_of(value) or "", rules.locale)
        return fit(text, precision, scale)

    return convert


def decimal_text(text: str, locale: Locale) -> str:
    """A decimal of a language as Java writes one; an empty text when it is none."""
    if locale is ENGLISH:
        return text.replace(",", "")
    whole, mark, fraction = text.partition(locale.decimal)
    plain = whole.replace(locale.group, "") + mark.replace(locale.decimal, ".") + fraction
    # Other languages are parsed by Java's `DecimalFormat`, which is stricter than `BigDecimal`.
    usual = _PLAIN_DECIMAL.fullmatch(plain) and (mark or not text.endswith(locale.group))
    return plain if usual else ""


def fit_decimal(text: str, precision: int, scale: int) -> object:
    """The decimal, when its digits fit exactly."""
    if not JAVA_DECIMAL.fullmatch(text):
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


def round_decimal(text: str, precision: int, scale: int) -> object:
    """The decimal, rounded half up to the scale, when its whole digits fit."""
    if not JAVA_DECIMAL.fullmatch(text):
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
    """A number of `JAVA_DECIMAL`; `None` where no `Decimal` has such an exponent.

    Ask `adjusted` before anything that writes its digits down: `1e999999999` has a gigabyte.
    """
    try:
        return Decimal(text)
    except ArithmeticError:
        return None


def _to_time(parse: Callable[[str], int | None]) -> Convert:
    def convert(value: bytes) -> object:
        text = text_of(value)
        number = parse(text) if text else None
        return MISFIT if number is None else number

    return convert


def _or_numbered(parse: Callable[[str], int | None]) -> Callable[[str], int | None]:
    """Dates, or day numbers."""

    def parsed(text: str) -> int | None:
        days = parse(text)
        return numbered_days(text) if days is None else days

    return parsed


def _to_timestamp(parse: Callable[[str], int | None], *, exact: bool) -> Convert:
    from_text = _to_time(parse)

    def convert(value: bytes) -> object:
        if value[0] not in NUMBER_STARTS:
            return from_text(value)
        seconds = _to_integer(64)(value)
        if not isinstance(seconds, int):
            return MISFIT
        micros = seconds * _MICROS
        if -(2**63) <= micros < 2**63:
            return micros
        return MISFIT if exact else (micros + 2**63) % 2**64 - 2**63

    return convert


def _to_binary(value: bytes) -> object:
    text = text_of(value)
    if text is None:
        return MISFIT
    if not _BASE64.fullmatch(text):
        return MISFIT
    return base64.b64decode(text)


_CONVERTERS: Final[dict[type[DataType], Convert]] = {
    StringType: _to_string,
    BooleanType: _to_boolean,
    BinaryType: _to_binary,
}
