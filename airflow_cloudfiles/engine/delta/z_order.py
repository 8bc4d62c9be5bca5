"""In which order are rows near that are near in several columns?

Of each column the values get their rank among all rows, spread over as many bits as the columns
share of 64. The bits of the ranks, taken in turns, make one number, by which the rows are sorted: a
curve that fills the space of the columns. Nulls come last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_BITS: Final = 64
_BATCH_ROWS: Final = 64 * 1024
_KINDS: Final = (
    pa.types.is_signed_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_date,
    pa.types.is_timestamp,
)


def can_z_order(kind: pa.DataType) -> bool:
    """Whether values of a type have an order here."""
    return any(is_kind(kind) for is_kind in _KINDS)


def z_ordered(
    rows: Iterable[pa.RecordBatch], schema: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Sort rows, which are all in memory for that.

    Args:
        rows: The rows.
        schema: Their columns.
        columns: Those to sort by; a row is as near to another as it is in all of them.
    """
    table = pa.Table.from_batches(rows, schema)
    bits = min(16, _BITS // len(columns))
    ranks = [_rank(table[name], bits) for name in columns]
    order = np.argsort(_interleaved(ranks, bits), kind="stable")
    for first in range(0, table.num_rows, _BATCH_ROWS):
        part = table.take(pa.array(order[first : first + _BATCH_ROWS])).combine_chunks()
        yield from part.to_batches()


def _rank(column: pa.ChunkedArray, bits: int) -> npt.NDArray[np.uint64]:
    """The rank of each value, from 0 to the largest number of so many bits."""
    found = pc.rank(column, tiebreaker="dense").to_numpy() - 1
    most = int(found.max(initial=0))
    scaled: npt.NDArray[np.uint64] = (found * ((2**bits - 1) / max(1, most))).astype(np.uint64)
    return scaled


def _interleaved(ranks: Sequence[npt.NDArray[np.uint64]], bits: int) -> npt.NDArray[np.uint64]:
    found = np.zeros(len(ranks[0]), dtype=np.uint64)
    for bit in range(bits):
        for place, rank in enumerate(ranks):
            one = (rank >> np.uint64(bit)) & np.uint64(1)
            found |= one << np.uint64(bit * len(ranks) + len(ranks) - 1 - place)
    return found
