"""Carry tasks as DataFrames: for functions over micro-batches, and for Spark Connect.

A micro-batch is one Spark job. Spark tries a failing task again, and may run one twice at once:
each attempt writes data files of its own, and only those of the attempt whose result has come back
are committed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_cloudfiles.engine.batches.error_marks import marking
from airflow_cloudfiles.engine.batches.task_results import collected, result_of
from airflow_cloudfiles.engine.errors import RunError
from airflow_cloudfiles.engine.spark_types import require_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.batches.table_writer import TaskWritten

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
        """The rows of parts of a micro-batch, which tasks read when they are asked for.

        Args:
            read: What reads the rows of a part.
            parts: Of the micro-batch.
            schema: Of the rows.

        Raises:
            SparkVersionError: This Spark lacks a type of theirs.
        """
        session = self._session()
        require_types(schema, session.version, "a function over micro-batches")
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
        """What tasks give back, in their order."""
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
    """What a task gives back, as a row."""
    return pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], ["written"])
