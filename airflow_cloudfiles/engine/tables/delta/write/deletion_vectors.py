"""Delete rows by deletion vectors: data files stay, and the log says which of their rows are gone.

Where a table has `delta.enableDeletionVectors=true`. All vectors of a commit are in one file, which
is written before the commit. A vector is that of `read.deletion_vectors`, without runs.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-files
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from airflow_cloudfiles.engine.options.metadata_columns import STRUCT
from airflow_cloudfiles.engine.tables.delta.read.actions import DeletionVector
from airflow_cloudfiles.engine.tables.delta.read.deletion_vectors import (
    BIT_SET_BYTES,
    MAGIC,
    MOST_IN_ARRAY,
    WITHOUT_RUNS,
    Z85,
)
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.tables.delta.read.table_state import VECTORS
from airflow_cloudfiles.engine.tables.delta.statistics import stats_json
from airflow_cloudfiles.engine.tables.delta.write.log_commit import added

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
    from airflow_cloudfiles.engine.tables.delta.read.deletion_vectors import Rows
    from airflow_cloudfiles.engine.tables.delta.read.table_state import TableState

PROPERTY: Final = "delta.enableDeletionVectors"
_FORMAT: Final = b"\x01"
"""The first byte of a file of vectors."""


def takes_vectors(state: TableState) -> bool:
    """Tell whether rows of a table are to be deleted by vectors.

    Not beside a column `_metadata`: Delta's own reader on Spark finds the numbers of rows by a
    struct of that name. Such a table with a vector is one that it cannot read at all.
    """
    is_asked = state.configuration.get(PROPERTY, "").lower() == "true"
    has_struct = any(name.lower() == STRUCT for name in state.columns.names)
    return is_asked and VECTORS in state.features and not has_struct


def adds_of(location: DeltaLocation, version: int, names: Collection[str]) -> dict[str, Any]:
    """Read the actions that add some data files to a version of a table, by path in the log.

    A file is missing whose action is in no part of the log that is read here.
    """
    log = TableLog(location)
    segment = log.listing(whole=True).segment(location.target, version)
    return {add["path"]: add for add, _ in added(log, segment, names)}


def marked(
    location: DeltaLocation, adds: Mapping[str, Any], deleted: Mapping[str, tuple[Rows, int]]
) -> tuple[str, list[dict[str, Any]]]:
    """Write vectors to a new file, and build the actions that add their data files with them.

    Args:
        location: The table.
        adds: Actions that add the data files, by path in the log.
        deleted: Of each of these the numbers of all its deleted rows, in order, and how many rows
            it has with them.

    Returns:
        The name of the new file, which no version has yet; and the actions.

    Raises:
        OSError: The storage failed.
    """
    name = uuid.uuid4()
    content, actions = _FORMAT, []
    for path, (rows, count) in deleted.items():
        vector = encode(rows)
        said = DeletionVector("u", _base85(name.bytes), len(vector), len(rows), len(content))
        content += struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
        # The bounds stay, and are those of rows that may be gone.
        stats = json.loads(adds[path].get("stats") or "{}", parse_float=Decimal)
        more = {
            "dataChange": True,
            "deletionVector": msgspec.to_builtins(said),
            "stats": stats_json({**stats, "numRecords": count, "tightBounds": False}),
        }
        actions.append({"add": {**adds[path], **more}})
    key = f"deletion_vector_{name}.bin"
    location.store().put(key, content)
    return key, actions


def encode(rows: Rows) -> bytes:
    """Build the bytes of a vector of row numbers, which are in order and differ."""
    uppers, starts = np.unique(rows >> 32, return_index=True)
    found = [struct.pack("<IQ", MAGIC, len(uppers))]
    for upper, lower in zip(uppers.tolist(), _split(rows & 0xFFFFFFFF, starts), strict=True):
        found += [struct.pack("<I", upper), _bitmap(lower)]
    return b"".join(found)


def _bitmap(values: Rows) -> bytes:
    """Build a 32-bit bitmap."""
    uppers, starts = np.unique(values >> 16, return_index=True)
    containers = [_container(each) for each in _split(values & 0xFFFF, starts)]
    counts = np.diff(starts, append=len(values))
    heads = np.column_stack([uppers, counts - 1]).astype("<u2").tobytes()
    first = 8 + len(heads) + 4 * len(containers)
    begins = np.cumsum([first, *map(len, containers[:-1])]).astype("<u4").tobytes()
    return b"".join([struct.pack("<II", WITHOUT_RUNS, len(containers)), heads, begins, *containers])


def _split(values: Rows, starts: Rows) -> list[Rows]:
    return np.split(values, starts[1:])


def _container(values: Rows) -> bytes:
    """Build a container of values, or of bits."""
    if len(values) <= MOST_IN_ARRAY:
        return values.astype("<u2").tobytes()
    bits = np.zeros(8 * BIT_SET_BYTES, np.uint8)
    bits[values] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _base85(content: bytes) -> str:
    numbers = struct.unpack(f">{len(content) // 4}I", content)
    digits = (Z85[each // 85**place % 85] for each in numbers for place in range(4, -1, -1))
    return "".join(digits)
