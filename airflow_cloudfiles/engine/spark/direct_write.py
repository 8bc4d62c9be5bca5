"""Write the rows of a query in the tasks that read them, so that none passes the JVM.

A query that only moves files into a table of ours needs Spark's offsets, triggers and tasks, not
its rows. Where `start()` finds one, it starts another in its place, with the same offsets, state
and records: a task of its source reads a split and writes the data files, as in a run. What it
gives Spark is what it has written, in the first of as many rows as it has read, so that Spark's
counts of rows stay true. A function over the micro-batches collects that, and commits.

A task that has failed for good says so in its row, too: what the others have written is then known,
and removed.

What a query reads, and with which options, is read from the logical plan of its DataFrame, which
only a session with a JVM has here. Its tasks may write where it has one source, `cloudFiles`, of
which it selects, drops and renames columns at most, and appends to a table of ours.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql.types import BinaryType, StructField, StructType

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.batches.run import TaskFailure, collected, result_of
from airflow_cloudfiles.engine.batches.task_process import log_to_stderr, marking_errors
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import StaleSchemaError
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.reading.splits import Split
from airflow_cloudfiles.engine.spark import handoff
from airflow_cloudfiles.engine.spark.calls import calls_of
from airflow_cloudfiles.engine.spark.data_source_api import InputPartition
from airflow_cloudfiles.engine.spark.source import CloudFilesDataSource, CloudFilesStreamReader
from airflow_cloudfiles.engine.spark.tables.sink import refuse_misspelt
from airflow_cloudfiles.engine.stream.schema_change import TaskReader
from airflow_cloudfiles.engine.tables.delta_table import DeltaTargetTable
from airflow_cloudfiles.engine.tables.table_writer import TableWriter, TaskWritten
from airflow_cloudfiles.engine.tables.target_table import iceberg_table
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
_log = logging.getLogger(__name__)


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
        return [InputPartition((part.value, writer, len(parts))) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read and write one split in a task; say what was written."""
        split, writer, tasks = partition.value
        crash_point("before-read")
        log_to_stderr()
        rows = 1  # an error has no other way to the driver

        def write(split: Split) -> TaskWritten:
            nonlocal rows
            reader, columns = TaskReader(split), list(self._direct.columns)
            read = (batch.select(columns) for batch in reader.read())
            written: TaskWritten = writer.write_rows(read)
            written.add_read(reader, split)
            written.tasks = tasks
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
        except TaskFailure as failed:
            writer.abort(failed.written, batch)
            raise failed.failure from None
        writer.commit(written or [writer.write_rows(iter(()))], batch)


STATE_HANDOFF: Final = "cloudFiles.internal.token"
"""Option of a source: the token by which it is handed the checkpoint location."""
_CHECKPOINT: Final = "checkpointlocation"


def streaming_leaves(frame: DataFrame) -> int:
    """Count the streams that a query reads."""
    return sum(bool(leaf.isStreaming()) for leaf in _leaves(frame))


def tokens_of(frame: DataFrame) -> tuple[list[str], list[str]]:
    """Find the hand-over tokens of the cloudFiles sources in a query.

    Returns:
        Those of the sources that were not given their checkpoint location, and those of the others.
    """
    tokens: list[str] = []
    located: list[str] = []
    for leaf in _leaves(frame):
        options = _leaf_options(leaf)
        token = options.get(STATE_HANDOFF.lower())
        if token:
            (located if options.get(_CHECKPOINT) else tokens).append(token)
    return list(dict.fromkeys(tokens)), list(dict.fromkeys(located))


def streaming_options(frame: DataFrame) -> list[dict[str, str]]:
    """List the reader options of the streams that a query reads, in their order."""
    return [_leaf_options(leaf) for leaf in _leaves(frame) if leaf.isStreaming()]


def columns_of_leaf(frame: DataFrame) -> tuple[list[int], dict[str, str], str] | str:
    """Find which columns of its only source a query has, if it changes no row.

    Returns:
        The place in the source of each column; the options of the source, as they were given; and
        its schema as JSON. Otherwise what in the plan needs the rows.
    """
    plan = cast("Any", frame)._jdf.queryExecution().analyzed()  # noqa: SLF001
    columns = [_id_of(each) for each in _elements(plan.output())]
    while (kind := plan.getClass().getSimpleName()) in {"Project", "SubqueryAlias"}:
        if kind == "Project":
            made = {_id_of(each): _unchanged(each) for each in _elements(plan.projectList())}
            chosen = [made[each] for each in columns]
            columns = [each for each in chosen if each is not None]
            if len(columns) != len(chosen):
                return "an expression"
        plan = plan.child()
    if kind != "StreamingRelationV2":
        return str(kind)
    ids = [_id_of(each) for each in _elements(plan.output())]
    if not set(columns) <= set(ids):
        return "a metadata column"
    return list(map(ids.index, columns)), _given_options(plan), str(plan.schema().json())


