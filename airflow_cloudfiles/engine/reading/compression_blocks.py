"""Read how LZ4 and Snappy are framed in files.

Both compress blocks in memory; how blocks make up a file is defined elsewhere:

- Hadoop, and so Spark, writes for each block its size, then for each compressed chunk of it the
  chunk's size and the chunk (`BlockCompressorStream`); all sizes take four bytes, big end first.
- Snappy's own framing format has typed chunks with checksums.

(LZ4's own frames are read by Arrow.)
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from typing import IO, Final

_MAX_BLOCK_BYTES: Final = 256 * 2**20
"""Largest block; Hadoop's default is 256 KiB."""
_LZ4_RATIO: Final = 255
"""LZ4 makes at most 255 bytes of one."""
_SNAPPY_RATIO: Final = 64
"""Snappy makes at most 64 bytes of two or three."""
_SIZE_BYTES: Final = 4

Unpack = Callable[[bytes, int], bytes]
"""Decompresses a chunk to at most so many bytes; a `ValueError` or `OSError` when it cannot."""
Damage = Callable[[str], Exception]
"""Makes the error that says why a file is damaged."""


class _Chunks(io.RawIOBase):
    """A stream that comes in chunks."""

    def __init__(self, source: IO[bytes], damage: Damage) -> None:
        super().__init__()
        self._source, self._damage = source, damage
        self._chunk = memoryview(b"")

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer, at least in part, unless everything was read."""
        if not self._chunk:
            self._chunk = memoryview(self._next_chunk())
        count = min(len(buffer), len(self._chunk))
        buffer[:count] = self._chunk[:count]
        self._chunk = self._chunk[count:]
        return count

    @abstractmethod
    def _next_chunk(self) -> bytes:
        """The next chunk that is not empty; nothing at the end."""

    def _take(self, size: int, *, may_end: bool = False) -> bytes:
        """So many bytes; none at the end of the file, if it may end here."""
        content = self._source.read(size)
        if len(content) < size and (content or not may_end):
            raise self._damage("it ends early")
        return content


class HadoopBlocks(_Chunks):
    """Hadoop's layout.

    Args:
        source: The compressed bytes.
        unpack: Of the compression.
        damage: For errors.
    """

    def __init__(self, source: IO[bytes], unpack: Unpack, damage: Damage) -> None:
        super().__init__(source, damage)
        self._unpack = unpack
        self._left = 0

    def _next_chunk(self) -> bytes:
        while not self._left:
            header = self._take(_SIZE_BYTES, may_end=True)
            if not header:
                return b""
            self._left = int.from_bytes(header, "big")
        size = int.from_bytes(self._take(_SIZE_BYTES), "big")
        if max(size, self._left) > _MAX_BLOCK_BYTES:
            raise self._damage(f"it has a block of more than {_MAX_BLOCK_BYTES} bytes")
        packed = self._take(size)
        try:
            content = self._unpack(packed, self._left)
        except (ValueError, OSError, IndexError) as error:
            raise self._damage(str(error)) from error
        if not content:
            raise self._damage("it has a chunk of nothing")
        self._left -= len(content)
        return content


def unpack_snappy(packed: bytes, most: int) -> bytes:
    """Decompress a block of Snappy."""
    import pyarrow as pa  # noqa: PLC0415 - only such files pay for it

    size = shift = position = 0
    while True:
        size |= (packed[position] & 0x7F) << shift
        if packed[position] < 0x80:  # noqa: PLR2004 - the last byte of a number
            break
        position, shift = position + 1, shift + 7
    if size > min(most, _SNAPPY_RATIO * len(packed)):
        raise ValueError("it has a chunk that claims to be larger than its block")
    if not size:
        return b""
    return pa.decompress(packed, decompressed_size=size, codec="snappy", asbytes=True)  # type: ignore[no-any-return]


def unpack_lz4(packed: bytes, most: int) -> bytes:
    """Decompress a block of LZ4, which does not say how large it is."""
    most = min(most, _LZ4_RATIO * len(packed))
    content = _try_lz4(packed, most)
    if content is None:
        raise ValueError("it has a chunk that is not LZ4, or larger than its block")
    # Arrow does not report how much it is: as much as asked for, if it cannot be one byte less.
    if most > 1 and _try_lz4(packed, most - 1) is None:
        return content
    return content[: _lz4_size(packed)]


def _try_lz4(packed: bytes, size: int) -> bytes | None:
    import pyarrow as pa  # noqa: PLC0415 - only such files pay for it

    try:
        return pa.decompress(packed, decompressed_size=size, codec="lz4_raw", asbytes=True)  # type: ignore[no-any-return]
    except OSError:
        return None


def _lz4_size(packed: bytes) -> int:
    """The size of a valid block: the sum of its literals and matches."""
    size = position = 0
    while position < len(packed):
        token = packed[position]
        literals, position = _lz4_length(packed, position + 1, token >> 4)
        size += literals
        position += literals
        if position >= len(packed):  # the last sequence has no match
            break
        match, position = _lz4_length(packed, position + 2, token & 0xF)
        size += match + 4
    return size


def _lz4_length(packed: bytes, position: int, begun: int) -> tuple[int, int]:
    """A length that began in a token, and the position after it."""
    length = begun
    if begun == 0xF:  # noqa: PLR2004 - bytes follow, as long as they are 255
        while True:
            length += packed[position]
            position += 1
            if packed[position - 1] != 0xFF:  # noqa: PLR2004
                break
    return length, position


class SnappyFrames(_Chunks):
    """Snappy's framing format (`framing_format.txt` of its project), with its checksums."""

    _PACKED, _PLAIN, _FIRST_SKIPPABLE, _MARK = 0x00, 0x01, 0x80, 0xFF
    _MAX_BYTES = 65536

    def _next_chunk(self) -> bytes:
        while header := self._take(_SIZE_BYTES, may_end=True):
            body = self._take(int.from_bytes(header[1:], "little"))
            kind = header[0]
            if kind in {self._PACKED, self._PLAIN}:
                content = self._content(kind, body)
                if content:
                    return content
            elif kind == self._MARK and body != b"sNaPpY":
                raise self._damage("it has a frame of another format")
            elif kind < self._FIRST_SKIPPABLE:
                raise self._damage(f"it has a frame of the unknown kind {kind}")
        return b""

    def _content(self, kind: int, body: bytes) -> bytes:
        try:
            content = unpack_snappy(body[4:], self._MAX_BYTES) if kind == self._PACKED else body[4:]
        except (ValueError, OSError, IndexError) as error:
            raise self._damage(str(error)) from error
        if len(body) <= _SIZE_BYTES or _masked_crc32c(content) != int.from_bytes(
            body[:4], "little"
        ):
            raise self._damage("a checksum does not fit")
        return content


def _masked_crc32c(content: bytes) -> int:
    """The checksum of the framing format."""
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
