"""Read the rows of an ORC or a Parquet file of a report.

The only module of discovery that needs pyarrow. It is imported when a report is of such a format:
sensors and the command line do without it for CSV.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc
from pyarrow import parquet as pq

_BATCH_ROWS: Final = 65_536
_MICROSECONDS_A_MILLISECOND: Final = 1000

Choose = Callable[[Sequence[str]], Sequence[str]]
"""Gives the names of the columns that are read, of all names; the third one is the time."""


def read_parquet(path: Path, choose: Choose) -> Iterator[list[Any]]:
    """Give the rows of a Parquet file.

    Raises:
        ValueError: It is none, or damaged.
        OSError: As above.
    """
    with pq.ParquetFile(path) as file:
        names = choose(file.schema_arrow.names)
        for batch in file.iter_batches(_BATCH_ROWS, columns=list(names), use_threads=False):
            yield from _rows(batch, names)


def read_orc(path: Path, choose: Choose) -> Iterator[list[Any]]:
    """Give the rows of an ORC file; arguments and errors as for `read_parquet`."""
    file = orc.ORCFile(path)
    names = choose(file.schema.names)
    for stripe in range(file.nstripes):
        read = file.read_stripe(stripe, columns=list(names))
        for start in range(0, read.num_rows, _BATCH_ROWS):
            yield from _rows(read.slice(start, _BATCH_ROWS), names)


def _rows(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[Any]:
    columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
    columns[2] = _microseconds(columns[2])
    return zip(*(_text(each).to_pylist() for each in columns), strict=True)


def _text(column: pa.Array) -> pa.Array:
    """Texts that a writer has not marked as such are bytes."""
    return column.cast(pa.string()) if pa.types.is_binary(column.type) else column


def _microseconds(column: pa.Array) -> pa.Array:
    """Read times as numbers; a whole number without a unit is milliseconds, as Azure writes it."""
    if pa.types.is_timestamp(column.type):
        zone = column.type.tz
        return column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
    if pa.types.is_integer(column.type):
        return pc.multiply(column.cast(pa.int64()), _MICROSECONDS_A_MILLISECOND)
    return column
