"""Which groups of a Parquet file's schema are VARIANTs?

The library reads the annotation of a group and passes it on to nobody. It does write a footer it
has read, so the schema is taken from there: a list of elements in Thrift's compact protocol
(`parquet.thrift` of Apache Parquet), in the order in which a tree is walked.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_MAGIC_BYTES: Final = 4
_SCHEMA_OF_FOOTER: Final = 2
_CHILDREN_OF_ELEMENT, _LOGICAL_TYPE_OF_ELEMENT = 5, 10
_VARIANT: Final = 16
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 12
_NUMBERS: Final = {4, 5, 6}
_SIZED: Final = {_BYTE: 1, _DOUBLE: 8, _BINARY: None}
"""Bytes that a value takes; `None`: it says so itself."""
_LONG_LIST: Final = 15

Value = object
Fields = dict[int, Value]


def variant_leaves(metadata: pq.FileMetaData) -> set[tuple[int, int]]:
    """Where the VARIANTs of a file are: the number of the first leaf, and how many leaves.

    Raises:
        ValueError: The footer is not as the format has it.
    """
    buffer = io.BytesIO()
    metadata.write_metadata_file(buffer)
    elements = _Compact(buffer.getvalue(), _MAGIC_BYTES).field(_SCHEMA_OF_FOOTER)
    if not isinstance(elements, list):
        raise ValueError("its footer has no schema")  # noqa: TRY004 - a damaged file
    found: set[tuple[int, int]] = set()
    # Open groups: how many children are to come, the first leaf, whether it is a VARIANT.
    opened: list[list[int]] = []
    leaves = 0
    for element in elements:
        count = element.get(_CHILDREN_OF_ELEMENT, 0)
        if count:
            annotation = element.get(_LOGICAL_TYPE_OF_ELEMENT)
            opened.append([count, leaves, int(bool(annotation) and _VARIANT in annotation)])
            continue
        leaves += 1
        while opened:
            opened[-1][0] -= 1
            if opened[-1][0]:
                break
            _, first, is_variant = opened.pop()
            if is_variant:
                found.add((first, leaves - first))
    return found


class _Compact:
    """Reads a message of Thrift's compact protocol.

    Args:
        data: The bytes.
        place: Where the message begins.
    """

    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self._place = place

    def field(self, wanted: int) -> Value:
        """One field of the message; what comes behind it is not read."""
        number = 0
        while True:
            number, kind = self._header(number)
            if kind == _STOP:
                raise ValueError(f"its footer has no field {wanted}")
            value = self._value(kind)
            if number == wanted:
                return value

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
            return self._struct()
        raise ValueError(f"its footer has a value of the unknown kind {kind}")

    def _struct(self) -> Fields:
        found: Fields = {}
        number = 0
        while True:
            number, kind = self._header(number)
            if kind == _STOP:
                return found
            found[number] = self._value(kind)

    def _list(self) -> list[Value]:
        byte = self._byte()
        count = byte >> 4
        if count == _LONG_LIST:
            count = self._varint()
        kind = byte & 0x0F
        # Booleans in a list take a byte each; a footer's schema has none.
        return [self._value(_BYTE if kind in {_TRUE, _FALSE} else kind) for _ in range(count)]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the mark of the last byte
                return number
            shift += 7

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
