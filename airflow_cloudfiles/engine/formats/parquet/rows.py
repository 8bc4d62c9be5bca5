"""Say how many rows of a row group may be read at once.

So many that they take some `MOST_BATCH_BYTES`, whatever the file says of itself. Where the headers
of the pages cannot tell how long the strings are (a dictionary has short and long ones), the
places in the dictionary are read first, without the strings.

What its pages may become in memory bounds how many rows are read at once.

A page says, before it is decompressed, how many values it holds, how they are encoded and how
many bytes it has then. That is all that the library goes by, so the headers of pages are read
here, not what the footer says of them: a file of some hundred bytes can name one long string of a
dictionary ten thousand times.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.formats.columnar import types
from airflow_cloudfiles.engine.formats.columnar.reader import BATCH_BYTES
from airflow_cloudfiles.engine.formats.columnar.types import is_list
from airflow_cloudfiles.engine.formats.parquet.footer import Compact, Fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow.parquet as pq

    from airflow_cloudfiles.engine.formats.base import Int64s

MOST_BATCH_BYTES: Final = 2 * BATCH_BYTES
"""What the rows that are read at once take, at most, unless a single one takes more."""
_LEVELS_BYTES: Final = 4
_UNKNOWN: Final = 2**63
_MOST_TIMES: Final = 1000
"""Lists of more than `limit` bytes are read if the file has a thousandth of them."""


class RecordTooLargeError(ValueError):
    """A record takes more memory than is allowed."""


def rows_at_once(
    leaves: Sequence[ColumnPages],
    rows: int,
    wanted: int,
    limit: int,
    places: Callable[[list[str], int], Iterator[pa.RecordBatch]] | None,
) -> int:
    """Compute how many rows of a row group are read at once.

    Args:
        leaves: What the pages of the columns that are read are like.
        rows: How many rows the row group has.
        wanted: How many would be read by what they take on average.
        limit: The most bytes of a record.
        places: Gives some columns of the row group, some rows at a time, as places in their
            dictionaries; `None` where the file has two columns of one name.

    Raises:
        RecordTooLargeError: A record would take more than the limit.
    """
    _check(leaves, limit)
    row_bytes = 0.0
    for each in leaves:
        fixed = each.width + each.dense + (2 * each.repeatable if each.shares else 0)
        row_bytes += (fixed + _LEVELS_BYTES) * (
            each.values / max(1, rows) if each.is_repeated else 1.0
        )
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


def _most(named: Sequence[ColumnPages], rows: int) -> int:
    """Find the most bytes that strings of dictionaries take in that many rows."""
    return sum(each.repeatable * (each.values if each.is_repeated else rows) for each in named)


def _longest(batch: pa.RecordBatch) -> Iterator[int]:
    """Yield the bytes of the longest string of each dictionary."""
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


def _check(leaves: Sequence[ColumnPages], limit: int) -> None:
    """Refuse what no number of rows makes small."""
    at_once = sum(each.largest for each in leaves)
    if at_once > limit:
        raise _too_large(at_once, limit)
    for each in leaves:
        listed = each.values * (each.width + _LEVELS_BYTES) if each.is_repeated else 0
        if listed > max(limit, _MOST_TIMES * each.packed):
            raise _too_large(listed, limit)


def _too_large(found: int, limit: int) -> RecordTooLargeError:
    return RecordTooLargeError(
        f"a record of it takes {found} bytes in memory or more, and {limit} are the most that is "
        "read (maxRecordBytes)"
    )


def _measured(batches: Iterator[pa.RecordBatch], rows: int, limit: int) -> int:
    """Measure how many rows take `MOST_BATCH_BYTES` anywhere in the row group; a power of two."""
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
    """Find the most bytes of that many rows, where one such part begins behind the other."""
    return int(np.add.reduceat(sizes, np.arange(0, len(sizes), rows)).max()) if len(sizes) else 0


def _bytes_of_each(array: pa.Array) -> Int64s:
    """Compute the bytes of the strings in each value, were each of them written out."""
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
        keys, items = types.entries(array)
        return _bytes_of_lists(array, _bytes_of_each(keys) + _bytes_of_each(items))
    if is_list(kind):
        array = types.listed(array)
        return _bytes_of_lists(array, _bytes_of_each(types.elements(array)))
    return np.zeros(len(array), np.int64)


def _bytes_of_lists(array: pa.Array, sizes: Int64s) -> Int64s:
    """Compute the bytes of lists or maps from the bytes of their elements."""
    if not len(array):
        return np.zeros(0, np.int64)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    offsets = array.offsets.to_numpy().astype(np.int64)
    offsets -= offsets[0]
    found: Int64s = before[offsets[1:]] - before[offsets[:-1]]
    return found


_TYPE, _UNPACKED, _PACKED, _DATA, _DICTIONARY, _DATA_2 = 1, 2, 3, 5, 7, 8
"""Fields of a `PageHeader`."""
_DICTIONARY_PAGE: Final = 2
_VALUES, _ENCODING, _ENCODING_2 = 1, 2, 4
"""Fields of the headers of a kind of page; the encoding has another number in version 2."""
_BY_DICTIONARY: Final = {2, 8}
_BY_SHARED_BEGINNINGS: Final = 7
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "BYTE_ARRAY": 4}
_WIDEST: Final = 8
_WINDOW, _LARGEST_HEADER = 2**10, 2**24
_PADDING: Final = 100
"""Bytes that writers of old left out of the size of a column (PARQUET-816)."""


@dataclass(slots=True)
class ColumnPages:
    """The pages of a column without fields, in one row group.

    Attributes:
        path: Its name in the file.
        width: Bytes of a value in memory; of a string, without the string.
        is_repeated: Whether a row may have several values.
        packed: Bytes that it takes in the file.
        values: How many values its pages have.
        largest: Bytes of its largest page and of its dictionary, decompressed.
        repeatable: Bytes that each value may have though the file has them once: those of the
            dictionary, or of a page whose strings share their beginnings.
        dense: Bytes of a string, where each is in the file: most of any page, on average.
        by_dictionary: Whether strings are named by their place in a dictionary.
        shares: Whether a string is written as what follows the beginning of the one before.
    """

    path: str
    width: int
    is_repeated: bool
    packed: int
    values: int = 0
    largest: int = 0
    repeatable: int = 0
    dense: int = 0
    by_dictionary: bool = False
    shares: bool = False


def range_of(column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Find where a column of a row group begins and ends, as the library takes it."""
    begin = int(column.data_page_offset)
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < begin:
        begin = int(column.dictionary_page_offset)
    return begin, begin + max(1, int(column.total_compressed_size)) + _PADDING


