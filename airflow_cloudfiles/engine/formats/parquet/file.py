"""Read a Parquet file.

Opens a file, tells its types as Spark's reader sees them, and gives its row groups in batches of
bounded memory. What the file's metadata says beyond Parquet's own types (the Arrow schema that
some writers add) never changes a value; see `formats.columnar.types.plain_type`.

Parquet files become batches row group by row group.

Their columns are those that their footers name.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import IO, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_cloudfiles.engine.formats.columnar.casts import Calendar
from airflow_cloudfiles.engine.formats.columnar.reader import (
    BATCH_BYTES,
    Chunk,
    ColumnarInference,
    ColumnarReader,
    names_of,
)
from airflow_cloudfiles.engine.formats.columnar.types import (
    as_variant,
    has_variant_parts,
    holds,
    holds_variant,
    is_bytes,
    is_list,
    is_text,
    list_of,
)
from airflow_cloudfiles.engine.formats.content import HeldBytes
from airflow_cloudfiles.engine.formats.parquet.footer import (
    Leaves,
    as_maps,
    has_nanos,
    in_nanos,
    map_type,
    refuse_encrypted,
    variant_leaves,
    without_optional_keys,
)
from airflow_cloudfiles.engine.formats.parquet.rows import leaf_of, range_of, rows_at_once
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.options.formats.columnar import ParquetOptions

_BUFFERED_BYTES: Final = 64 * 2**20
"""The columns of a row group that takes more in the file are fetched piece by piece: the pieces
together take so much."""
_LEAST_PIECE, _LARGEST_PIECE = 2**20, 2**23
_MOST_ROWS: Final = 2**16
"""Values that share a dictionary take more in memory than the file tells, so rows are limited."""
_FEWEST_ROWS: Final = 64
_OPTIONAL_KEYS: Final = "Map keys must be annotated as required"
"""With these words the library refuses a map whose keys are marked as optional."""


class ParquetFile:
    """An open Parquet file.

    Args:
        content: The file, seekable; its owner closes it.
        options: What its dates mean when it does not tell, and how large a record may be.
        is_trusted: Whether who wrote it is trusted not to describe more than memory holds.

    Raises:
        pyarrow.ArrowException, OSError: It is no Parquet file, or cannot be read.
    """

    def __init__(
        self, content: IO[bytes], options: ParquetOptions, *, is_trusted: bool = False
    ) -> None:
        self._held = HeldBytes(content)
        self._content = cast("IO[bytes]", self._held)
        self._limit = None if is_trusted else options.max_record_bytes
        self._maps: set[Leaves] = set()
        refuse_encrypted(self._content)
        self._is_large = False
        self._file = self._first_opened()
        self._metadata = self._file.metadata
        refuse_encrypted(self._content, self._metadata)
        groups = range(self._metadata.num_row_groups)
        self._groups = [self._metadata.row_group(each) for each in groups]
        # What they take in memory tells their shares; their columns are not asked (see `parts`).
        self._sizes = [max(1, each.total_byte_size) for each in self._groups]
        self._file_size = self._content.seek(0, io.SEEK_END)
        largest = max(self._sizes, default=0) * self._file_size // max(1, sum(self._sizes))
        self._is_large = largest > _BUFFERED_BYTES
        if self._is_large:
            self._file = self._opened(self._metadata)
        self.own_schema = self._file.schema_arrow
        seen = _seen(self._file, self._maps)
        self.schema: pa.Schema = pa.schema(
            [
                pa.field(each.name, each_seen.kind)
                for each, each_seen in zip(self.own_schema, seen, strict=True)
            ]
        )
        self._int96 = [each.int96 for each in seen]
        self._has_variant = [holds_variant(each.kind) for each in seen]
        self._calendar = Calendar.of(self._metadata.metadata, options)
        self._may_have_nanos = b"org.apache.spark.version" not in (self._metadata.metadata or {})

    def _first_opened(self) -> pq.ParquetFile:
        try:
            return self._opened(None)
        except pa.ArrowInvalid as error:
            if _OPTIONAL_KEYS not in str(error):
                raise
        metadata, self._maps = without_optional_keys(self._content)
        return self._opened(metadata)

    def _opened(
        self,
        metadata: pq.FileMetaData | None,
        *,
        int96_unit: str = "us",
        as_places: list[str] | None = None,
    ) -> pq.ParquetFile:
        # A row group that is fetched at once takes few requests; a large one takes too much memory.
        return pq.ParquetFile(
            self._content,
            metadata=metadata,
            buffer_size=_piece_bytes(metadata) if metadata and self._is_large else 0,
            pre_buffer=not self._is_large,
            coerce_int96_timestamp_unit=int96_unit,
            read_dictionary=as_places,
            page_checksum_verification=True,
            arrow_extensions_enabled=False,
        )

    def parts(self, start: int, end: int | None) -> list[int]:
        """List the row groups of a range of bytes.

        Their columns say where they begin, and the library ends the process when what a
        damaged file says of a column contradicts itself. So they are taken to begin where their
        sizes in memory, before and after, put them: each of them is in one range, too.
        """
        rows = sum(group.num_rows for group in self._groups)
        # Writers of old leave 0 there; each row group is held to its own number anyway.
        if self._metadata.num_rows not in {rows, 0}:
            raise OSError("its row groups do not have as many rows together as it says")
        sizes, size = self._sizes, self._file_size
        places = (before * size // sum(sizes) for before in accumulate([0, *sizes[:-1]]))
        return [
            number
            for number, place in zip(range(len(sizes)), places, strict=False)
            if start <= place and (end is None or place < end)
        ]

    def rows_before(self, parts: list[int]) -> int:
        """Count the rows before the first of some row groups."""
        return sum(group.num_rows for group in self._groups[: min(parts, default=0)])

    def chunks(self, parts: list[int], columns: list[int]) -> Iterator[Chunk]:
        """Yield the rows of some row groups, in order."""
        for part in parts:
            group = self._groups[part]
            rows = 0
            found = self._group_chunks(part, columns) if columns else self._empty(part)
            for chunk in found:
                rows += chunk.rows
                yield from _in_pieces(chunk)
            if rows != group.num_rows:
                how_many = counted(rows, "row")
                raise OSError(f"row group {part} has {how_many}, not {group.num_rows} as it says")

    def _empty(self, part: int) -> Iterator[Chunk]:
        """Yield the rows of a row group without any column; a column tells how many there are."""
        group = self._groups[part]
        if self._limit is None or not len(self.own_schema):
            for begin in range(0, group.num_rows, _MOST_ROWS):
                yield Chunk(min(_MOST_ROWS, group.num_rows - begin), [])
            return
        rows = _rows_at_once(group)
        if not self._is_large:
            rows = self._bounded(part, self._leaves([0]), rows, self._limit)
        for arrays in _batches(self._file, part, rows, [0]):
            yield Chunk(len(arrays[0]), [])

    def _group_chunks(self, part: int, columns: list[int]) -> Iterator[Chunk]:
        group = self._groups[part]
        usual = _rows_at_once(group)
        if self._limit is None or self._is_large:
            yield from self._read(part, columns, usual, usual)
            return
        leaves = self._leaves(columns)
        # The library reads again what is read of the headers of pages, and all that is around them.
        with self._held.holding(range_of(group.column(leaf)) for leaf in leaves):
            rows = self._bounded(part, leaves, usual, self._limit)
            found = self._read(part, columns, rows, usual)
            first = next(found, None)
        if first is not None:
            yield first
        yield from found

    def _leaves(self, columns: list[int]) -> list[int]:
        """List the leaves that are read for some columns."""
        ends = list(accumulate(map(len, self._int96), initial=0))
        read = (
            range(len(self.own_schema)) if names_of(self.own_schema, columns) is None else columns
        )
        return [leaf for column in read for leaf in range(ends[column], ends[column + 1])]

    def _bounded(self, part: int, leaves: list[int], rows: int, limit: int) -> int:
        """Limit how many rows are read at once, `rows` at most, by what the pages may become.

        Raises:
            RecordTooLargeError: A record may take more than `limit` bytes.
        """
        group, schema = self._groups[part], self._file.schema
        pages = [leaf_of(self._content, group.column(leaf), schema.column(leaf)) for leaf in leaves]

        def places(paths: list[str], at_once: int) -> Iterator[pa.RecordBatch]:
            file = self._opened(self._metadata, as_places=paths)
            yield from file.iter_batches(
                at_once, row_groups=[part], columns=paths, use_threads=False
            )

        paths = [group.column(leaf).path_in_schema for leaf in range(group.num_columns)]
        is_clear = len(set(paths)) == len(paths)
        return rows_at_once(pages, int(group.num_rows), rows, limit, places if is_clear else None)

    def _read(self, part: int, columns: list[int], rows: int, usual: int) -> Iterator[Chunk]:
        """Yield the rows of a row group, `rows` at a time; where these are few, put together."""
        nanos = [each for each in columns if self._may_have_nanos and any(self._int96[each])]
        if not nanos:
            found = _batches(self._file, part, rows, columns)
            for arrays in found if rows == usual else _joined(found, usual):
                yield Chunk(len(arrays[0]), self._corrected(arrays, columns))
            return
        other = self._opened(self._metadata, int96_unit="ns")
        both = zip(
            _batches(self._file, part, rows, columns),
            _batches(other, part, rows, nanos),
            strict=True,
        )
        for arrays, exact in both:
            chunk = Chunk(len(arrays[0]), self._corrected(arrays, columns))
            yield self._with_nanos(chunk, columns, dict(zip(nanos, exact, strict=True)))

    def _corrected(self, arrays: list[pa.Array], columns: list[int]) -> list[pa.Array]:
        """Give the arrays the types that `schema` tells, in today's calendar."""
        found = []
        for array, column in zip(arrays, columns, strict=True):
            kind = self.schema.field(column).type
            # The mark of a VARIANT makes no other type, but whoever rescues it must see it.
            is_same = kind == array.type and not self._has_variant[column]
            right = (
                array if is_same else array.view(kind) if not self._maps else as_maps(array, kind)
            )
            if not self._calendar.is_ours:
                right = self._calendar.convert(right, iter(self._int96[column]))
            found.append(right)
        return found

    def _with_nanos(self, chunk: Chunk, columns: list[int], exact: dict[int, pa.Array]) -> Chunk:
        """Give timestamps nanoseconds where they have fractions of microseconds.

        INT96 holds nanoseconds over more years than 64 bits of them do. So it is read in both
        units, and each of them used where it is exact.
        """
        schema = self.schema
        for place, column in enumerate(columns):
            if column not in exact or not has_nanos(chunk.columns[place], exact[column]):
                continue
            kind = in_nanos(schema.field(column).type)
            chunk.columns[place] = exact[column].view(kind)
            schema = schema.set(column, pa.field(schema.field(column).name, kind))
        return chunk if schema is self.schema else Chunk(chunk.rows, chunk.columns, schema)


