"""Carry tasks as DataFrames: for functions over micro-batches, and on a Spark Connect server.

A micro-batch is one Spark job. Spark tries a failing task again, and may run one twice at once:
each attempt writes data files of its own, and only those of the attempt whose result has come back
are committed. On a server, its parts are the rows of a DataFrame, so that each travels once, to
the one task that has it.
"""

from __future__ import annotations

import logging
import pickle
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException

from airflow_cloudfiles.engine.batches.run import PROGRESS_SECONDS, Task, collected, result_of
from airflow_cloudfiles.engine.batches.task_process import (
    CLIENT_VERSION,
    check_client,
    marked_call,
    marking,
)
from airflow_cloudfiles.engine.errors import RunError
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.spark_versions import numbers
from airflow_cloudfiles.engine.types import require_types
from airflow_cloudfiles.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.tables.table_writer import TaskWritten

_Query = TypeVar("_Query")
WRITTEN = "written binary"
"""Schema of what tasks give back."""


class FrameTasks:
    """Carries the tasks of a function over micro-batches, on the executors of a session.

    Args:
        session: Gives it, once there is something to carry.
    """

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    def frame(
        self,
        read: Callable[[Any], Iterator[pa.RecordBatch]],
        parts: Sequence[Any],
        schema: StructType,
    ) -> DataFrame:
        """Build the rows of parts of a micro-batch, which tasks read when they are asked for.

        Args:
            read: What reads the rows of a part.
            parts: Of the micro-batch.
            schema: Of the rows.

        Raises:
            SparkVersionError: This Spark lacks a type of theirs.
        """
        session = self._session()
        require_types(schema, session.version)
        # Each task is sent them all, and unpickles only its own.
        pickled = [pickle.dumps(part) for part in parts]

        def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for row in batch.column(0):
                    yield from read(pickle.loads(pickled[row.as_py()]))  # noqa: S301 - of this run

        numbers = session.range(0, len(parts), 1, len(parts))
        return _mapped(numbers, rows, schema)

    def write(
        self, frame: DataFrame, write: Callable[[Iterator[pa.RecordBatch]], TaskWritten]
    ) -> list[TaskWritten]:
        """Have each task write its rows of a DataFrame.

        Raises:
            TaskFailed: One has failed.
        """

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield row_of(result_of(write, batches))

        results = partial(self._results, _mapped(frame, work, WRITTEN))
        return collected(results)

    def _results(self, frame: DataFrame) -> Iterable[bytes]:
        """Yield what tasks give back, in their order."""
        return [row.written for row in frame.collect()]


def _mapped(
    frame: DataFrame,
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Have tasks map a DataFrame in Arrow, for which PySpark asks for pandas, in the driver too.

    Raises:
        RunError: It is not installed, or for Spark 3.5 with Python 3.12 or later, setuptools.
    """
    try:
        return frame.mapInArrow(marking(work), schema)
    except ImportError as error:
        raise RunError(
            f"PySpark cannot map rows in Arrow: {str(error).rstrip('.')}. It needs pandas for that "
            "(below 3), and Spark 3.5 with Python 3.12 or later setuptools. Install them beside it."
        ) from error


def row_of(result: bytes) -> pa.RecordBatch:
    """Encode what a task gives back as a row."""
    return pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], ["written"])


_TAG = "cloudfiles-micro-batch"
_DESCRIPTION = "spark.job.description"
_PARTITIONS = "spark.sql.leafNodeDefaultParallelism"
_STARTS = 3
_TOO_SLOW = "Python worker failed to connect back"
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
        """Yield what tasks give back, in their order; the job ends with whoever asks for it."""
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


def start_query(start: Callable[[], _Query]) -> _Query:
    """Start a query on a server, again where the server's Python was too slow to start.

    Spark gives the process of a query's function ten seconds to import everything, which a busy
    machine exceeds. Nothing of the query has begun then.

    Args:
        start: Builds and starts the query.

    Raises:
        PySparkException: What Spark raised, the third time for that reason.
    """
    for starts_left in reversed(range(_STARTS)):
        try:
            return start()
        except PySparkException as error:
            if _TOO_SLOW not in str(error) or not starts_left:
                raise
            _log.info("The server's Python did not start within ten seconds; trying again")
    raise AssertionError


def parallelism_of(confs: Mapping[str, str]) -> str | None:
    """Find how many tasks the server runs at once, as far as its configuration shows."""
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
