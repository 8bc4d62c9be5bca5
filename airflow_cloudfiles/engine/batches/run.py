"""Carry the micro-batches of a run to the table, one after the other.

1. Open the state under the run lock, where the last committed batch ends.
2. Plan a micro-batch: its range is recorded before anything of it is read.
3. Have the executor read, parse and write its parts, to data files nobody sees yet.
4. Commit them, and record the batch in the state.
5. Go on with 2 until all that the run has to ingest is planned.

A run that is killed anywhere is followed by one that does the same from where the state is.

Bring what a task has written, or has failed with, from its process to the driver's.

An error that no other attempt helps against is a result, too: Spark would try the task again,
and would pass on only a text. An outage is raised, and marked: another attempt may help.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    FileUnreachableError,
    StateUnreachableError,
    TargetUnreachableError,
    from_record,
    from_text,
    to_record,
)

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
