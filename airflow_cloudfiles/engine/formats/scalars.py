"""Convert strings to values of column types, one by one and whole columns at once.

What the formats share of their conversions, one string at a time: the numbers of Java, decimals of
a precision, scale and language, dates and timestamps. Which strings a format takes beyond these,
or takes them for, is its own business (`shape` of JSON and XML, `columns` of CSV).

A value that Spark would change into another one does not fit where a rescued data column takes it:
a decimal with more digits than the column has, a number beyond the largest double. A double is the
nearest one to its text; which of them are too far from it, `record_policy` says.

Decimal types are those that hold a number exactly.

For whole columns each type has a rule which strings are *easy*: Arrow's own cast takes them and
gives what Spark gives. The hard rest goes through the format's own conversion of one text, each
distinct string once. What is null is neither.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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

from airflow_cloudfiles.engine.formats.datetimes.default_format import ENGLISH, Locale
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.record_policy import SPARK, NumberRule
from airflow_cloudfiles.engine.types import MAX_DECIMAL_PRECISION

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import Positions

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
    """Convert `true` and `false`, in any case."""
    return {"true": True, "false": False}.get(text.lower(), MISFIT)


def to_exact_number(kind: DataType, locale: Locale, *, exact: bool) -> Convert | None:
    """Find the conversion to a whole number or decimal as in Java; `None` for other types."""
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
    """Build the conversion to a double or a float as Java takes it.

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


def plain_floating(
    rule: NumberRule, *, is_float: bool, words: Mapping[str, float] = _NO_WORDS
) -> Convert:
    """Build the conversion to a double or float of what is written without marks of Java's.

    Args:
        rule: Which numbers it holds.
        is_float: Whether it is a float.
        words: Texts that stand for a number.
    """

    def convert(text: str) -> object:
        if not JAVA_NUMBER.fullmatch(text):
            return words.get(text, MISFIT)
        return floating(text.removeprefix("+"), rule, is_float=is_float)

    return convert


def to_integer(bits: int, grammar: re.Pattern[str] = _INTEGER) -> Convert:
    """Build the conversion to whole numbers of that many bits.

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
    """Find the conversion to dates or timestamps; `None` for another type."""
    parsers: dict[type[DataType], Callable[[str], int | None]] = {
        DateType: patterns.date_days,
        TimestampType: patterns.timestamp_micros,
        TimestampNTZType: patterns.local_micros,
    }
    parse = parsers.get(type(kind))
    return None if parse is None else or_misfit(parse)


def or_misfit(parse: Callable[[str], int | None]) -> Convert:
    """Build the conversion of a parser."""

    def convert(text: str) -> object:
        found = parse(text)
        return MISFIT if found is None else found

    return convert


def floating(text: str, rule: NumberRule, *, is_float: bool) -> object:
    """Convert a number in decimal to a double, or float."""
    # Straight to 32 bits: rounding twice, by way of a double, can miss the nearest one.
    number = pa.scalar(text).cast(pa.float32()).as_py() if is_float else float(text)
    if math.isinf(number):
        return number if rule.infinite else MISFIT
    return number if rule.holds(text, number, is_float=is_float) else MISFIT


def to_decimal(kind: DecimalType, *, exact: bool) -> Convert:
    """Build the conversion of numbers as Java writes them to decimals.

    Args:
        kind: Of the column.
        exact: Whether a number with more digits than the column has does not fit; else rounded.
    """
    fit = _fit_decimal if exact else _round_decimal

    def convert(text: str) -> object:
        number = exact_decimal(text) if JAVA_NUMBER.fullmatch(text) else None
        if number is None:
            return MISFIT
        context = Context(prec=max(len(text), _MAX_DIGITS * 2))
        return fit(number, kind.precision, kind.scale, context)

    return convert


def decimal_text(text: str, locale: Locale) -> str:
    """Format a decimal of a language as Java writes one; an empty text when it is not one."""
    if locale is ENGLISH:
        return text.replace(",", "")
    whole, mark, fraction = text.partition(locale.decimal)
    plain = whole.replace(locale.group, "") + mark.replace(locale.decimal, ".") + fraction
    # Other languages are parsed by Java's `DecimalFormat`, which is stricter than `BigDecimal`.
    usual = _PLAIN_DECIMAL.fullmatch(plain) and (mark or not text.endswith(locale.group))
    return plain if usual else ""


def _fit_decimal(number: Decimal, precision: int, scale: int, context: Context) -> object:
    """Return the decimal, when its digits fit exactly."""
    if not number:
        return Decimal(0).scaleb(-scale)
    if not -scale <= number.adjusted() < precision - scale:
        return MISFIT
    fitted = number.normalize(context)
    if int(fitted.as_tuple().exponent) < -scale:
        return MISFIT
    return fitted.quantize(Decimal(1).scaleb(-scale), context=context)


def _round_decimal(number: Decimal, precision: int, scale: int, context: Context) -> object:
    """Round the decimal half up to the scale, when its whole digits fit."""
    if number and number.adjusted() >= precision - scale:
        return MISFIT
    unit = Decimal(1).scaleb(-scale)
    if number.adjusted() < -scale - 1:
        return 0 * unit
    rounded = number.quantize(unit, ROUND_HALF_UP, context)
    return MISFIT if rounded and rounded.adjusted() >= precision - scale else rounded


def exact_decimal(text: str) -> Decimal | None:
    """Parse a number of `JAVA_NUMBER`; `None` where no `Decimal` has such an exponent.

    Ask `adjusted` before anything that writes its digits down: `1e999999999` has a gigabyte.
    """
    try:
        return Decimal(text)
    except ArithmeticError:
        return None


def java_double(text: str, *, infinite: bool = False) -> float | None:
    """Read what Java's `Double.parseDouble` does; `None` when it is not a number.

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
    """Strip a decimal number of what Java takes around it; `None` when it is not one."""
    plain = text.strip(_JAVA_BLANKS)
    plain = plain[:-1] if plain[-1:] in {"f", "F", "d", "D"} else plain
    return plain.removeprefix("+") if JAVA_NUMBER.fullmatch(plain) else None


