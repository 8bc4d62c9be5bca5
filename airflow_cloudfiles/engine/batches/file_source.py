"""Plan the micro-batches of a run from the files that have arrived, and cut them into splits.

The plan log says what a batch is, the records of the sink what is committed. So this has no log of
its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.batches.run import PlannedBatch, Task
from airflow_cloudfiles.engine.batches.task_process import log_to_stderr
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.files import START, FileEntry, Offset
from airflow_cloudfiles.engine.intake.opening import opened_at_once
from airflow_cloudfiles.engine.messages import Progress, counted
from airflow_cloudfiles.engine.reading.fetch import packed
from airflow_cloudfiles.engine.reading.splits import BatchContext, Split, with_places
from airflow_cloudfiles.engine.registry import extension
from airflow_cloudfiles.engine.state.sink_log import position_of_a_job
from airflow_cloudfiles.engine.storage.fetched_ahead import OpenedState, side_by_side
from airflow_cloudfiles.engine.stream import definition
from airflow_cloudfiles.engine.stream.locations import QueryLocations
from airflow_cloudfiles.engine.stream.schema_change import TaskReader

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.intake.intake import Intake
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.stream.definition import ResolvedSchema
    from airflow_cloudfiles.engine.tables.table_writer import TableWriter, TaskWritten

LOCK_PATIENCE_SECONDS = 20.0
"""How long a run or a query waits for its predecessor's process to go away."""
_log = logging.getLogger(__name__)


class FileBatches:
    """The micro-batches of a run whose source is files (`BatchSource`).

    Args:
        options: Of the source, with its path.
        checkpoint_location: Where the state is.
        up_to: Where the run ends.
        parallelism: How many tasks can run at a time.
        known: What was read of the state; `None` to read it now.
    """

    def __init__(
        self,
        options: CloudFilesOptions,
        checkpoint_location: str,
        *,
        up_to: Offset,
        parallelism: int,
        known: OpenedState | None = None,
    ) -> None:
        self._options = options
        self._location = checkpoint_location
        self._up_to = up_to
        self._parallelism = parallelism
        self._known = known
        self._number = -1
        self._start = START
        self._intake: Intake | None = None
        self._lock: RunLock | None = None
        self._resolved: ResolvedSchema | None = None
        self._progress: Progress | None = None
        self._began = time.monotonic()
        self._planned = 0, 0

    def open(self) -> None:
        """Open the state under the run lock.

        Raises:
            StateLockedError: Another run or query is at work.
            CloudFilesError: The schema or the state cannot be used.
        """
        with opened_at_once(self._location, self._known) as opened:
            self._resolved = definition.resolve_schema(self._options, open_state=opened.open)
            definition.check_readable(self._resolved, self._options)
            locations = QueryLocations(self._location)
            self._intake, self._lock = definition.open_intake(
                self._options, locations, LOCK_PATIENCE_SECONDS, opened.open
            )
            self._begin(self._intake)
            self._intake.check()

    def plan(self) -> PlannedBatch | None:
        """Plan the next micro-batch, and cut its files into splits."""
        intake, resolved = self._intake, self._resolved
        assert intake is not None  # noqa: S101 - `open` sets it
        assert resolved is not None  # noqa: S101 - `open` sets it
        start, options = self._start, self._options
        end = intake.plans.plan(intake.files, start, options.read_limit, self._up_to)
        if end == start:
            return None
        crash_point("after-spark-offset")
        intake.plans.check(start, end)
        placed = list(intake.files.placed(start, end))
        context = definition.batch_context(options, resolved, intake, start, end)
        if options.load_mode == "copy":
            splits = split_up(intake.source, placed, context, self._parallelism)
        else:
            splits = extension("register splits")(intake, placed, context, self._parallelism)
        number = self._number + 1
        self._planned = len(placed), sum(file.size for _, file in placed)
        how_many = counted(len(placed), "file"), counted(len(splits), "split")
        _log.info("Planned batch %s: %s, %s", number, *how_many)
        return PlannedBatch(number, splits, end)

    def task(self, writer: TableWriter) -> Task:
        """Build the task that reads, parses and writes a split."""
        return partial(write_split, writer)

    def rows(self) -> Callable[[Any], Iterator[pa.RecordBatch]]:
        """Build the function that reads the rows of a split."""
        return _rows

    def committed(self, planned: PlannedBatch) -> None:
        """Go on behind a micro-batch."""
        crash_point("after-spark-commit")
        self._number, self._start = planned.number, planned.end
        if self._progress is None and planned.end < self._up_to:
            self._progress = self._begun()
        if self._progress is not None:
            self._progress.add(*self._planned)

    def close(self) -> None:
        """Free the state."""
        intake, self._intake = self._intake, None
        if intake is not None:
            intake.close()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release_aside()

    def _begun(self) -> Progress:
        """Count what the run ingests, behind its first batch, for reports of progress."""
        # Most runs have one batch.
        from airflow_cloudfiles.engine.intake.stream_logs import files_and_bytes  # noqa: PLC0415

        assert self._intake is not None  # noqa: S101 - `open` sets it
        files, size = files_and_bytes(self._intake.files, self._start, self._up_to)
        done, done_bytes = self._planned
        return Progress("Ingesting", done + files, done_bytes + size, self._began)

    def _begin(self, intake: Intake) -> None:
        """Begin behind what is committed, also since the run has looked without the run lock."""
        found, _ = side_by_side(
            intake.state,
            lambda: position_of_a_job(intake.state, intake.plans),
            intake.files.operations.meet,  # none is added while this process has the lock
        )
        intake.begin_at(found)
        self._number, self._start = found.batch, found.end


def split_up(
    source: ObjectStore,
    placed: Sequence[tuple[tuple[int, int], FileEntry]],
    context: BatchContext,
    parallelism: int,
    *,
    can_cut: bool = True,
) -> list[Split]:
    """Cut the files of a micro-batch into splits.

    Args:
        source: Where they are.
        placed: All of them, each behind where the file log has it (`FileLog.placed`).
        context: Of the micro-batch.
        parallelism: How many tasks can run at a time.
        can_cut: Whether a file may be cut into parts, if its format can.
    """
    can_cut = can_cut and context.options.format_options.can_split()
    files = [file for _, file in placed]
    found = packed(source, files, parallelism=parallelism, can_cut=can_cut)
    found = with_places(found, [place for place, _ in placed])
    # Where all files were excluded, an empty batch is one nevertheless.
    return [Split(context, ranges) for ranges in found or [()]]


def write_split(writer: TableWriter, split: Split) -> TaskWritten:
    """Read, parse and write one split, in the process of a task."""
    crash_point("before-read")
    log_to_stderr()
    return writer.write_split(split)


def _rows(split: Split) -> Iterator[pa.RecordBatch]:
    """Read and parse one split, in the process of a task."""
    crash_point("before-read")
    log_to_stderr()
    yield from TaskReader(split).read()
