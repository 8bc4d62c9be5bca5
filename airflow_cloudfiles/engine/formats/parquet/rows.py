"""How many rows of a row group may be read at once?

So many that they take some `MOST_BATCH_BYTES`, whatever the file says of itself. Where the headers
of the pages cannot tell how long the strings are (a dictionary has short and long ones), the
places in the dictionary are read first, without the strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.formats.columnar import nested
from airflow_cloudfiles.engine.formats.columnar.reader import BATCH_BYTES
from airflow_cloudfiles.engine.formats.columnar.types import is_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_cloudfiles.engine.formats.arrays import Int64s
    from airflow_cloudfiles.engine.formats.parquet.pages import Leaf

MOST_BATCH_BYTES: Final = 2 * BATCH_BYTES
"""What the rows that are read at once take, at most, unless a single one takes more."""
_LEVELS_BYTES: Final = 4
_UNKNOWN: Final = 2**63
_MOST_TIMES: Final = 1000
"""Lists of more than `limit` bytes are read if the file has a thousandth of them."""


def rows_at_once(
    leaves: Sequence[Leaf],
    rows: int,
    wanted: int,
    limit: int,
    places: Callable[[list[str], int], Iterator[pa.RecordBatch]] | None,
) -> int:
    """How many rows of a row group are read at once.

    Args:
        leaves: What the pages of the columns that are read are like.
        rows: How many rows the row group has.
        wanted: How many would be read by what they take on average.
        limit: The most bytes of a record.
        places: Gives some columns of the row group, some rows at a time, as places in their
            dictionaries; `None` where the file has two columns of one name.

    Raises:
        OSError: A record would take more than the limit.
    """
    _check(leaves, limit)
    row_bytes = 0.0
    for each in leaves:
        fixed = each.width + each.dense + (2 * each.repeatable if each.shares else 0)
        row_bytes += (fixed + _LEVELS_BYTES) * _values_of_row(each, rows)
    wanted = max(1, min(wanted, int(MOST_BATCH_BYTES / max(1.0, row_bytes))))
    named = [each for each in leaves if each.by_dictionary and not each.shares]
    if _most(named, wanted) > MOST_BATCH_BYTES and places is not None:
        first = next(places([each.path for each in named], 1), None)
        if first is None:
            return wanted  # it has no row, whatever its pages say
        for leaf, longest in zip(named, _longest(first), strict=True):
            leaf.repeatable = min(leaf.repeatable, longest)
    most = _most(named, wanted)
    if most <= MOST_BATCH_BYTES:
        return wanted
    if places is None:
        return max(1, wanted * MOST_BATCH_BYTES // most)
    wanted = 2 ** (wanted.bit_length() - 1)
    return _measured(places([each.path for each in named], wanted), wanted, limit)


def _most(named: Sequence[Leaf], rows: int) -> int:
    """The most bytes that strings of dictionaries take in so many rows."""
    return sum(each.repeatable * (each.values if each.is_repeated else rows) for each in named)


def _longest(batch: pa.RecordBatch) -> Iterator[int]:
    """The bytes of the longest string of each dictionary."""
    waiting = list(reversed(batch.columns))
    while waiting:
        array = waiting.pop()
        kind = array.type
        if pa.types.is_dictionary(kind):
            lengths = pc.binary_length(array.dictionary.cast(pa.large_binary()))
            # Where the first value is null, the dictionary is not there yet.
            yield int(pc.max(lengths).as_py() or 0) if len(array.dictionary) else _UNKNOWN
        elif pa.types.is_struct(kind):
            waiting += [array.field(place) for place in reversed(range(kind.num_fields))]
        elif pa.types.is_map(kind):
            waiting += [array.items, array.keys]
        elif is_list(kind):
            waiting.append(array.values)


def _check(leaves: Sequence[Leaf], limit: int) -> None:
    """Refuse what no number of rows makes small."""
    at_once = sum(each.largest for each in leaves)
    if at_once > limit:
        raise _too_large(at_once, limit)
    for each in leaves:
        listed = each.values * (each.width + _LEVELS_BYTES) if each.is_repeated else 0
        if listed > max(limit, _MOST_TIMES * each.packed):
            raise _too_large(listed, limit)


def _too_large(found: int, limit: int) -> OSError:
    return OSError(
        f"a record of it takes {found} bytes in memory or more, and {limit} are the most that is "
        "read (maxRecordBytes)"
    )


def _values_of_row(leaf: Leaf, rows: int) -> float:
    return leaf.values / max(1, rows) if leaf.is_repeated else 1.0


def _measured(batches: Iterator[pa.RecordBatch], rows: int, limit: int) -> int:
    """How many rows take `MOST_BATCH_BYTES` wherever they are in the row group; a power of two."""
    fewest = rows
    for batch in batches:
        sizes = np.zeros(batch.num_rows, np.int64)
        for each in batch.columns:
            sizes += _bytes_of_each(each)
        if len(sizes) and int(sizes.max()) > limit:
            raise _too_large(int(sizes.max()), limit)
        while fewest > 1 and _heaviest(sizes, fewest) > MOST_BATCH_BYTES:
            fewest //= 2
    return fewest


def _heaviest(sizes: Int64s, rows: int) -> int:
    """The most bytes of so many rows, where one such part begins behind the other."""
    return int(np.add.reduceat(sizes, np.arange(0, len(sizes), rows)).max()) if len(sizes) else 0


def _bytes_of_each(array: pa.Array) -> Int64s:
    """The bytes of the strings in each value, were each of them written out."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths = pc.fill_null(pc.binary_length(array.dictionary.cast(pa.large_binary())), 0)
        places = pc.fill_null(array.indices, 0).to_numpy()
        found = lengths.to_numpy().astype(np.int64)
        return found[places] if len(found) else np.zeros(len(array), np.int64)
    if pa.types.is_struct(kind):
        total = np.zeros(len(array), np.int64)
        for child in array.flatten():
            total += _bytes_of_each(child)
        return total
    if pa.types.is_map(kind):
        keys, items = nested.entries(array)
        return _bytes_of_lists(array, _bytes_of_each(keys) + _bytes_of_each(items))
    if is_list(kind):
        array = nested.listed(array)
        return _bytes_of_lists(array, _bytes_of_each(nested.elements(array)))
    return np.zeros(len(array), np.int64)


def _bytes_of_lists(array: pa.Array, sizes: Int64s) -> Int64s:
    """The bytes of lists or maps, of the bytes of their elements."""
    if not len(array):
        return np.zeros(0, np.int64)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    offsets = array.offsets.to_numpy().astype(np.int64)
    offsets -= offsets[0]
    found: Int64s = before[offsets[1:]] - before[offsets[:-1]]
    return found
