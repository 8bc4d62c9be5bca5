"""What is in this Parquet file?

Opens a file, tells its types as Spark's reader sees them, and gives its row groups in batches of
bounded memory. What the file's metadata says beyond Parquet's own types (the Arrow schema that
some writers add) never changes a value; see `columnar_types.plain_type`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cloudfiles.engine.formats.columnar_reader import BATCH_BYTES, Chunk, names_of
from airflow_cloudfiles.engine.formats.columnar_types import is_list

_BUFFERED_BYTES: Final = 64 * 2**20
"""The columns of a row group that takes more, compressed, are fetched piece by piece."""
_BUFFER_BYTES: Final = 2**20
_MOST_ROWS: Final = 2**16
"""Values that share a dictionary take more in memory than the file tells, so rows are limited."""
_FEWEST_ROWS: Final = 64


class ParquetFile:
    """An open Parquet file.

    Args:
        content: The file, seekable; its owner closes it.

    Raises:
        pyarrow.ArrowException, OSError: It is no Parquet file, or cannot be read.
    """

    def __init__(self, content: IO[bytes]) -> None:
        self._content = content
        self._file = self._opened(None, is_large=False)
        self._metadata = self._file.metadata
        groups = (self._metadata.row_group(each) for each in range(self._metadata.num_row_groups))
        if any(_compressed_bytes(each) > _BUFFERED_BYTES for each in groups):
            self._file = self._opened(self._metadata, is_large=True)
        leaves = iter(self._file.schema)
        self._found = self._file.schema_arrow
        self.schema: pa.Schema = pa.schema(
            [pa.field(each.name, _corrected(each.type, leaves)) for each in self._found]
        )

    def _opened(self, metadata: pq.FileMetaData | None, *, is_large: bool) -> pq.ParquetFile:
        # A row group that is fetched at once takes few requests; a large one takes too much memory.
        return pq.ParquetFile(
            self._content,
            metadata=metadata,
            buffer_size=_BUFFER_BYTES if is_large else 0,
            pre_buffer=not is_large,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
            arrow_extensions_enabled=False,
        )

    def parts(self, start: int, end: int | None) -> list[int]:
        """The row groups whose first byte is in `[start, end)`."""
        found = []
        for number in range(self._metadata.num_row_groups):
            first = _first_byte(self._metadata.row_group(number))
            if start <= first and (end is None or first < end):
                found.append(number)
        return found

    def chunks(self, parts: list[int], columns: list[int]) -> Iterator[Chunk]:
        """The rows of some row groups, in order."""
        for part in parts:
            group = self._metadata.row_group(part)
            if not columns:
                yield Chunk(group.num_rows, [])
                continue
            rows = 0
            for chunk in self._group_chunks(part, group, columns):
                rows += chunk.rows
                yield chunk
            if rows != group.num_rows:
                raise OSError(f"row group {part} has {rows} rows, not {group.num_rows} as it says")

    def _group_chunks(
        self, part: int, group: pq.RowGroupMetaData, columns: list[int]
    ) -> Iterator[Chunk]:
        names = names_of(self._found, columns)
        places = columns if names is None else list(range(len(columns)))
        batches = self._file.iter_batches(
            _rows_at_once(group), row_groups=[part], columns=names, use_threads=False
        )
        for batch in batches:
            batch.validate()
            arrays = [
                self._corrected_array(batch.column(place), column)
                for place, column in zip(places, columns, strict=True)
            ]
            yield Chunk(batch.num_rows, arrays)

    def _corrected_array(self, array: pa.Array, column: int) -> pa.Array:
        """The array with the type that `schema` tells."""
        kind = self.schema.field(column).type
        return array if kind == self._found.field(column).type else array.view(kind)


def _compressed_bytes(group: pq.RowGroupMetaData) -> int:
    columns = (group.column(each) for each in range(group.num_columns))
    return int(sum(each.total_compressed_size for each in columns))


def _rows_at_once(group: pq.RowGroupMetaData) -> int:
    """How many rows take about `BATCH_BYTES`."""
    if not group.num_rows:
        return _FEWEST_ROWS
    row_bytes = max(1, group.total_byte_size // group.num_rows)
    return int(min(_MOST_ROWS, max(_FEWEST_ROWS, BATCH_BYTES // row_bytes)))


def _first_byte(group: pq.RowGroupMetaData) -> int:
    """Where a row group begins; 0 for one without columns, which has no place."""
    if not group.num_columns:
        return 0
    column = group.column(0)
    pages = column.data_page_offset, column.dictionary_page_offset
    return int(max(0, min(each for each in pages if each is not None)))


def _corrected(kind: pa.DataType, leaves: Iterator[pq.ColumnSchema]) -> pa.DataType:
    """An Arrow type as Spark sees the Parquet type it was made from.

    INT96 is an instant; an enumeration is a string.
    """
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _corrected(each.type, leaves)) for each in kind])
    if pa.types.is_map(kind):
        key = _corrected(kind.key_type, leaves)
        return pa.map_(key, _corrected(kind.item_type, leaves))
    if is_list(kind):
        element = _corrected(kind.value_type, leaves)
        return kind if element == kind.value_type else _list_of(kind, element)
    leaf = next(leaves)
    if leaf.physical_type == "INT96":
        return pa.timestamp("us", "UTC")
    if leaf.logical_type.type == "ENUM" and kind == pa.binary():
        return pa.string()
    return kind


def _list_of(kind: pa.DataType, element: pa.DataType) -> pa.DataType:
    """A list of the same layout with other elements."""
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(element, kind.list_size)
    return pa.large_list(element) if pa.types.is_large_list(kind) else pa.list_(element)