def _hexadecimal(text: str) -> float | None:
    """Parse a number such as `0x1.8p3`, which must have its exponent."""
    if "p" not in text.lower() or "0x" not in text.lower():
        return None
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError):
        return None


def ascii_digits(text: str) -> str:
    """Replace the digits of any script by ASCII ones."""
    return text if text.isascii() else _DIGIT.sub(lambda found: str(int(found[0])), text)


def integer_type(number: int, least: type[DataType]) -> DataType:
    """Find the least type of a whole number: INT or BIGINT, a decimal of its digits, or double."""
    for kind in (least, LongType):
        if -(2 ** (INTEGER_BITS[kind] - 1)) <= number < 2 ** (INTEGER_BITS[kind] - 1):
            return kind()
    if abs(number) >= 10**MAX_DECIMAL_PRECISION:
        return DoubleType()
    return DecimalType(len(str(abs(number))), 0)


def decimal_type(value: Decimal) -> DataType:
    """Find the decimal of just the digits of a fraction, or double."""
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


NONE: Final[Positions] = np.empty(0, np.int64)

_DATE_LENGTH: Final = len("2024-01-31")
_MOMENT_LENGTH: Final = len("2024-01-31T12:30:59")
_SAFE_DIGITS: Final = {8: 2, 16: 4, 32: 9, 64: 18}
"""Numbers of so many digits fit so many bits."""


@dataclass(frozen=True, slots=True)
class Cast:
    """The conversion of one column.

    Attributes:
        kind: What its strings become.
        convert: The conversion of one text, which is the reference.
        times: Converts dates and times.
        numbers: Which numbers a floating column holds.
    """

    kind: pa.DataType
    convert: Convert
    times: TimePatterns
    numbers: NumberRule = SPARK

    def __call__(self, strings: pa.StringArray) -> tuple[pa.Array, Positions]:
        """Convert a column.

        Returns:
            The array, and the positions of the strings that do not fit, which are null in it.
        """
        if pa.types.is_string(self.kind) or pa.types.is_binary(self.kind):
            return strings.cast(self.kind), NONE
        if pa.types.is_temporal(self.kind):
            return self._times(strings)
        if pa.types.is_decimal(self.kind) and self.times.locale is not ENGLISH:
            return self.one_by_one(strings)
        array = _easily(strings, self.kind)
        if pa.types.is_floating(self.kind):
            doubtful = self.numbers.doubtful(strings, array)
            if doubtful is not None:
                array = pc.if_else(pa.array(doubtful), pa.scalar(None, self.kind), array)
        if array.null_count == strings.null_count:
            return array, NONE
        hard = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
        there = strings.is_valid().to_numpy(zero_copy_only=False)
        return self._one_by_one(strings, array, hard[there[hard]])

    def _times(self, strings: pa.StringArray) -> tuple[pa.Array, Positions]:
        array = _usual_times(strings, self.kind) if self.times.are_default else None
        if array is not None:
            return array, NONE
        array, misfits = self.times.cast(strings, self.kind)
        return array, np.flatnonzero(misfits.to_numpy(zero_copy_only=False))

    def one_by_one(self, strings: pa.StringArray) -> tuple[pa.Array, Positions]:
        """Convert a column by the reference alone."""
        there = np.flatnonzero(strings.is_valid().to_numpy(zero_copy_only=False))
        return self._one_by_one(strings, pa.nulls(len(strings), self.kind), there)

    def _one_by_one(
        self, strings: pa.StringArray, array: pa.Array, hard: Positions
    ) -> tuple[pa.Array, Positions]:
        coded = strings.take(pa.array(hard)).dictionary_encode()
        values = [self.convert(text) for text in coded.dictionary.to_pylist()]
        fitting = pa.array([None if value is MISFIT else value for value in values], self.kind)
        lost = np.array([value is MISFIT for value in values], np.bool_)
        mask = np.zeros(len(strings), np.bool_)
        mask[hard] = True
        found = pc.replace_with_mask(array, pa.array(mask), fitting.take(coded.indices))
        return found, hard[lost[coded.indices.to_numpy(zero_copy_only=False)]]


