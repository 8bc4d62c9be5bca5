"""Read what the footers of an ORC file say of its writer, its types and its stripes.

1. **Calendar.** ORC's Java library, which Spark and Hive write with, counts days in the hybrid
   calendar, Julian before 1582-10-15, unless the footer says otherwise. The libraries of others
   know today's calendar alone.
2. **Fractions near 1970.** A time before 1970 with a fraction is stored a second late. Java's
   library asks the instant in UTC whether it is before 1970, the one that reads here asks the clock
   of the writer's zone. Between the two a second is taken off where it should not be, or is not.
3. **Decimals.** The library gives a decimal without a precision, as Hive 0.11 wrote it, six digits
   after the point and cuts the others off. Only the footer tells such a column from one that is
   `decimal(38,6)`.

The footer is a message of Protocol Buffers (`orc_proto.proto` of Apache ORC); what is needed of it
is its types: a list in the order of their columns, in which each names the places of its children.

References:
    https://orc.apache.org/specification/ORCv1/
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import IO, TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.formats.columnar.calendar import Calendar, changed
from airflow_cloudfiles.engine.formats.datetimes.default_format import find_zone, offset_of
from airflow_cloudfiles.engine.formats.packed import unpack_lz4, unpack_snappy, varint

if TYPE_CHECKING:
    from collections.abc import Callable

_POSTSCRIPT, _COMPRESSION = 1, 2
_STRIPES, _WRITER, _CALENDAR = 3, 9, 10
_JAVA: Final = 0
_JULIAN, _PROLEPTIC = 1, 2
_ZONE_OF_STRIPE: Final = 3
_OFFSET, _INDEX, _DATA, _FOOTER = 1, 2, 3, 4
_HEADER_BYTES: Final = 3
_MOST_BYTES: Final = 2**24
"""A block of a compressed footer has at most this size."""
_SECOND: Final = 10**9
_STORED_LATE: Final = 999_999
"""Fractions of more nanoseconds are stored with the second after."""


class OrcWriter:
    """Corrects the dates and times of a file as its writer meant them.

    Args:
        tail: The end of the file, as the library has serialized it: postscript and footer.
        content: The file, seekable.
    """

    def __init__(self, tail: bytes, content: IO[bytes]) -> None:
        self._tail, self._content = tail, content
        footer = dict(fields(footer_of(tail)))
        self._is_java = footer.get(_WRITER, _JAVA) == _JAVA
        calendar = footer.get(_CALENDAR)
        self._is_hybrid = calendar == _JULIAN or (self._is_java and calendar != _PROLEPTIC)
        self._offsets: dict[int, int] = {}

    def corrected(self, array: pa.Array, part: int) -> pa.Array:
        """Correct the dates and timestamps in a column of a stripe.

        Raises:
            OSError: There are such times, and the footer of the stripe cannot be read.
        """
        if self._is_hybrid:
            array = Calendar.hybrid().convert(array, repeat(False))
        return changed(array, lambda leaf: self._leaf(leaf, part)) if self._is_java else array

    def _leaf(self, array: pa.Array, part: int) -> pa.Array:
        kind = array.type
        if not pa.types.is_timestamp(kind) or kind.tz is not None:
            return array
        numbers = array.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        seconds, fractions = numbers // _SECOND, numbers % _SECOND
        late = (fractions > _STORED_LATE) & (abs(seconds) < 86400)  # noqa: PLR2004 - of a day
        if not late.any():
            return array
        offset = self._offset(part)
        clock = np.where(seconds < 0, seconds + 1, seconds)  # before the library took one off
        before = late & (clock >= 0) & (clock < offset)
        after = late & (clock < 0) & (clock >= offset)
        if not (before | after).any():
            return array
        right = numbers + (after.astype(np.int64) - before) * _SECOND
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        return pa.array(right, pa.int64(), mask=nulls).view(kind)

    def _offset(self, part: int) -> int:
        """Find how many seconds east of UTC the writer of a stripe was when 1970 began there."""
        if part not in self._offsets:
            stripe = messages_of(footer_of(self._tail), _STRIPES)[part]
            places = {tag: value for tag, value in fields(stripe) if isinstance(value, int)}
            self._content.seek(sum(places.get(each, 0) for each in (_OFFSET, _INDEX, _DATA)))
            found = dict(fields(self._plain(self._content.read(places.get(_FOOTER, 0)))))
            name = found.get(_ZONE_OF_STRIPE, b"UTC")
            zone = find_zone(name.decode("utf-8", "replace") if isinstance(name, bytes) else "")
            if zone is None:
                raise OSError(f"stripe {part} was written in the time zone {name!r}, unknown here")
            self._offsets[part] = offset_of(zone, 0)
        return self._offsets[part]

    def _plain(self, data: bytes) -> bytes:
        """Decompress what is in a footer of a stripe."""
        post = dict(fields(next(iter(messages_of(self._tail, _POSTSCRIPT)), b"")))
        codec = post.get(_COMPRESSION, 0)
        return b"".join(_blocks(data, codec if isinstance(codec, int) else 0)) if codec else data


def _blocks(data: bytes, codec: int) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        header = int.from_bytes(data[place : place + _HEADER_BYTES], "little")
        begin, place = place + _HEADER_BYTES, place + _HEADER_BYTES + (header >> 1)
        block = data[begin:place]
        if header & 1:
            yield block
        elif codec in _UNPACK:
            yield _UNPACK[codec](block)
        else:
            raise OSError("the footers of its stripes are in a compression that is not read here")


def _zlib(block: bytes) -> bytes:
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(block, _MOST_BYTES)


def _zstd(block: bytes) -> bytes:
    found: bytes = pa.CompressedInputStream(pa.BufferReader(block), "zstd").read(_MOST_BYTES)
    return found


_UNPACK: Final[dict[int, Callable[[bytes], bytes]]] = {
    1: _zlib,
    2: lambda block: unpack_snappy(block, _MOST_BYTES),
    4: lambda block: unpack_lz4(block, _MOST_BYTES),
    5: _zstd,
}
"""By the number of a codec in the postscript."""


_FOOTER_OF_TAIL: Final = 2
_TYPES_OF_FOOTER = 4
_ROWS_OF_STRIPE: Final = 5
_KIND, _CHILDREN, _NAMES, _PRECISION = 1, 2, 3, 5
_DECIMAL: Final = 14
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class _Type:
    """A type of the footer: its kind, the places and names of its children, its precision."""

    kind: int
    children: list[int]
    names: list[str]
    precision: int


def unscaled_decimals(tail: bytes) -> dict[int, str]:
    """Find the columns that are, or hold, a decimal without a precision.

    Args:
        tail: The end of the file, as the library has serialized it: postscript and footer.

    Returns:
        The path of the first such decimal, by the position of its column.

    Raises:
        ValueError: It is no such message, or its types do not make a tree.
    """
    types = [_type(value) for value in messages_of(footer_of(tail), _TYPES_OF_FOOTER)]
    if not any(each.kind == _DECIMAL and not each.precision for each in types):
        return {}
    found: dict[int, str] = {}
    root = types[0]
    for column, (place, name) in enumerate(zip(root.children, root.names, strict=True)):
        path = _first_unscaled(types, place, name)
        if path is not None:
            found[column] = path
    return found


def rows_of_stripes(tail: bytes) -> list[int]:
    """List how many rows each stripe says it has.

    Args:
        tail: As of `unscaled_decimals`.

    Raises:
        ValueError: It is no such message.
    """
    found = []
    for stripe in messages_of(footer_of(tail), _STRIPES):
        rows = [value for tag, value in fields(stripe) if tag == _ROWS_OF_STRIPE]
        found.append(max((each for each in rows if isinstance(each, int)), default=0))
    return found


def footer_of(tail: bytes) -> bytes:
    """Find the footer in the end of a file."""
    return next(iter(messages_of(tail, _FOOTER_OF_TAIL)), b"")


def messages_of(message: bytes, wanted: int) -> list[bytes]:
    """List the messages of a kind in a message."""
    return [value for tag, value in fields(message) if tag == wanted and isinstance(value, bytes)]


def _first_unscaled(types: list[_Type], place: int, path: str) -> str | None:
    """Find the first decimal without a precision at or below a type, in the file's order."""
    waiting = [(place, path)]
    while waiting:
        place, path = waiting.pop()
        if place >= len(types):
            raise ValueError("its footer names a type that it does not have")
        found = types[place]
        if found.kind == _DECIMAL and not found.precision:
            return path
        if any(each <= place for each in found.children):
            raise ValueError("its types do not make a tree")
        names = found.names or [""] * len(found.children)
        inner = zip(found.children, names, strict=True)
        waiting += reversed([(each, f"{path}.{name}" if name else path) for each, name in inner])
    return None