def _batches(
    file: pq.ParquetFile, part: int, rows: int, columns: list[int]
) -> Iterator[list[pa.Array]]:
    """Columns of a row group, some rows at a time."""
    names = names_of(file.schema_arrow, columns)
    places = columns if names is None else list(range(len(columns)))
    for batch in file.iter_batches(rows, row_groups=[part], columns=names, use_threads=False):
        batch.validate()
        yield [batch.column(place) for place in places]


def _joined(batches: Iterator[list[pa.Array]], rows: int) -> Iterator[list[pa.Array]]:
    """Batches put together until they have `rows`, or `BATCH_BYTES`."""
    held: list[list[pa.Array]] = []
    held_rows = held_bytes = 0
    for arrays in batches:
        held.append(arrays)
        held_rows += len(arrays[0])
        held_bytes += sum(each.nbytes for each in arrays)
        if held_rows >= rows or held_bytes >= BATCH_BYTES:
            yield [pa.concat_arrays(parts) for parts in zip(*held, strict=True)]
            held, held_rows, held_bytes = [], 0, 0
    if held:
        yield [pa.concat_arrays(parts) for parts in zip(*held, strict=True)]


def _in_pieces(chunk: Chunk) -> Iterator[Chunk]:
    """Cut the chunk into pieces of about `BATCH_BYTES`: all rows may share a large value."""
    shared = [each.dictionary for each in chunk.columns if pa.types.is_dictionary(each.type)]
    largest = max((_largest_value(each) for each in shared), default=0)
    rows = max(_FEWEST_ROWS, BATCH_BYTES // max(1, largest))
    if chunk.rows <= rows:
        yield chunk
        return
    for begin in range(0, chunk.rows, rows):
        columns = [each.slice(begin, rows) for each in chunk.columns]
        yield Chunk(min(rows, chunk.rows - begin), columns, chunk.schema)


def _largest_value(array: pa.Array) -> int:
    """Find the bytes of the longest of some strings; 0 of what is not text."""
    if not (is_text(array.type) or is_bytes(array.type)) or not len(array):
        return 0
    longest = pc.max(pc.binary_length(array.cast(pa.large_binary()))).as_py()
    return int(longest or 0)


def _piece_bytes(metadata: pq.FileMetaData) -> int:
    """Compute how much of a column of a large row group is fetched at once."""
    share = _BUFFERED_BYTES // max(1, int(metadata.num_columns))
    return max(_LEAST_PIECE, min(_LARGEST_PIECE, share))


def _rows_at_once(group: pq.RowGroupMetaData) -> int:
    """Compute how many rows take about `BATCH_BYTES`."""
    if not group.num_rows:
        return _FEWEST_ROWS
    row_bytes = max(1, group.total_byte_size // group.num_rows)
    return int(min(_MOST_ROWS, max(_FEWEST_ROWS, BATCH_BYTES // row_bytes)))


def _seen(file: pq.ParquetFile, maps: set[Leaves]) -> list[_SparkView]:
    """List the columns of a file as Spark sees them."""
    columns = [each.type for each in file.schema_arrow]
    variants: set[Leaves] = set()
    if any(holds(each, has_variant_parts) for each in columns):
        variants = variant_leaves(file.metadata)
    leaves = enumerate(file.schema)
    return [_SparkView(each, leaves, variants, maps) for each in columns]


@dataclass(slots=True)
class _SparkView:
    """An Arrow type as Spark sees the Parquet type it was made from.

    INT96 is an instant; an enumeration is a string; a group may be a VARIANT.

    Attributes:
        kind: The type as Spark sees it; given as that of the library.
        leaves: What Parquet says of the leaves of the file, with their numbers; consumed.
        variants: Where VARIANTs are (`footer.variant_leaves`).
        maps: Where groups are maps (`footer.without_optional_keys`).
        int96: For each leaf, whether it is INT96.
    """

    kind: pa.DataType
    leaves: Iterator[tuple[int, pq.ColumnSchema]]
    variants: set[Leaves]
    maps: set[Leaves]
    int96: list[bool] = field(default_factory=list)
    _leaf: int = 0

    def __post_init__(self) -> None:
        self.kind = self._type(self.kind)

    def _type(self, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(kind):
            return self._struct(kind)
        if pa.types.is_map(kind):
            key = self._type(kind.key_type)
            return pa.map_(key, self._type(kind.item_type))
        if is_list(kind):
            element = self._type(kind.value_type)
            is_same = element == kind.value_type and not holds_variant(element)
            return kind if is_same else list_of(kind, element)
        self._leaf, leaf = next(self.leaves)
        self.int96.append(leaf.physical_type == "INT96")
        if self.int96[-1]:
            return pa.timestamp("us", "UTC")
        if leaf.logical_type.type == "ENUM" and kind == pa.binary():
            return pa.string()
        return kind

    def _struct(self, kind: pa.StructType) -> pa.DataType:
        before = len(self.int96)
        found = pa.struct([pa.field(each.name, self._type(each.type)) for each in kind])
        count = len(self.int96) - before
        place = self._leaf - count + 1, count
        if place in self.maps:
            return map_type(found) or found
        return as_variant(found) if place in self.variants and has_variant_parts(kind) else found


class ParquetReader(ColumnarReader):
    """Reads Parquet files with one schema; see `ColumnarReader`."""

    format, file = "Parquet", ParquetFile


class ParquetInference(ColumnarInference):
    """Learns the schema of Parquet files from their footers; see `ColumnarInference`."""

    format, file = "Parquet", ParquetFile