def _easily(strings: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Convert the values that Arrow converts as Spark does; the others are null."""
    for applies, rule in _RULES:
        if applies(kind):
            return rule(strings, kind)
    return pa.nulls(len(strings), kind)


def _booleans(strings: pa.StringArray, kind: pa.DataType) -> pa.Array:
    true = pc.equal(strings, "true")
    easy = pc.or_(true, pc.equal(strings, "false"))
    return pc.if_else(easy, true, pa.scalar(None, kind))


def _integers(strings: pa.StringArray, kind: pa.DataType) -> pa.Array:
    if only_has(strings, b"-0123456789"):
        array = _cast(strings, kind)
        if array is not None:
            return array
    return _where(strings, rf"^-?[0-9]{{1,{_SAFE_DIGITS[kind.bit_width]}}}$", kind)


def _floats(strings: pa.StringArray, kind: pa.DataType) -> pa.Array:
    array = _cast(strings, kind) if only_has(strings, b"-.0123456789eE+") else None
    if array is None:
        array = _where(strings, r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$", kind)
    infinite = pc.is_inf(array)
    if pc.any(infinite).as_py():
        return pc.if_else(infinite, pa.scalar(None, kind), array)
    return array


def _decimals(strings: pa.StringArray, kind: pa.DataType) -> pa.Array:
    # Arrow's cast does not see an overflow between the digits it reads and the scale it makes.
    longest = pc.max(pc.binary_length(strings)).as_py() or 0
    if longest + kind.scale <= _MAX_DIGITS and only_has(strings, b"-.0123456789"):
        array = _cast(strings, kind)
        if array is not None:
            return array
    whole, scale = kind.precision - kind.scale, kind.scale
    fraction = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
    return _where(strings, rf"^-?[0-9]{{1,{whole}}}{fraction}$" if whole else r"^$", kind)


def _usual_times(strings: pa.StringArray, kind: pa.DataType) -> pa.Array | None:
    """Dates or timestamps to the second and beyond, if all are written in one of the usual ways."""
    lengths = pc.min_max(pc.binary_length(strings)).as_py()
    shortest = lengths["min"] or 0
    if pa.types.is_date(kind):
        usual = shortest == lengths["max"] == _DATE_LENGTH and only_has(strings, b"-0123456789")
        return _cast(strings, kind) if usual else None
    if shortest > _MOMENT_LENGTH and kind.tz is not None:
        usual = (
            only_has(strings, b"-0123456789:T .Z") and pc.all(pc.ends_with(strings, "Z")).as_py()
        )
        if usual:
            return _cast(strings, kind)
    if shortest < _MOMENT_LENGTH or not only_has(strings, b"-0123456789:T ."):
        return None
    local = _cast(strings, pa.timestamp("us"))
    return None if local is None else local.cast(pa.int64()).cast(kind)


def only_has(strings: pa.StringArray, characters: bytes) -> bool:
    """Tell whether all strings together have no other byte than these."""
    return not data_of(strings).translate(None, characters)


def data_of(strings: pa.StringArray) -> bytes:
    """Join the bytes of all strings."""
    offsets, data = strings.buffers()[1:]
    if data is None or not len(strings):
        return b""
    ends = np.frombuffer(offsets, np.int32, len(strings) + 1, strings.offset * 4)
    found: bytes = data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes()
    return found


def _where(strings: pa.StringArray, pattern: str, kind: pa.DataType) -> pa.Array:
    """Cast the strings of a pattern; the others are null."""
    easy = pc.match_substring_regex(strings, pattern)
    array = _cast(pc.if_else(easy, strings, pa.scalar(None, pa.string())), kind)
    return pa.nulls(len(strings), kind) if array is None else array


def _cast(strings: pa.StringArray, kind: pa.DataType) -> pa.Array | None:
    try:
        return strings.cast(kind)
    except pa.ArrowInvalid:
        return None


_RULES: Final[
    tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.StringArray, Any], pa.Array]], ...]
] = (
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal, _decimals),
)