def _type(message: bytes) -> _Type:
    kind, precision = 0, 0
    children: list[int] = []
    names: list[str] = []
    for tag, value in fields(message):
        if tag == _NAMES and isinstance(value, bytes):
            names.append(value.decode("utf-8", "backslashreplace"))
        elif tag == _CHILDREN:
            children += list(_varints(value)) if isinstance(value, bytes) else [value]
        elif isinstance(value, int) and tag == _KIND:
            kind = value
        elif isinstance(value, int) and tag == _PRECISION:
            precision = value
    return _Type(kind, children, names, precision)


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: numbers and values; numbers of fixed width as bytes."""
    place = 0
    while place < len(message):
        key, place = varint(message, place)
        wire = key & 7
        if wire == _VARINT:
            number, place = varint(message, place)
            yield key >> 3, number
            continue
        if wire == _BYTES:
            size, place = varint(message, place)
        elif wire in {_EIGHT_BYTES, _FOUR_BYTES}:
            size = 8 if wire == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"its footer has a field of the unknown kind {wire}")
        if place + size > len(message):
            raise ValueError("its footer ends too early")
        yield key >> 3, message[place : place + size]
        place += size


def _varints(packed: bytes) -> Iterator[int]:
    place = 0
    while place < len(packed):
        number, place = varint(packed, place)
        yield number
