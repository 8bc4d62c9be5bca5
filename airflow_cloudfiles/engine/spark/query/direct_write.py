"""Write the rows of a query in the tasks that read them, so that none passes the JVM.

A query that only moves files into a table of ours needs Spark's offsets, triggers and tasks, not
its rows. Where `start()` finds one, it starts another in its place, with the same offsets, state
and records: a task of its source reads a split and writes the data files, as in a run. What it
gives Spark is what it has written, in the first of as many rows as it has read, so that Spark's
counts of rows stay true. A function over the micro-batches collects that, and commits.

A task that has failed for good says so in its row, too: what the others have written is then known,
and removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from airflow_cloudfiles.engine.batches.delta_table import DeltaTargetTable
from airflow_cloudfiles.engine.batches.run import TaskFailed, collected, result_of
from airflow_cloudfiles.engine.batches.table_writer import TableWriter, TaskWritten, iceberg_table
from airflow_cloudfiles.engine.batches.task_process import log_to_stderr, marking_errors
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import StaleSchemaError
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.reading.splits import Split
from airflow_cloudfiles.engine.spark.data_source_api import InputPartition
from airflow_cloudfiles.engine.spark.source import CloudFilesDataSource, CloudFilesStreamReader
from airflow_cloudfiles.engine.spark.tables.sink import refuse_misspelt
from airflow_cloudfiles.engine.stream.schema_change import TaskReader
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.stream.definition import ResolvedSchema

OPTION: Final = "cloudFiles.internal.direct"
"""Option of the source: the `DirectWrite`."""
PROBE: Final = "cloudFiles.internal.probe"
"""Option of the source, in place of that: the schema that the user gave, as JSON, or nothing. The
server then says the schema of the source, if its Python can carry `DirectCommit`."""
_OWN: Final = {OPTION.lower(), PROBE.lower()}
ICEBERG: Final = "pyiceberg"
_COLUMN: Final = "written_by_task"
_WRITTEN = StructType([StructField(_COLUMN, BinaryType())])
_ROWS_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectWrite:
    """What a query that only moves files into a table moves, and where to.

    Attributes:
        sink: Name of the data source that writes the table.
        target: Path or URI of the table.
        options: Of the sink, by their names in lower case.
        columns: Which columns of the source are written, by their places.
        schema: Of the rows that are written, as JSON.
        source_schema: Of the source, as JSON.
        is_given: Whether the user gave the source's schema.
    """

    sink: str
    target: str
    options: Mapping[str, str]
    columns: Sequence[int]
    schema: str
    source_schema: str
    is_given: bool

    def to_json(self) -> str:
        """Encode it for an option."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, options: Mapping[str, str]) -> DirectWrite:
        """Read it from the options of the source."""
        text = next(value for key, value in options.items() if key.lower() == OPTION.lower())
        return cls(**json.loads(text))

    def writer(self, state: str | None) -> TableWriter:
        """Make the writer of a micro-batch.

        Args:
            state: Checkpoint location of the stream.

        Raises:
            OptionError: An option of the sink is not valid.
            SchemaMismatchError: The columns do not fit the table.
        """
        refuse_misspelt(dict(self.options), SinkOptions, self.sink)
        schema = StructType.fromJson(json.loads(self.schema))
        read = SinkOptions.read(self.options)
        table = (iceberg_table if self.sink == ICEBERG else DeltaTargetTable)(self.target)
        return table.writer(read, state=state, schema=schema)


@marking_errors
class DirectDataSource(CloudFilesDataSource):
    """The source of such a query."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `explain()` shows."""
        return "cloudFilesDirect"

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given: StructType | None = None
        found = {key.lower(): value for key, value in options.items()}
        self._probe = found.get(PROBE.lower())
        self._direct = None if self._probe is not None else DirectWrite.of(options)
        super().__init__({key: each for key, each in options.items() if key.lower() not in _OWN})

    def schema(self) -> StructType:
        """Return the schema of what tasks give Spark.

        Raises:
            StaleSchemaError: The schema is not what the query was defined with.
        """
        if self._direct is None:
            import pyspark.sql.connect.session  # noqa: F401, PLC0415 - with all that it needs

            return StructType.fromJson(json.loads(self._probe)) if self._probe else super().schema()
        defined = StructType.fromJson(json.loads(self._direct.source_schema))
        if self._direct.is_given:
            self._given = defined
        elif super().schema() != defined:
            raise StaleSchemaError(
                "The schema has changed since the DataFrame was defined. Define it again."
            )
        return _WRITTEN

    def streamReader(self, schema: StructType) -> DirectStreamReader:  # noqa: N802
        """Build the reader of one query."""
        assert self._direct is not None  # noqa: S101 - a probe reads nothing
        options, resolved = self._defined(self._given or schema)
        return DirectStreamReader(options, resolved, self._direct)


@marking_errors
class DirectStreamReader(CloudFilesStreamReader):
    """Plans micro-batches as every query; its tasks write them."""

    def __init__(
        self, options: CloudFilesOptions, resolved: ResolvedSchema, direct: DirectWrite
    ) -> None:
        super().__init__(options, resolved)
        self._direct = direct

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Cut the planned files into splits, for the table as it is now."""
        parts = super().partitions(start, end)
        writer = self._direct.writer(self._opened().state.uri)
        return [InputPartition((part.value, writer)) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read and write one split in a task; say what was written."""
        split, writer = partition.value
        crash_point("before-read")
        log_to_stderr()
        rows = 1  # an error has no other way to the driver

        def write(split: Split) -> TaskWritten:
            nonlocal rows
            read = (batch.select(list(self._direct.columns)) for batch in TaskReader(split).read())
            written: TaskWritten = writer.write_rows(read)
            rows = written.counts["rows"]
            return written

        result = result_of(write, split)
        schema = to_arrow(_WRITTEN)
        for begin in range(0, rows, _ROWS_AT_ONCE):
            values = [None if begin else result] + [None] * (min(_ROWS_AT_ONCE, rows - begin) - 1)
            yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=schema)


class DirectCommit:
    """Commits what the tasks of a micro-batch have written; the function of its `foreachBatch`.

    Args:
        direct: What is moved, and where to.
        state: Checkpoint location of the query.
        is_remote: Whether this runs on a Spark Connect server.
    """

    def __init__(self, direct: DirectWrite, state: str, *, is_remote: bool = False) -> None:
        self._direct = direct
        self._state = state
        self._is_remote = is_remote

    def __call__(self, frame: Any, batch: int) -> None:
        """Carry out a micro-batch and commit it; one that the table has is dropped.

        Raises:
            CloudFilesError: A task has failed, or the table or the state cannot be written.
        """
        if self._is_remote:
            log_to_stderr()
        writer = self._direct.writer(self._state)
        ended = frame.where(frame[_COLUMN].isNotNull())
        try:
            written = collected(lambda: [row[0] for row in ended.collect()])
        except TaskFailed as failed:
            writer.abort(failed.written, batch)
            raise failed.failure from None
        writer.commit(written or [writer.write_rows(iter(()))], batch)
