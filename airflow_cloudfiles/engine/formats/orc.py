"""Read an ORC file.

Opens a file, tells its types as Spark's reader sees them, and gives its stripes one by one. A
stripe is read whole, as ORC's library does; writers keep stripes at some 64 MB. The library reads
its columns by turns, a little of each, so its bytes are held until it is read. ORC has no
checksums: a flipped bit can go unnoticed, and one damaged file in a thousand makes the library end
the process.

What the footers say of the writer, the types and the stripes is read here:

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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import IO, TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyarrow import orc

from airflow_cloudfiles.engine.formats.columnar.casts import HYBRID, changed
from airflow_cloudfiles.engine.formats.columnar.reader import (
    BATCH_BYTES,
    Chunk,
    ColumnarInference,
    ColumnarReader,
    names_of,
)
from airflow_cloudfiles.engine.formats.columnar.types import leaf_types
from airflow_cloudfiles.engine.formats.content import Blocks, unpack_lz4, unpack_snappy, varint
from airflow_cloudfiles.engine.formats.datetimes.default_format import find_zone, offset_of
from airflow_cloudfiles.engine.messages import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_cloudfiles.engine.options.formats.columnar import OrcOptions


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
            array = HYBRID.convert(array, repeat(False))
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


_FEWEST_ROWS: Final = 64
_MOST_ROWS: Final = 2**16
_VALUE_BYTES: Final = 8
_MOST_TIMES: Final = 1000
_SPARK_TYPE: Final = b"spark.sql.catalyst.type"
"""The attribute in which Spark keeps its own type of a column."""
_VERSIONS: Final = {"0.11", "0.12", "1.9999"}
"""The versions that Spark's reader takes, too; the last is that of files before ORC 2."""
_UNSCALED: Final = pa.decimal128(38, 6)
"""What the library makes of a decimal without a precision."""


