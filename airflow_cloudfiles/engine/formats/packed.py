"""Unpack what several formats pack alike: blocks of LZ4 and Snappy, and numbers in few bytes."""

from __future__ import annotations

from typing import Final

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
