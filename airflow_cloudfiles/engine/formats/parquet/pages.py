"""What may the pages of a Parquet file become in memory?

A page says, before it is decompressed, how many values it holds, how they are encoded and how
many bytes it has then. That is all that the library goes by, so the headers of pages are read
here, not what the footer says of them: a file of some hundred bytes can name one long string of a
dictionary ten thousand times.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from airflow_cloudfiles.engine.formats.parquet.footer import Compact, Fields

if TYPE_CHECKING:
    import pyarrow.parquet as pq

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
class Leaf:
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
    """Where a column of a row group begins and ends, as the library takes it."""
    begin = int(column.data_page_offset)
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < begin:
        begin = int(column.dictionary_page_offset)
    return begin, begin + max(1, int(column.total_compressed_size)) + _PADDING


def leaf_of(content: IO[bytes], column: pq.ColumnChunkMetaData, schema: pq.ColumnSchema) -> Leaf:
    """Read the headers of the pages of a column of a row group, as the library will.

    Raises:
        OSError: A header is not as the format has it.
    """
    is_text = column.physical_type == "BYTE_ARRAY"
    width = _WIDTHS.get(column.physical_type, _WIDEST)
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        width = int(schema.length)
    leaf = Leaf(
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


def _add(leaf: Leaf, header: Fields, unpacked: int, *, is_text: bool) -> None:
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
    """The header of a page, and where its content begins."""
    window = _WINDOW
    while True:
        data = _read(content, place, window)
        message = Compact(data, 0)
        try:
            return message.struct(), place + message.place
        except (ValueError, RecursionError) as error:
            if len(data) < window or window >= _LARGEST_HEADER:
                raise OSError(f"the header of its page at byte {place} is damaged") from error
            window *= 2**4


def _read(content: IO[bytes], place: int, size: int) -> bytes:
    content.seek(place)
    return content.read(size)


def _number(fields: Fields, number: int) -> int:
    """A number that cannot be below zero."""
    found = fields.get(number)
    if not isinstance(found, int) or found < 0:
        raise OSError("the header of one of its pages is damaged")
    return found
