"""Find the records in an Avro file.

A file has a header, with the schema and the compression, and blocks: how many records, how many
bytes, the compressed records, and a mark of 16 bytes that is the same throughout the file
(Avro 1.12, "Object Container Files"). A block belongs to the range of bytes its first byte is in;
the mark before it finds it from anywhere.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa

from airflow_cloudfiles.engine.formats.packed import SNAPPY_RATIO, snappy_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    _Decompress = Callable[[bytes, int], bytes]

MAGIC: Final = b"Obj\x01"
_MAX_EMPTY_RECORDS: Final = 2**24
"""Most records of a block whose records take no bytes."""
_MAX_HEADER_BYTES: Final = 64 * 2**20
_SYNC_BYTES: Final = 16
_FIRST_BYTES, _CHUNK_BYTES = 2**16, 2**22
"""What is asked of the storage at once: little for a header, then more and more."""
_MAX_VARINT_BYTES: Final = 10
_XZ_MEMORY_BYTES: Final = 512 * 2**20


class AvroDamagedError(ValueError):
    """The file is not valid; the text says why."""


@dataclass(frozen=True, slots=True)
class AvroBlock:
    """Records as they are encoded.

    Attributes:
        start: Position of its first byte in the file.
        count: How many records it says it holds.
        data: Their bytes, decompressed.
    """

    start: int
    count: int
    data: bytes


class Container:
    """An open file.

    Args:
        stream: The file's own bytes, seekable.
        limit: A block of more bytes, compressed or not, is refused: it is read as a whole.

    Attributes:
        metadata: What its header says besides the schema.
        schema: Its schema, as JSON.

    Raises:
        AvroDamagedError: It is no Avro file.
    """

    def __init__(self, stream: IO[bytes], limit: int = 2**30) -> None:
        self._stream = stream
        self._limit = limit
        self._bytes = _Bytes(stream, 0)
        if self._bytes.take(len(MAGIC)) != MAGIC:
            raise AvroDamagedError("it does not begin as an Avro file does")
        metadata = self.metadata = self._bytes.metadata()
        self._sync = self._bytes.take(_SYNC_BYTES)
        self._first = self._bytes.position
        if "avro.schema" not in metadata:
            raise AvroDamagedError("its header has no schema")
        self.schema: bytes = metadata["avro.schema"]
        codec = metadata.get("avro.codec", b"null").decode("ascii", "replace")
        if codec not in _CODECS:
            raise AvroDamagedError(
                f"its blocks are compressed by {codec!r}; {', '.join(_CODECS)} can be read"
            )
        self._decompress = _CODECS[codec]

    def first_block(self, start: int, end: int | None) -> int | None:
        """Position of the first block that begins in `[start, end)`; `None` if none does."""
        if start <= self._first:
            at_end = self._bytes.position == self._first and self._bytes.at_end()
            beyond = end is not None and self._first >= end
            return None if at_end or beyond else self._first
        position = start - _SYNC_BYTES
        self._stream.seek(position)
        overlap = b""
        while end is None or position + _SYNC_BYTES < end:
            chunk = overlap + self._stream.read(_CHUNK_BYTES)
            place = chunk.find(self._sync)
            if place >= 0:
                found = position + place + _SYNC_BYTES
                self._bytes = _Bytes(self._stream, found)
                self._stream.seek(found)
                return None if (end is not None and found >= end) or self._bytes.at_end() else found
            if len(chunk) <= len(overlap):
                return None
            overlap = chunk[1 - _SYNC_BYTES :]
            position += len(chunk) - len(overlap)
        return None

    def blocks(self, first: int, end: int | None) -> Iterator[AvroBlock]:
        """Yield the blocks from one on that begin before `end`.

        Raises:
            AvroDamagedError: The file ends in the middle of a block, or a block is not valid.
        """
        if self._bytes.position != first:
            self._stream.seek(first)
            self._bytes = _Bytes(self._stream, first)
        while not self._bytes.at_end():
            start = self._bytes.position
            if end is not None and start >= end:
                return
            count, size = self._bytes.varint(), self._bytes.varint()
            if count < 0 or size < 0:
                raise AvroDamagedError(f"the block at byte {start} has an impossible size")
            self._check(size, start)
            packed = self._bytes.take(size)
            if self._bytes.take(_SYNC_BYTES) != self._sync:
                raise AvroDamagedError(f"the block at byte {start} does not end with the mark")
            try:
                data = self._decompress(packed, self._limit)
            except (zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, IndexError) as error:
                raise AvroDamagedError(f"the block at byte {start} is damaged ({error})") from error
            self._check(len(data), start)
            if count > max(len(data), _MAX_EMPTY_RECORDS):
                raise AvroDamagedError(f"the block at byte {start} claims {count} records")
            yield AvroBlock(start, count, data)

    def _check(self, size: int, start: int) -> None:
        if size > self._limit:
            raise AvroDamagedError(
                f"the block at byte {start} has more than {self._limit} bytes of records, which "
                "are the most that is read (maxRecordBytes)"
            )


class _Bytes:
    """A stream that is read from a position on, in large pieces."""

    def __init__(self, stream: IO[bytes], position: int) -> None:
        self._stream = stream
        self._chunk = b""
        self._at = 0
        self._ask = _FIRST_BYTES
        self.position = position

    def at_end(self) -> bool:
        """Tell whether everything was read."""
        if self._at == len(self._chunk):
            self._chunk, self._at = self._stream.read(self._ask), 0
            self._ask = min(4 * self._ask, _CHUNK_BYTES)
        return not self._chunk

    def take(self, size: int) -> bytes:
        """Read the next bytes."""
        taken = self._chunk[self._at : self._at + size]
        self._at += len(taken)
        if len(taken) < size:
            parts, missing = [taken], size - len(taken)
            while missing and not self.at_end():
                part = self._chunk[:missing]
                self._at = len(part)
                parts.append(part)
                missing -= len(part)
            if missing:
                raise AvroDamagedError(f"it ends in the middle, at byte {self.position + size}")
            taken = b"".join(parts)
        self.position += size
        return taken

    def varint(self) -> int:
        """Read the next number, as Avro writes a long."""
        number = shift = 0
        for _ in range(_MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the last byte of a number
                return number >> 1 ^ -(number & 1)
            shift += 7
        raise AvroDamagedError(f"it has a number of more than 64 bits before byte {self.position}")

    def metadata(self) -> Mapping[str, bytes]:
        """Read the next map of bytes."""
        found: dict[str, bytes] = {}
        while count := self.varint():
            if count < 0:
                self.varint()
            for _ in range(abs(count)):
                key = self._sized().decode("utf-8", "replace")
                found[key] = self._sized()
                if self.position > _MAX_HEADER_BYTES:
                    raise AvroDamagedError("its header is too large")
        return found

    def _sized(self) -> bytes:
        size = self.varint()
        if not 0 <= size <= _MAX_HEADER_BYTES:
            raise AvroDamagedError("its header is not valid")
        return self.take(size)


def _by(new: Callable[[], Any], *, may_have_more: bool = False) -> _Decompress:
    """Build what the standard library decompresses with, in one piece.

    Args:
        new: Makes a decompressor.
        may_have_more: Whether something may stand behind the end, which is no part of it.
    """

    def decompress(packed: bytes, limit: int) -> bytes:
        one = new()
        data: bytes = one.decompress(packed, limit + 1)
        ends = one.eof and (may_have_more or not one.unused_data)
        if not ends and len(data) <= limit:
            raise EOFError("its compressed content ends early, or has more behind its end")
        return data

    return decompress


def _zstandard(packed: bytes, limit: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        data: bytes = stream.read(limit + 1)
    return data


def _snappy(packed: bytes, limit: int) -> bytes:
    """Snappy, and behind it the CRC-32 of what it holds."""
    body, checksum = packed[:-4], int.from_bytes(packed[-4:], "big")
    size = snappy_size(body)
    if size > SNAPPY_RATIO * len(body):
        raise AvroDamagedError("it claims to be larger than it can be")
    if size > limit:
        raise AvroDamagedError(
            f"it has {size} bytes of records, and {limit} are the most that is read "
            "(maxRecordBytes)"
        )
    data = pa.decompress(body, size, codec="snappy", asbytes=True) if size else b""
    if zlib.crc32(data) != checksum:
        raise AvroDamagedError("its checksum does not fit")
    return data


_CODECS: Final[dict[str, _Decompress]] = {
    "null": lambda packed, _: packed,
    # Some writers leave a checksum behind raw deflate.
    "deflate": _by(partial(zlib.decompressobj, -zlib.MAX_WBITS), may_have_more=True),
    "snappy": _snappy,
    "bzip2": _by(bz2.BZ2Decompressor),
    "xz": _by(partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)),
    "zstandard": _zstandard,
}
