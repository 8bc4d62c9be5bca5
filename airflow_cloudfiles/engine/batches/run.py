"""Carry the micro-batches of a run to the table, one after the other.

1. Open the state under the run lock, where the last committed batch ends.
2. Plan a micro-batch: its range is recorded before anything of it is read.
3. Have the executor read, parse and write its parts, to data files nobody sees yet.
4. Commit them, and record the batch in the state.
5. Go on with 2 until all that the run has to ingest is planned.

A run that is killed anywhere is followed by one that does the same from where the state is.

What a task has written, or has failed with, is brought from its process to the driver's. An error
that no other attempt helps against is a result, too: Spark would try the task again, and would pass
on only a text. An outage is raised, and marked: another attempt may help.

Without Spark, processes of this machine carry the tasks. A micro-batch of a single split is read
and written by this process. For more, processes are forked from one that has imported what tasks
need. They end with this process, however it ends.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

from airflow_cloudfiles.engine.batches.task_process import log_to_stderr
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    FileUnreachableError,
    StateUnreachableError,
    TargetUnreachableError,
    from_record,
    from_text,
    to_record,
)
from airflow_cloudfiles.engine.messages import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from airflow_cloudfiles.engine.tables.table_writer import TableWriter, TaskWritten


PROGRESS_SECONDS = 10.0
"""How often a run says how far it is."""
Task = Callable[[Any], "TaskWritten"]
"""Reads a part of a micro-batch and writes it to data files, in the process of a task."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A micro-batch whose range is recorded.

    Attributes:
        number: Of the stream.
        parts: What its tasks read; each can be pickled.
        end: Where it ends.
    """

    number: int
    parts: Sequence[Any]
    end: Any


class BatchSource(Protocol):
    """What the micro-batches of a run are made of."""

    def open(self) -> None:
        """Open the state, where the last committed batch ends."""

    def plan(self) -> PlannedBatch | None:
        """Plan the next micro-batch; `None` where nothing is left of what the run ingests."""

    def task(self, writer: TableWriter) -> Task:
        """Build the task that writes a part of a micro-batch to data files; it can be pickled."""

    def rows(self) -> Callable[[Any], Iterator[pa.RecordBatch]]:
        """Build the function that reads the rows of a part of a micro-batch; it can be pickled."""

    def committed(self, planned: PlannedBatch) -> None:
        """Take note of a micro-batch that is committed and recorded."""

    def close(self) -> None:
        """Free what `open` holds; harmless when it was not called."""


class Executor(Protocol):
    """What carries the tasks of micro-batches."""

    def carry(self, task: Task, splits: Sequence[Any], number: int) -> list[TaskWritten]:
        """Carry out a task for each part of a micro-batch.

        Args:
            task: What a task does.
            splits: The parts.
            number: Of the micro-batch.

        Returns:
            What each has written, in the order of the parts.

        Raises:
            TaskFailed: One has failed; the others are given up.
        """


class TaskFailure(Exception):  # noqa: N818 - it carries an error, and is none that anyone sees
    """A task has failed.

    Attributes:
        failure: What it failed with.
        written: What other tasks have written; `None` where one has not ended.
    """

    def __init__(self, failure: BaseException, written: Sequence[TaskWritten | None]) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.written = list(written)


def run_batches(
    source: BatchSource, write: Callable[[PlannedBatch], None], *, check: Callable[[], None]
) -> None:
    """Ingest all that a run has before it.

    Args:
        source: What the micro-batches are made of.
        write: Writes and commits one (`write_by_tasks`).
        check: Called before each micro-batch; raises to end the run.

    Raises:
        CloudFilesError: What stopped it. What was committed stays.
    """
    with closing(source):
        source.open()
        while True:
            check()
            planned = source.plan()
            if planned is None:
                return
            write(planned)
            source.committed(planned)


def write_by_tasks(
    executor: Executor,
    source: BatchSource,
    new_writer: Callable[[], TableWriter],
    planned: PlannedBatch,
) -> None:
    """Have tasks read and write a micro-batch, then commit it.

    Args:
        executor: What carries the tasks.
        source: What the micro-batches are made of.
        new_writer: Makes the writer of one micro-batch, for the table as it is then.
        planned: The micro-batch.

    Raises:
        CloudFilesError: What failed; what tasks have written is removed then.
    """
    writer = new_writer()
    task = source.task(writer)
    carried = partial(executor.carry, task, planned.parts, planned.number)
    commit_or_abort(writer, planned.number, carried)


def commit_or_abort(
    writer: TableWriter, number: int, carried: Callable[[], Sequence[TaskWritten]]
) -> None:
    """Commit what the tasks of a micro-batch write; remove it where one of them fails.

    Args:
        writer: Of the micro-batch.
        number: Of the micro-batch.
        carried: Has the tasks carried; gives what they have written.

    Raises:
        CloudFilesError: What failed.
    """
    try:
        written = carried()
    except TaskFailure as failed:
        writer.abort(failed.written, number)
        raise failed.failure from failed.failure.__cause__
    writer.commit(written, number)


_OUTAGES = (FileUnreachableError, StateUnreachableError, TargetUnreachableError)


def result_of(task: Callable[[Any], TaskWritten], part: Any) -> bytes:
    """Carry out a task, and pack what it has written, or what it failed with.

    Raises:
        CloudFilesError: What another attempt may help against.
    """
    try:
        written: TaskWritten | dict[str, Any] = task(part)
    except _OUTAGES:
        raise
    except CloudFilesError as error:
        written = to_record(error)
    # A task reports statistics of all columns of each of its files, which are much alike.
    return zlib.compress(pickle.dumps(written), 1)


def unpacked(result: bytes) -> TaskWritten | CloudFilesError:
    """Unpack what a task of ours has written, or what it failed with."""
    found = pickle.loads(zlib.decompress(result))  # noqa: S301 - of a task of this run
    return from_record(found) if isinstance(found, dict) else found


def collected(results: Callable[[], Iterable[bytes]]) -> list[TaskWritten]:
    """Collect what the tasks have written, in their order.

    Args:
        results: Asks for what they give back. What yields it ends the others when it is closed.

    Raises:
        TaskFailed: One has failed.
    """
    written: list[TaskWritten] = []
    failed: CloudFilesError | None = None
    try:
        found = results()
        for each in found:
            outcome = unpacked(each)
            if not isinstance(outcome, CloudFilesError):
                written.append(outcome)
            elif failed is None:
                failed = outcome
                if isinstance(found, Generator):
                    found.close()
    except Exception as failure:
        raise TaskFailure(from_text(str(failure)) or failure, [*written, None]) from failure
    if failed is not None:
        raise TaskFailure(failed, [*written, None])
    return written


_PRELOADED = (
    "airflow_cloudfiles.engine.tables.target_table",
    "airflow_cloudfiles.engine.batches.file_source",
)
_log = logging.getLogger(__name__)


def cores() -> int:
    """Count the cores that this process may use."""
    found = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    return len(found) if found else os.cpu_count() or 1


class LocalProcesses:
    """Processes of this machine that carry out tasks; a context, which ends them.

    Args:
        count: How many tasks run at a time.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def carry(self, task: Task, splits: Sequence[Any], number: int) -> list[TaskWritten]:  # noqa: ARG002 - for Spark's UI
        """Carry out a task for each split (`Executor.carry`)."""
        if len(splits) == 1 or self._count == 1:
            return self._here(task, splits)
        futures = [self._processes().submit(task, split) for split in splits]
        said, waiting = time.monotonic(), set(futures)
        while waiting:
            ended, waiting = wait(waiting, PROGRESS_SECONDS, FIRST_COMPLETED)
            failed = [each for each in ended if each.exception() is not None]
            if failed:
                self._end()
                failure = failed[0].exception()
                assert failure is not None  # noqa: S101 - it is one that failed
                raise TaskFailure(failure, [_result(each) for each in futures])
            if waiting and time.monotonic() - said > PROGRESS_SECONDS:
                said = time.monotonic()
                done = len(futures) - len(waiting)
                _log.info("%s of %s are written", done, counted(len(futures), "split"))
        return [each.result() for each in futures]

    def _here(self, task: Task, splits: Sequence[Any]) -> list[TaskWritten]:
        """Carry out tasks in this process, one after the other."""
        written: list[TaskWritten] = []
        for split in splits:
            try:
                written.append(task(split))
            except Exception as failure:
                left = [None] * (len(splits) - len(written))
                raise TaskFailure(failure, [*written, *left]) from failure
        return written

    def _processes(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Not forked from this process, which has threads, nor each started anew, which takes a
            # second of a core.
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(list(_PRELOADED))
            self._pool = ProcessPoolExecutor(self._count, context, initializer=_begin)
        return self._pool

    def _end(self) -> None:
        """End the processes, also in the middle of a task."""
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in multiprocessing.active_children():
                process.kill()
            pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Be a process for tasks, which ends with the one that waits for them."""
    threading.Thread(target=_end_with_parent, name="cloudfiles-parent", daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):  # the process that waits for this one decides
        signal.signal(number, signal.SIG_IGN)
    log_to_stderr()


def _end_with_parent() -> None:
    # The kernel would tell of the end of the fork server, which lives as long as its children.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _result(task: Future[TaskWritten]) -> TaskWritten | None:
    """Return what a task has written, if it has ended well."""
    ended = task.done() and not task.cancelled() and task.exception() is None
    return task.result() if ended else None
