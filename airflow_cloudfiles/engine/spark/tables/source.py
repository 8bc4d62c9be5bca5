"""How does Spark read a Delta table without jars?

`spark.read.format("deltalake").load(path)` (and `format("delta")` where no Delta jar is): one
version of the table, its data files shared out over tasks. `delta.read` knows the table's log and
its files; a table with a feature that it does not support is refused by name.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructField, StructType

from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.read.actions import AddFile
from airflow_cloudfiles.engine.delta.read.files import DataFileReader, TableColumns
from airflow_cloudfiles.engine.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.delta.read.time_travel import requested_snapshot
from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.spark.error_marks import marking_errors
from airflow_cloudfiles.engine.types import short_type, to_arrow

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.delta.read.snapshot import Snapshot

CHECK_CONF = "spark.databricks.delta.checkLatestSchemaOnRead"
"""SQL configuration: whether a table must not have changed since the DataFrame was created."""
CHECK_OPTION = "checkLatestSchemaOnRead"
"""The same, as an option of the reader."""
_WITH_PARTS = (ArrayType, DecimalType, MapType, StructType)
MOST_TASKS = 64
"""Files of a table are shared out over at most this many tasks."""


class TablePart(InputPartition):
    """Which data files one task reads, and how."""

    def __init__(self, columns: TableColumns, files: tuple[AddFile, ...]) -> None:
        super().__init__((columns, files))


def version_to_read(target: str, options: Mapping[str, str]) -> Snapshot:
    """The version that a batch read asks for.

    Raises:
        TargetNotDeltaError: There is no Delta table.
        UnsupportedTableError: It needs a feature that is not supported.
    """
    return requested_snapshot(TableLog(DeltaLocation.to_read(target)), options)


@marking_errors
class DeltaTableReader(DataSourceReader):
    """Reads the version that is newest when the query is planned, unless the options name one."""

    def __init__(
        self, target: str, schema: StructType, options: Mapping[str, str] | None = None
    ) -> None:
        self._target = target
        self._schema = schema
        self._options = {key.lower(): value for key, value in (options or {}).items()}

    def partitions(self) -> Sequence[InputPartition]:
        """Share the data files out, by their sizes."""
        snapshot = version_to_read(self._target, self._options)
        columns = TableColumns.of(snapshot)
        if self._options.get(CHECK_OPTION.lower(), "true").lower() == "false":
            columns = _as_defined(columns, self._schema)
        else:
            self._refuse_change(columns.public_schema)
        return [TablePart(columns, share) for share in shared_out(snapshot.files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read some files; columns a file lacks are null."""
        columns, files = partition.value
        reader = DataFileReader(columns, self._schema.fieldNames())
        wanted = to_arrow(self._schema)
        for file in files:
            for batch in reader.read(file):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=wanted)

    def _refuse_change(self, found: StructType) -> None:
        """Refuse a table whose columns are not those that the query was defined with.

        Raises:
            IncompatibleSchemaError: A column is gone, or has another type (B139).
        """
        kinds = {each.name: each.dataType for each in found.fields}
        changes = []
        for each in self._schema.fields:
            if each.name not in kinds:
                changes.append(f"Latest schema is missing field: {each.name}")
            elif kinds[each.name] != each.dataType:
                changes.append(
                    f"Latest type for {each.name} is different from existing schema:\n"
                    f"Latest: {_typed(kinds[each.name])}\nExisting: {_typed(each.dataType)}"
                )
        if changes:
            raise IncompatibleSchemaError(
                f"The schema of your Delta table {self._target} has changed in an incompatible way "
                "since your DataFrame or DeltaTable object was created. Please redefine your "
                "DataFrame or DeltaTable object.\nChanges:\n" + "\n".join(changes) + "\n"
                "This check can be turned off by setting the session configuration key "
                f"{CHECK_CONF} to false, before load(), or the reader option {CHECK_OPTION}."
            )


def _typed(kind: DataType) -> str:
    """A type as Delta shows it: `integer`, and JSON where it has parts."""
    return short_type(kind) if isinstance(kind, _WITH_PARTS) else kind.typeName()


def _as_defined(columns: TableColumns, schema: StructType) -> TableColumns:
    """The columns of a DataFrame, found in the files of the table as it is now.

    A column that the table does not have any more is null.
    """
    now = {each.name: each for each in columns.schema.fields}
    fields = [
        StructField(
            each.name, each.dataType, metadata=now[each.name].metadata if each.name in now else {}
        )
        for each in schema.fields
    ]
    return replace(columns, schema=StructType(fields))


def shared_out(files: Sequence[AddFile]) -> list[tuple[AddFile, ...]]:
    """Shares of about the same size, as far as possible in the order of the files."""
    tasks = max(1, min(MOST_TASKS, len(files)))
    shares: list[list[int]] = [[] for _ in range(tasks)]
    loads = [(0, task) for task in range(tasks)]
    for place in sorted(range(len(files)), key=lambda each: files[each].size, reverse=True):
        load, task = heapq.heappop(loads)
        shares[task].append(place)
        heapq.heappush(loads, (load + files[place].size, task))
    return [tuple(files[place] for place in share) for share in sorted(map(sorted, shares))]
