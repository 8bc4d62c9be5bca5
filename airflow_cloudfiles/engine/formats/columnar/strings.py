"""Write values of binary formats as JSON, and VARIANTs of Parquet as Spark's.

The strings of rescued data: numbers as JSON numbers, dates and times as ISO strings, binary as
base64, nested values as they are nested. A value is never shortened or rounded on the way.

A file has a VARIANT as a group of `metadata` and `value`, and maybe, shredded, of a `typed_value`:
a scalar, the fields of an object, or the elements of an array, each again with a `value` and a
`typed_value` of its own (Parquet's Variant Shredding). Whole columns are put together at once, from
the leaves up, with the dictionary of their row.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from struct import pack
from typing import Any, Final

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.formats.base import SAMPLE_CHARACTERS, printable, quote
from airflow_cloudfiles.engine.formats.columnar import types
from airflow_cloudfiles.engine.formats.columnar.types import (
    elements,
    entries,
    is_bytes,
    is_list,
    is_text,
    is_variant,
    listed,
    plain,
    ranges,
)
from airflow_cloudfiles.engine.formats.variant import (
    Names,
    NotVariantError,
    array_of,
    integer_of,
    number_of,
    object_of,
    string_of,
)

Encoded = list[bytes | None]
_NULL: Final = b"\x00"
_UUID_BYTES: Final = 16


@dataclass(slots=True)
class AssembledColumn:
    """Values of a column, put together.

    Attributes:
        values: Each as a VARIANT has it; `None` where the group is null, or is no VARIANT.
        names: The dictionary of each.
        bad: Rows that are no VARIANT, or hold a `value` beside a `typed_value` that says it all.
    """

    values: Encoded
    names: list[Names | None]
    bad: set[int] = field(default_factory=set)

    def array(self, kind: pa.StructType) -> pa.Array:
        """Build a struct of `value` and `metadata`, in whatever order."""
        there = [value is not None for value in self.values]
        pairs = zip(self.values, self.names, strict=True)
        metadata = [names.metadata if value and names else b"" for value, names in pairs]
        parts = {"value": [value or b"" for value in self.values], "metadata": metadata}
        return pa.StructArray.from_arrays(
            [pa.array(parts[each.name], pa.binary()) for each in kind],
            fields=list(kind),
            mask=pa.array([not each for each in there], pa.bool_()),
        )


def assemble(array: pa.StructArray) -> AssembledColumn:
    """Put a column together.

    Args:
        array: Of a type that `is_variant`.
    """
    fields = dict(zip((each.name for each in array.type), array.flatten(), strict=True))
    valid = array.is_valid().to_pylist()
    found = AssembledColumn([None] * len(array), [None] * len(array))
    known: dict[bytes, Names | None] = {}
    for row, metadata in enumerate(fields["metadata"].to_pylist()):
        if not valid[row]:
            continue
        if metadata not in known:
            known[metadata] = _names(metadata)
        found.names[row] = known[metadata]
        if known[metadata] is None:
            found.bad.add(row)
    values = _Node(found).values(fields, range(len(array)))
    for row, value in enumerate(values):
        if valid[row] and found.names[row] is not None:
            # Nothing at all where something must be is null (the specification says so).
            found.values[row] = _NULL if value is None and row not in found.bad else value
    return found


def _names(metadata: bytes | None) -> Names | None:
    try:
        return Names(metadata or b"")
    except NotVariantError:
        return None


@dataclass(frozen=True, slots=True)
class _Node:
    """A `value` with its `typed_value`, at any depth of a column."""

    into: AssembledColumn

    def values(self, fields: dict[str, pa.Array], rows: Sequence[int]) -> Encoded:
        """Encode the values of some elements, each of a row; `None` where there is none."""
        plain: Encoded = [None] * len(rows)
        if "value" in fields:
            plain = _variant_binaries(fields["value"])
        typed = fields.get("typed_value")
        if typed is None:
            return plain
        typed = types.plain(typed)
        if pa.types.is_struct(typed.type):
            return self._objects(plain, typed, rows)
        found = self._arrays(typed, rows) if is_list(typed.type) else self._scalars(typed, rows)
        for place, value in enumerate(plain):
            if found[place] is None:
                found[place] = value
            elif value is not None:
                self.into.bad.add(rows[place])
        return found

    def _scalars(self, typed: pa.Array, rows: Sequence[int]) -> Encoded:
        rule = _rule(typed.type)
        found: Encoded = []
        for place, value in enumerate(_plain_values(typed)):
            encoded = None
            if value is not None:
                try:
                    encoded = None if rule is None else rule(value)
                except (NotVariantError, UnicodeDecodeError):
                    encoded = None
                if encoded is None:
                    self._give_up(rows[place])
            found.append(encoded)
        return found

    def _arrays(self, typed: pa.Array, rows: Sequence[int]) -> Encoded:
        typed = types.listed(typed)
        spans = types.ranges(typed)
        inner = [row for row, span in zip(rows, spans, strict=True) if span for _ in range(*span)]
        elements = types.elements(typed)
        if len(inner) != len(elements):  # some are behind nulls
            kept = [each for span in spans if span for each in range(*span)]
            elements = elements.take(pa.array(kept, pa.int64()))
        each = iter(self._children(elements, inner))
        found: Encoded = []
        for row, span in zip(rows, spans, strict=True):
            if span is None:
                found.append(None)
                continue
            parts = [next(each) or _NULL for _ in range(*span)]
            found.append(self._tried(row, array_of, parts))
        return found

    def _objects(self, plain: Encoded, typed: pa.Array, rows: Sequence[int]) -> Encoded:
        names = [typed.type.field(place).name for place in range(typed.type.num_fields)]
        columns = [self._children(child, rows) for child in typed.flatten()]
        members: Any = zip(*columns, strict=True) if columns else [()] * len(typed)
        found: Encoded = []
        present = typed.is_valid().to_pylist()
        for row, there, rest, parts in zip(rows, present, plain, members, strict=True):
            if not there:
                found.append(rest)
                continue
            fields = [pair for pair in zip(names, parts, strict=True) if pair[1] is not None]
            found.append(self._tried(row, self._object, row, fields, rest))
        return found

    def _object(self, row: int, fields: list[tuple[str, bytes]], rest: bytes | None) -> bytes:
        dictionary = self.into.names[row]
        if dictionary is None:
            raise NotVariantError("there are no names")
        for name, _ in fields:
            dictionary.learn(name)
        if rest is not None:
            fields = [*fields, *dictionary.members(rest)]
        return object_of(fields, dictionary.ids)

    def _children(self, array: pa.Array, rows: Sequence[int]) -> Encoded:
        """Encode the values of a shredded field, or of the elements of a shredded array."""
        array = types.plain(array)
        if not pa.types.is_struct(array.type):
            for place in np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False)).tolist():
                self._give_up(rows[place])
            return [None] * len(rows)
        fields = dict(zip((each.name for each in array.type), array.flatten(), strict=True))
        return self.values(fields, rows)

    def _tried(self, row: int, make: Callable[..., bytes], *given: object) -> bytes | None:
        try:
            return make(*given)
        except NotVariantError:
            self._give_up(row)
            return None

    def _give_up(self, row: int) -> None:
        """Give up a row that cannot be put together."""
        self.into.bad.add(row)
        self.into.names[row] = None


def _variant_binaries(array: pa.Array) -> Encoded:
    return types.plain(array).cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]


def _plain_values(array: pa.Array) -> list[Any]:
    """Values as the rules take them: numbers of units for moments, bytes for strings."""
    kind = array.type
    if is_text(kind):
        return _variant_binaries(array)
    if pa.types.is_date32(kind):
        return array.view(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return array.view(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    return array.to_pylist()  # type: ignore[no-any-return]


def _fixed(kind: int, width: int) -> Callable[[int], bytes]:
    """Build a rule for numbers of one width."""
    header = bytes([kind << 2])
    return lambda number: header + number.to_bytes(width, "little", signed=True)


def _rule(kind: pa.DataType) -> Callable[[Any], bytes] | None:
    """Find how a scalar type is encoded; `None` for a type that no VARIANT is shredded into."""
    if is_text(kind):
        return lambda data: string_of(data.decode())
    if pa.types.is_decimal(kind):
        return lambda number: number_of(format(number, "f"))
    if pa.types.is_fixed_size_binary(kind):
        return (lambda data: b"\x50" + data) if kind.byte_width == _UUID_BYTES else None
    if is_bytes(kind):
        return lambda data: b"\x3c" + len(data).to_bytes(4, "little") + data
    return _ENCODERS.get(kind)


_ENCODERS: Final[dict[pa.DataType, Callable[[Any], bytes]]] = {
    pa.bool_(): lambda value: b"\x04" if value else b"\x08",
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.int64()), integer_of),
    pa.float32(): lambda number: b"\x38" + pack("<f", number),
    pa.float64(): lambda number: b"\x1c" + pack("<d", number),
    pa.date32(): _fixed(11, 4),
    pa.timestamp("us", "UTC"): _fixed(12, 8),
    pa.timestamp("us"): _fixed(13, 8),
    pa.time64("us"): _fixed(17, 8),
    pa.timestamp("ns", "UTC"): _fixed(18, 8),
    pa.timestamp("ns"): _fixed(19, 8),
}


def strings(array: pa.Array) -> list[str | None]:
    """Values as JSON; `None` where a row has another text: it is null, or no VARIANT."""
    found = assemble(array)
    result: list[str | None] = []
    for row, (value, names) in enumerate(zip(found.values, found.names, strict=True)):
        text = None
        if value is not None and names is not None and row not in found.bad:
            try:
                text = names.json(value)
            except (NotVariantError, RecursionError):
                text = None
        result.append(text)
    return result


Strings = list[str | None]
"""One JSON text a value; `None` for null."""

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
    return _texts(array, lambda each: quote(str(each)))


def object_text(members: Sequence[tuple[str, str | None]]) -> str | None:
    """Format a JSON object of the members that have a text; `None` when none has."""
    found = [f"{quote(name)}:{text}" for name, text in members if text is not None]
    return "{" + ",".join(found) + "}" if found else None


def key_text(text: str | None) -> str:
    """Format the name of a member whose key is a JSON text: what is not a string keeps its text."""
    if text is None:
        return quote("null")
    return text if text.startswith('"') else quote(text)


def _simple(array: pa.Array) -> Strings:
    return array.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]


def _floats(array: pa.Array) -> Strings:
    """Format the shortest text that gives the number back, in its own precision."""
    if pa.types.is_float64(array.type):
        found = [None if each is None else repr(each) for each in array.to_pylist()]
    else:
        found = _simple(array)
    return [text and _NOT_FINITE.get(text, text) for text in found]


def _texts(array: pa.Array, text: Callable[[Any], str]) -> Strings:
    """Format values as texts, one by one."""
    return [None if each is None else text(each) for each in array.to_pylist()]


def _decimals(array: pa.Array) -> Strings:
    return _texts(array, lambda each: format(each, "f"))


def _strings(array: pa.Array) -> Strings:
    r"""Strings; bytes that are no UTF-8 are escaped as `\xNN`."""
    return _texts(array.cast(pa.large_binary()), lambda each: quote(printable(each)))


def _binaries(array: pa.Array) -> Strings:
    return _texts(array, lambda each: f'"{base64.b64encode(each).decode()}"')


def _written(array: pa.Array, unit: str) -> Iterator[tuple[str, int | None]]:
    """Moments as `numpy` writes them, and their numbers."""
    bits = pa.int32() if array.type.bit_width == pa.int32().bit_width else pa.int64()
    numbers = array.cast(bits).cast(pa.int64())
    moments = numbers.fill_null(0).to_numpy(zero_copy_only=False).view(f"datetime64[{unit}]")
    return zip(np.datetime_as_string(moments).tolist(), numbers.to_pylist(), strict=True)


def _moments(array: pa.Array) -> Strings:
    """Dates and timestamps in ISO 8601, of any year; an instant in UTC, with a Z."""
    kind = array.type
    is_time = pa.types.is_timestamp(kind)
    unit = kind.unit if is_time else "D" if pa.types.is_date32(kind) else "ms"
    end = "Z" if is_time and kind.tz is not None else ""
    return [
        None if number is None else _moment(text, number, end)
        for text, number in _written(array, unit)
    ]


def _moment(text: str, number: int, end: str) -> str:
    """Format a moment; the one number that numpy takes for no time stays a number."""
    return str(number) if text == "NaT" else f'"{_shortened(iso_year(text))}{end}"'


def iso_year(text: str) -> str:
    """Give a date of `numpy` a year of four digits, as in ISO 8601; it writes -1 as -001."""
    if not text.startswith("-"):
        return text
    year, rest = text[1:].split("-", 1)
    return f"-{year:0>4}-{rest}"


def _shortened(text: str) -> str:
    """Remove the zeros at the end of the fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _times(array: pa.Array) -> Strings:
    """Format times of day as in ISO 8601; what is beyond a day stays a number."""
    return [
        None if number is None else _time(text, number)
        for text, number in _written(array, array.type.unit)
    ]


def _time(text: str, number: int) -> str:
    day, _, time = text.partition("T")
    return f'"{_shortened(time)}"' if day == "1970-01-01" else str(number)


def _variants(array: pa.Array) -> Strings:
    """Format what they say; the parts of those that say nothing."""
    whole = strings(array)
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
    """Find the first value that is there, for a message; the text of a long one is cut off."""
    array = plain(array)
    found = json_of(array.filter(array.is_valid())[:1])
    if not found or found[0] is None:
        return None
    if len(found[0]) > SAMPLE_CHARACTERS:
        return found[0].strip('"')[:SAMPLE_CHARACTERS] + "…"
    return json.loads(found[0])
