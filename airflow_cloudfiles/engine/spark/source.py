"""Let Spark read files as a stream, or once.

`spark.readStream.format("cloudFiles")`: a Python data source, which can be read as a batch, too
(`CloudFilesBatchReader`). Three processes meet here, and each opens for itself what it needs:

1. The *defining* process (`load()`): validates the options, resolves the schema.
2. The *planning* process beside the driver: discovers files, plans micro-batches, cuts splits. It
   holds the run lock of the checkpoint location while the query runs.
3. The *tasks*: read one split each (`stream.schema_change`).

Spark's offset is a position in the file log. A planned range is in the plan log before Spark
learns of it, so a batch id means the same files for ever.

`spark.read.format("cloudFiles")`, or in SQL a view `USING cloudFiles`. The files are listed when
Spark plans the first query of a DataFrame or view, which keeps what was planned, and are shared out
to tasks that read them as those of a stream do, with the schema that a stream with these options
would begin with. There is no state: nothing is remembered, nothing is written, and the next read
gives the same rows again. So an option of a stream

- that says when and how files are found, or how many at a time, has nothing to say here and is
  passed over: the options of a stream can be tried out as they are;
- that says which files are wanted, or how they are read, holds; with `minFileAge` or
  `completionMarker`, files that are not whole are left out and a warning names them, and one that
  has changed since it was listed is refused;
- that would write (`badRecordsPath`), or leave nothing to read, is refused.

A schema location is only read. Where it has a schema, that is used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType  # noqa: TC002 - as in the sink, beside Spark's others

from airflow_cloudfiles.engine.batches.file_source import LOCK_PATIENCE_SECONDS, split_up
from airflow_cloudfiles.engine.batches.task_process import (
    PACKAGE,
    check_client,
    log_to_stderr,
    marking_errors,
)
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.settling import WholeFiles
from airflow_cloudfiles.engine.errors import (
    IncompatibleSchemaError,
    OptionError,
    UnknownFieldException,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.files import START, Offset, ReadLimit
from airflow_cloudfiles.engine.formats.base import UnknownFields
from airflow_cloudfiles.engine.intake.opening import locate, opened_at_once, own_locations
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.options.cloud_files import ADDING_MODES, CloudFilesOptions
from airflow_cloudfiles.engine.reading.fetch import packed
from airflow_cloudfiles.engine.reading.split_reader import SplitReader
from airflow_cloudfiles.engine.reading.splits import BatchContext, Split
from airflow_cloudfiles.engine.spark import handoff
from airflow_cloudfiles.engine.spark.checkpoint_mirror import CheckpointMirror
from airflow_cloudfiles.engine.spark.data_source_api import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from airflow_cloudfiles.engine.spark.data_source_api import (
    ReadLimit as SparkReadLimit,
)
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream import approval, definition, schema_change
from airflow_cloudfiles.engine.stream.locations import QueryLocations
from airflow_cloudfiles.engine.stream.schema_change import TaskReader

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.intake.intake import Intake
    from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
    from airflow_cloudfiles.engine.stream.definition import ResolvedSchema


_NOT_CLEANED = (
    "cloudFiles.cleanSource: a query of your own does not clean its source by itself. Run "
    "`cloudfiles clean` with its checkpoint location (docs/how-to/clean-the-source.md)."
)
_log = logging.getLogger(__name__)


_NOT_FOLLOWED: Final = (
    "cloudFiles.onOverwrite=replace and cloudFiles.onDelete=delete are for runs that ingest files "
    "(CloudFilesIngestOperator, cloudfiles ingest): in a query Spark has the rows, and a sink that "
    "may only add some. Use cloudFiles.onOverwrite=append, or such a run."
)


@marking_errors
class CloudFilesDataSource(DataSource):
    """The data source `cloudFiles`.

    Options are Auto Loader's (docs/reference/options.md); `path` is the folder to read. The schema
    is the newest version in the schema log, or is inferred and written there.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name to give to `format`."""
        return "cloudFiles"

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.options: dict[str, str] = dict(options)
        self._resolved: Any = None

    def schema(self) -> StructType:
        """Resolve the schema of the stream when the user gave none.

        Raises:
            OptionError: The options are not valid.
            SchemaInferenceError: There is nothing to infer from (B4).
        """
        from airflow_cloudfiles.engine.intake.opening import check_cleaning  # noqa: PLC0415

        log_to_stderr()
        check_client(self.options)
        options = CloudFilesOptions.parse(self.options)
        options.check_query()
        # Spark does not say which it is; only a stream that `register` knows is sure to be one.
        is_stream = bool(options.token or options.client_version) and not options.is_batch
        if not options.is_batch:
            check_cleaning(options)
        self._resolved = definition.resolve_schema(options, writes=is_stream)
        definition.check_readable(self._resolved, options)
        if is_stream and (waits := approval.undecided(options, self._resolved)):
            raise waits
        if options.evolve_ahead and is_stream:
            self._resolved = schema_change.before_definition(options, self._resolved)
        return self._resolved.full_schema(options)  # type: ignore[no-any-return]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Build the reader of a batch, which has no state."""
        return CloudFilesBatchReader(*self._defined(schema))

    def streamReader(self, schema: StructType) -> CloudFilesStreamReader:  # noqa: N802
        """Build the reader of one query; this is cheap: Spark builds one for each micro-batch."""
        return CloudFilesStreamReader(*self._defined(schema))

    def _defined(self, schema: StructType) -> tuple[CloudFilesOptions, ResolvedSchema]:
        """Options and schema of a query."""
        from airflow_cloudfiles.engine.intake.opening import check_cleaning  # noqa: PLC0415

        check_client(self.options)
        has_schema = self._resolved is None
        options = CloudFilesOptions.parse(self.options, has_schema=has_schema)
        options.check_query()
        resolved: ResolvedSchema | None = self._resolved
        if resolved is None:
            check_cleaning(options)
            column = options.rescued_data_column
            if column is not None and column not in schema.names:
                raise IncompatibleSchemaError(
                    f"The given schema lacks the rescued data column {column}, which it has in "
                    f"mode {options.schema_evolution_mode}. Add `{column} STRING` to it, or call "
                    "register(spark), which does."
                )
            resolved = definition.given_schema(schema, options)
            definition.check_readable(resolved, options)
        return options, resolved


