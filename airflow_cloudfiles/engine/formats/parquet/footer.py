"""Which groups of a Parquet file's schema are VARIANTs, and which maps have optional keys?

The library reads the annotation of a group and passes it on to nobody. It does write a footer it
has read, so the schema is taken from there: a list of elements in Thrift's compact protocol
(`parquet.thrift` of Apache Parquet), in the order in which a tree is walked. A group is recognized
by its leaves: the number of the first one, and how many there are.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import IO, Final

import pyarrow.parquet as pq

_MAGIC_BYTES: Final = 4
_SCHEMA_OF_FOOTER: Final = 2
_REPETITION, _NAME, _CHILDREN, _CONVERTED_TYPE, _LOGICAL_TYPE = 3, 4, 5, 6, 10
_OPTIONAL: Final = 1
_MAPS: Final = {1, 2}
"""The converted types `MAP` and `MAP_KEY_VALUE`."""
_MAP, _VARIANT = 2, 16
_TAIL_BYTES: Final = 8
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 12
_I32: Final = 5
_NUMBERS: Final = {4, _I32, 6}
_SIZED: Final = {_BYTE: 1, _DOUBLE: 8, _BINARY: None}
"""Bytes that a value takes; `None`: it says so itself."""
_LONG_LIST: Final = 15
_MOST_BITS: Final = 63

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
    """Where the VARIANTs of a file are.

    Raises:
        ValueError: The footer is not as the format has it.
    """
    elements = _elements(_serialized(metadata))
    return {each.leaves for each in elements if each.is_group and _VARIANT in each.annotation}


def without_optional_keys(content: IO[bytes]) -> tuple[pq.FileMetaData, set[Leaves]]:
    """The footer of a file without the annotation of maps whose keys may be missing.

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


def _serialized(metadata: pq.FileMetaData) -> bytes:
    buffer = io.BytesIO()
    metadata.write_metadata_file(buffer)
    return buffer.getvalue()


def _elements(data: bytes) -> list[_Element]:
    """The elements of the schema, each with its leaves."""
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
    """A group of the schema, written without saying what it is for."""
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
        self._place = place

    @property
    def place(self) -> int:
        """Where the next thing begins."""
        return self._place

    def elements(self) -> list[_Element]:
        """The elements of the schema of a footer; what comes behind them is not read."""
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
                begin = self._place
                found.append(_Element(self.struct(), begin, self._place))
            return found

    def _header(self, before: int) -> tuple[int, int]:
        """The number and the type of the next field."""
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
            return self._list()
        if kind == _STRUCT:
            return self.struct()
        raise ValueError(f"its footer has a value of the unknown kind {kind}")

    def struct(self) -> Fields:
        """The fields of the next message.

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

    def _list(self) -> list[Value]:
        count, kind = self._list_header()
        # Booleans in a list take a byte each; a footer's schema has none.
        return [self._value(_BYTE if kind in {_TRUE, _FALSE} else kind) for _ in range(count)]

    def _list_header(self) -> tuple[int, int]:
        """The number and the type of the elements of a list."""
        byte = self._byte()
        count = byte >> 4
        return (self._varint() if count == _LONG_LIST else count), byte & 0x0F

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the mark of the last byte
                return number
            shift += 7
            if shift > _MOST_BITS:
                raise ValueError("a number of it has more than 64 bits")

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _bytes(self, size: int) -> bytes:
        found = self._data[self._place : self._place + size]
        if len(found) < size:
            raise ValueError("its footer ends too early")
        self._place += size
        return found

    def _byte(self) -> int:
        return self._bytes(1)[0]
