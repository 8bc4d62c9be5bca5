"""Parquet files with maps whose keys are marked as optional, as other writers write them."""

from __future__ import annotations

import pyarrow as pa

from tests.support.formats.columnar_files import MemoryFile, parquet


def pairs(key: pa.DataType, value: pa.DataType) -> pa.DataType:
    """The type of a list that `with_optional_keys` makes a map."""
    pair = pa.struct([("key", key), ("value", value)])
    return pa.list_(pa.field("element", pair, nullable=False))


def with_optional_keys(table: pa.Table, *names: str) -> MemoryFile:
    """A file in which lists of pairs (`pairs`) are annotated as maps.

    The levels of the values are those of a map: the element of a list, which is required, goes.
    """
    data = parquet(table).data
    size = int.from_bytes(data[-8:-4], "little")
    footer = bytearray(data[-8 - size : -8])
    repeated = b"\x35\x04\x18\x04list\x15\x02\x00\x35\x00\x18\x07element\x15\x04\x00"
    for name in names:
        group = b"\x18" + bytes([len(name)]) + name.encode() + b"\x15\x02"
        as_list, as_map = b"\x15\x06\x4c\x3c\x00\x00\x00", b"\x15\x02\x4c\x2c\x00\x00\x00"
        assert group + as_list + repeated in footer
        pair = b"\x35\x04\x18\x09key_value\x15\x04\x00"
        footer = footer.replace(group + as_list + repeated, group + as_map + pair)
        assert footer[2] == 0x19
        footer[3] -= 0x10  # one element less in the list of them
    whole = data[: -8 - size] + bytes(footer) + len(footer).to_bytes(4, "little") + b"PAR1"
    return MemoryFile(whole)