def leaf_of(
    content: IO[bytes], column: pq.ColumnChunkMetaData, schema: pq.ColumnSchema
) -> ColumnPages:
    """Read the headers of the pages of a column of a row group, as the library will.

    Raises:
        OSError: A header is not as the format has it.
    """
    is_text = column.physical_type == "BYTE_ARRAY"
    width = _WIDTHS.get(column.physical_type, _WIDEST)
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        width = int(schema.length)
    leaf = ColumnPages(
        column.path_in_schema,
        width,
        is_repeated=schema.max_repetition_level > 0,
        packed=max(1, int(column.total_compressed_size)),
    )
    place, end = range_of(column)
    end = min(end, content.seek(0, io.SEEK_END))
    dictionary = 0
    while leaf.values < column.num_values and place < end:
        header, place = _header(content, place)
        unpacked, packed = _number(header, _UNPACKED), _number(header, _PACKED)
        if header.get(_TYPE) == _DICTIONARY_PAGE:
            if dictionary or leaf.values:
                raise OSError("a column has a dictionary that is not before its values")
            dictionary = unpacked
            leaf.repeatable = unpacked if is_text else 0
        else:
            _add(leaf, header, unpacked, is_text=is_text)
        place += packed
    leaf.largest += dictionary
    return leaf


def _add(leaf: ColumnPages, header: Fields, unpacked: int, *, is_text: bool) -> None:
    """Count a page of data."""
    about = header.get(_DATA, header.get(_DATA_2))
    if not isinstance(about, dict):
        return  # of a kind that the library passes over
    values = _number(about, _VALUES)
    encoding = about.get(_ENCODING if _DATA in header else _ENCODING_2)
    leaf.values += values
    leaf.largest = max(leaf.largest, unpacked)
    if not is_text:
        return
    if encoding in _BY_DICTIONARY:
        leaf.by_dictionary = True
    elif encoding == _BY_SHARED_BEGINNINGS:
        leaf.shares = True
        leaf.repeatable = max(leaf.repeatable, unpacked)
    else:
        leaf.dense = max(leaf.dense, unpacked // max(1, values))


def _header(content: IO[bytes], place: int) -> tuple[Fields, int]:
    """Read the header of a page, and find where its content begins."""
    window = _WINDOW
    while True:
        content.seek(place)
        data = content.read(window)
        message = Compact(data, 0)
        try:
            return message.struct(), place + message.place
        except (ValueError, RecursionError) as error:
            if len(data) < window or window >= _LARGEST_HEADER:
                raise OSError(f"the header of its page at byte {place} is damaged") from error
            window *= 2**4


def _number(fields: Fields, number: int) -> int:
    """Read a number that cannot be below zero."""
    found = fields.get(number)
    if not isinstance(found, int) or found < 0:
        raise OSError("the header of one of its pages is damaged")
    return found
