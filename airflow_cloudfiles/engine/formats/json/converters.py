"""Convert one JSON value to a column type, if it fits.

The reference for every leaf: the conversions of Spark's JSON reader (`JacksonParser.makeConverter`,
Spark 4.3), one value at a time. The columnar conversions of `json.casts` must agree with
it for whatever they take on themselves, and hand the rest to it.

A value that Spark would change into another one does not fit where a rescued data column takes it:
a byte from 128, a decimal with more digits than the column has, a number beyond the largest double.
Where nothing takes it, it becomes what Spark makes of it (`JsonScalarRules.exact`). A double is the
nearest one to its text; which of them are too far from it, `record_policy` says.

The options of JSON say how leaves are converted.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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

from airflow_cloudfiles.engine.formats.datetimes.default_format import (
    ENGLISH,
    Locale,
    numbered_days,
)
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.json.tokens import Grammar, key_text
from airflow_cloudfiles.engine.formats.record_policy import SPARK, NumberRule
from airflow_cloudfiles.engine.formats.scalars import (
    INTEGER_BITS,
    MISFIT,
    decimal_text,
    floating,
    to_decimal,
    to_integer,
)

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.formats.json import JsonOptions

JsonConvert = Callable[[bytes], object]
"""From the strict JSON text of a value that is not `null` to the value Arrow stores, or `MISFIT`.

Timestamps are microseconds, dates are days since 1970-01-01.
"""

NUMBER_STARTS: Final = b"-0123456789"
_NOT_FINITE: Final = {
    "NaN": math.nan,
    "+INF": math.inf,
    "+Infinity": math.inf,
    "Infinity": math.inf,
    "-INF": -math.inf,
    "-Infinity": -math.inf,
}
_MICROS: Final = 1_000_000
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_BASE64: Final = re.compile(
    r"[\x00- ]*+(?:[A-Za-z0-9+/]{4}[\x00- ]*+)*+"
    r"(?:(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)[\x00- ]*+)?"
)
"""White space between groups of four, and padding: Jackson's default variant."""


def text_of(value: bytes) -> str | None:
    """Decode a JSON string; `None` when the value is not a string or has no UTF-8."""
    if value[:1] != b'"':
        return None
    return key_text(value)  # a lone surrogate has no UTF-8, so no string column can hold it


@dataclass(frozen=True, slots=True)
class JsonScalarRules:
    """How leaves are written.

    Attributes:
        patterns: Of dates and timestamps; `None` for the default ones.
        not_finite: Whether the strings `NaN`, `Infinity` and their kind are numbers.
        locale: Of decimals in strings.
        numbers: Which numbers doubles and floats hold.
        exact: Whether a value that Spark would change does not fit.
    """

    patterns: TimePatterns | None = None
    not_finite: bool = True
    locale: Locale = ENGLISH
    numbers: NumberRule = SPARK
    exact: bool = True


DEFAULT_RULES: Final = JsonScalarRules()
_ISO: Final = {exact: TimePatterns(exact=exact) for exact in (False, True)}


def converter(kind: DataType, rules: JsonScalarRules = DEFAULT_RULES) -> JsonConvert:
    """Find the conversion to a leaf type; types without one are refused by `types.to_arrow`."""
    bits = INTEGER_BITS.get(type(kind))
    if bits is not None:
        return _to_wrapped_byte if bits == 8 and not rules.exact else _to_integer(bits)  # noqa: PLR2004
    if isinstance(kind, DecimalType):
        return _to_decimal(kind, rules)
    if isinstance(kind, DoubleType | FloatType):
        convert = _to_floating(rules.numbers, is_float=isinstance(kind, FloatType))
        if rules.not_finite:
            return convert
        return lambda value: convert(value) if value[0] in NUMBER_STARTS else MISFIT
    patterns = rules.patterns or _ISO[rules.exact]
    has_day_numbers = rules.patterns is None and not rules.exact
    times: dict[type[DataType], JsonConvert] = {
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


def _to_string(value: bytes) -> object:
    if value[:1] != b'"':
        return value.decode()  # numbers, objects and arrays keep their text as it stands
    text = text_of(value)
    return MISFIT if text is None else text


def _to_boolean(value: bytes) -> object:
    return {b"true": True, b"false": False}.get(value, MISFIT)


def _to_integer(bits: int) -> JsonConvert:
    convert = to_integer(bits, _INTEGER)
    return lambda value: convert(value.decode())


def _to_wrapped_byte(value: bytes) -> object:
    """Read a byte as Jackson does: what would fit without a sign is taken for a negative one."""
    number = _to_integer(16)(value)
    if not isinstance(number, int) or not -(2**7) <= number < 2**8:
        return MISFIT
    return number if number < 2**7 else number - 2**8


def _to_floating(rule: NumberRule, *, is_float: bool) -> JsonConvert:
    def convert(value: bytes) -> object:
        if value[0] in NUMBER_STARTS:
            return floating(value.decode(), rule, is_float=is_float)
        text = text_of(value)
        return MISFIT if text is None else _NOT_FINITE.get(text, MISFIT)

    return convert


def _to_decimal(kind: DecimalType, rules: JsonScalarRules) -> JsonConvert:
    fit = to_decimal(kind, exact=rules.exact)

    def convert(value: bytes) -> object:
        if value[0] in NUMBER_STARTS:
            return fit(value.decode())
        return fit(decimal_text(text_of(value) or "", rules.locale))

    return convert


def _to_time(parse: Callable[[str], int | None]) -> JsonConvert:
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


def _to_timestamp(parse: Callable[[str], int | None], *, exact: bool) -> JsonConvert:
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
    if text is None or not _BASE64.fullmatch(text):
        return MISFIT
    return base64.b64decode(text)


_CONVERTERS: Final[dict[type[DataType], JsonConvert]] = {
    StringType: _to_string,
    BooleanType: _to_boolean,
    BinaryType: _to_binary,
}


def grammar_of(options: JsonOptions) -> Grammar:
    """Choose what is taken for JSON."""
    return Grammar(
        comments=options.allow_comments,
        single_quotes=options.allow_single_quotes,
        unquoted_names=options.allow_unquoted_field_names,
        leading_zeros=options.allow_numeric_leading_zeros,
        any_escape=options.allow_backslash_escaping_any_character,
        control_characters=options.allow_unquoted_control_chars,
        not_finite=options.allow_non_numeric_numbers,
    )


def scalar_rules(
    options: JsonOptions, numbers: NumberRule = SPARK, *, exact: bool = True
) -> JsonScalarRules:
    """Collect how leaves are written; casts that are made for default patterns do those.

    Raises:
        OptionError: A pattern, zone or locale that is none.
    """
    patterns = TimePatterns.of(options, exact=exact)
    return JsonScalarRules(
        patterns=None if patterns.are_default else patterns,
        not_finite=options.allow_non_numeric_numbers,
        locale=patterns.locale,
        numbers=numbers,
        exact=exact,
    )
