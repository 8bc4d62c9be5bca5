"""Carry tasks on a Spark whose driver is this process: one Spark job for each micro-batch.

The job is one of RDDs: it needs no plan of Spark SQL, and no pandas. Spark tries a task again that
raises or is lost, and may run one twice at once: each attempt writes data files of its own, and
only those of the attempt whose result has come back are committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

from pyspark import InheritableThread
from pyspark.accumulators import AccumulatorParam

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.batches.run import (
    PROGRESS_SECONDS,
    Task,
    TaskFailure,
    collected,
    result_of,
    unpacked,
)
from airflow_cloudfiles.engine.batches.task_process import marking
from airflow_cloudfiles.engine.errors import CloudFilesError, RunFailedError
from airflow_cloudfiles.engine.messages import counted

if TYPE_CHECKING:
    from pyspark import SparkContext

    from airflow_cloudfiles.engine.tables.table_writer import TaskWritten

_LOOK_SECONDS = 1.0
_END_SECONDS = 10.0
_GROUP = "cloudfiles"
_log = logging.getLogger(__name__)

Results = list[tuple[int, bytes]]
"""What tasks give back, each with the number of its part."""


class SparkTasks:
    """Carries tasks on the executors of a Spark (`Executor`).

    Args:
        context: Gives it, once there is something to carry.
        name: Of the stream, for Spark's UI.
    """

    def __init__(self, context: Callable[[], SparkContext], name: str) -> None:
        self._context = context
        self._name = name

    def carry(self, task: Task, splits: Sequence[Any], number: int) -> list[TaskWritten]:
        """Carry out a task for each split (`Executor.carry`)."""
        context = self._context()
        ended: Any = context.accumulator([], _JoinedResults())

        def work(numbered: tuple[int, Any]) -> None:
            part, split = numbered
            ended.add([(part, result_of(task, split))])

        def job() -> list[bytes]:
            context.setJobGroup(_GROUP, f"{self._name}: micro-batch {number}")
            context.parallelize([*enumerate(splits)], len(splits)).foreach(marking(work))
            results = dict(ended.value)
            # Spark only logs that it could not pass on what a task has added.
            if missing := len(splits) - len(results):
                raise RunFailedError(
                    f"Spark has lost what {counted(missing, 'task')} of micro-batch {number} "
                    "wrote. Nothing of it was committed: run again."
                )
            return [results[part] for part in range(len(splits))]

        try:
            found = _waited_for(job, context, ended, len(splits))
        except Exception as failure:
            known = [unpacked(each) for _, each in ended.value]
            failed = [each for each in known if isinstance(each, CloudFilesError)]
            written = [each for each in known if not isinstance(each, CloudFilesError)]
            ours = failed[0] if failed else errors.from_text(str(failure)) or failure
            raise TaskFailure(ours, [*written, None]) from failure
        return collected(lambda: found)


class _JoinedResults(AccumulatorParam[Results]):
    """What tasks give back that have ended, also in a job that then fails.

    Of the attempts of a task, Spark adds what one that has succeeded gives, once.
    """

    def zero(self, value: Results) -> Results:  # noqa: ARG002 - Spark's interface
        return []

    def addInPlace(self, value1: Results, value2: Results) -> Results:  # noqa: N802
        value1 += value2
        return value1


def _waited_for(
    job: Callable[[], list[bytes]], context: SparkContext, ended: Any, tasks: int
) -> list[bytes]:
    """Wait for a job, saying how far it is; an error that a task gives back ends it.

    What ends the wait, such as a signal, ends the job. Another thread has the connection to the
    JVM, in which what a signal raises would be lost.
    """
    found: Future[list[bytes]] = Future()

    def run() -> None:
        try:
            found.set_result(job())
        except Exception as failure:  # noqa: BLE001 - it is raised where the job is waited for
            found.set_exception(failure)

    thread = InheritableThread(target=run, name="cloudfiles-job", daemon=True)
    thread.start()
    said, known = time.monotonic(), 0
    try:
        while not wait([found], _LOOK_SECONDS).done:
            results: Results = ended.value[known:]
            known += len(results)
            if any(isinstance(unpacked(each), CloudFilesError) for _, each in results):
                context.cancelJobGroup(_GROUP)
                break
            if time.monotonic() - said > PROGRESS_SECONDS:
                said = time.monotonic()
                _log.info("%s of %s are written", known, counted(tasks, "split"))
    except BaseException:
        try:
            context.cancelJobGroup(_GROUP)
            thread.join(_END_SECONDS)
        except Exception as lost:  # noqa: BLE001 - of a Spark that is lost, nothing is to be cancelled
            _log.debug("The job is not cancelled: %s", lost)
        raise
    return found.result()
