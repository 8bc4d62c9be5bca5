"""Read the rows of a data file of a table.

Those of the Parquet file that its deletion vector does not list, with the columns of the table
(`columns`) and the values of the partition columns, which are in the log.

The value of a partition column is in the log, as text.

It is in the log, as a string that Delta's protocol has a form for, and not in the data file. An
empty string is null in every type.

Share the data files of a micro-batch or of a version out over tasks, which read them.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#partition-value-serialization
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import IO, TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from airflow_cloudfiles.engine.errors import CloudFilesError, SinkError, TargetCorruptedError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.formats.columnar.reader import Chunk
from airflow_cloudfiles.engine.formats.content import WatchedBytes
from airflow_cloudfiles.engine.formats.datetimes import default_format
from airflow_cloudfiles.engine.formats.parquet.file import ParquetFile
from airflow_cloudfiles.engine.formats.parquet.rows import RecordTooLargeError
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.options.formats.columnar import ParquetOptions
from airflow_cloudfiles.engine.reading.opened import StoreFile
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.actions import AddFile, DeletionVector
from airflow_cloudfiles.engine.tables.delta.read.columns import (
    ColumnReader,
    arrow_type,
    physical_name,
)
from airflow_cloudfiles.engine.tables.delta.read.deletion_vectors import (
    DamagedVectorError,
    deleted_rows,
    vector_file,
)
from airflow_cloudfiles.engine.tables.delta.read.log import decoded, locate
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableColumns
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from numpy.typing import NDArray


class DataFileReader:
    """Reads data files of a version.

    Args:
        columns: Of the version.
        wanted: Which columns to give, and in which order; all, unless given.
        store: The table's files; opened for the target, unless given.
        max_record_bytes: The most bytes that a row may take in memory, with the pages that it is
            in; as many as it takes, unless given.
    """

    def __init__(
        self,
        columns: TableColumns,
        wanted: Sequence[str] | None = None,
        store: ObjectStore | None = None,
        max_record_bytes: int | None = None,
    ) -> None:
        self._columns = columns
        self._max_record_bytes = max_record_bytes
        self._location = DeltaLocation.to_read(columns.target)
        self._store = self._location.store() if store is None else store
        by_name = {each.name: each for each in columns.schema.fields}
        self._fields = [by_name[name] for name in wanted or by_name]
        public = {each.name: each for each in columns.public_schema.fields}
        self.schema: pa.Schema = to_arrow(StructType([public[each.name] for each in self._fields]))

    def read(self, file: AddFile) -> Iterator[pa.RecordBatch]:
        """Read the rows of a file.

        Raises:
            TargetCorruptedError: The file, or its deletion vector, is damaged or gone.
            SinkError: It has a type that the column never had.
            TargetUnreachableError: The storage failed, or refused us.
            RecordTooLargeError: A row takes more than `max_record_bytes`.
        """
        with self._location.translate_store_errors(f"has a file that cannot be read ({file.path})"):
            try:
                store, key = locate(self._store, file.path, self._columns.target)
                deleted = None
                if file.deletion_vector is not None:
                    deleted = self.deleted(file.deletion_vector)
                yield from self._rows(store, key, file, deleted)
            except (ObjectNotFoundError, FileNotFoundError) as error:
                raise self._damaged(file.path, "it is gone, perhaps vacuumed") from error

    def _rows(
        self,
        store: ObjectStore,
        key: str,
        file: AddFile,
        deleted: NDArray[np.int64] | None,
    ) -> Iterator[pa.RecordBatch]:
        entry = FileEntry(key, file.size, file.modification_time * 1000)
        with StoreFile(store, entry).random_access() as content:
            watched = WatchedBytes(content)
            try:
                yield from self._batches(cast("IO[bytes]", watched), file, deleted)
            except (CloudFilesError, RecordTooLargeError):
                raise
            except (pa.ArrowException, OSError, ValueError) as error:
                if watched.failure is not None:  # of the storage, not of the file
                    raise watched.failure from error
                raise self._damaged(file.path, str(error)) from error

    def _batches(
        self, content: IO[bytes], file: AddFile, deleted: NDArray[np.int64] | None
    ) -> Iterator[pa.RecordBatch]:
        most = self._max_record_bytes
        options = ParquetOptions() if most is None else ParquetOptions(max_record_bytes=most)
        parquet = ParquetFile(content, options, is_trusted=most is None)
        reader = ColumnReader(self._columns.mode, self._columns.target, file.path)
        partitions = self._columns.partition_columns
        places = [
            None if each.name in partitions else reader.find(each, parquet.own_schema)
            for each in self._fields
        ]
        there = sorted({place for place in places if place is not None})
        rows = 0
        for chunk in parquet.chunks(parquet.parts(0, None), there):
            arrays = self._arrays(reader, chunk, file, parquet, places)
            batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            yield batch if deleted is None else _without(batch, deleted, rows)
            rows += chunk.rows
        if deleted is not None and len(deleted) and deleted[-1] >= rows:
            raise self._damaged(
                file.path,
                f"its deletion vector has row {deleted[-1]}, and it has {counted(rows, 'row')}",
            )

    def _arrays(
        self,
        reader: ColumnReader,
        chunk: Chunk,
        file: AddFile,
        parquet: ParquetFile,
        places: list[int | None],
    ) -> list[pa.Array]:
        there = sorted({place for place in places if place is not None})
        found = []
        for field, place in zip(self._fields, places, strict=True):
            if field.name in self._columns.partition_columns:
                found.append(self._partition(field, file, chunk.rows))
            elif place is None:
                found.append(pa.nulls(chunk.rows, arrow_type(field.dataType)))
            else:
                own = parquet.own_schema.field(place).type
                found.append(reader.conform(chunk.columns[there.index(place)], own, field))
        return found

    def _partition(self, field: StructField, file: AddFile, rows: int) -> pa.Array:
        text = file.partition_value(physical_name(field, self._columns.mode))
        kind = arrow_type(field.dataType)
        try:
            return pa.repeat(parse_value(text, kind), rows)
        except ValueError as error:
            raise self._damaged(
                file.path, f"{text!r} is no value of its partition column {field.name} ({error})"
            ) from error

    def deleted(self, vector: DeletionVector) -> NDArray[np.int64]:
        """Find which rows of a file are deleted.

        Raises:
            TargetCorruptedError: The vector is damaged, or gone.
        """
        path = vector.path_or_inline_dv
        try:
            path = vector_file(vector) or path
            # A name that is made here is encoded, as those of the log are.
            in_log = path if vector.storage_type == "p" else quote(path)
            if vector.storage_type == "i":
                return deleted_rows(vector, lambda _at, _length: b"")
            store, key = locate(self._store, in_log, self._columns.target)
            return deleted_rows(vector, lambda at, length: store.get_range(key, at, length))
        except DamagedVectorError as error:
            raise self._damaged(path, f"the deletion vector is damaged: {error}") from error
        except ObjectNotFoundError as error:
            raise self._damaged(path, "it is gone, perhaps vacuumed") from error

    def _damaged(self, path: str, why: str) -> SinkError:
        return TargetCorruptedError(
            f"The Delta table {self._columns.target} cannot be read: {decoded(path)} cannot, "
            f"because {why}. Restore it, or the table to an earlier version."
        )


def _without(batch: pa.RecordBatch, deleted: NDArray[np.int64], first: int) -> pa.RecordBatch:
    """Drop the deleted rows of a batch.

    Args:
        batch: Rows of the file.
        deleted: Rows of the file that are deleted, in order.
        first: The number of the batch's first row.
    """
    begin, end = np.searchsorted(deleted, (first, first + batch.num_rows))
    if begin == end:
        return batch
    kept = np.ones(batch.num_rows, np.bool_)
    kept[deleted[begin:end] - first] = False
    return batch.filter(pa.array(kept))


_TRUTH: Final = {"true": True, "false": False}


def parse_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Parse the value of a partition column.

    A timestamp without an offset is in UTC.

    Args:
        text: As the log has it.
        kind: The type of the column in Arrow.

    Raises:
        ValueError: It is not a value of that type.
    """
    if text is None or not text:
        return pa.scalar(None, kind)
    try:
        if pa.types.is_date(kind):
            return pa.scalar(_days(text), pa.int32()).cast(kind)
        if pa.types.is_timestamp(kind):
            return pa.scalar(_micros(text, kind), pa.int64()).cast(kind)
        return pa.scalar(_plain(text, kind), kind)
    except (KeyError, InvalidOperation, pa.ArrowException, OverflowError) as error:
        raise ValueError(str(error)) from error


