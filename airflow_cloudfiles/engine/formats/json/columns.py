"""Make Arrow arrays of the strings of columns.

One column object per node of the schema. It is fed the decoded values chunk by chunk (`collect`,
while they are still in the processor's cache) and keeps nothing but the bytes of their strings, one
a line; `finish` turns these into an array, with vectorised operations for what is regular and
`json.converters` for the rest, and tells which rows hold a value that does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
from msgspec import UNSET
from msgspec.structs import astuple

from airflow_cloudfiles.engine.formats.base import Int32s, Positions, validity
from airflow_cloudfiles.engine.formats.json import casts as json_casts
from airflow_cloudfiles.engine.formats.json.casts import JsonValues
from airflow_cloudfiles.engine.formats.json.shape import (
    JsonLeaf,
    JsonList,
    JsonMap,
    JsonShape,
    JsonStruct,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NO_ROWS: Final[Positions] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished column, and the positions of the values that are NULL for not fitting."""

    array: pa.Array
    misfits: Positions


class ColumnBuilder(Protocol):
    """A column being collected."""

    def collect(self, values: Sequence[Any]) -> None:
        """Add decoded values."""

    def present(self) -> int:
        """Count the values that were in their record at all."""

    def quotes(self) -> int:
        """Count the quotation marks in the source strings of the values."""

    def finish(self) -> Finished:
        """Make the array."""


def new_column(shape: JsonShape, kind: pa.DataType) -> ColumnBuilder:
    """Make an empty column for values of a shape, to become an array of an Arrow type."""
    if isinstance(shape, JsonLeaf):
        return LeafColumn(shape, kind)
    if isinstance(shape, JsonList):
        return ListColumn(kind, new_column(shape.element, kind.value_type))
    if isinstance(shape, JsonMap):
        return MapColumn(kind, new_column(shape.value, kind.item_type))
    return StructColumn(shape, kind)


@dataclass(slots=True)
class LeafColumn:
    """Values taken as their strings."""

    shape: JsonLeaf
    kind: pa.DataType
    _parts: list[bytes] = field(default_factory=list)
    _strings: JsonValues | None = None

    def collect(self, values: Sequence[Any]) -> None:
        """Keep the strings; no text holds a line break, because records are lines."""
        if values:
            self._parts.append(b"\n".join(values))

    @property
    def strings(self) -> JsonValues:
        """All strings collected."""
        if self._strings is None:
            self._strings = JsonValues(b"\n".join([*self._parts, b""]))
            self._parts = []
        return self._strings

    def present(self) -> int:
        """See `ColumnBuilder`."""
        return self.strings.count - self.strings.empty

    def quotes(self) -> int:
        """See `ColumnBuilder`."""
        return int(np.count_nonzero(self.strings.bytes == ord('"')))

    def finish(self) -> Finished:
        """See `ColumnBuilder`."""
        array, misfits = json_casts.cast(self.strings, self.shape, self.kind)
        return Finished(array, misfits)


@dataclass(slots=True)
class _Presence:
    """Which of the collected values are there: not missing from their record, not null."""

    missing: int = 0
    count: int = 0
    _valid: list[Iterable[bool]] = field(default_factory=list)
    has_null: bool = False

    def add(self, values: Sequence[Any]) -> list[bool]:
        valid = [value is not None and value is not UNSET for value in values]
        self.count += len(valid)
        if not all(valid):
            self.has_null = True
            self.missing += sum(value is UNSET for value in values)
        self._valid.append(valid)
        return valid

    def buffer(self) -> pa.Buffer | None:
        if not self.has_null:
            return None
        return validity(np.fromiter(chain.from_iterable(self._valid), np.bool_, self.count))


