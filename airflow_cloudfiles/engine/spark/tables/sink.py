"""Let Spark write streams and DataFrames to Delta tables without jars.

`writeStream.format("deltalake")` (and `format("delta")` where no Delta jar is), `DataFrame.write`
and `spark.read` of the same name: the data sources, and what they make of their options.

`df.write.format("deltalake").mode("append").save(path)` (and `format("delta")` where no Delta jar
is): each task writes data files, and one process commits them (`delta.batch_write`). With
`mergeKeys` and `replaceWhere` the files are read again for the commit.

What Spark calls to write the micro-batches of a query of the user's own.

It makes one writer in the process beside the driver, and sends it to the tasks.

The sink `pyiceberg`: Spark writes a stream to an Iceberg table, without jars.

`writeStream.format("pyiceberg").start("iceberg://catalog/namespace/table")`.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType  # noqa: TC002 - Spark reads the annotations of none

from airflow_cloudfiles.engine.batches.task_process import log_to_stderr, marking_errors
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    OptionError,
    SinkError,
    UnknownOptionError,
)
from airflow_cloudfiles.engine.messages import counted, plural
from airflow_cloudfiles.engine.options.declared import options_of
from airflow_cloudfiles.engine.options.row_rules import is_rule_option
from airflow_cloudfiles.engine.options.sink import (
    EXPECT,
    OF_SINK,
    BatchWriteOptions,
    SinkOptions,
    TableOptions,
)
from airflow_cloudfiles.engine.registry import extension
from airflow_cloudfiles.engine.spark.data_source_api import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from airflow_cloudfiles.engine.spark.tables.source import DeltaTableReader, version_to_read
from airflow_cloudfiles.engine.spark.tables.stream_reader import (
    DeltaTableStreamReader,
    definition_of,
    is_stream,
    lowered,
)
from airflow_cloudfiles.engine.storage.uri import iceberg_name
from airflow_cloudfiles.engine.tables.delta.commit import remove_files
from airflow_cloudfiles.engine.tables.delta.predicates import holds, parse_predicate
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableColumns, TableState
from airflow_cloudfiles.engine.tables.delta.stream.tracking import StreamDefinition
from airflow_cloudfiles.engine.tables.delta.write.rows import write_rows
from airflow_cloudfiles.engine.tables.delta_table import DeltaTargetTable
from airflow_cloudfiles.engine.tables.table_writer import TableWriter, TaskWritten
from airflow_cloudfiles.engine.tables.target_table import TargetTable, iceberg_table
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.tables.delta.data_files import DataFile
    from airflow_cloudfiles.engine.tables.delta.write.layout import FileLayout

STATE = "cloudFiles.internal.state"
"""Option of the sink: where the stream's state is, if Spark's checkpoint is somewhere else."""


class WriterMessage(WriterCommitMessage):
    """What a task has written, on its way to the process that commits."""

    def __init__(self, written: TaskWritten) -> None:
        self.written = written


@marking_errors
class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query.

    Args:
        writer: Of the table.
    """

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterMessage:
        """Write this task's rows to data files nobody sees yet."""
        log_to_stderr()
        return WriterMessage(self._writer.write_rows(iterator))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Commit a micro-batch; a batch the table has is recognised and dropped."""
        log_to_stderr()
        written = [each.written for each in messages if isinstance(each, WriterMessage)]
        self._writer.commit(written, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Remove the data files of a batch of which a task failed (`TableWriter.abort`)."""
        written = [each.written if isinstance(each, WriterMessage) else None for each in messages]
        self._writer.abort(written, batchId)


def new_writer(table: TargetTable, options: Mapping[str, str], schema: StructType) -> TableWriter:
    """Make the writer of a query.

    Args:
        table: The table.
        options: Of the sink, by their names in lower case.
        schema: Of the rows.

    Raises:
        OptionError: An option is not valid.
    """
    read = SinkOptions.read(options)
    state = options.get(STATE.lower()) or read.checkpoint_location
    return table.writer(read, state=state, schema=schema)


_log = logging.getLogger(__name__)


class PartWritten(WriterCommitMessage):
    """What one task has written."""

    def __init__(self, files: list[DataFile], layout: FileLayout | None) -> None:
        self.files = files
        self.layout = layout