class OrcFile:
    """An open ORC file.

    Args:
        content: The file, seekable; its owner closes it.
        options: A stripe of more bytes in memory than a record may have is refused if the file has
            less than a thousandth of them.

    Raises:
        pyarrow.ArrowException, OSError: It is no ORC file, or cannot be read.
    """

    def __init__(self, content: IO[bytes], options: OrcOptions) -> None:
        self._limit = options.max_record_bytes
        self._content = Blocks(content)
        self._file = orc.ORCFile(self._content)
        if self._file.file_version not in _VERSIONS:
            raise OSError(
                f"it was written in version {self._file.file_version} of the format, which is "
                "later than the newest known here"
            )
        self._found = self._file.schema
        tail = self._file.reader.serialized_file_tail()
        self._writer = OrcWriter(tail, content)
        leaves = (leaf for field in self._found for leaf in leaf_types(field.type))
        self._unscaled = unscaled_decimals(tail) if _UNSCALED in leaves else {}
        self.schema: pa.Schema = pa.schema(
            [field.with_type(_corrected(field)) for field in self._found]
        )

    def check_exact(self, columns: Iterable[int] | None = None) -> None:
        """Refuse columns whose values the library would cut; of all columns, unless some are named.

        Raises:
            OSError: One is, or holds, a decimal without a precision, as Hive 0.11 wrote it.
        """
        wanted = self._unscaled if columns is None else self._unscaled.keys() & set(columns)
        for column in sorted(wanted):
            raise OSError(
                f"its column {self._unscaled[column]} is a decimal without a precision, as Hive "
                "0.11 wrote it, of which only six digits after the point would be read. Write it "
                "anew with a later Hive or with Spark, which read it as decimal(38,10)"
            )

    def _check_size(self, parts: list[int], columns: list[int]) -> None:
        """Refuse a stripe whose rows take too much without what their strings and lists take."""
        width = sum(
            len(list(leaf_types(self._found.field(column).type))) * _VALUE_BYTES
            for column in columns
        )
        most = max(self._limit, _MOST_TIMES * self._file.file_length)
        rows = rows_of_stripes(self._file.reader.serialized_file_tail())
        if len(rows) != self._file.nstripes:
            raise OSError("its footer does not name the stripes that it has")
        for part in parts:
            if rows[part] * width > most:
                raise OSError(
                    f"stripe {part} of it takes {rows[part] * width} bytes in memory or more, and "
                    f"{self._limit} are the most that is read of so small a file (maxRecordBytes)"
                )

    def parts(self, start: int, end: int | None) -> list[int]:
        """List the stripes of a range of bytes.

        The library does not tell where stripes begin. They are taken to be of equal size, which
        gives each of them to one range, as the true places would.
        """
        stripes = self._file.nstripes
        size = self._file.file_length
        places = ((number, number * size // stripes) for number in range(stripes))
        return [number for number, at in places if start <= at and (end is None or at < end)]

    def rows_before(self, parts: list[int]) -> int | None:
        """Count the rows before the first of some stripes: the library does not tell."""
        return 0 if 0 in parts else None

    def chunks(self, parts: list[int], columns: list[int]) -> Iterator[Chunk]:
        """Yield the rows of some stripes, in order.

        Raises:
            OSError: As of `check_exact`, for these columns.
        """
        self.check_exact(columns)
        if not len(self.schema):
            if 0 in parts:
                for begin in range(0, self._file.nrows, _MOST_ROWS):
                    yield Chunk(min(_MOST_ROWS, self._file.nrows - begin), [])
            return
        # Without any column the library does not tell how many rows a stripe has.
        wanted = columns or [0]
        names = names_of(self._found, wanted)
        self._check_size(parts, wanted if names else list(range(len(self._found))))
        places = wanted if names is None else range(len(wanted))
        total = 0
        for part in parts:
            with self._content.holding():
                batch = self._file.read_stripe(part, columns=names)
            batch.validate()
            total += batch.num_rows
            rows = max(_FEWEST_ROWS, BATCH_BYTES * batch.num_rows // max(1, batch.nbytes))
            for begin in range(0, batch.num_rows, rows):
                piece = batch.slice(begin, rows)
                found = [
                    self._corrected_array(piece.column(place), column, part)
                    for place, column in zip(places, wanted, strict=True)
                ]
                yield Chunk(piece.num_rows, found if columns else [])
        if len(parts) == self._file.nstripes and total != self._file.nrows:
            raise OSError(f"it has {counted(total, 'row')}, not {self._file.nrows} as it says")

    def _corrected_array(self, array: pa.Array, column: int, part: int) -> pa.Array:
        """Give the array the type that `schema` tells, in today's calendar."""
        kind = self.schema.field(column).type
        if any(map(pa.types.is_temporal, leaf_types(kind))):
            array = self._writer.corrected(array, part)
        return array if kind == self._found.field(column).type else array.view(kind)


def _corrected(field: pa.Field) -> pa.DataType:
    """Correct an Arrow type to how Spark sees the ORC type it was made from.

    ORC's plain timestamp is Spark's timestamp, taken for UTC as every time without a zone; Spark
    writes its timestamps without a zone as numbers of microseconds, and says so in an attribute.
    """
    kind = field.type
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_corrected(each)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_corrected(kind.key_field)),
            kind.item_field.with_type(_corrected(kind.item_field)),
        )
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_corrected(kind.value_field)))
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC")
    if kind == pa.int64() and (field.metadata or {}).get(_SPARK_TYPE) == b"timestamp_ntz":
        return pa.timestamp("us")
    return kind


class OrcReader(ColumnarReader):
    """Reads ORC files with one schema; see `ColumnarReader`."""

    format, file = "ORC", OrcFile


class OrcInference(ColumnarInference):
    """Learns the schema of ORC files from their footers; see `ColumnarInference`."""

    format, file = "ORC", OrcFile

    def open(self, content: IO[bytes]) -> OrcFile:
        """Read the footer of a file; refuse one with a column that could not be read exactly."""
        file: OrcFile = super().open(content)
        file.check_exact()
        return file
