"""Find VARIANTs and maps with optional keys in a Parquet file's schema.

The library reads the annotation of a group and passes it on to nobody. It does write a footer it
has read, so the schema is taken from there: a list of elements in Thrift's compact protocol
(`parquet.thrift` of Apache Parquet), in the order in which a tree is walked. A group is recognized
by its leaves: the number of the first one, and how many there are.

Groups with a list of pairs become the maps that they are.

Some writers mark the keys of a map as optional, which Parquet does not allow and Spark reads. The
library refuses such a map; it gets a footer that does not call it one
(`footer.without_optional_keys`), and what it reads is made a map here. A key that is null
makes the file unreadable: Arrow has no such map.

An INT96 column is asked whether it needs nanoseconds.

INT96 counts nanoseconds over more years than 64 bits of them hold. So a column is read in
microseconds and in nanoseconds, and what follows compares the two.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cloudfiles.engine.formats.columnar import types
from airflow_cloudfiles.engine.formats.columnar.types import holds, is_list, list_of
from airflow_cloudfiles.engine.formats.content import varint

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC_BYTES: Final = 4
_SCHEMA_OF_FOOTER: Final = 2
_REPETITION, _NAME, _CHILDREN, _CONVERTED_TYPE, _LOGICAL_TYPE = 3, 4, 5, 6, 10
_OPTIONAL: Final = 1
_MAPS: Final = {1, 2}
"""The converted types `MAP` and `MAP_KEY_VALUE`."""
_MAP, _VARIANT = 2, 16
_TAIL_BYTES: Final = 8
_SIGNATURE_BYTES: Final = 28
"""A nonce and a tag, behind a footer in plain text of a file with encrypted columns."""
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 12
_I32: Final = 5
_NUMBERS: Final = {4, _I32, 6}
_SIZED: Final = {_BYTE: 1, _DOUBLE: 8, _BINARY: None}
"""Bytes that a value takes; `None`: it says so itself."""
_LONG_LIST: Final = 15

Value = object
Fields = dict[int, Value]
Leaves = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Element:
    """An element of the schema.

    Attributes:
        fields: Its fields.
        begin: Where it is in the footer.
        end: Where the next thing begins.
        leaves: The number of its first leaf, and how many leaves it has.
    """

    fields: Fields
    begin: int
    end: int
    leaves: Leaves = (0, 0)

    @property
    def is_group(self) -> bool:
        """Whether it has children."""
        return bool(self.fields.get(_CHILDREN))

    @property
    def is_map(self) -> bool:
        """Whether it is annotated as a map, in the new way or in an old one."""
        return self.fields.get(_CONVERTED_TYPE) in _MAPS or _MAP in self.annotation

    @property
    def annotation(self) -> Fields:
        """Its logical type: a message of one field, whose number tells."""
        found = self.fields.get(_LOGICAL_TYPE)
        return found if isinstance(found, dict) else {}


def variant_leaves(metadata: pq.FileMetaData) -> set[Leaves]:
    """Find where the VARIANTs of a file are.

    Raises:
        ValueError: The footer is not as the format has it.
    """
    buffer = io.BytesIO()
    metadata.write_metadata_file(buffer)
    elements = _elements(buffer.getvalue())
    return {each.leaves for each in elements if each.is_group and _VARIANT in each.annotation}


def refuse_encrypted(content: IO[bytes], metadata: pq.FileMetaData | None = None) -> None:
    """Refuse a file of which columns are encrypted; the library crashes on these.

    Args:
        content: The file.
        metadata: Its footer, where that can be read: behind it there is a signature then.

    Raises:
        OSError: It is encrypted.
    """
    content.seek(0, io.SEEK_END)
    content.seek(-min(_TAIL_BYTES, content.tell()), io.SEEK_END)
    tail = content.read()
    size = int.from_bytes(tail[:4], "little")
    if tail.endswith(b"PARE") or (metadata and size - metadata.serialized_size == _SIGNATURE_BYTES):
        raise OSError(
            "it is encrypted (Parquet modular encryption), which cannot be read here: write it "
            "without encryption of its columns, and let the storage encrypt it"
        )


def without_optional_keys(content: IO[bytes]) -> tuple[pq.FileMetaData, set[Leaves]]:
    """Remove from a footer the annotation of maps whose keys may be missing.

    The library refuses such a map; without its annotation it is a group with a list of pairs.

    Args:
        content: The file, whose end is as the format has it.

    Returns:
        The footer, and where the maps are that it does not call so any more.

    Raises:
        ValueError: The footer is not as the format has it.
    """
    content.seek(-_TAIL_BYTES, io.SEEK_END)
    tail = content.read()
    size = int.from_bytes(tail[:4], "little")
    content.seek(-_TAIL_BYTES - size, io.SEEK_END)
    data = tail[-_MAGIC_BYTES:] + content.read(size) + tail
    elements = _elements(data)
    parts: list[bytes] = []
    copied, found = 0, set()
    for place, each in enumerate(elements[:-2]):
        pair, key = elements[place + 1 : place + 3]
        if each.is_map and pair.is_group and key.fields.get(_REPETITION) == _OPTIONAL:
            found.add(each.leaves)
            for one in (each, pair):
                parts += (data[copied : one.begin], _without_annotation(one.fields))
                copied = one.end
    footer = b"".join((*parts, data[copied:-_TAIL_BYTES]))
    size = len(footer) - _MAGIC_BYTES
    whole = footer + size.to_bytes(4, "little") + tail[-_MAGIC_BYTES:]
    return pq.read_metadata(io.BytesIO(whole)), found


def _elements(data: bytes) -> list[_Element]:
    """List the elements of the schema, each with its leaves."""
    found = Compact(data, _MAGIC_BYTES).elements()
    # Open groups: their place, how many children are to come, the first leaf.
    opened: list[list[int]] = []
    leaves = 0
    for place, each in enumerate(found):
        count = each.fields.get(_CHILDREN)
        if isinstance(count, int) and count:
            opened.append([place, count, leaves])
            continue
        leaves += 1
        while opened:
            opened[-1][1] -= 1
            if opened[-1][1]:
                break
            group, _, first = opened.pop()
            found[group] = replace(found[group], leaves=(first, leaves - first))
    return found


def _without_annotation(fields: Fields) -> bytes:
    """Write a group of the schema without saying what it is for."""
    written = bytearray()
    before = 0
    for number in (_REPETITION, _NAME, _CHILDREN):
        value = fields.get(number)
        if value is None:
            continue
        kind = _BINARY if isinstance(value, bytes) else _I32
        written.append(number - before << 4 | kind)
        if isinstance(value, bytes):
            written += _varint(len(value)) + value
        elif isinstance(value, int):
            written += _varint(value << 1)
        before = number
    return bytes((*written, _STOP))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


class Compact:
    """Reads a message of Thrift's compact protocol.

    Args:
        data: The bytes.
        place: Where the message begins.
    """

    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self.place = place

    def elements(self) -> list[_Element]:
        """List the elements of the schema of a footer; what comes behind them is not read."""
        number = 0
        while True:
            number, kind = self._header(number)
            if kind == _STOP:
                raise ValueError("its footer has no schema")
            if number != _SCHEMA_OF_FOOTER:
                self._value(kind)
                continue
            found = []
            for _ in range(self._list_header()[0]):
                begin = self.place
                found.append(_Element(self.struct(), begin, self.place))
            return found

    def _header(self, before: int) -> tuple[int, int]:
        """Read the number and the type of the next field."""
        byte = self._byte()
        kind = byte & 0x0F
        if kind == _STOP:
            return before, kind
        delta = byte >> 4
        return (before + delta if delta else self._zigzag()), kind

    def _value(self, kind: int) -> Value:
        if kind in {_TRUE, _FALSE}:
            return kind == _TRUE
        if kind in _NUMBERS:
            return self._zigzag()
        if kind in _SIZED:
            return self._bytes(_SIZED[kind] or self._varint())
        if kind in {_LIST, _SET}:
            count, kind = self._list_header()
            # Booleans in a list take a byte each; a footer's schema has none.
            kind = _BYTE if kind in {_TRUE, _FALSE} else kind
            return [self._value(kind) for _ in range(count)]
        if kind == _STRUCT:
            return self.struct()
        raise ValueError(f"its footer has a value of the unknown kind {kind}")

    def struct(self) -> Fields:
        """Read the fields of the next message.

        Raises:
            ValueError: It is not as the protocol has it, or ends too early.
        """
        found: Fields = {}
        number = 0
        while True:
            number, kind = self._header(number)
            if kind == _STOP:
                return found
            found[number] = self._value(kind)

    def _list_header(self) -> tuple[int, int]:
        """Read the number and the type of the elements of a list."""
        byte = self._byte()
        count = byte >> 4
        return (self._varint() if count == _LONG_LIST else count), byte & 0x0F

    def _varint(self) -> int:
        number, self.place = varint(self._data, self.place)
        return number

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _bytes(self, size: int) -> bytes:
        found = self._data[self.place : self.place + size]
        if len(found) < size:
            raise ValueError("its footer ends too early")
        self.place += size
        return found

    def _byte(self) -> int:
        return self._bytes(1)[0]


_PAIR: int = 2


def map_type(kind: pa.DataType) -> pa.DataType | None:
    """Find the map that a group with a list of pairs is; `None` if it is something else."""
    if kind.num_fields != 1 or not is_list(kind.field(0).type):
        return None
    pair = kind.field(0).type.value_type
    if not pa.types.is_struct(pair) or pair.num_fields != _PAIR:
        return None
    return pa.map_(pair.field(0).type, pair.field(1).type)


def as_maps(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Put maps in the place of groups, wherever the type has one.

    Raises:
        OSError: A key is null.
    """
    if not holds(kind, pa.types.is_map):
        return array if array.type == kind else array.view(kind)
    if pa.types.is_map(kind):
        if pa.types.is_struct(array.type):
            pairs = types.listed(array.flatten()[0])
            parts = types.elements(pairs).flatten()
        else:
            pairs, parts = array, types.entries(array)
        if parts[0].null_count:
            raise OSError(
                "a map has a key that is null, which no map can have. Write the file anew with "
                "keys, or leave the column out of a schema of your own"
            )
        fields = [kind.key_field, kind.item_field]
        children = [as_maps(part, each.type) for part, each in zip(parts, fields, strict=True)]
        return types.nest(kind, pairs, pa.StructArray.from_arrays(children, fields=fields))
    if is_list(kind):
        array = types.listed(array)
        return types.nest(kind, array, as_maps(types.elements(array), kind.value_type))
    children = [
        as_maps(each, field.type) for each, field in zip(array.flatten(), kind, strict=True)
    ]
    nulls = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=nulls)


