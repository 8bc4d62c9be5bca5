"""Give libraries the bytes of a file, and unpack what several formats pack alike.

Two things the libraries of the columnar formats do not do themselves: telling why reading failed,
and asking a store for much at once. Blocks of LZ4 and Snappy, and numbers in few bytes, are
unpacked here.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Final

_LZ4_RATIO: Final = 255
"""LZ4 makes at most 255 bytes of one."""
SNAPPY_RATIO: Final = 64
"""Snappy makes at most 64 bytes of two or three."""


def unpack_snappy(packed: bytes, most: int) -> bytes:
    """Decompress a block of Snappy."""
    import pyarrow as pa  # noqa: PLC0415 - only such files pay for it

    size = snappy_size(packed)
    if size > min(most, SNAPPY_RATIO * len(packed)):
        raise ValueError("it has a chunk that claims to be larger than its block")
    if not size:
        return b""
    return pa.decompress(packed, decompressed_size=size, codec="snappy", asbytes=True)  # type: ignore[no-any-return]


def snappy_size(packed: bytes) -> int:
    """Read how large a block of Snappy says that its content is."""
    size = shift = position = 0
    while True:
        size |= (packed[position] & 0x7F) << shift
        if packed[position] < 0x80:  # noqa: PLR2004 - the last byte of a number
            return size
        position, shift = position + 1, shift + 7


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
    """Compute the size of a valid block: the sum of its literals and matches."""
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
    """Read a length that began in a token, and the position after it."""
    length = begun
    if begun == 0xF:  # noqa: PLR2004 - bytes follow, as long as they are 255
        while True:
            length += packed[position]
            position += 1
            if packed[position - 1] != 0xFF:  # noqa: PLR2004
                break
    return length, position


def varint(message: bytes, place: int) -> tuple[int, int]:
    """Read a number of a footer in as many bytes as it takes, and the place behind it.

    Raises:
        ValueError: It has more than 64 bits, or the message ends.
    """
    number = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            raise ValueError("its footer ends too early")
        byte = message[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the mark of the last byte
            return number, place
    raise ValueError("a number of it has more than 64 bits")


BLOCK_BYTES: Final = 4 * 2**20
"""What is asked for at once where a library asks for little, again and again."""
_KEPT_BLOCKS: Final = 2
_GAP_BYTES: Final = 2**14
"""Two ranges with fewer bytes between them are asked for as one."""


class _StreamAround(io.RawIOBase):
    """A seekable stream around another, whose owner closes it."""

    def __init__(self, content: IO[bytes]) -> None:
        super().__init__()
        self._content = content

    def readable(self) -> bool:
        """Return true, always."""
        return True

    def seekable(self) -> bool:
        """Return true, always."""
        return True

    def tell(self) -> int:
        """Return where the next byte is read."""
        return self._content.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to another position."""
        return self._content.seek(offset, whence)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read on into a buffer."""
        found = self.read(len(buffer)) or b""
        buffer[: len(found)] = found
        return len(found)

    def fileno(self) -> int:
        """Return the number of a file of this machine."""
        return self._content.fileno()


class WatchedBytes(_StreamAround):
    """The bytes of a file; remembers why they could not be read.

    The library of ORC makes its own error of whatever a stream raises. A store that does not
    answer is no damaged file: that would be given up for good with `ignoreCorruptFiles`.

    Attributes:
        failure: What the stream has raised.
    """

    def __init__(self, content: IO[bytes]) -> None:
        super().__init__(content)
        self.failure: Exception | None = None

    def read(self, size: int | None = -1) -> bytes:
        """Read on."""
        try:
            return self._content.read(-1 if size is None else size)
        except Exception as error:
            self.failure = self.failure or error
            raise


class Blocks(_StreamAround):
    """The bytes of a file; while it is `holding`, they are asked for in large blocks, once.

    For a library that reads some places of a part of a file by turns, and needs most of the part.
    A file of this machine is read as it is asked for: its system holds it.
    """

    def __init__(self, content: IO[bytes]) -> None:
        super().__init__(content)
        self._held: dict[int, bytes] = {}
        self._is_holding = False
        self._is_near = _is_near(content)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold the blocks of a part of the file; of these the last ones until the next part."""
        self._is_holding = not self._is_near
        try:
            yield
        finally:
            self._is_holding = False
            self._held = dict(sorted(self._held.items())[-_KEPT_BLOCKS:])

    def read(self, size: int | None = -1) -> bytes:
        """Read on."""
        if not self._is_holding or size is None or size < 0:
            return self._content.read(-1 if size is None else size)
        begin = self._content.tell()
        numbers = range(begin // BLOCK_BYTES, (begin + size - 1) // BLOCK_BYTES + 1)
        found = b"".join(
            self._block(each)[
                max(0, begin - each * BLOCK_BYTES) : begin + size - each * BLOCK_BYTES
            ]
            for each in numbers
        )
        self._content.seek(begin + len(found))
        return found

    def _block(self, number: int) -> bytes:
        if number not in self._held:
            self._content.seek(number * BLOCK_BYTES)
            self._held[number] = self._content.read(BLOCK_BYTES)
        return self._held[number]


class HeldBytes(_StreamAround):
    """The bytes of a file; some ranges of it are asked for once, and read as often as needed.

    A file of this machine is read as it is asked for: its system holds it.
    """

    def __init__(self, content: IO[bytes]) -> None:
        super().__init__(content)
        self._is_near = _is_near(content)
        self._held: list[tuple[int, bytes]] = []

    @contextmanager
    def holding(self, ranges: Iterable[tuple[int, int]]) -> Iterator[None]:
        """Hold ranges of the file, given by where they begin and end."""
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(ranges if not self._is_near else ()):
            if merged and begin <= merged[-1][1] + _GAP_BYTES:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        for begin, end in merged:
            self._content.seek(begin)
            self._held.append((begin, self._content.read(end - begin)))
        try:
            yield
        finally:
            self._held.clear()

    def read(self, size: int | None = -1) -> bytes:
        """Read on."""
        place = self._content.tell() if self._held else 0
        for begin, data in self._held:
            if size is not None and begin <= place and 0 <= size <= begin + len(data) - place:
                self._content.seek(place + size)
                return data[place - begin : place - begin + size]
        return self._content.read(-1 if size is None else size)


def _is_near(content: IO[bytes]) -> bool:
    """Tell whether a file is one of this machine."""
    try:
        return content.fileno() >= 0
    except io.UnsupportedOperation:
        return False