@marking_errors
class DeltaBatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame to one table.

    Args:
        target: Path or URI of the table.
        options: As strings, by their names in lower case.
        schema: Of the DataFrame.
        overwrite: Whether the mode is `overwrite`.

    Raises:
        OptionError: An option is not valid, or does not go with the mode.
    """

    def __init__(
        self, target: str, options: dict[str, str], schema: StructType, *, overwrite: bool
    ) -> None:
        read = BatchWriteOptions.read(options)
        for name, is_given in (
            ("overwriteSchema", read.overwrite_schema),
            ("replaceWhere", read.replace_where is not None),
        ):
            if is_given and not overwrite:
                raise OptionError(f'{name} needs mode("overwrite").')
        if read.merge_keys and overwrite:
            raise OptionError('mergeKeys needs mode("append"): it changes rows of the table.')
        self._write = extension("batch write").begin(
            target, read, to_arrow(schema), overwrites=overwrite
        )
        self._schema = schema
        self._where = read.replace_where

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartWritten:
        """Write this task's rows to data files nobody sees yet."""
        schema = to_arrow(self._schema)
        rows = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in iterator)
        how = self._write.how
        layout = how.layout(schema)
        checked = self._checked(rows, schema)
        files = write_rows(self._write.target, schema, checked, layout, how.settings)
        crash_point("after-data-files")
        return PartWritten(files, layout)

    def commit(self, messages: list[Any]) -> None:
        """Commit the rows of all tasks."""
        log_to_stderr()
        parts = [message for message in messages if isinstance(message, PartWritten)]
        done = self._write.commit(
            [file for part in parts for file in part.files],
            to_arrow(self._schema),
            parts[0].layout if parts else None,
        )
        counts = ", ".join(f"{value} {name}" for name, value in done.counts.items())
        _log.info("Table version %s%s", done.version, f": {counts}" if counts else "")

    def abort(self, messages: list[Any]) -> None:
        """Remove the data files of a write of which a task failed; a killed task's stay.

        Spark calls this after a commit that failed, too, which may have happened: then every task
        has written, and nothing is touched.
        """
        written = [message for message in messages if isinstance(message, PartWritten)]
        if len(written) == len(messages):
            return
        try:
            remove_files(self._write.target, [file for each in written for file in each.files])
        except (CloudFilesError, OSError) as failure:
            # Not raised: Spark would show it in place of what the task failed with.
            _log.warning("Data files stay until vacuum: %s", failure)

    def _checked(
        self, rows: Iterator[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows, all of which `replaceWhere` must be true for."""
        if self._where is None:
            yield from rows
            return
        predicate = parse_predicate("replaceWhere", self._where, schema)
        for batch in rows:
            found = holds(predicate, batch)
            if not pc.all(found).as_py() and batch.num_rows:
                count = batch.num_rows - pc.sum(found).as_py()
                raise SinkError(
                    f"{counted(count, 'row')} of the DataFrame {plural(count, 'does', 'do')} not "
                    f"match replaceWhere {self._where!r}: {plural(count, 'it', 'they')} would be "
                    "written beside the rows that are replaced. Filter such rows out, or widen the "
                    "predicate."
                )
            yield batch


_ALIKE = 0.85
"""From where on a name is taken for a misspelt one; `overwriteSchema` is not `mergeSchema`."""


@marking_errors
class DeltaLakeDataSource(DataSource):
    """The sink `deltalake`, and the source of the same name, for batches and streams.

    Options: `path` (the table), `checkpointLocation`, `mergeSchema` (false), `typeWidening` (false:
    whether the table is rewritten when a column has become wider), `typeWideningMaxBytes` (10g: the
    largest table that is), `targetFileSize`, `partitionBy` and table properties
    (`delta.columnMapping.mode`, `delta.enableTypeWidening`, `delta.appendOnly`) for a new table,
    `txnAppId` (default: the id of the stream whose state is in the checkpoint location).
    """

    _definition: StreamDefinition | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name to give to `format`."""
        return "deltalake"

    def schema(self) -> StructType:
        """Return the columns of the version that a batch read is of, or of a stream.

        Raises:
            TargetNotDeltaError: There is no Delta table.
            UnsupportedTableError: It needs a feature that is not supported.
        """
        options = lowered(dict(self.options))
        if is_stream(options):
            self._definition = definition_of(self._path(), options)
            return self._definition.state.public_schema
        snapshot = version_to_read(self._path(), options)
        self._definition = StreamDefinition(TableState.at(snapshot), snapshot.version)
        return TableColumns.of(snapshot).public_schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Build the reader of a batch query: the newest version, or the one `versionAsOf` names."""
        defined = None if self._definition is None else self._definition.state.columns
        return DeltaTableReader(self._path(), schema, dict(self.options), defined)

    def streamReader(self, schema: StructType) -> DeltaTableStreamReader:  # noqa: N802
        """Build the reader of a stream; see `TableStreamOptions` for its options."""
        options = lowered(dict(self.options))
        return DeltaTableStreamReader(self._path(), schema, options, self._definition)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> StreamWriter:
        """Build the writer of one query.

        Raises:
            OptionError: No path, an output mode other than append, or an option that looks like one
                of the sink's and is none.
        """
        options = {key.lower(): value for key, value in dict(self.options).items()}
        target = self._path()
        if overwrite:
            raise OptionError("The deltalake sink appends: use outputMode append.")
        refuse_misspelt(options, SinkOptions, self.name())
        return StreamWriter(new_writer(DeltaTargetTable(target), options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001
        """Build the writer of one DataFrame.

        Raises:
            OptionError: No path, or an option that is not valid or does not go with the mode.
        """
        options = {key.lower(): value for key, value in dict(self.options).items()}
        target = self._path()
        refuse_misspelt(options, BatchWriteOptions, self.name())
        return DeltaBatchWriter(target, options, schema, overwrite=overwrite)

    def _path(self) -> str:
        for key, value in dict(self.options).items():
            if key.lower() == "path" and value:
                return str(value)
        raise OptionError("No target: give the table's folder to start(path) or load(path).")


def refuse_misspelt(options: dict[str, str], group: type[TableOptions], sink: str) -> None:
    """Refuse what looks like an option; other names may be those of other sinks, and do nothing.

    Raises:
        UnknownOptionError: One does.
    """
    names = [each.name for each in options_of(group).values()]
    known = {name.lower(): name for name in names if name != "path"}
    for key in options.keys() - known.keys():
        if is_rule_option(key) and issubclass(group, SinkOptions):
            continue  # refused with the other expectations
        if key.startswith(EXPECT):
            expected = [name for name in OF_SINK if name.startswith(EXPECT)]
            raise UnknownOptionError(
                f"{key} is not one of the expectations, which are for runs that ingest files: "
                f"{', '.join(expected)}."
            )
        near = difflib.get_close_matches(key, known, n=1, cutoff=_ALIKE)
        if near:
            raise UnknownOptionError(
                f"The {sink} sink has no option {key!r}. Did you mean {known[near[0]]}?"
            )


class DeltaDataSource(DeltaLakeDataSource):
    """The same sink under Delta's own name, for sessions without the Delta jars."""

    @classmethod
    def name(cls) -> str:
        """Return the name to give to `format`."""
        return "delta"


@marking_errors
class IcebergDataSource(DataSource):
    """The sink `pyiceberg`.

    Options: `path` (`iceberg://catalog/namespace/table`), `checkpointLocation`, `mergeSchema`
    (false), `typeWidening` (false), `partitionBy` (none), `txnAppId` (default: the id of the stream
    whose state is in the checkpoint location).
    """

    @classmethod
    def name(cls) -> str:
        """Return the name to give to `format`."""
        return "pyiceberg"

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> StreamWriter:
        """Build the writer of one query.

        Raises:
            OptionError: No table, an output mode other than append, an option that looks like one
                of the sink's and is none, or the extra `iceberg` is not installed.
        """
        options = {key.lower(): value for key, value in dict(self.options).items()}
        target = str(options.get("path") or "")
        iceberg_name(target)
        if overwrite:
            raise OptionError("The pyiceberg sink appends: use outputMode append.")
        refuse_misspelt(options, SinkOptions, self.name())
        return StreamWriter(new_writer(iceberg_table(target), options, schema))
