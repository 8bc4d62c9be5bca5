"""How does Spark write the stream to a Delta table without jars?

`writeStream.format("deltalake")` (and `format("delta")` where no Delta jar is): tasks write
Parquet files, one process beside the driver commits each micro-batch (`delta.commit`). When the
source emits splits instead of rows, the tasks read, parse and write in one process, and no row
enters the JVM.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType  # noqa: TC002 - Spark reads the annotations of none

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.delta import sink_state
from airflow_cloudfiles.engine.delta.commit import BatchId, commit_batch, remove_files
from airflow_cloudfiles.engine.delta.data_files import DataFile, DataFileWriter
from airflow_cloudfiles.engine.delta.opening import table_schema
from airflow_cloudfiles.engine.delta.widening import widening_rule
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    OptionError,
    UnknownOptionError,
)
from airflow_cloudfiles.engine.options.declared import options_of
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.reading.split_reader import SplitCounts
from airflow_cloudfiles.engine.reading.splits import Split
from airflow_cloudfiles.engine.spark import split_rows
from airflow_cloudfiles.engine.spark.error_marks import marking_errors
from airflow_cloudfiles.engine.spark.source import log_to_stderr
from airflow_cloudfiles.engine.spark.table_source import DeltaTableReader
from airflow_cloudfiles.engine.state import progress
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.state.plan_log import PREFIX as PLANS
from airflow_cloudfiles.engine.state.sink_log import RowsFrom, SinkLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream.task_reader import TaskReader
from airflow_cloudfiles.engine.types import to_arrow

STATE = "cloudFiles.internal.state"
"""Option of the sink: where the stream's state is, if Spark's checkpoint is only a copy of it."""
_OPTIONS = {each.name.lower(): each.name for each in options_of(SinkOptions).values()}
_ALIKE = 0.85
"""From where on a name is taken for a misspelt one; `overwriteSchema` is not `mergeSchema`."""
_TOLD = {"files": "files", "rows": "rows", "rescued_rows": "rescued"}
_log = logging.getLogger(__name__)


@dataclass
class TaskWritten(WriterCommitMessage):
    """What one task of a micro-batch has written."""

    files: list[DataFile]
    schema: pa.Schema
    counts: dict[str, int] = field(default_factory=dict)
    schema_version: int | None = None


@marking_errors
class DeltaLakeDataSource(DataSource):
    """The sink `deltalake`, and the batch source of the same name.

    Options: `path` (the table), `checkpointLocation`, `mergeSchema` (false), `typeWidening` (false:
    whether the table is rewritten when a column has become wider), `typeWideningMaxBytes` (10g: the
    largest table that is), `txnAppId` (default: the id of the stream whose state is in the
    checkpoint location).
    """

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return "deltalake"

    def schema(self) -> StructType:
        """The schema of the table, for a batch read.

        Raises:
            TargetNotDeltaError: There is no Delta table.
        """
        return table_schema(self._path())

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query: one version of the table."""
        return DeltaTableReader(self._path(), schema)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DeltaStreamWriter:
        """The writer of one query.

        Raises:
            OptionError: No path, an output mode other than append, or an option that looks like one
                of the sink's and is none.
        """
        options = {key.lower(): value for key, value in dict(self.options).items()}
        target = self._path()
        if overwrite:
            raise OptionError("The deltalake sink appends: use outputMode append.")
        _refuse_misspelt(options)
        return DeltaStreamWriter(target, options, schema)

    def _path(self) -> str:
        for key, value in dict(self.options).items():
            if key.lower() == "path" and value:
                return str(value)
        raise OptionError("No target: give the table's folder to start(path) or load(path).")


def _refuse_misspelt(options: dict[str, str]) -> None:
    """Refuse what looks like an option; other names may be those of other sinks, and do nothing."""
    known = {key: name for key, name in _OPTIONS.items() if key != "path"}
    for key in options.keys() - known.keys():
        near = difflib.get_close_matches(key, known, n=1, cutoff=_ALIKE)
        if near:
            raise UnknownOptionError(
                f"The deltalake sink has no option {key!r}. Did you mean {known[near[0]]}?"
            )


def _split_token(options: dict[str, str], schema: StructType) -> str | None:
    """The token of the query when its rows are splits; `None` when they are rows of a table.

    Only the job decides, never the name of a column: a file may have a column of any name.
    """
    token = options.get(split_rows.SPLIT_TOKEN.lower())
    if token is None:
        return None
    if schema.fieldNames() != split_rows.SPLIT_SCHEMA.fieldNames():
        raise OptionError(f"{split_rows.SPLIT_TOKEN} is set by this package itself; remove it.")
    return split_rows.check_token(token)


class DeltaDataSource(DeltaLakeDataSource):
    """The same sink under Delta's own name, for sessions without the Delta jars."""

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return "delta"