@marking_errors
class CloudFilesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the micro-batches of one query.

    Everything it opens stays in the planning process; what is sent to the tasks is the options and
    the schema.
    """

    def __init__(self, options: CloudFilesOptions, resolved: ResolvedSchema) -> None:
        self._options = options
        self._resolved = resolved
        self._intake: Intake | None = None
        self._lock: RunLock | None = None
        self._mirror: CheckpointMirror | None = None
        self._end: Offset | None = None
        self._is_idle = False
        # Only over Spark Connect: else the checkpoint was brought to where the jobs are.
        self._may_be_behind = options.client_version is not None
        self._target: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what only the planning process may hold."""
        own = ("_intake", "_lock", "_mirror")
        return {**self.__dict__, **dict.fromkeys(own)}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the offset before the first file."""
        return START.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Discover once; files that arrive later wait for the next run (B113)."""
        intake = self._opened()
        intake.discover()
        self._target = intake.head()

    def getDefaultReadLimit(self) -> SparkReadLimit:  # noqa: N802
        """`cloudFiles.maxFilesPerTrigger`; bytes are limited beside it in `latestOffset`."""
        return ReadMaxFiles(self._options.max_files_per_trigger)

    def latestOffset(self, start: dict[str, int], limit: SparkReadLimit) -> dict[str, int]:  # noqa: N802
        """Plan the next micro-batch; `start` itself when there is nothing left."""
        intake = self._opened()
        self._check_start(start)
        if self._target is None:
            self._look(intake)
        target = self._target or intake.head()
        unlimited = isinstance(limit, ReadAllAvailable)
        read_limit = ReadLimit() if unlimited else self._options.read_limit
        end = intake.plans.plan(intake.files, Offset.from_json(start), read_limit, target)
        self._end = end
        return end.to_json()

    def _look(self, intake: Intake) -> None:
        """Discover, as an endless trigger does each time; silently where the last look was idle."""
        package = logging.getLogger(PACKAGE)
        level = package.level
        if self._is_idle:
            package.setLevel(logging.WARNING)
        try:
            found = intake.discover()
        finally:
            package.setLevel(level)
        if self._is_idle and found.files:
            _log.info("%s new, %s bytes", counted(found.files, "file"), found.bytes)
        self._is_idle = not found.files

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the end of the file log, and what planned batches leave outstanding (B116).

        Spark shows it in the progress of the query. It has no other way for metrics of a source in
        Python, and no use for this one but to show it.
        """
        intake = self._opened()
        after = intake.committed() if self._end is None else self._end
        head = intake.head()
        return {**head.to_json(), **intake.metrics(after, head).to_json()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Cut the planned files into splits."""
        intake = self._opened()
        self._check_start(start)
        self._publish()
        crash_point("after-spark-offset")
        first, last = Offset.from_json(start), Offset.from_json(end)
        intake.plans.check(first, last)
        placed = list(intake.files.placed(first, last))
        options = self._options
        context = definition.batch_context(options, self._resolved, intake, first, last)
        splits = split_up(intake.source, placed, context, options.parallelism)
        how_many = counted(len(placed), "file"), counted(len(splits), "split")
        _log.info("Micro-batch: %s, %s", *how_many)
        return list(map(InputPartition, splits))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one split in a task."""
        split: Split = partition.value
        crash_point("before-read")
        return TaskReader(split).read()

    def commit(self, end: dict[str, int]) -> None:
        """Spark has committed up to `end`; its own log holds that, wherever it is."""
        crash_point("after-spark-commit")
        self._publish()
        _log.debug("Committed up to %s", end)

    def stop(self) -> None:
        """Free what the planning process holds; the OS does it when the process is killed."""
        if self._intake is not None:
            self._intake.close()
            self._intake = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _check_start(self, start: dict[str, int]) -> None:
        """Refuse to read once more what jobs have read; once a query."""
        if self._may_be_behind:
            from airflow_cloudfiles.engine.spark import checkpoint_healing  # noqa: PLC0415

            intake = self._opened()
            offset = Offset.from_json(start)
            checkpoint_healing.refuse_behind_jobs(intake.state, intake.plans, offset)
            self._may_be_behind = False

    def _publish(self) -> None:
        """Bring Spark's checkpoint into the state, where it is not there anyway."""
        if self._mirror is not None:
            self._mirror.publish()

    def _opened(self) -> Intake:
        """Open the state on first use, in the planning process only."""
        if self._intake is None:
            from airflow_cloudfiles.engine.intake.upkeep import tell_if_large  # noqa: PLC0415

            log_to_stderr()
            locations = self._locations()
            if locations.mirror is not None:
                self._mirror = CheckpointMirror(Path(locations.mirror))
            with opened_at_once(locations.checkpoint) as opened:
                self._resolved = definition.bind(
                    self._resolved, self._options, locations.checkpoint, opened.open
                )
                self._intake, self._lock = definition.open_intake(
                    self._options, locations, LOCK_PATIENCE_SECONDS, opened.open
                )
                if self._options.cleaning.is_on:
                    _log.warning("%s", _NOT_CLEANED)
                if self._options.discovery.follows:
                    raise UnsupportedOptionError(_NOT_FOLLOWED)
                self._intake.files.operations.meet()  # under the lock, as in `FileBatches`
                self._intake.check()
                tell_if_large(self._intake.plans, self._intake.state.uri)
        return self._intake

    def _locations(self) -> QueryLocations:
        """Find where the state is: given to the reader, or handed over by `writeStream`."""
        handed = handoff.receive(self._options.token) if self._options.token else None
        if self._options.checkpoint_location is not None:
            mirror = handed.mirror if handed else None
            return QueryLocations(self._options.checkpoint_location, mirror=mirror)
        if handed is None:
            raise OptionError(
                "The source does not know its checkpoint location. Give the one of writeStream to "
                "readStream too: .option('checkpointLocation', ...). (After "
                "airflow_cloudfiles.register(spark) it is passed on by itself, except to queries "
                "with several cloudFiles sources and to views over Spark Connect.)"
            )
        return handed


