"""How does a VARIANT of a Parquet file become one of Spark's?

A file has it as a group of `metadata` and `value`, and maybe, shredded, of a `typed_value`: a
scalar, the fields of an object, or the elements of an array, each again with a `value` and a
`typed_value` of its own (Parquet's Variant Shredding). Whole columns are put together at once, from
the leaves up, with the dictionary of their row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import pack
from typing import Any, Final

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.formats.columnar import nested
from airflow_cloudfiles.engine.formats.columnar.types import is_bytes, is_list, is_text
from airflow_cloudfiles.engine.formats.variant.decode import Names
from airflow_cloudfiles.engine.formats.variant.encode import (
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
class Assembled:
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
        """As a struct of `value` and `metadata`, in whatever order."""
        there = [value is not None for value in self.values]
        pairs = zip(self.values, self.names, strict=True)
        metadata = [names.metadata if value and names else b"" for value, names in pairs]
        parts = {"value": [value or b"" for value in self.values], "metadata": metadata}
        return pa.StructArray.from_arrays(
            [pa.array(parts[each.name], pa.binary()) for each in kind],
            fields=list(kind),
            mask=pa.array([not each for each in there], pa.bool_()),
        )


def assemble(array: pa.StructArray) -> Assembled:
    """Put a column together.

    Args:
        array: Of a type that `is_variant`.
    """
    fields = dict(zip((each.name for each in array.type), array.flatten(), strict=True))
    valid = array.is_valid().to_pylist()
    found = Assembled([None] * len(array), [None] * len(array))
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

    into: Assembled

    def values(self, fields: dict[str, pa.Array], rows: Sequence[int]) -> Encoded:
        """The values of some elements, each of a row; `None` where there is none."""
        plain: Encoded = [None] * len(rows)
        if "value" in fields:
            plain = _binaries(fields["value"])
        typed = fields.get("typed_value")
        if typed is None:
            return plain
        typed = nested.plain(typed)
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
        typed = nested.listed(typed)
        spans = nested.ranges(typed)
        inner = [row for row, span in zip(rows, spans, strict=True) if span for _ in range(*span)]
        elements = nested.elements(typed)
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
        """The values of a shredded field, or of the elements of a shredded array."""
        array = nested.plain(array)
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
        """A row cannot be put together."""
        self.into.bad.add(row)
        self.into.names[row] = None


def _binaries(array: pa.Array) -> Encoded:
    return nested.plain(array).cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]


def _plain_values(array: pa.Array) -> list[Any]:
    """Values as the rules take them: numbers of units for moments, bytes for strings."""
    kind = array.type
    if is_text(kind):
        return _binaries(array)
    if pa.types.is_date32(kind):
        return array.view(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return array.view(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    return array.to_pylist()  # type: ignore[no-any-return]


def _fixed(kind: int, width: int) -> Callable[[int], bytes]:
    """A rule for numbers of one width."""
    header = bytes([kind << 2])
    return lambda number: header + number.to_bytes(width, "little", signed=True)


def _rule(kind: pa.DataType) -> Callable[[Any], bytes] | None:
    """How a scalar type is encoded; `None` for a type that no VARIANT is shredded into."""
    if is_text(kind):
        return lambda data: string_of(data.decode())
    if pa.types.is_decimal(kind):
        return lambda number: number_of(format(number, "f"))
    if pa.types.is_fixed_size_binary(kind):
        return (lambda data: b"\x50" + data) if kind.byte_width == _UUID_BYTES else None
    if is_bytes(kind):
        return lambda data: b"\x3c" + len(data).to_bytes(4, "little") + data
    return _RULES.get(kind)


_RULES: Final[dict[pa.DataType, Callable[[Any], bytes]]] = {
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
