"""Cast values of a column as `TRY_CAST` of Spark does: what does not fit is NULL.

Texts in their plain form are cast by Arrow at once. Where a text has another form, each text that
occurs is converted by itself, by the conversions that values of paths have: those of Spark's CAST.
So a fast answer and a slow one are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.reading.file_columns import PartitionConverters

_WHOLE: Final = r"^[+-]?[0-9]{1,18}$"
_FLOATING: Final = r"^[+-]?[0-9]{1,15}(\.[0-9]{1,15})?$"
_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_BLANKS: Final = "".join(map(chr, range(33)))
"""What Spark trims off a text before it casts it."""
_KINDS: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(("string",), pa.string()),
    **dict.fromkeys(("boolean",), pa.bool_()),
    **dict.fromkeys(("byte", "tinyint"), pa.int8()),
    **dict.fromkeys(("short", "smallint"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("long", "bigint"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    **dict.fromkeys(("double",), pa.float64()),
    **dict.fromkeys(("date",), pa.date32()),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), pa.timestamp("us", "UTC")),
    **dict.fromkeys(("timestamp_ntz",), pa.timestamp("us")),
}
Cast = Callable[[pa.Array], pa.Array]


def arrow_kind(name: str, numbers: tuple[int, ...]) -> pa.DataType:
    """Give the type of a CAST in Arrow."""
    return pa.decimal128(*numbers) if numbers else _KINDS[name]


def cast_from(have: pa.DataType, want: pa.DataType) -> Cast | None:
    """Find what casts values of a type to another one; `None` where nothing does here."""
    is_shown = pa.types.is_integer(have) or pa.types.is_boolean(have) or pa.types.is_date(have)
    is_same = have == want or pa.types.is_null(have)
    is_bit = pa.types.is_boolean(have) and pa.types.is_integer(want)
    if is_same or is_bit or (is_shown and pa.types.is_string(want)):
        return lambda values: values.cast(want)
    if pa.types.is_string(have):
        return lambda values: _from_text(values, want)
    if is_number(have) and is_number(want):
        return lambda values: _from_number(values, want)
    if pa.types.is_timestamp(have) and pa.types.is_date(want):
        return _days
    if pa.types.is_date(have) and pa.types.is_timestamp(want):
        return lambda values: values.cast(pa.timestamp("us")).cast(want)
    return None


def is_number(kind: pa.DataType) -> bool:
    """Tell whether a type is one of numbers."""
    found = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return bool(found)


def _days(values: pa.Array) -> pa.Array:
    days = pc.floor_temporal(values.cast(pa.timestamp("us", "UTC")), unit="day")
    return days.cast(pa.timestamp("us")).cast(pa.date32())


def _from_text(values: pa.Array, want: pa.DataType) -> pa.Array:
    plain = _plain_form(want)
    if plain is not None and pc.all(pc.match_substring_regex(values, plain)).as_py() is not False:
        try:
            # Arrow takes no plus sign.
            return pc.replace_substring_regex(values, r"^\+", "").cast(want)
        except pa.ArrowInvalid:
            pass  # one is out of range, or no day of the calendar: each by itself
    coded = values.dictionary_encode()
    convert = _converters().scalar
    found = [_converted(convert, text, want) for text in coded.dictionary.to_pylist()]
    return pa.array(found, want).take(coded.indices)


def _plain_form(want: pa.DataType) -> str | None:
    """Give the form of texts that Arrow casts as Spark does."""
    if pa.types.is_integer(want):
        return _WHOLE
    if pa.types.is_floating(want):
        return _FLOATING
    if pa.types.is_date(want):
        return _DATE
    if pa.types.is_decimal(want) and want.precision > want.scale:
        whole = want.precision - want.scale
        fraction = rf"(\.[0-9]{{1,{want.scale}}})?" if want.scale else ""
        return rf"^[+-]?[0-9]{{1,{whole}}}{fraction}$"
    return None


def _converted(convert: Callable[..., Any], text: str | None, want: pa.DataType) -> Any:
    found = None if text is None else convert(text.strip(_BLANKS), want)
    # Python has no dates beyond the year 9999: they stay numbers.
    return None if found is None or not found.is_valid else _as_number(found)


def _as_number(found: pa.Scalar) -> Any:
    kind = found.type
    if pa.types.is_date(kind):
        return found.cast(pa.int32()).as_py()
    return found.cast(pa.int64()).as_py() if pa.types.is_timestamp(kind) else found.as_py()


@cache
def _converters() -> PartitionConverters:
    return PartitionConverters()


def _from_number(values: pa.Array, want: pa.DataType) -> pa.Array:
    have = values.type
    if pa.types.is_floating(want):
        return values.cast(want, safe=False)
    if pa.types.is_floating(have):
        finite = pc.if_else(pc.is_finite(values), values, pa.scalar(None, have))
        if pa.types.is_integer(want):
            return _in_range(pc.trunc(finite), want)
        return _each(finite, want)
    if pa.types.is_integer(want):
        whole = values if pa.types.is_integer(have) else pc.trunc(values)
        return _in_range(whole, want)
    return _each(values, want)


def _in_range(values: pa.Array, want: pa.DataType) -> pa.Array:
    """Cast whole numbers; one that does not fit is null."""
    try:
        return values.cast(want)
    except pa.ArrowInvalid:
        return _each(values, want)


def _each(values: pa.Array, want: pa.DataType) -> pa.Array:
    """Cast each value that occurs by itself, by the text that it has."""
    coded = values.dictionary_encode()
    convert = _converters().scalar
    texts = [None if each is None else _text(each) for each in coded.dictionary.to_pylist()]
    found = [_converted(convert, text, want) for text in texts]
    return pa.array(found, want).take(coded.indices)


def _text(value: Any) -> str:
    """Write a number as a text that converts to any type of numbers."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return format(value, "f") if not isinstance(value, int) else str(value)