@marking_errors
class CloudFilesBatchReader(DataSourceReader):
    """Reads what is there when it is planned.

    Args:
        options: Those of the source.
        resolved: The schema of the DataFrame.
    """

    def __init__(self, options: CloudFilesOptions, resolved: ResolvedSchema) -> None:
        options.check_batch()
        self._options = options
        self._resolved = resolved

    def partitions(self) -> Sequence[InputPartition]:
        """List the files and share them out."""
        return [InputPartition(split) for split in _plan_batch(self._options, self._resolved)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one split; where there is none, Spark asks for one without a value."""
        if partition.value is not None:
            yield from _read_batch(partition.value)


def _plan_batch(options: CloudFilesOptions, resolved: ResolvedSchema) -> list[Split]:
    """List the files there are, and share them out.

    Args:
        options: Those of the source.
        resolved: The schema to read with.

    Raises:
        OptionError: As of `CloudFilesOptions.check_batch`.
        SourceNotFoundError: There is no such folder.
    """
    options.check_batch()
    discovery, options = options.discovery, _without_stream(options)
    place = locate(options.path)
    store = open_store(place.root)
    keys = [store.key_of(location) for location in own_locations(options)]
    wanted = FileFilter(store.uri, place.pattern, options.discovery, keys)
    whole = WholeFiles(store, wanted, discovery)
    files = sorted(whole.discover(), key=lambda file: file.path)
    left_out = whole.left_out()
    if left_out.files:
        _log.warning("Batch read of %s leaves out what is not whole: %s", store.uri, left_out)
    can_cut = options.format_options.can_split()
    splits = packed(store, files, parallelism=options.parallelism, can_cut=can_cut)
    _log.info(
        "Batch read of %s: %s, %s",
        store.uri,
        counted(len(files), "file"),
        counted(len(splits), "split"),
    )
    context = BatchContext(
        source_uri=store.uri,
        source_name=place.name,
        state_uri="",
        schema_uri=None,
        schema_version=resolved.version,
        data_schema=resolved.data_schema.json(),
        partition_schema=resolved.partition_schema.json(),
        start=START,
        end=START,
        options=options,
        column_order=resolved.column_order,
    )
    return [Split(context, ranges) for ranges in splits]


def _read_batch(split: Split) -> Iterator[pa.RecordBatch]:
    """Read one split.

    Raises:
        UnknownFieldException: A record has a field that the schema lacks, in the mode that fails.
        FileChangedError: A file that had to be whole has changed since it was listed.
        ReadError: A file cannot be read, or a record is not valid (`FAILFAST`).
    """
    try:
        yield from SplitReader(split).read()
    except UnknownFields as found:
        raise UnknownFieldException.of(
            found.fields,
            file=found.file_uri,
            retry=False,
            remedy="Add the fields with cloudFiles.schemaHints, or to the given schema; or set "
            "cloudFiles.schemaEvolutionMode to rescue.",
        ) from None


def _without_stream(options: CloudFilesOptions) -> CloudFilesOptions:
    """Build the options to read with: no schema evolves; the version that is there is read."""
    mode = options.schema_evolution_mode
    return replace(
        options,
        schema_evolution_mode="rescue" if mode in ADDING_MODES else mode,
        discovery=replace(options.discovery, allow_overwrites=False, file_identity=None),
    )
