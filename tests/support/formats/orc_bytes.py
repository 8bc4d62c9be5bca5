"""ORC files as other writers wrote them, made of those of the library; for tests."""

from __future__ import annotations

import pyarrow as pa

from tests.support.formats.columnar_files import MemoryFile, orc_file

_VERSION_0_12 = bytes([0x22, 2, 0, 12])


def of_hive_11(table: pa.Table) -> MemoryFile:
    """A file whose `decimal128(38, 6)` have neither precision nor scale in the footer."""
    data = orc_file(table, compression="uncompressed").data
    post = data[-1 - data[-1] :]
    length, end = _varint(post, 1)
    begin = len(data) - len(post) - length
    footer = data[begin : begin + length]
    # A type in the field 4 of the footer: kind 14, no greatest length, precision 38, scale 6.
    told = bytes([0x22, 8, 0x08, 14, 0x20, 0, 0x28, 38, 0x30, 6])
    assert told in footer
    footer = footer.replace(told, told[:1] + bytes([4]) + told[2:6])
    post = post[:1] + _as_varint(len(footer)) + post[end:-1]
    return MemoryFile(data[:begin] + footer + post + bytes([len(post)]))


def of_version(major: int, minor: int, table: pa.Table) -> MemoryFile:
    """A file that says it is of another version of the format."""
    data = orc_file(table).data
    begin = data.rindex(_VERSION_0_12)
    return MemoryFile(data[: begin + 2] + bytes([major, minor]) + data[begin + 4 :])


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if data[place - 1] < 0x80:
            return number, place


def _as_varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))
