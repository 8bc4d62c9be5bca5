"""Which rows does a data file of a table have?

Those of the Parquet file that its deletion vector does not list, with the columns of the table
(`columns`) and the values of the partition columns, which are in the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, cast
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from airflow_cloudfiles.engine.counted import counted
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.read.actions import AddFile, DeletionVector
from airflow_cloudfiles.engine.delta.read.columns import (
    ColumnReader,
    arrow_type,
    physical_name,
    without_internals,
)
from airflow_cloudfiles.engine.delta.read.deletion_vectors import (
    DamagedVectorError,
    deleted_rows,
    vector_file,
)
from airflow_cloudfiles.engine.delta.read.partition_values import parse_value
from airflow_cloudfiles.engine.delta.read.paths import decoded, locate
from airflow_cloudfiles.engine.delta.read.protocol import mapping_mode
from airflow_cloudfiles.engine.delta.read.snapshot import Snapshot
from airflow_cloudfiles.engine.errors import CloudFilesError, SinkError, TargetCorruptedError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.formats.columnar.content import Watched
from airflow_cloudfiles.engine.formats.columnar.reader import Chunk
from airflow_cloudfiles.engine.formats.parquet.file import ParquetFile
from airflow_cloudfiles.engine.options.formats.parquet import ParquetOptions
from airflow_cloudfiles.engine.reading.opened import StoreFile
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TableColumns:
    """How data files of a version are read; small, for tasks.

    Attributes:
        target: The table.
        schema: Its columns, with Delta's notes.
        partition_columns: Names of those whose values are in the log.
        mode: Its column mapping.
    """

    target: str
    schema: StructType
    partition_columns: frozenset[str]
    mode: str

    @classmethod
    def of(cls, snapshot: Snapshot) -> TableColumns:
        """The columns of a version.

        Raises:
            TargetCorruptedError: Its schema cannot be read.
        """
        metadata = snapshot.metadata
        try:
            schema = StructType.fromJson(json.loads(metadata.schema_string))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TargetCorruptedError(
                f"The schema of the Delta table {snapshot.target} cannot be read in version "
                f"{snapshot.version}: {error}. Restore the log from a backup."
            ) from error
        mode = mapping_mode(metadata, snapshot.protocol, snapshot.target)
        return cls(snapshot.target, schema, frozenset(metadata.partition_columns), mode)

    @property
    def public_schema(self) -> StructType:
        """The columns as users see them."""
        found = without_internals(self.schema)
        assert isinstance(found, StructType)  # noqa: S101 - a struct stays one
        return found


class DataFileReader:
    """Reads data files of a version.

    Args:
        columns: Of the version.
        wanted: Which columns to give, and in which order; all, unless given.
        store: The table's files; opened for the target, unless given.
    """

    def __init__(
        self,
        columns: TableColumns,
        wanted: Sequence[str] | None = None,
        store: ObjectStore | None = None,
    ) -> None:
        self._columns = columns
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
        """
        with self._location.translate_store_errors(f"has a file that cannot be read ({file.path})"):
            try:
                store, key = locate(self._store, file.path, self._columns.target)
                deleted = None
                if file.deletion_vector is not None:
                    deleted = self._deleted(file.deletion_vector)
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
            watched = Watched(content)
            try:
                yield from self._batches(cast("IO[bytes]", watched), file, deleted)
            except CloudFilesError:
                raise
            except (pa.ArrowException, OSError, ValueError) as error:
                if watched.failure is not None:  # of the storage, not of the file
                    raise watched.failure from error
                raise self._damaged(file.path, str(error)) from error

    def _batches(
        self, content: IO[bytes], file: AddFile, deleted: NDArray[np.int64] | None
    ) -> Iterator[pa.RecordBatch]:
        parquet = ParquetFile(content, ParquetOptions(), is_trusted=True)
        reader = ColumnReader(self._columns.mode, self._columns.target, file.path)
        places = [self._place(reader, each, parquet) for each in self._fields]
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

    def _place(self, reader: ColumnReader, field: StructField, parquet: ParquetFile) -> int | None:
        """Where the file has a column; `None` for those it lacks, and for partition columns."""
        if field.name in self._columns.partition_columns:
            return None
        return reader.find(field, parquet.own_schema)

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
        text = file.partition_values.get(physical_name(field, self._columns.mode))
        kind = arrow_type(field.dataType)
        try:
            return pa.repeat(parse_value(text, kind), rows)
        except ValueError as error:
            raise self._damaged(
                file.path, f"{text!r} is no value of its partition column {field.name} ({error})"
            ) from error

    def _deleted(self, vector: DeletionVector) -> NDArray[np.int64]:
        """Which rows of a file are deleted.

        Raises:
            TargetCorruptedError: The vector is damaged, or gone.
        """
        path = vector.path_or_inline_dv
        try:
            path = vector_file(vector) or path
            # A name that is made here is encoded, as those of the log are.
            in_log = path if vector.storage_type == "p" else quote(path)
            if vector.storage_type == "i":
                return deleted_rows(vector, _nothing)
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


def _nothing(_start: int, _length: int) -> bytes:
    """A vector in the log has no file."""
    return b""


def _without(batch: pa.RecordBatch, deleted: NDArray[np.int64], first: int) -> pa.RecordBatch:
    """The rows of a batch that are not deleted.

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
