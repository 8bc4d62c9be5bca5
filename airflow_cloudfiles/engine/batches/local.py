"""Carry tasks in processes of this machine, without Spark.

A micro-batch of a single split is read and written by this process. For more, processes are forked
from one that has imported what tasks need. They end with this process, however it ends.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Self

from airflow_cloudfiles.engine.batches.run import PROGRESS_SECONDS, Task, TaskFailure
from airflow_cloudfiles.engine.batches.task_process import log_to_stderr
from airflow_cloudfiles.engine.messages import counted

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.tables.table_writer import TaskWritten

_PRELOADED = (
    "airflow_cloudfiles.engine.tables.delta_table",
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
