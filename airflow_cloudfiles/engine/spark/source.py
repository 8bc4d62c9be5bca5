"""How does Spark read the files as a stream?

`spark.readStream.format("cloudFiles")`: a Python data source, which can be read as a batch, too
(`batch_source`). Three processes meet here, and each
opens for itself what it needs:

1. The *defining* process (`load()`): validates the options, resolves the schema.
2. The *planning* process beside the driver: discovers files, plans micro-batches, cuts splits. It
   holds the run lock of the checkpoint location while the query runs.
3. The *tasks*: read one split each (`stream.task_reader`).

Spark's offset is a position in the file log. A planned range is in the plan log before Spark
learns of it, so a batch id means the same files for ever.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.streaming.datasource import ReadLimit as SparkReadLimit
from pyspark.sql.types import StructType  # noqa: TC002 - as in the sink, beside Spark's others

from airflow_cloudfiles.engine.counted import counted
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import (
    IncompatibleSchemaError,
    OptionError,
    StateLockedError,
)
from airflow_cloudfiles.engine.files import START, Offset, ReadLimit, printable_path
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.reading.splits import BatchContext, Split
from airflow_cloudfiles.engine.spark import handoff, split_rows
from airflow_cloudfiles.engine.spark.checkpoint_mirror import CheckpointMirror
from airflow_cloudfiles.engine.spark.client_version import check_client
from airflow_cloudfiles.engine.spark.error_marks import marking_errors
from airflow_cloudfiles.engine.spark.server_checkpoint import HeldCheckpoint, prepare
from airflow_cloudfiles.engine.state import progress
from airflow_cloudfiles.engine.state.position import position_of_a_job
from airflow_cloudfiles.engine.storage.fetched_ahead import side_by_side
from airflow_cloudfiles.engine.stream.locations import QueryLocations

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.intake.intake import Intake
    from airflow_cloudfiles.engine.locks.run_lock import RunLock
    from airflow_cloudfiles.engine.stream.definition import ResolvedSchema

AFTER_BATCH = "cloudFiles.internal.afterBatch"
"""Option of the source: the last committed batch, behind which a job begins; -1 for none."""
OPENED = "cloudFiles.internal.opened"
"""Option of the source: where the driver of a job hands over what it has read of the state."""
LOCK_PATIENCE_SECONDS = 20.0
"""How long a query waits for the planning process of its predecessor to go away."""
_NOT_CLEANED = (
    "cloudFiles.cleanSource: a query of your own does not clean its source by itself. Run "
    "`cloudfiles clean` with its checkpoint location (docs/how-to/clean-the-source.md)."
)
_log = logging.getLogger(__name__)


@marking_errors
class CloudFilesDataSource(DataSource):
    """The data source `cloudFiles`.

    Options are Auto Loader's (docs/reference/options.md); `path` is the folder to read. The schema
    is the newest version in the schema log, or is inferred and written there.
    """

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return "cloudFiles"

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.options: dict[str, str] = dict(options)
        self._resolved: Any = None

    def schema(self) -> StructType:
        """The schema of the stream when the user gave none.

        Raises:
            OptionError: The options are not valid.
            SchemaInferenceError: There is nothing to infer from (B4).
        """
        from airflow_cloudfiles.engine.inference.workers import local_workers  # noqa: PLC0415
        from airflow_cloudfiles.engine.stream import definition  # noqa: PLC0415
        from airflow_cloudfiles.engine.stream.own_locations import check_cleaning  # noqa: PLC0415

        log_to_stderr()
        check_client(self.options)
        options = CloudFilesOptions.parse(self.options)
        if options.checkpoint_folder is not None:
            prepare(options.checkpoint_folder, options.query_id or "")
        if options.split_token is not None:
            # The driver has resolved the schema. The planning process reads it with all else.
            return split_rows.SPLIT_SCHEMA
        # Spark does not say which it is; only a stream that `register` knows is sure to be one.
        is_stream = bool(options.token or options.client_version) and not options.is_batch
        workers = None if is_stream else local_workers()
        if not options.is_batch:
            check_cleaning(options)
        self._resolved = definition.resolve_schema(options, workers=workers, writes=is_stream)
        definition.check_readable(self._resolved, options)
        if options.require_approval and is_stream:
            from airflow_cloudfiles.engine.stream import approval  # noqa: PLC0415

            if waits := approval.undecided(options, self._resolved):
                raise waits
        if options.evolve_ahead and is_stream:
            from airflow_cloudfiles.engine.stream import evolve_ahead  # noqa: PLC0415

            self._resolved = evolve_ahead.before_definition(options, self._resolved)
        return self._resolved.full_schema(options)  # type: ignore[no-any-return]

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch, which has no state."""
        from airflow_cloudfiles.engine.spark.batch_source import (  # noqa: PLC0415
            CloudFilesBatchReader,
        )

        options, resolved = self._defined(schema)
        if resolved is None:
            raise OptionError(f"{split_rows.SPLIT_TOKEN} is set by this package itself; remove it.")
        return CloudFilesBatchReader(options, resolved)

    def streamReader(self, schema: StructType) -> CloudFilesStreamReader:  # noqa: N802
        """The reader of one query; cheap, since Spark builds one for every micro-batch."""
        return CloudFilesStreamReader(*self._defined(schema))

    def _defined(self, schema: StructType) -> tuple[CloudFilesOptions, ResolvedSchema | None]:
        """Options and schema of a query; in a job, the planning process resolves the schema."""
        from airflow_cloudfiles.engine.stream import definition  # noqa: PLC0415
        from airflow_cloudfiles.engine.stream.own_locations import check_cleaning  # noqa: PLC0415

        check_client(self.options)
        is_split = split_rows.SPLIT_TOKEN.lower() in {name.lower() for name in self.options}
        has_schema = self._resolved is None and not is_split
        options = CloudFilesOptions.parse(self.options, has_schema=has_schema)
        resolved = self._resolved
        if has_schema:
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


