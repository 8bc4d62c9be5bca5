"""How does a value of a binary format look as JSON?

The strings of rescued data: numbers as JSON numbers, dates and times as ISO strings, binary as
base64, nested values as they are nested. A value is never shortened or rounded on the way.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.formats.base import quote
from airflow_cloudfiles.engine.formats.columnar import variant as columnar_variant
from airflow_cloudfiles.engine.formats.columnar.nested import (
    elements,
    entries,
    listed,
    plain,
    ranges,
)
from airflow_cloudfiles.engine.formats.columnar.types import is_bytes, is_list, is_text, is_variant
from airflow_cloudfiles.engine.formats.new_fields import SAMPLE_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Strings = list[str | None]
"""One JSON text a value; `None` for null."""

_DAY_SECONDS: Final = 86400
_NOT_FINITE: Final = {"inf": '"Infinity"', "-inf": '"-Infinity"', "nan": '"NaN"', "-nan": '"NaN"'}


def json_of(array: pa.Array) -> Strings:
    """JSON strings of all values of an array, of whatever type."""
    array = plain(array)
    kind = array.type
    if pa.types.is_null(kind):
        return [None] * len(array)
    for applies, rule in _RULES:
        if applies(kind):
            return rule(array)
    return [None if each is None else quote(str(each)) for each in array.to_pylist()]


def object_text(members: Sequence[tuple[str, str | None]]) -> str | None:
    """A JSON object of the members that have a text; `None` when none has."""
    found = [f"{quote(name)}:{text}" for name, text in members if text is not None]
    return "{" + ",".join(found) + "}" if found else None


def key_text(text: str | None) -> str:
    """The name of a member whose key is a JSON text: what is no string keeps its text."""
    if text is None:
        return quote("null")
    return text if text.startswith('"') else quote(text)


def _simple(array: pa.Array) -> Strings:
    return array.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]


def _floats(array: pa.Array) -> Strings:
    """The shortest text that gives the number back, in its own precision."""
    if pa.types.is_float64(array.type):
        found = [None if each is None else repr(each) for each in array.to_pylist()]
    else:
        found = _simple(array)
    return [text and _NOT_FINITE.get(text, text) for text in found]


def _decimals(array: pa.Array) -> Strings:
    return [None if each is None else format(each, "f") for each in array.to_pylist()]


def _strings(array: pa.Array) -> Strings:
    r"""Strings; bytes that are no UTF-8 are escaped as `\xNN`."""
    whole = array.cast(pa.large_binary())
    return [
        None if each is None else quote(each.decode("utf-8", "backslashreplace"))
        for each in whole.to_pylist()
    ]


def _binaries(array: pa.Array) -> Strings:
    return [
        None if each is None else f'"{base64.b64encode(each).decode()}"'
        for each in array.to_pylist()
    ]


def _moments(array: pa.Array) -> Strings:
    """Dates and timestamps in ISO 8601, of any year; an instant in UTC, with a Z."""
    kind = array.type
    if pa.types.is_date32(kind):
        numbers, unit, end = array.cast(pa.int32()).cast(pa.int64()), "D", ""
    else:
        numbers = array.cast(pa.int64())
        unit = "ms" if pa.types.is_date64(kind) else kind.unit
        end = "" if pa.types.is_date64(kind) or kind.tz is None else "Z"
    found = np.datetime_as_string(
        numbers.fill_null(0).to_numpy(zero_copy_only=False).view(f"datetime64[{unit}]")
    )
    return [
        None if number is None else _moment(text, number, end)
        for text, number in zip(found.tolist(), numbers.to_pylist(), strict=True)
    ]


def _moment(text: str, number: int, end: str) -> str:
    """The text of a moment; the one number that numpy takes for no time stays a number."""
    return str(number) if text == "NaT" else f'"{_shortened(iso_year(text))}{end}"'


def iso_year(text: str) -> str:
    """A date of `numpy` with a year of four digits, as ISO 8601 has it; it writes -1 as -001."""
    if not text.startswith("-"):
        return text
    year, rest = text[1:].split("-", 1)
    return f"-{year:0>4}-{rest}"


def _shortened(text: str) -> str:
    """Without the zeros at the end of the fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _times(array: pa.Array) -> Strings:
    """Times of day in ISO 8601; what is beyond a day stays a number."""
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[array.type.unit]
    whole = pa.int32() if pa.types.is_time32(array.type) else pa.int64()
    found: Strings = []
    for number in array.cast(whole).to_pylist():
        if number is None:
            found.append(None)
            continue
        seconds, fraction = divmod(number, 10**digits)
        if not 0 <= seconds < _DAY_SECONDS:
            found.append(str(number))
            continue
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        text = f"{hour:02}:{minute:02}:{second:02}"
        found.append(f'"{_shortened(f"{text}.{fraction:0{digits}}" if digits else text)}"')
    return found


def _variants(array: pa.Array) -> Strings:
    """What they say; the parts of those that say nothing."""
    whole = columnar_variant.strings(array)
    if all(whole):
        return whole
    parts = json_of_structs(array)
    return [text or part for text, part in zip(whole, parts, strict=True)]


def json_of_structs(array: pa.Array) -> Strings:
    """Objects without the fields that are null."""
    names = [array.type.field(index).name for index in range(array.type.num_fields)]
    columns = [json_of(child) for child in array.flatten()]
    rows: Any = zip(*columns, strict=True) if columns else [()] * len(array)
    return [
        (object_text(list(zip(names, row, strict=True))) or "{}") if there else None
        for row, there in zip(rows, array.is_valid().to_pylist(), strict=True)
    ]


def _lists(array: pa.Array) -> Strings:
    array = listed(array)
    found = json_of(elements(array))
    return [
        place and f"[{','.join(text or 'null' for text in found[place[0] : place[1]])}]"
        for place in ranges(array)
    ]


def _maps(array: pa.Array) -> Strings:
    keys, values = map(json_of, entries(array))
    members = [
        f"{key_text(key)}:{value or 'null'}" for key, value in zip(keys, values, strict=True)
    ]
    return [place and "{" + ",".join(members[place[0] : place[1]]) + "}" for place in ranges(array)]


_RULES: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Strings]], ...]] = (
    (is_variant, _variants),
    (is_text, _strings),
    (pa.types.is_integer, _simple),
    (pa.types.is_boolean, _simple),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_date, _moments),
    (pa.types.is_timestamp, _moments),
    (pa.types.is_time, _times),
    (is_bytes, _binaries),
    (pa.types.is_struct, json_of_structs),
    (is_list, _lists),
    (pa.types.is_map, _maps),
)


def sample(array: pa.Array) -> object:
    """The first value that is there, for a message; the text of a long one is cut off."""
    array = plain(array)
    found = json_of(array.filter(array.is_valid())[:1])
    if not found or found[0] is None:
        return None
    if len(found[0]) > SAMPLE_CHARACTERS:
        return found[0].strip('"')[:SAMPLE_CHARACTERS] + "…"
    return json.loads(found[0])