@marking_errors
class DeltaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query to one table."""

    def __init__(self, target: str, options: dict[str, str], schema: StructType) -> None:
        read = SinkOptions.read(options)
        self._target = target
        self._merge_schema = read.merge_schema is True
        self._widening = widening_rule(read, default=False)
        self._state = options.get(STATE.lower()) or read.checkpoint_location
        self._app_id = read.txn_app_id
        self._schema = schema
        self._split_token = _split_token(options, schema)
        self._reads_splits = self._split_token is not None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write this task's rows to data files nobody sees yet."""
        if self._split_token is not None:
            return self._write_splits(iterator, self._split_token)
        schema = to_arrow(self._schema)
        files = DataFileWriter(self._target, schema).write(
            pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in iterator
        )
        crash_point("after-data-files")
        return TaskWritten(files, schema, {"rows": sum(file.rows for file in files)})

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Commit a micro-batch; a batch the table has is recognised and dropped."""
        log_to_stderr()
        written = [message for message in messages if isinstance(message, TaskWritten)]
        schema = written[0].schema if written else to_arrow(self._schema)
        if not written and self._reads_splits:
            return
        files = [file for message in written for file in message.files]
        app_id = self._application()
        log = None if self._state is None else SinkLog(open_store(self._state))
        plan = self._plan_id(batchId)
        committed = commit_batch(
            self._target,
            batch=BatchId(app_id, batchId, plan),
            files=files,
            schema=schema,
            merge_schema=self._merge_schema,
            widening=self._widening,
            expected=None if log is None else sink_state.expected(log, batchId),
        )
        if log is not None:
            read_by: RowsFrom = "sink" if self._reads_splits else "query"
            sink_state.note(log, self._target, batchId, committed, plan=plan, read_by=read_by)
        counts = _total(written)
        _log.info(
            "Batch %s: %s; table version %s%s",
            batchId,
            ", ".join(f"{counts[key]} {what}" for key, what in _TOLD.items() if key in counts),
            committed.version,
            "" if committed.is_new else " (was there already)",
        )
        if self._reads_splits and self._state:
            progress.note(
                self._state,
                progress.BatchDone(
                    batch_id=batchId,
                    table_version=committed.version,
                    is_new=committed.is_new,
                    schema_version=written[0].schema_version if written else None,
                    counts=counts,
                ),
            )

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Remove the data files of a batch of which a task failed; a killed task's stay.

        Spark calls this after a commit that failed, too. Then every task has written, and the
        commit may have happened although its answer was lost: nothing is touched.
        """
        written = [message for message in messages if isinstance(message, TaskWritten)]
        if len(written) == len(messages):
            _log.info("Batch %s was given up at its commit; no data file is removed", batchId)
            return
        files = [file for message in written for file in message.files]
        try:
            remove_files(self._target, files)
        except (CloudFilesError, OSError) as failure:
            # Not raised: Spark would show it in place of what the task failed with.
            _log.warning("%s data files stay until vacuum: %s", len(files), failure)
            return
        _log.info("Batch %s was given up; %s data files removed", batchId, len(files))

    def _write_splits(self, iterator: Iterator[pa.RecordBatch], token: str) -> TaskWritten:
        """Read, parse and write in this task."""
        log_to_stderr()
        splits = [
            split_rows.decode(row.as_py(), token) for batch in iterator for row in batch.column(0)
        ]
        return write_splits(self._target, splits)

    def _plan_id(self, batch_id: int) -> str | None:
        """Which plan the batch is: its id tells it from one of another life of the state."""
        if self._state is None:
            return None
        plan = NumberedLog(open_store(self._state), PLANS).find(batch_id)
        return None if plan is None else plan.id

    def _application(self) -> str:
        """Which stream writes."""
        store = open_store(self._state) if self._state else None
        found = self._app_id or (None if store is None else sink_state.application(store))
        if found is None:
            raise OptionError(
                "The deltalake sink does not know which stream writes. Set the option "
                "checkpointLocation, or txnAppId to a name no other stream uses."
            )
        return found


def write_splits(target: str, splits: Sequence[Split]) -> TaskWritten:
    """Read and parse splits, and write them to data files nobody sees yet.

    Args:
        target: Path or URI of the table.
        splits: Of one micro-batch.

    Raises:
        ReadError: A file cannot be read (see `TaskReader`).
        UnknownFieldException: A record has a field that the schema lacks.
        TargetUnreachableError: The place of the table failed.
    """
    files: list[DataFile] = []
    counts: dict[str, int] = {}
    schema: pa.Schema | None = None
    for split in splits:
        reader = TaskReader(split)
        schema = reader.arrow_schema
        files += DataFileWriter(target, schema).write(reader.read())
        counts = _added(counts, _flat(reader.counts))
    crash_point("after-data-files")
    version = splits[0].context.schema_version if splits else None
    return TaskWritten(files, schema or pa.schema([]), counts, version)


def _flat(counts: SplitCounts) -> dict[str, int]:
    numbers = asdict(counts)
    fetched: dict[str, int] = numbers.pop("fetched")
    return {**numbers, **fetched}


def _added(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    return {key: left.get(key, 0) + right.get(key, 0) for key in {**left, **right}}


def _total(written: Sequence[TaskWritten]) -> dict[str, int]:
    total: dict[str, int] = {}
    for message in written:
        total = _added(total, message.counts)
    return total
