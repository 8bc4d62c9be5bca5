"""Choose the workers that read a large sample.

Spark's executors where there is a cluster, else processes on this machine. Both end when the
process that infers does: interrupting an inference leaves nothing running, and nothing written.

`python -m airflow_cloudfiles.engine.inference.workers` is one such process: it reads tasks from
its standard input until that ends, and writes what it learned to its standard output.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine import worker_messages
from airflow_cloudfiles.engine.errors import RunFailedError
from airflow_cloudfiles.engine.inference.tasks import Learned, SampleTask, learn_task

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

MOST_PROCESSES = 16
"""Past this a disk or a network is the limit."""
POLL_SECONDS = 1.0
WORKER = "airflow_cloudfiles.engine.inference.workers"
"""The module of a process."""
_log = logging.getLogger(__name__)


class ProcessWorkers:
    """Processes on this machine.

    Args:
        count: How many; default is one for each core that this process may use.
    """

    start_seconds = 1.5
    """A Python that has imported PySpark's types and Arrow."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or min(MOST_PROCESSES, _cores())

    def learn(
        self, tasks: Sequence[SampleTask], on_done: Callable[[int, int], None]
    ) -> Iterator[Learned]:
        """Carry out tasks, each in the process that is free."""
        free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()

        def carry_out(task: SampleTask) -> Learned:
            process = free.get()
            try:
                learned = _ask(process, task)
            finally:  # also one that has died, which the next task then finds
                free.put(process)
            on_done(learned.counts.files, learned.counts.bytes)
            return learned

        count = min(self.count, len(tasks))
        with _processes(count) as processes:
            for process in processes:
                free.put(process)
            pool = ThreadPoolExecutor(count, thread_name_prefix="cloudfiles-infer")
            try:
                yield from pool.map(carry_out, tasks)
            finally:
                for process in processes:  # whose threads then see an end
                    process.kill()
                pool.shutdown(cancel_futures=True)


class SparkWorkers:
    """The executors of a Spark cluster.

    Args:
        session: Gives the session, which is asked for when it is needed.
        count: How many tasks run at once, as far as is known before the session is there.
        start_seconds: How long it takes until tasks run: Python workers, and a session if there is
            none yet.
    """

    def __init__(
        self, session: Callable[[], SparkSession], *, count: int, start_seconds: float
    ) -> None:
        self._session = session
        self._asked: SparkSession | None = None
        self.count = count
        self.start_seconds = start_seconds

    def learn(
        self, tasks: Sequence[SampleTask], on_done: Callable[[int, int], None]
    ) -> Iterator[Learned]:
        """Carry out tasks in one Spark job; interrupting it cancels the job."""
        self._asked = self._session()
        context = self._asked.sparkContext
        files, size = context.accumulator(0), context.accumulator(0)
        carried_out = context.parallelize(tasks, len(tasks)).map(
            partial(_counted, files=files, size=size)
        )
        tag = f"cloudfiles-infer-{uuid.uuid4().hex}"
        context.addJobTag(tag)
        context.setJobDescription(f"Inferring the schema of {tasks[0].source_uri}")
        try:
            with _polled(files, size, on_done):
                results = carried_out.collect()
        except BaseException:
            context.cancelJobsWithTag(tag)
            raise
        finally:
            context.removeJobTag(tag)
            context.setJobDescription(None)  # type: ignore[arg-type]
        yield from results

    def stop(self) -> None:
        """Stop the session, if it was asked for."""
        if self._asked is not None:
            self._asked.stop()
            self._asked = None


def _counted(task: SampleTask, files: Accumulator[int], size: Accumulator[int]) -> Learned:
    """Carry out a task in Spark, and count what was read."""
    learned = learn_task(task)
    files.add(learned.counts.files)
    size.add(learned.counts.bytes)
    return learned


@contextmanager
def _polled(
    files: Accumulator[int], size: Accumulator[int], on_done: Callable[[int, int], None]
) -> Iterator[None]:
    """Pass on what the accumulators have learned, as long as the job runs."""
    ended = threading.Event()

    def poll() -> None:
        reported = (0, 0)
        while not ended.wait(POLL_SECONDS):
            now = (files.value, size.value)
            on_done(now[0] - reported[0], now[1] - reported[1])
            reported = now

    thread = threading.Thread(target=poll, name="cloudfiles-infer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that wait for tasks, and are gone in the end."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with ExitStack() as started:
        processes = []
        for _ in range(count):
            process = subprocess.Popen(
                [sys.executable, "-m", WORKER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
            )
            started.callback(_end, process)
            processes.append(process)
        yield processes


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _ask(process: subprocess.Popen[bytes], task: SampleTask) -> Learned:
    """Give a task to a process and wait for what it learns."""
    assert process.stdin is not None  # noqa: S101 - both are pipes
    assert process.stdout is not None  # noqa: S101
    try:
        worker_messages.send(task, process.stdin)
        learned: Learned = worker_messages.receive(process.stdout)
    except (EOFError, OSError, worker_messages.DecodeError) as error:
        first = task.ranges[0].file.path
        raise RunFailedError(
            "A worker process that read files of the sample has died; its task began with "
            f"{first}. It may have run out of memory. Sample fewer bytes with "
            "cloudFiles.schemaInference.sampleSize.numBytes, or give the schema as hints."
        ) from error
    return learned


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _work() -> None:
    """Be a process of `ProcessWorkers`: carry out tasks until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that infers decides
    logging.basicConfig(
        level=os.environ.get("CLOUDFILES_LOG_LEVEL", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    tasks, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else goes among the answers
    while True:
        try:
            task = worker_messages.receive(tasks)
        except EOFError:
            return
        worker_messages.send(learn_task(task), answers)


def local_workers(count: int | None = None) -> ProcessWorkers | None:
    """Processes on this machine, if it has the cores for them.

    Args:
        count: As for `ProcessWorkers`.
    """
    workers = ProcessWorkers(count)
    return workers if workers.count > 1 else None


def spark_workers(spark: SparkSession) -> SparkWorkers:
    """The executors of a session that is there."""
    parallelism = spark.sparkContext.defaultParallelism
    return SparkWorkers(lambda: spark, count=max(2, parallelism), start_seconds=3.0)


if __name__ == "__main__":
    _work()