_MOST_NANOS: Final = 2**63 - 2000


def in_nanos(kind: pa.DataType) -> pa.DataType:
    """Change the type's instants to nanoseconds."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, in_nanos(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(in_nanos(kind.key_type), in_nanos(kind.item_type))
    if is_list(kind):
        return list_of(kind, in_nanos(kind.value_type))
    return pa.timestamp("ns", "UTC") if kind == pa.timestamp("us", "UTC") else kind


def has_nanos(micros: pa.Array, nanos: pa.Array) -> bool:
    """Tell whether a column of INT96 has fractions of microseconds.

    Raises:
        OSError: It has, and beside them a time that 64 bits of nanoseconds cannot hold.
    """
    found = is_beyond = False
    for coarse, fine in zip(_instants(micros), _instants(nanos), strict=True):
        number = coarse.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        exact = fine.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        found = found or bool((exact != number * 1000).any())  # beyond 64 bits both wrap round
        is_beyond = is_beyond or bool((np.abs(number) > _MOST_NANOS // 1000).any())
    if found and is_beyond:
        raise OSError("an INT96 column has both nanoseconds and times beyond 1677 or 2262")
    return found


def _instants(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the leaves of an array that are timestamps."""
    kind = array.type
    if pa.types.is_struct(kind):
        for child in array.flatten():
            yield from _instants(child)
    elif pa.types.is_map(kind):
        for child in types.entries(array):
            yield from _instants(child)
    elif is_list(kind):
        yield from _instants(types.elements(types.listed(array)))
    elif pa.types.is_timestamp(kind):
        yield array
