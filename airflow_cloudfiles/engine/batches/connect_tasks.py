"""Carry tasks on a Spark Connect server: one Spark job for each micro-batch.

Its parts are the rows of a DataFrame, so that each travels once, to the one task that has it.
"""

from __future__ import annotations

import logging
import pickle
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_cloudfiles import __version__
from airflow_cloudfiles.engine.batches.client_version import CLIENT_VERSION, check_client
from airflow_cloudfiles.engine.batches.error_marks import marked_call
from airflow_cloudfiles.engine.batches.frame_tasks import WRITTEN, FrameTasks, row_of
from airflow_cloudfiles.engine.batches.run import PROGRESS_SECONDS, Task
from airflow_cloudfiles.engine.batches.task_results import collected, result_of
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.spark_versions import numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_cloudfiles.engine.batches.table_writer import TaskWritten

_TAG = "cloudfiles-micro-batch"
_DESCRIPTION = "spark.job.description"
_PARTITIONS = "spark.sql.leafNodeDefaultParallelism"
_LOCAL = re.compile(r"local\[(\d+)")
_WITH_LOCAL_RELATIONS = (4, 0)
"""The first Spark whose servers take the rows of a client of Spark 4."""
_log = logging.getLogger(__name__)


class ConnectTasks(FrameTasks):
    """Carries tasks on the executors of a Spark Connect server (`Executor`).

    Args:
        session: Gives it, once there is something to carry.
        name: Of the stream, for Spark's UI.
    """

    def __init__(self, session: Callable[[], SparkSession], name: str) -> None:
        super().__init__(session)
        self._name = name

    def carry(self, task: Task, splits: Sequence[Any], number: int) -> list[TaskWritten]:
        """Carry out a task for each split (`Executor.carry`)."""
        session = self._session()
        # Only so does Spark's UI name what a client has it do.
        session.conf.set(_DESCRIPTION, f"{self._name}: micro-batch {number}")
        session.conf.set(_PARTITIONS, str(len(splits)))
        parts = [pickle.dumps(split) for split in splits]
        work = partial(_work, partial(_checked, task, __version__))
        if not self._takes_rows:
            # Each task is sent them all, and takes its own.
            frame = session.range(0, len(parts), 1, len(parts))
            work = partial(_numbered, work, parts)
        else:
            frame = session.createDataFrame([(part,) for part in parts], "part binary")
        # Pickled by names alone: the pickles of a newer client mean nothing to an older server.
        frame = frame.mapInArrow(partial(marked_call, work), WRITTEN)
        with _said(session, len(splits)):
            return collected(partial(self._results, frame))

    @cached_property
    def _takes_rows(self) -> bool:
        """Whether the server takes the rows of this client."""
        return numbers(self._session().version) >= _WITH_LOCAL_RELATIONS

    def _results(self, frame: DataFrame) -> Generator[bytes]:
        """What tasks give back, in their order; the job ends with whoever asks for it."""
        session: Any = self._session()
        session.addTag(_TAG)
        try:
            for row in frame.toLocalIterator():
                yield row.written
        except BaseException:
            try:
                session.interruptTag(_TAG)
            except Exception as lost:  # noqa: BLE001 - of a server that is lost, as of a Spark
                _log.debug("The job is not cancelled: %s", lost)
            raise
        finally:
            session.removeTag(_TAG)


def parallelism_of(confs: Mapping[str, str]) -> str | None:
    """How many tasks the server runs at once, as far as its configuration tells."""
    if given := confs.get("spark.default.parallelism"):
        return given
    if local := _LOCAL.match(confs.get("spark.master", "")):
        return local[1]
    executors, cores = confs.get("spark.executor.instances"), confs.get("spark.executor.cores")
    return str(int(executors) * int(cores)) if executors and cores else None


def _checked(task: Task, version: str, part: Any) -> TaskWritten:
    """Carry out a task of a client of the same version."""
    check_client({CLIENT_VERSION: version})
    return task(part)


def _work(task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.column(0):
            yield row_of(result_of(task, pickle.loads(row.as_py())))  # noqa: S301 - of this run


def _numbered(
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    parts: Sequence[bytes],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Carry out the tasks of the parts that the rows number."""
    for batch in batches:
        own = [parts[number] for number in batch.column(0).to_pylist()]
        yield from work(iter([pa.record_batch([pa.array(own, pa.binary())], ["part"])]))


@contextmanager
def _said(session: Any, tasks: int) -> Iterator[None]:
    """Say how far the job of this block is, where the client hears it (Spark 4.0 and later)."""
    if not hasattr(session, "registerProgressHandler"):
        yield
        return
    said = time.monotonic()

    def say(stages: Any, **_: Any) -> None:
        nonlocal said
        if time.monotonic() - said > PROGRESS_SECONDS:
            said = time.monotonic()
            done = sum(each.num_completed_tasks for each in stages or ())
            _log.info("%s of %s are written", done, counted(tasks, "split"))

    session.registerProgressHandler(say)
    try:
        yield
    finally:
        session.removeProgressHandler(say)