def _plain(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return text
    if pa.types.is_binary(kind):
        return text.encode()
    if pa.types.is_boolean(kind):
        return _TRUTH[text.lower()]
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    raise ValueError(f"the type {kind} is not one of partition columns")


def _days(text: str) -> int:
    return _there(default_format.date_days(text, exact=False), "no date")


def _micros(text: str, kind: pa.DataType) -> int:
    if kind.tz is None:
        found = default_format.local_micros(text, exact=False, drops_zone=True)
    else:
        found = default_format.timestamp_micros(text, exact=False)
    return _there(found, "no timestamp")


def _there(number: int | None, what: str) -> int:
    if number is None:
        raise ValueError(f"it is {what}")
    return number


MOST_TASKS = 64
"""Files are shared out over at most this many tasks, unless it is said otherwise."""


@dataclass(frozen=True, slots=True)
class TablePart:
    """Which data files one task reads, and how.

    Attributes:
        columns: Of the version.
        files: The data files.
    """

    columns: TableColumns
    files: tuple[AddFile, ...]

    def read(self, schema: StructType) -> Iterator[pa.RecordBatch]:
        """Read the rows; columns that a file lacks are null.

        Args:
            schema: The columns to give.
        """
        reader = DataFileReader(self.columns, schema.fieldNames())
        wanted = to_arrow(schema)
        for file in self.files:
            for batch in reader.read(file):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=wanted)


def shared_out(
    columns: TableColumns, files: Sequence[AddFile], tasks: int = MOST_TASKS
) -> list[TablePart]:
    """Share the files out to parts of about the same size, as far as possible in their order.

    Args:
        columns: Of the version.
        files: The data files.
        tasks: How many parts there are at most.

    Returns:
        At least one part; it is empty where there are no files.
    """
    count = max(1, min(tasks, len(files)))
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, share) for share in range(count)]
    for place in sorted(range(len(files)), key=lambda each: files[each].size, reverse=True):
        load, share = heapq.heappop(loads)
        shares[share].append(place)
        heapq.heappush(loads, (load + files[place].size, share))
    places = sorted(map(sorted, shares))
    return [TablePart(columns, tuple(files[place] for place in share)) for share in places]