class SplitPartition(InputPartition):
    """A split on its way to a task."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)


@marking_errors
class CloudFilesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the micro-batches of one query.

    Everything it opens stays in the planning process; what is sent to the tasks is the options and
    the schema.
    """

    def __init__(self, options: CloudFilesOptions, resolved: ResolvedSchema | None) -> None:
        self._options = options
        self._resolved = resolved
        self._intake: Intake | None = None
        self._lock: RunLock | None = None
        self._mirror: CheckpointMirror | None = None
        self._checkpoint: HeldCheckpoint | None = None
        self._start = START
        self._end: Offset | None = None
        # Only over Spark Connect: else the checkpoint was brought to where the jobs are.
        self._may_be_behind = options.client_version is not None and options.after_batch is None
        self._target: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what only the planning process may hold."""
        own = ("_intake", "_lock", "_mirror", "_checkpoint")
        return {**self.__dict__, **dict.fromkeys(own)}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the first file; of a job, behind the last committed batch."""
        if self._options.after_batch is None:
            return START.to_json()
        self._opened()
        return self._start.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Discover once; files that arrive later wait for the next run (B113)."""
        intake = self._opened()
        if self._options.up_to_entry is None:
            found = intake.discover()
            self._target = intake.head()
            progress.note_discovery(intake.state, found.to_json())
        else:
            self._target = Offset(self._options.up_to_entry + 1, 0)

    def getDefaultReadLimit(self) -> SparkReadLimit:  # noqa: N802
        """`cloudFiles.maxFilesPerTrigger`; bytes are limited beside it in `latestOffset`."""
        return ReadMaxFiles(self._options.max_files_per_trigger)

    def latestOffset(self, start: dict[str, int], limit: SparkReadLimit) -> dict[str, int]:  # noqa: N802
        """Plan the next micro-batch; `start` itself when there is nothing left."""
        intake = self._opened()
        self._check_start(start)
        if self._target is None:
            intake.discover()
        target = self._target or intake.head()
        unlimited = isinstance(limit, ReadAllAvailable)
        read_limit = ReadLimit() if unlimited else self._options.read_limit
        end = intake.plans.plan(intake.files, Offset.from_json(start), read_limit, target)
        self._end = end
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where the file log ends, and what of it the planned batches leave outstanding (B116).

        Spark shows it in the progress of the query. It has no other way for metrics of a source in
        Python, and no use for this one but to show it.
        """
        intake, is_of_job = self._opened(), self._options.after_batch is not None
        after = intake.committed() if self._end is None else self._end
        # A job has looked where the file log ends, and asks nobody again.
        head = self._target if is_of_job and self._target else intake.head()
        metrics = intake.metrics(after, head, with_queue=not is_of_job)
        return {**head.to_json(), **metrics.to_json()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Cut the planned files into splits."""
        from airflow_cloudfiles.engine.reading.fetch import packed  # noqa: PLC0415

        intake = self._opened()
        self._check_start(start)
        self._publish()
        crash_point("after-spark-offset")
        first, last = Offset.from_json(start), Offset.from_json(end)
        intake.plans.check(first, last)
        files = list(intake.files.slice(first, last))
        context = self._context(intake, first, last)
        can_cut = self._options.format_options.can_split()
        splits = packed(
            intake.source, files, parallelism=self._options.parallelism, can_cut=can_cut
        )
        if not splits:  # all files were excluded: an empty batch is one nevertheless
            splits = [()]
        how_many = counted(len(files), "file"), counted(len(splits), "split")
        _log.info("Micro-batch %s to %s: %s, %s", start, end, *how_many)
        return [SplitPartition(Split(context, ranges)) for ranges in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one split in a task; in a job only pass it on, for the sink to read."""
        split: Split = partition.value
        crash_point("before-read")
        if self._options.split_token is not None:
            return _emit(split, split_rows.check_token(self._options.split_token))
        from airflow_cloudfiles.engine.stream.task_reader import TaskReader  # noqa: PLC0415

        return TaskReader(split).read()

    def commit(self, end: dict[str, int]) -> None:
        """Spark has committed up to `end`; its own log holds that, wherever it is."""
        crash_point("after-spark-commit")
        self._publish()
        _log.debug("Committed up to %s", end)

    def stop(self) -> None:
        """Free what the planning process holds; the OS does it when the process is killed."""
        if self._checkpoint is not None:
            # Spark closes the connection before it sends the signal, which may come only now.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self._intake is not None:
            self._intake.close()
            self._intake = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self._checkpoint is not None:
            self._checkpoint.remove()
            self._checkpoint = None

    def _check_start(self, start: dict[str, int]) -> None:
        """Refuse to read once more what jobs have read; once a query."""
        if self._may_be_behind:
            from airflow_cloudfiles.engine.spark import checkpoint_after_jobs  # noqa: PLC0415

            intake = self._opened()
            offset = Offset.from_json(start)
            checkpoint_after_jobs.refuse_behind_jobs(intake.state, intake.plans, offset)
            self._may_be_behind = False

    def _publish(self) -> None:
        """Bring Spark's checkpoint into the state, where it is not there anyway."""
        if self._mirror is not None:
            self._mirror.publish()

    def _opened(self) -> Intake:
        """Open the state on first use, in the planning process only."""
        if self._intake is None:
            from airflow_cloudfiles.engine.intake.opening import opened_at_once  # noqa: PLC0415
            from airflow_cloudfiles.engine.intake.upkeep import tell_if_large  # noqa: PLC0415
            from airflow_cloudfiles.engine.stream import definition  # noqa: PLC0415

            log_to_stderr()
            if self._options.checkpoint_folder is not None:
                # Spark ends this process by that signal.
                signal.signal(signal.SIGTERM, _end)
                self._checkpoint = HeldCheckpoint(self._options.checkpoint_folder)
            locations = self._locations()
            if locations.mirror is not None:
                self._mirror = CheckpointMirror(Path(locations.mirror))
            opened = handoff.take(self._options.opened) if self._options.opened else None
            with opened_at_once(locations.checkpoint, opened):
                self._resolved = self._bound(locations.checkpoint)
                self._intake, self._lock = definition.open_intake(
                    self._options, locations, LOCK_PATIENCE_SECONDS
                )
                if self._options.after_batch is None and self._options.cleaning.is_on:
                    _log.warning("%s", _NOT_CLEANED)
                if self._options.after_batch is None:
                    self._intake.files.operations.meet()  # under the lock, as in `_start_of_a_job`
                else:
                    self._start = _start_of_a_job(self._intake, self._options.after_batch)
                self._intake.check()
                if self._options.after_batch is None:
                    tell_if_large(self._intake.plans, self._intake.state.uri)
        return self._intake

    def _bound(self, checkpoint: str) -> ResolvedSchema:
        """The schema to read with: that of the definition, or in a job the newest."""
        from airflow_cloudfiles.engine.stream import definition  # noqa: PLC0415

        if self._resolved is not None:
            return definition.bind(self._resolved, self._options, checkpoint)
        resolved = definition.resolve_schema(self._options)
        definition.check_readable(resolved, self._options)
        return resolved

    def _locations(self) -> QueryLocations:
        """Where the state is: given to the reader, or handed over by `writeStream`."""
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

    def _context(self, intake: Intake, start: Offset, end: Offset) -> BatchContext:
        from airflow_cloudfiles.engine.stream import definition  # noqa: PLC0415

        assert self._resolved is not None  # noqa: S101 - `_opened` sets it
        return definition.batch_context(
            self._options,
            self._resolved,
            source=intake.source,
            name=intake.name,
            state=intake.state,
            start=start,
            end=end,
        )


def _start_of_a_job(intake: Intake, batch: int) -> Offset:
    """Where a job begins, whose driver has looked before it had the run lock.

    Raises:
        StateLockedError: A query has committed batches meanwhile. The sink would number the
            batches of this one from the wrong start.
    """
    found, _ = side_by_side(
        intake.state,
        lambda: position_of_a_job(intake.state, intake.plans),
        intake.files.operations.meet,  # none is added while this process has the lock
    )
    if found.batch != batch:
        raise StateLockedError(
            f"Another query has committed up to batch {found.batch} of "
            f"{printable_path(intake.state.uri)}, while this run started behind batch {batch}. "
            "Run again."
        )
    intake.begin_at(found)
    return found.end


def _end(_number: int, _frame: object) -> None:
    """End as if Spark had asked: then what this process holds is freed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it comes twice
    sys.exit(0)


def _emit(split: Split, token: str) -> Iterator[pa.RecordBatch]:
    """One row: the split itself, for a sink that reads the files in its own tasks."""
    import pyarrow as pa  # noqa: PLC0415

    from airflow_cloudfiles.engine.types import to_arrow  # noqa: PLC0415

    row = pa.array([split_rows.encode(split, token)], type=pa.binary())
    yield pa.RecordBatch.from_arrays([row], schema=to_arrow(split_rows.SPLIT_SCHEMA))


def log_to_stderr() -> None:
    """Show this package's progress: Spark passes on what its Python processes print to stderr."""
    logger = logging.getLogger("airflow_cloudfiles")
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(os.environ.get("CLOUDFILES_LOG_LEVEL", "INFO"))