def _unchanged(expression: Any) -> int | None:
    """Find the id of the column that an expression gives, maybe renamed, or `None`."""
    kind = expression.getClass().getSimpleName()
    if kind == "AttributeReference":
        return _id_of(expression)
    if kind == "Cast" and not expression.dataType().equals(expression.child().dataType()):
        return None
    return _unchanged(expression.child()) if kind in {"Alias", "Cast"} else None


def _id_of(expression: Any) -> int:
    return int(expression.exprId().id())


def _leaves(frame: DataFrame) -> list[Any]:
    """List the leaves of the logical plan; none where the session has no JVM here."""
    plan = getattr(frame, "_jdf", None)
    return [] if plan is None else _elements(plan.queryExecution().logical().collectLeaves())


def _elements(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _leaf_options(leaf: Any) -> dict[str, str]:
    """Read the reader options of a leaf of a logical plan, keyed in lower case."""
    return {key.lower(): value for key, value in _given_options(leaf).items()}


def _given_options(leaf: Any) -> dict[str, str]:
    """Read the reader options of a leaf of a logical plan, as they were given."""
    kind = leaf.getClass().getSimpleName()
    if kind == "UnresolvedDataSource":  # Spark 4.3
        entries = leaf.options()
        iterator = entries.iterator()
        pairs = []
        while iterator.hasNext():
            pair = iterator.next()
            pairs.append((pair.productElement(0), pair.productElement(1)))
    elif kind == "StreamingRelationV2":  # Spark 4.2
        pairs = list(dict(leaf.extraOptions().asCaseSensitiveMap()).items())
    else:
        return {}
    return {str(key): str(value) for key, value in pairs}


_OF_SINK: Final = {"format", "partitionBy", "foreach", "foreachBatch"}


class DirectQueries:
    """Finds them; knows the sources that `load()` has defined by their tokens."""

    def __init__(self) -> None:
        self._is_given: dict[str, bool] = {}

    def defined(self, token: str, *, is_given: bool) -> None:
        """Take note of a source.

        Args:
            token: By which it is handed the checkpoint location.
            is_given: Whether the user gave its schema.
        """
        self._is_given[token] = is_given

    def instead_of(self, writer: Any, sink: str, target: str, options: Mapping[str, Any]) -> Any:
        """Build the writer to start in the place of one, or `None` where the rows pass Spark.

        Args:
            writer: PySpark's `DataStreamWriter`, which appends.
            sink: Name of its format, one of ours.
            target: The table.
            options: Of the sink, by their names in lower case.
        """
        if "checkpointlocation" not in options:  # `start()` will say so
            return None
        found = columns_of_leaf(writer._df)  # noqa: SLF001
        if isinstance(found, str):
            _log.info("The rows pass Spark, since the query has %s.", found)
            return None
        columns, of_source, source_schema = found
        is_given = self._is_given.get(of_source.get(STATE_HANDOFF, ""))
        if is_given is None:  # another source, or one that would be inferred once more
            return None
        direct = DirectWrite(
            sink=sink,
            target=target,
            options={key: str(value) for key, value in options.items()},
            columns=columns,
            schema=writer._df.schema.json(),  # noqa: SLF001
            source_schema=source_schema,
            is_given=is_given,
        )
        try:
            again = _writer(writer, direct, of_source)
        except PySparkException as error:
            ours = errors.from_text(str(error))
            if not isinstance(ours, StaleSchemaError):
                raise ours or error from None
            _log.info("The rows pass Spark, since the schema has changed meanwhile.")
            return None
        _log.info("Tasks write to %s what they read; no row passes Spark.", target)
        return again


def _writer(writer: Any, direct: DirectWrite, of_source: Mapping[str, str]) -> Any:
    """Define the query that is started instead."""
    reader = writer._spark.readStream.format(DirectDataSource.name()).options(**of_source)  # noqa: SLF001
    reader.option(STATE_HANDOFF, handoff.new_token()).option(OPTION, direct.to_json())
    frame = reader.load()
    frame.schema  # noqa: B018 - Spark resolves the source only when it is asked for it
    again = frame.writeStream
    for call, args, kwargs in calls_of(writer):
        if call not in _OF_SINK:
            getattr(again, call)(*args, **kwargs)
    commit = DirectCommit(direct, direct.options["checkpointlocation"])
    return again.foreachBatch(commit)
