"""Write rows to data files of an Iceberg table.

A task writes Parquet files with Iceberg's field ids in the table's location, one or more for each
partition, under names that are not used yet. They are invisible until a commit adds them; what a
killed task leaves is never read, and goes when orphan files are removed. Their statistics travel
with them to the commit, which need not read them again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, PrimitiveType, TimestampType, TimestamptzType
from pyiceberg.utils.properties import property_as_int

from airflow_cloudfiles.engine.errors import DataFileLostError, SchemaMismatchError
from airflow_cloudfiles.engine.extensions.iceberg.catalog import IcebergLocation
from airflow_cloudfiles.engine.extensions.iceberg.schema import Partitioner
from airflow_cloudfiles.engine.tables.delta.statistics import dictionary_columns

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionKey
    from pyiceberg.table import Table

PARALLEL_CHECKS = 16
"""Data files whose existence is checked at once before a commit."""
MOST_OPEN_FILES = 64
"""Files of partitions that one task writes at once; then the ones begun first are closed."""
ROW_GROUP_BYTES = 16 * 2**20
"""Rows of a partition wait until they take so many bytes."""
MOST_WAITING_BYTES = 256 * 2**20
"""Rows that wait in all."""
_FIELD_ID = b"PARQUET:field_id"
_EPOCH = date(1970, 1, 1).toordinal()
_DAYS = (date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH)
_DAY = 86_400 * 10**6
_MICROS = (_DAYS[0] * _DAY, (_DAYS[1] + 1) * _DAY - 1)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IcebergDataFile:
    """A Parquet file that waits to be committed.

    Attributes:
        path: Its URI.
        size: In bytes.
        rows: How many it has.
        table_id: The table it was written for, whose columns have its ids.
        spec_id: The partitioning it was written with.
        partition: Its values of the partition fields.
        statistics: As a manifest has them.
    """

    path: str
    size: int
    rows: int
    table_id: str
    spec_id: int
    partition: tuple[Any, ...] = ()
    statistics: dict[str, Any] = field(default_factory=dict)

    def entry(self) -> DataFile:
        """Build the entry that pyiceberg adds."""
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=Record(*self.partition),
            file_size_in_bytes=self.size,
            sort_order_id=None,
            spec_id=self.spec_id,
            equality_ids=None,
            key_metadata=None,
            **self.statistics,
        )


class IcebergFileWriter:
    """Writes batches of one schema to data files of a table.

    Args:
        target: The table.
        table: The same, opened; it must have all columns of the batches.
    """

    def __init__(self, target: IcebergLocation, table: Table) -> None:
        self._target = target
        self._table = table
        self._columns = schema_to_pyarrow(table.schema(), include_field_ids=True)
        self._required = [each.name for each in table.schema().fields if each.required]
        self._partitioner = Partitioner(table.spec(), table.schema(), target.uri)
        self._open: dict[str, _OpenFile] = {}
        self.files: list[IcebergDataFile] = []

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[IcebergDataFile]:
        """Write all batches; without a row no file is written.

        A failure removes what was written, as far as it allows.

        Raises:
            SchemaMismatchError: A column that is required has a null.
            TargetUnreachableError: The place of the table does not answer for the moment.
            TargetAccessError: It refused us.
        """
        try:
            for batch in batches:
                with self._target.translate_errors("cannot take a data file"):
                    if batch.num_rows:
                        self._add(self._as_table(batch))
            with self._target.translate_errors("cannot take a data file"):
                for key in list(self._open):
                    self._close(key)
        except BaseException:
            self._discard()
            raise
        return self.files

    def _as_table(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows to the table's types, in its order; columns left out are null."""
        names = set(batch.schema.names)
        for name in self._required:
            if name not in names or batch.column(name).null_count:
                raise SchemaMismatchError(
                    f"Column {name} of {self._target.uri} is required, and a row of this batch has "
                    "a null there. Make the column optional, or choose another target."
                )
        columns = [each for each in self._columns if each.name in names]
        arrays = [batch.column(each.name).cast(each.type) for each in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(columns))

    def _add(self, batch: pa.RecordBatch) -> None:
        for partition, rows in self._partitioner.divide(batch):
            # Not by its folder: null and the text "null" have one.
            key = repr(_values(partition))
            if key not in self._open:
                if len(self._open) >= MOST_OPEN_FILES:
                    self._close(next(iter(self._open)))
                self._open[key] = _OpenFile(self._table, partition)
            file = self._open[key]
            file.add(rows)
            if file.is_full():
                self._close(key)
        while sum(file.waiting_bytes for file in self._open.values()) > MOST_WAITING_BYTES:
            max(self._open.values(), key=lambda file: file.waiting_bytes).flush()

    def _close(self, key: str) -> None:
        self.files.append(self._open[key].finish())
        del self._open[key]

    def _discard(self) -> None:
        """Remove what a failed write has left; what cannot be removed stays."""
        paths = [file.path for file in self.files]
        for file in self._open.values():
            file.abandon()
            paths.append(file.path)
        self._open.clear()
        remove(self._table, paths)


