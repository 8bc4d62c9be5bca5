"""Make Arrow arrays of the strings of columns.

One column object per node of the schema. It is fed the decoded values chunk by chunk (`collect`,
while they are still in the processor's cache) and keeps nothing but the bytes of their strings, one
a line: slices of that buffer become Arrow arrays without touching the values one by one. `finish`
converts them and tells which rows hold a value that does not fit.

Each type has a rule which values are *easy*: Arrow's own cast takes them and gives what Spark
gives. The hard rest goes through `json.shape`, one by one. What is null is neither.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET
from msgspec.structs import astuple

from airflow_cloudfiles.engine.formats.base import Bools, Bytes, Int32s, Positions, validity
from airflow_cloudfiles.engine.formats.json.shape import (
    JsonLeaf,
    JsonList,
    JsonMap,
    JsonShape,
    JsonStruct,
)
from airflow_cloudfiles.engine.formats.scalars import MISFIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
    from airflow_cloudfiles.engine.formats.record_policy import NumberRule


_STRINGS: Final = msgspec.json.Decoder(list[str])
_NONE: Final[Positions] = np.empty(0, np.int64)
_SMALL: Final = 64
_LONG_DIGITS: Final = 18
"""A number of so many characters fits 64 bits."""
_MAX_DIGITS: Final = 38

Easy = tuple[pa.Array, Bools]
"""An array of the right type, and which of its values are right already; the others are null."""


def cast(values: JsonValues, leaf: JsonLeaf, kind: pa.DataType) -> tuple[pa.Array, Positions]:
    """Convert a column.

    Returns:
        The array, and the positions of the values that do not fit, which are null in it.
    """
    if not values.count:
        return pa.array([], kind), _NONE
    if pa.types.is_string(kind):
        return _strings(values), _NONE
    if leaf.patterns is not None and pa.types.is_temporal(kind):
        array, easy = _patterned(values, leaf.patterns, kind)
    elif pa.types.is_floating(kind):
        array, easy = _floats(values, kind, leaf.numbers)
    else:
        rule = next((rule for applies, rule in _RULES if applies(kind)), _all_hard)
        array, easy = rule(values, kind)
    hard = np.flatnonzero(~(easy | values.null))
    if not len(hard):
        return array, _NONE
    # The hard values are converted each by itself.
    converted = [leaf.convert(values.value(position)) for position in hard.tolist()]
    misfits = hard[[value is MISFIT for value in converted]]
    mask = np.zeros(values.count, np.bool_)
    mask[hard] = True
    fitting = pa.array([None if value is MISFIT else value for value in converted], array.type)
    return pc.replace_with_mask(array, pa.array(mask), fitting), misfits


def _strings(values: JsonValues) -> pa.Array:
    """Strings without quotes and escapes, everything else as it stands.

    Every string fits: one without a UTF-8 form (a lone surrogate) never gets here, because the
    decoder refuses it and the record is explained.
    """
    valid = ~values.null
    quoted = values.quoted
    if not quoted.any():
        array = values.slice(valid, quoted=False)
    elif (quoted | values.null).all():
        array = values.slice(valid, quoted=True)
    else:
        array = values.unquoted(valid)
    if b"\\" not in values.buffer:
        return array
    escaped = values.escaped & quoted
    places = np.flatnonzero(escaped)
    if not len(places):
        return array
    decoded = _STRINGS.decode(b"[" + b",".join(map(values.value, places.tolist())) + b"]")
    return pc.replace_with_mask(array, pa.array(escaped), pa.array(decoded, pa.string()))


def _patterned(values: JsonValues, patterns: TimePatterns, kind: pa.DataType) -> Easy:
    """Dates and times by patterns; what does not fit is looked at again, to be sure."""
    easy = values.quoted & ~values.escaped
    if not easy.any():
        return _all_hard(values, kind)
    array, _ = patterns.cast(values.slice(easy, quoted=True), kind)
    return array, easy & array.is_valid().to_numpy(zero_copy_only=False)


def _all_hard(values: JsonValues, kind: pa.DataType) -> Easy:
    return pa.nulls(values.count, kind), np.zeros(values.count, np.bool_)


def _booleans(values: JsonValues, kind: pa.DataType) -> Easy:
    true = values.first == ord("t")
    easy = true | (values.first == ord("f"))
    return pa.array(true, kind, mask=~easy), easy


def _integers(values: JsonValues, kind: pa.DataType) -> Easy:
    easy = values.number & (values.lengths <= _LONG_DIGITS)
    if any(character in values.buffer for character in b".eE"):
        easy &= ~values.having(b".eE")
    longs = values.slice(easy, quoted=False).cast(pa.int64())
    if kind == pa.int64():
        return longs, easy
    numbers = longs.fill_null(0).to_numpy(zero_copy_only=False)
    bits = kind.bit_width - 1
    easy &= (numbers >= -(2**bits)) & (numbers < 2**bits)
    array = pc.if_else(pa.array(easy), longs, pa.scalar(None, pa.int64()))
    return array.cast(kind), easy


def _floats(values: JsonValues, kind: pa.DataType, rule: NumberRule) -> Easy:
    numbers = values.slice(values.number, quoted=False)
    array = numbers.cast(kind)
    infinite = np.isinf(array.fill_null(0).to_numpy(zero_copy_only=False))
    easy = values.number & ~infinite
    doubtful = rule.doubtful(numbers, array)
    return array, easy if doubtful is None else easy & ~doubtful


def _decimals(values: JsonValues, kind: pa.DataType) -> Easy:
    # Arrow's cast does not see an overflow between the digits it reads and the scale it makes.
    easy = values.number & (values.lengths + kind.scale <= _MAX_DIGITS) & ~values.having(b"eE")
    return _cast_where(values, easy, kind, quoted=False)


def _dates(values: JsonValues, kind: pa.DataType) -> Easy:
    easy = values.quoted & (values.lengths == len('"2024-01-31"')) & ~values.escaped
    return _cast_where(values, easy, kind, quoted=True)


def _timestamps(values: JsonValues, kind: pa.DataType) -> Easy:
    """Whole timestamps to the second and beyond, all in UTC or all without a zone."""
    plain = values.quoted & ~values.escaped
    last = values.last(2)
    utc = plain & (values.lengths >= len('"2024-01-31T12:30:59Z"')) & (last == ord("Z"))
    local = plain & (values.lengths >= len('"2024-01-31T12:30:59"'))
    local &= (last >= ord("0")) & (last <= ord("9"))
    if kind.tz is not None and utc.any():
        return _cast_where(values, utc, kind, quoted=True)
    array, easy = _cast_where(values, local, pa.timestamp("us"), quoted=True)
    return array.cast(pa.int64()).cast(kind), easy


def _cast_where(values: JsonValues, easy: Bools, kind: pa.DataType, *, quoted: bool) -> Easy:
    """Cast the values Arrow takes; the others are null and not easy."""
    if not easy.any():
        return _all_hard(values, kind)
    array = _cast_what_can_be(values.slice(easy, quoted=quoted), kind)
    taken = array.is_valid().to_numpy(zero_copy_only=False)
    return array, taken


def _cast_what_can_be(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast; where Arrow refuses, look for the values it refuses by halving."""
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        if len(array) == 1:
            return pa.nulls(1, kind)
        if len(array) <= _SMALL:
            each = [_cast_what_can_be(array[i : i + 1], kind) for i in range(len(array))]
            return pa.concat_arrays(each)
    half = len(array) // 2
    return pa.concat_arrays(
        [_cast_what_can_be(array[:half], kind), _cast_what_can_be(array[half:], kind)]
    )