class StructColumn:
    """Objects with known fields."""

    def __init__(self, shape: JsonStruct, kind: pa.DataType) -> None:
        self._kind = kind
        self._missing = shape.missing
        self._places = _Presence()
        self.children: list[ColumnBuilder] = [
            new_column(child, kind.field(index).type) for index, child in enumerate(shape.children)
        ]

    def collect(self, values: Sequence[Any]) -> None:
        """See `ColumnBuilder`."""
        valid = self._places.add(values)
        if not all(valid):
            missing = self._missing
            values = [
                value if there else missing for value, there in zip(values, valid, strict=True)
            ]
        self.collect_fields(values)

    def collect_fields(self, rows: Sequence[Any]) -> None:
        """Add instances that are all there."""
        # What an extended class has besides comes behind the columns.
        columns = zip(*map(astuple, rows), strict=True)
        for child, values in zip(self.children, columns, strict=False):
            child.collect(values)

    def present(self) -> int:
        """See `ColumnBuilder`."""
        return self._places.count - self._places.missing

    def quotes(self) -> int:
        """See `ColumnBuilder`; two for each key."""
        return sum(2 * child.present() + child.quotes() for child in self.children)

    def finish(self) -> Finished:
        """See `ColumnBuilder`."""
        finished = [child.finish() for child in self.children]
        array = pa.Array.from_buffers(
            self._kind,
            self._places.count,
            [self._places.buffer()],
            children=[each.array for each in finished],
        )
        return Finished(array, _union([each.misfits for each in finished]))


class _Repeated:
    """What arrays and maps share: values that hold several values each."""

    def __init__(self, kind: pa.DataType, child: ColumnBuilder) -> None:
        self._kind = kind
        self._child = child
        self._places = _Presence()
        self._lengths: list[Iterable[int]] = []

    def _add(self, values: Sequence[Any]) -> Sequence[Any]:
        valid = self._places.add(values)
        there = values if all(valid) else [value for value in values if value]
        lengths = [
            len(value) if is_valid else 0 for value, is_valid in zip(values, valid, strict=True)
        ]
        self._lengths.append(lengths)
        return there

    def present(self) -> int:
        """See `ColumnBuilder`."""
        return self._places.count - self._places.missing

    @cached_property
    def _offsets(self) -> Int32s:
        offsets = np.zeros(self._places.count + 1, np.int32)
        lengths = np.fromiter(chain.from_iterable(self._lengths), np.int32, self._places.count)
        np.cumsum(lengths, out=offsets[1:])
        return offsets

    def _array(self, child: pa.Array) -> pa.Array:
        buffers = [self._places.buffer(), pa.py_buffer(self._offsets)]
        return pa.Array.from_buffers(self._kind, self._places.count, buffers, children=[child])

    def _rows(self, elements: Positions) -> Positions:
        """Find which values hold these elements."""
        return np.unique(np.searchsorted(self._offsets, elements, side="right") - 1)


class ListColumn(_Repeated):
    """Arrays."""

    def collect(self, values: Sequence[Any]) -> None:
        """See `ColumnBuilder`."""
        self._child.collect(list(chain.from_iterable(self._add(values))))

    def quotes(self) -> int:
        """See `ColumnBuilder`."""
        return self._child.quotes()

    def finish(self) -> Finished:
        """See `ColumnBuilder`."""
        element = self._child.finish()
        return Finished(self._array(element.array), self._rows(element.misfits))


class MapColumn(_Repeated):
    """Objects read as maps."""

    def __init__(self, kind: pa.DataType, child: ColumnBuilder) -> None:
        super().__init__(kind, child)
        self._keys: list[str] = []

    def collect(self, values: Sequence[Any]) -> None:
        """See `ColumnBuilder`."""
        there = self._add(values)
        self._keys.extend(chain.from_iterable(there))
        self._child.collect(list(chain.from_iterable(each.values() for each in there)))

    def quotes(self) -> int:
        """See `ColumnBuilder`."""
        return sum(2 + key.count('"') for key in self._keys) + self._child.quotes()

    def finish(self) -> Finished:
        """See `ColumnBuilder`."""
        value = self._child.finish()
        entries = pa.struct([self._kind.key_field, self._kind.item_field])
        children = [pa.array(self._keys, pa.string()), value.array]
        pairs = pa.Array.from_buffers(entries, len(self._keys), [None], children=children)
        return Finished(self._array(pairs), self._rows(value.misfits))


def _union(rows: list[Positions]) -> Positions:
    """Merge all of the positions, sorted, each once."""
    some = [each for each in rows if len(each)]
    return np.unique(np.concatenate(some)) if some else NO_ROWS
