"""Read which rows of a data file are deleted.

A deletion vector is a 64-bit roaring bitmap in the portable format: a count, then for each upper
half of a row number the lower halves as a 32-bit bitmap. It is in the log itself or in a file that
several vectors share, where its length stands before it and its checksum behind it.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-format
    https://github.com/RoaringBitmap/RoaringFormatSpec
"""

from __future__ import annotations

import struct
import uuid
import zlib
from typing import TYPE_CHECKING, Final

import numpy as np

from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.tables.delta.read.actions import DeletionVector

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS: Final = {digit: value for value, digit in enumerate(Z85)}
MAGIC: Final = 1681511377
_WITH_RUNS, WITHOUT_RUNS = 12347, 12346
"""First numbers of the two kinds of 32-bit bitmaps."""
_OFFSETS_FROM: Final = 4
"""From so many containers on, a bitmap with runs says where each of them begins."""
MOST_IN_ARRAY: Final = 4096
"""A container with more values is a bit set."""
BIT_SET_BYTES: Final = 8192
_MOST_IN_CONTAINER: Final = 2**16
_UUID_CHARACTERS: Final = 20


class DamagedVectorError(ValueError):
    """A deletion vector is not what the protocol has; the text says in which way."""


def vector_file(vector: DeletionVector) -> str | None:
    """Return the file of a vector; `None` for one that is in the log itself.

    Returns:
        For a file of the table, its path relative to the table. Otherwise an absolute one, as the
        log has it: percent-encoded.

    Raises:
        DamagedVectorError: It is stored in no way that the protocol knows.
    """
    text = vector.path_or_inline_dv
    if vector.storage_type == "u":
        prefix, encoded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
        name = f"deletion_vector_{uuid.UUID(bytes=_base85(encoded))}.bin"
        return f"{prefix}/{name}" if prefix else name
    if vector.storage_type == "p":
        return text
    if vector.storage_type == "i":
        return None
    raise DamagedVectorError(f"its storage type is {vector.storage_type!r}, not u, p or i")


def deleted_rows(vector: DeletionVector, read: Callable[[int, int], bytes]) -> Rows:
    """Return the numbers of the deleted rows, in order; the first row is 0.

    Args:
        vector: Of a data file.
        read: Gives `length` bytes from `start` of the file of the vector. Not called for a vector
            that is in the log itself.

    Raises:
        DamagedVectorError: What is there is not the vector.
    """
    if vector.storage_type == "i":
        content = _base85(vector.path_or_inline_dv)[: vector.size_in_bytes]
    else:
        content = _framed(vector, read)
    try:
        rows = _parsed(content)
    except (struct.error, ValueError, IndexError) as error:
        if isinstance(error, DamagedVectorError):
            raise
        raise DamagedVectorError("it ends too early") from error
    if len(rows) != vector.cardinality:
        raise DamagedVectorError(f"it has {counted(len(rows), 'row')}, not {vector.cardinality}")
    return rows


def _framed(vector: DeletionVector, read: Callable[[int, int], bytes]) -> bytes:
    """Read the bytes of a vector in a file, framed by its length and its checksum."""
    size, offset = vector.size_in_bytes, vector.offset or 0
    if min(size, offset) < 0:
        raise DamagedVectorError(f"its offset is {offset}, and its length {size}")
    framed = read(offset, size + 8)
    if len(framed) != size + 8:
        raise DamagedVectorError("its file ends too early")
    content = framed[4:-4]
    found_size, checksum = struct.unpack(f">I{size}xI", framed)
    if found_size != size:
        raise DamagedVectorError(f"it has {found_size} bytes, not {size}")
    if zlib.crc32(content) != checksum:
        raise DamagedVectorError("its checksum is wrong")
    return content


def _base85(text: str) -> bytes:
    """Decode Z85 (ZeroMQ RFC 32): five characters are four bytes."""
    if len(text) % 5:
        raise DamagedVectorError("its Base85 text has an odd length")
    found = bytearray()
    for start in range(0, len(text), 5):
        number = 0
        for digit in text[start : start + 5]:
            if digit not in _DIGITS:
                raise DamagedVectorError(f"its Base85 text has the character {digit!r}")
            number = number * 85 + _DIGITS[digit]
        if number >= 2**32:
            raise DamagedVectorError("its Base85 text is not valid")
        found += struct.pack(">I", number)
    return bytes(found)


def _parsed(content: bytes) -> Rows:
    """Parse the row numbers of a vector."""
    (magic,) = struct.unpack_from("<I", content)
    if magic != MAGIC:
        raise DamagedVectorError(f"it begins with {magic}, not {MAGIC}")
    (count,) = struct.unpack_from("<Q", content, 4)
    at = 12
    found: list[Rows] = []
    for _ in range(count):
        (upper,) = struct.unpack_from("<I", content, at)
        lower, at = _bitmap(content, at + 4)
        found.append(lower + (upper << 32))
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _bitmap(content: bytes, at: int) -> tuple[Rows, int]:
    """Parse a 32-bit bitmap; return its values and where it ends."""
    (cookie,) = struct.unpack_from("<I", content, at)
    at += 4
    has_run: NDArray[np.uint8] | None = None
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        length = (count + 7) // 8
        flags = np.frombuffer(content, np.uint8, length, at)
        has_run = np.unpackbits(flags, bitorder="little")
        at += length
    elif cookie == WITHOUT_RUNS:
        (count,) = struct.unpack_from("<I", content, at)
        at += 4
    else:
        raise DamagedVectorError(f"a bitmap in it begins with {cookie}")
    heads = np.frombuffer(content, "<u2", 2 * count, at).reshape(count, 2).tolist()
    at += 4 * count
    if has_run is None or count >= _OFFSETS_FROM:
        at += 4 * count
    found: list[Rows] = []
    for place, (upper, last) in enumerate(heads):
        is_run = has_run is not None and bool(has_run[place])
        values, at = _runs(content, at) if is_run else _container(content, at, last + 1)
        found.append(values + (upper << 16))
    return (np.concatenate(found) if found else np.empty(0, np.int64)), at


def _runs(content: bytes, at: int) -> tuple[Rows, int]:
    """Parse a container of runs: the first value of each run, and how many follow it."""
    (count,) = struct.unpack_from("<H", content, at)
    pairs = np.frombuffer(content, "<u2", 2 * count, at + 2).reshape(count, 2).tolist()
    if sum(more + 1 for _, more in pairs) > _MOST_IN_CONTAINER:
        raise DamagedVectorError("its runs overlap")
    runs = [np.arange(first, first + more + 1, dtype=np.int64) for first, more in pairs]
    return (np.concatenate(runs) if runs else np.empty(0, np.int64)), at + 2 + 4 * count


def _container(content: bytes, at: int, count: int) -> tuple[Rows, int]:
    """Parse a container of values, or of bits."""
    if count > MOST_IN_ARRAY:
        bits = np.unpackbits(np.frombuffer(content, np.uint8, BIT_SET_BYTES, at), bitorder="little")
        return np.flatnonzero(bits).astype(np.int64), at + BIT_SET_BYTES
    return np.frombuffer(content, "<u2", count, at).astype(np.int64), at + 2 * count