_RULES: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[..., Easy]], ...]] = (
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, _integers),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_date, _dates),
    (pa.types.is_timestamp, _timestamps),
)


_LINE_BREAK = ord("\n")


class JsonValues:
    """Lines of a buffer; every line ends with a line break.

    A line is the JSON text of one value, already known to be valid; it is empty where the record
    had no such value.
    """

    def __init__(self, buffer: bytes) -> None:
        self.buffer = buffer
        self.bytes = np.frombuffer(buffer, np.uint8)
        self.ends: Positions = np.flatnonzero(self.bytes == _LINE_BREAK)
        self.count = len(self.ends)

    @cached_property
    def starts(self) -> Positions:
        """Where each text begins."""
        starts = np.zeros(self.count, np.int64)
        starts[1:] = self.ends[:-1] + 1
        return starts

    @cached_property
    def first(self) -> Bytes:
        """First byte of each text; the line break for an empty one."""
        return self.bytes[self.starts]

    @cached_property
    def lengths(self) -> Positions:
        """Length of each text."""
        return self.ends - self.starts

    @cached_property
    def null(self) -> Bools:
        """Which are empty or `null`."""
        null: Bools = (self.first == _LINE_BREAK) | (self.first == ord("n"))
        return null

    @cached_property
    def quoted(self) -> Bools:
        """Which are strings."""
        quoted: Bools = self.first == ord('"')
        return quoted

    @cached_property
    def number(self) -> Bools:
        """Which are numbers."""
        digit: Bools = (self.first >= ord("0")) & (self.first <= ord("9"))
        number: Bools = digit | (self.first == ord("-"))
        return number

    @cached_property
    def empty(self) -> int:
        """How many are empty."""
        return int(np.count_nonzero(self.first == _LINE_BREAK))

    @cached_property
    def escaped(self) -> Bools:
        """Which have a backslash somewhere."""
        return self.having(b"\\")

    def having(self, characters: bytes) -> Bools:
        """Find which have one of these bytes somewhere."""
        found = np.zeros(self.count, np.bool_)
        for character in characters:
            if character in self.buffer:
                places = np.flatnonzero(self.bytes == character)
                found[np.searchsorted(self.ends, places)] = True
        return found

    def last(self, distance: int) -> Bytes:
        """Return the byte that many places before the end of each text (if not shorter)."""
        return self.bytes[np.maximum(self.ends - distance, 0)]

    def slice(self, valid: Bools, *, quoted: bool) -> pa.Array:
        """Build a string array, without quotes if all that matter are quoted.

        Args:
            valid: Which of them matter; the others are null.
            quoted: Whether to cut off the first and the last byte.
        """
        offsets = np.zeros(self.count + 1, np.int32)
        offsets[1:] = self.ends + 1
        buffers = [validity(valid), pa.py_buffer(offsets), pa.py_buffer(self.buffer)]
        lines = pa.Array.from_buffers(pa.binary(), self.count, buffers)
        cut = pc.binary_slice(lines, 1, -2) if quoted else pc.binary_slice(lines, 0, -1)
        return cut.view(pa.string())

    def unquoted(self, valid: Bools) -> pa.Array:
        """Build a string array, strings without their quotes."""
        keep = np.ones(len(self.bytes), np.bool_)
        keep[self.ends] = False
        keep[self.starts[self.quoted]] = False
        keep[self.ends[self.quoted] - 1] = False
        offsets = np.zeros(self.count + 1, np.int32)
        np.cumsum(self.lengths - 2 * self.quoted, out=offsets[1:])
        data = np.ascontiguousarray(self.bytes[keep])
        buffers = [validity(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.string(), self.count, buffers)

    def value(self, position: int) -> bytes:
        """Return one text."""
        return self.buffer[self.starts[position] : self.ends[position]]


@dataclass(frozen=True, slots=True)
class FinishedColumn:
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

    def finish(self) -> FinishedColumn:
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

    def finish(self) -> FinishedColumn:
        """See `ColumnBuilder`."""
        array, misfits = cast(self.strings, self.shape, self.kind)
        return FinishedColumn(array, misfits)


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

    def finish(self) -> FinishedColumn:
        """See `ColumnBuilder`."""
        finished = [child.finish() for child in self.children]
        array = pa.Array.from_buffers(
            self._kind,
            self._places.count,
            [self._places.buffer()],
            children=[each.array for each in finished],
        )
        return FinishedColumn(array, _union([each.misfits for each in finished]))


class _RepeatedValues:
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


class ListColumn(_RepeatedValues):
    """Arrays."""

    def collect(self, values: Sequence[Any]) -> None:
        """See `ColumnBuilder`."""
        self._child.collect(list(chain.from_iterable(self._add(values))))

    def quotes(self) -> int:
        """See `ColumnBuilder`."""
        return self._child.quotes()

    def finish(self) -> FinishedColumn:
        """See `ColumnBuilder`."""
        element = self._child.finish()
        return FinishedColumn(self._array(element.array), self._rows(element.misfits))


class MapColumn(_RepeatedValues):
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

    def finish(self) -> FinishedColumn:
        """See `ColumnBuilder`."""
        value = self._child.finish()
        entries = pa.struct([self._kind.key_field, self._kind.item_field])
        children = [pa.array(self._keys, pa.string()), value.array]
        pairs = pa.Array.from_buffers(entries, len(self._keys), [None], children=children)
        return FinishedColumn(self._array(pairs), self._rows(value.misfits))


def _union(rows: list[Positions]) -> Positions:
    """Merge all of the positions, sorted, each once."""
    some = [each for each in rows if len(each)]
    return np.unique(np.concatenate(some)) if some else _NONE
