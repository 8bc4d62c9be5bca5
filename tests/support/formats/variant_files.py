"""Parquet files with VARIANTs, shredded or not, as other writers write them; for tests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from airflow_cloudfiles.engine.formats.variant import encode
from tests.support.formats.columnar_files import MemoryFile, parquet

NOTHING = b"\x01\x00\x00"
"""A dictionary without names."""
UNSHREDDED = pa.struct([pa.field("metadata", pa.binary(), nullable=False), ("value", pa.binary())])
_ANNOTATION = bytes([0x5C, 0x0C, 0x20, 0x13, 1, 0, 0])
"""In a schema element behind its number of children: `logicalType`, of it `VARIANT`, version 1."""


def shredded(kind: pa.DataType, *, value: bool = True) -> pa.DataType:
    """A group of `value` and `typed_value`."""
    return pa.struct([*([("value", pa.binary())] if value else []), ("typed_value", kind)])


def variant(kind: pa.DataType) -> pa.DataType:
    """A VARIANT shredded into a type."""
    metadata = pa.field("metadata", pa.binary(), nullable=False)
    return pa.struct([metadata, *shredded(kind)])


def plain(value: Any) -> dict[str, bytes] | None:
    """A value that is not shredded; `None` for no value."""
    encoded, metadata = encode(value)
    return {"metadata": metadata, "value": encoded}


def annotated(table: pa.Table, *names: str) -> MemoryFile:
    """A file whose groups of these names are annotated as VARIANTs."""
    data = parquet(table).data
    size = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - size : -8]
    for name in names:
        for children in (2, 3):
            element = bytes([0x18, len(name)]) + name.encode() + bytes([0x15, 2 * children])
            footer = footer.replace(element + b"\x00", element + _ANNOTATION + b"\x00")
    assert footer.count(_ANNOTATION) >= len(names)
    whole = data[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    return MemoryFile(whole)
