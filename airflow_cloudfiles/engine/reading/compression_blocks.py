"""Read how LZ4 and Snappy are framed in files.

Both compress blocks in memory; how blocks make up a file is defined elsewhere:

- Hadoop, and so Spark, writes for each block its size, then for each compressed chunk of it the
  chunk's size and the chunk (`BlockCompressorStream`); all sizes take four bytes, big end first.
- Snappy's own framing format has typed chunks with checksums.

(LZ4's own frames are read by Arrow.)
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import cache
from typing import IO, Final

from airflow_cloudfiles.engine.formats.content import unpack_snappy

_MAX_BLOCK_BYTES: Final = 256 * 2**20
"""Largest block; Hadoop's default is 256 KiB."""
_SIZE_BYTES: Final = 4
BUFFER_BYTES: Final = 2**20
"""What streams read ahead."""

Unpack = Callable[[bytes, int], bytes]
"""Decompresses a chunk to at most so many bytes; a `ValueError` or `OSError` when it cannot."""
Damage = Callable[[str], Exception]
"""Makes the error that says why a file is damaged."""


class _Chunks(io.RawIOBase):
    """A stream of what an iterator gives."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._chunk = memoryview(b"")
        self._failure: BaseException | None = None

    def readable(self) -> bool:
        """Return true, always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer, at least in part, unless everything was read."""
        if self._failure is not None:
            raise self._failure  # a generator that has failed would seem to be at its end
        try:
            while not self._chunk:
                self._chunk = memoryview(next(self._chunks))
        except StopIteration:
            return 0
        except BaseException as error:
            self._failure = error
            raise
        count = min(len(buffer), len(self._chunk))
        buffer[:count] = self._chunk[:count]
        self._chunk = self._chunk[count:]
        return count


def stream_of(chunks: Iterator[bytes]) -> IO[bytes]:
    """Make a stream of the bytes that an iterator gives; what it raises, reading raises."""
    return io.BufferedReader(_Chunks(chunks), BUFFER_BYTES)


def hadoop_blocks(source: IO[bytes], unpack: Unpack, damage: Damage) -> Iterator[bytes]:
    """Yield the content of a file in Hadoop's layout.

    Args:
        source: The compressed bytes.
        unpack: Of the compression.
        damage: For errors.
    """
    while header := _take(source, _SIZE_BYTES, damage, may_end=True):
        left = int.from_bytes(header, "big")
        while left:
            size = int.from_bytes(_take(source, _SIZE_BYTES, damage), "big")
            if max(size, left) > _MAX_BLOCK_BYTES:
                raise damage(f"it has a block of more than {_MAX_BLOCK_BYTES} bytes")
            packed = _take(source, size, damage)
            try:
                content = unpack(packed, left)
            except (ValueError, OSError, IndexError) as error:
                raise damage(str(error)) from error
            if not content:
                raise damage("it has a chunk of nothing")
            left -= len(content)
            yield content


def _take(source: IO[bytes], size: int, damage: Damage, *, may_end: bool = False) -> bytes:
    """So many bytes; none at the end of the file, if it may end here."""
    content = source.read(size)
    if len(content) < size and (content or not may_end):
        raise damage("it ends early")
    return content


_PACKED, _PLAIN, _FIRST_SKIPPABLE, _MARK = 0x00, 0x01, 0x80, 0xFF
_MAX_FRAME_BYTES: Final = 65536


def snappy_frames(source: IO[bytes], damage: Damage) -> Iterator[bytes]:
    """Yield the content of Snappy's framing format (`framing_format.txt`), checked."""
    while header := _take(source, _SIZE_BYTES, damage, may_end=True):
        body = _take(source, int.from_bytes(header[1:], "little"), damage)
        kind = header[0]
        if kind in {_PACKED, _PLAIN}:
            yield _content(body, damage, is_packed=kind == _PACKED)
        elif kind == _MARK and body != b"sNaPpY":
            raise damage("it has a frame of another format")
        elif kind < _FIRST_SKIPPABLE:
            raise damage(f"it has a frame of the unknown kind {kind}")


def _content(body: bytes, damage: Damage, *, is_packed: bool) -> bytes:
    """Decompress the content of a frame."""
    try:
        content = unpack_snappy(body[4:], _MAX_FRAME_BYTES) if is_packed else body[4:]
    except (ValueError, OSError, IndexError) as error:
        raise damage(str(error)) from error
    checksum = int.from_bytes(body[:4], "little")
    if len(body) <= _SIZE_BYTES or _masked_crc32c(content) != checksum:
        raise damage("a checksum does not fit")
    return content


def _masked_crc32c(content: bytes) -> int:
    """Compute the checksum of the framing format."""
    table = _crc32c_table()
    crc = 0xFFFFFFFF
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table