class _OpenFile:
    """A data file that is being written."""

    def __init__(self, table: Table, partition: PartitionKey | None) -> None:
        self._table = table
        self._partition = partition
        self._schema = sanitize_column_names(table.schema())
        self._columns = schema_to_pyarrow(self._schema, include_field_ids=True)
        self.path = table.location_provider().new_data_location(
            f"{uuid.uuid4()}.parquet", partition
        )
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self._ends = ExitStack()
        self._output = table.io.new_output(self.path)
        self._stream: Any = None
        self._writer: pq.ParquetWriter | None = None
        self._most_bytes = cast(
            "int",
            property_as_int(
                table.properties,
                TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
                TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
            ),
        )

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows; they are written when there are many."""
        self._waiting.append(rows)
        self.waiting_bytes += rows.nbytes
        if self.waiting_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def is_full(self) -> bool:
        return self._writer is not None and self._stream.tell() > self._most_bytes

    def flush(self) -> None:
        """Write what waits."""
        if not self._waiting:
            return
        rows = [self._named_as_in_files(each) for each in self._waiting]
        if self._writer is None:
            self._stream = self._ends.enter_context(self._output.create())
            asked = self._table.properties.get(TableProperties.PARQUET_COMPRESSION)
            codec = asked or TableProperties.PARQUET_COMPRESSION_DEFAULT
            self._writer = pq.ParquetWriter(
                self._stream,
                rows[0].schema,
                compression="none" if codec == "uncompressed" else codec,
                use_dictionary=dictionary_columns(rows[0]),
                store_decimal_as_integer=True,
            )
        self._writer.write_table(pa.Table.from_batches(rows))
        self._waiting.clear()
        self.waiting_bytes = 0

    def _named_as_in_files(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Give the rows the names that Iceberg uses in files (`a b` is `a_x20b` there)."""
        if self._schema == self._table.schema():
            return rows
        # By position: a cast would look for the fields of a struct by name.
        by_id = {each.metadata[_FIELD_ID]: each for each in self._columns}
        columns = [by_id[each.metadata[_FIELD_ID]] for each in rows.schema]
        return pa.ipc.read_record_batch(rows.serialize(), pa.schema(columns))

    def finish(self) -> IcebergDataFile:
        """Finish the file and describe it."""
        self.flush()
        assert self._writer is not None  # noqa: S101 - a file is opened for rows
        self._writer.close()
        metadata = self._writer.writer.metadata
        size = self._stream.tell()
        self._ends.close()
        return IcebergDataFile(
            path=self.path,
            size=size,
            rows=metadata.num_rows,
            table_id=str(self._table.metadata.table_uuid),
            spec_id=self._table.spec().spec_id,
            partition=_values(self._partition),
            statistics=self._statistics(metadata),
        )

    def abandon(self) -> None:
        """Close what is open of it."""
        try:
            if self._writer is not None:
                self._writer.close()
            self._ends.close()
        except OSError as failure:
            _log.warning("%s could not be closed: %s", self.path, failure)

    def _statistics(self, metadata: pq.FileMetaData) -> dict[str, Any]:
        """Compute statistics as pyiceberg does, except for dates and times beyond Python's."""
        properties, mapping = self._table.properties, parquet_path_to_id_mapping(self._schema)
        odd = {mapping[path] for path in _beyond_python(metadata, self._schema, mapping)}
        counted = {
            f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}."
            f"{self._schema.find_column_name(each)}": "counts"
            for each in odd
        }
        found = data_file_statistics_from_parquet_metadata(
            parquet_metadata=metadata,
            stats_columns=compute_statistics_plan(self._schema, {**properties, **counted}),
            parquet_column_mapping=mapping,
        )
        return found.to_serialized_dict()


def _beyond_python(metadata: pq.FileMetaData, schema: Any, mapping: dict[str, int]) -> list[str]:
    """Find columns with a date or time outside the years 1 to 9999, which Python cannot hold."""
    found = []
    for number in range(metadata.num_columns):
        path = metadata.schema.column(number).path
        kind: PrimitiveType = schema.find_type(mapping[path])
        limits = _DAYS if isinstance(kind, DateType) else _MICROS
        if not isinstance(kind, DateType | TimestampType | TimestamptzType):
            continue
        groups = [metadata.row_group(each) for each in range(metadata.num_row_groups)]
        known = [each.column(number).statistics for each in groups]
        bounded = [each for each in known if each and each.has_min_max]
        if any(each.min_raw < limits[0] or each.max_raw > limits[1] for each in bounded):
            found.append(path)
    return found


def _values(partition: PartitionKey | None) -> tuple[Any, ...]:
    if partition is None:
        return ()
    record = partition.partition
    return tuple(record[index] for index in range(len(record)))


def require(target: IcebergLocation, table: Table, files: Sequence[IcebergDataFile]) -> None:
    """Refuse to commit data files that are gone, or are not what was written.

    Raises:
        DataFileLostError: One is not as it was written.
        TargetUnreachableError: The place does not answer.
    """
    with (
        target.translate_errors("cannot be checked for data files"),
        ThreadPoolExecutor(PARALLEL_CHECKS, thread_name_prefix="cloudfiles-data") as pool,
    ):
        sizes = list(pool.map(lambda file: _size(table, file.path), files))
    for file, size in zip(files, sizes, strict=True):
        if size != file.size:
            now = "is gone" if size is None else f"has {size}"
            raise DataFileLostError(
                f"The data file {file.path} was written to {target.uri} with {file.size} bytes and "
                f"{now} before its commit. Nothing was committed: run again. Find out what removes "
                "files there, such as a removal of orphan files without an age."
            )


def _size(table: Table, path: str) -> int | None:
    try:
        return len(table.io.new_input(path))
    except FileNotFoundError:
        return None


def remove(table: Table, paths: Iterable[str]) -> None:
    """Remove data files that are in no version of the table; one that cannot be removed stays."""
    for path in paths:
        try:
            table.io.delete(path)
        except FileNotFoundError:
            _log.debug("%s was never written", path)
        except Exception as failure:  # noqa: BLE001 - clients of many stores; the file does no harm
            _log.warning("%s stays until orphan files are removed: %s", path, failure)
