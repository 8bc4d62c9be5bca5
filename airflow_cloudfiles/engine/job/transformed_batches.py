"""Write what a function makes of each micro-batch.

1. Tasks are to read the parts of the micro-batch; the function is given the rows of all of them, as
   a DataFrame of which nothing is read yet.
2. It returns a DataFrame, by which nothing is read either.
3. Tasks write the rows of that, and the micro-batch is committed as in every run. So a batch that
   the table has is recognised and dropped, whatever the function would return this time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.batches.connect_tasks import FrameTasks
from airflow_cloudfiles.engine.batches.run import TaskFailure, commit_or_abort
from airflow_cloudfiles.engine.batches.task_process import log_to_stderr
from airflow_cloudfiles.engine.errors import CloudFilesError, TransformError
from airflow_cloudfiles.engine.job.batch_function import BatchFunction
from airflow_cloudfiles.engine.job.target import Rows, new_writer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from airflow_cloudfiles.engine.batches.run import BatchSource, PlannedBatch
    from airflow_cloudfiles.engine.job.spec import JobSpec
    from airflow_cloudfiles.engine.tables.table_writer import TableWriter, TaskWritten

_MOST_CHARACTERS = 2000
"""Of what a function failed with, in the message of an error."""


class TransformedBatches:
    """Writes and commits the micro-batches of a run with a function.

    Args:
        spec: The run; its `transform` is the function.
        session: Gives the session, once there is something to carry.
        source: What the micro-batches are made of.
        rows: What there is to say of their rows.

    Raises:
        TransformError: The function cannot be loaded.
    """

    def __init__(
        self, spec: JobSpec, session: Callable[[], SparkSession], source: BatchSource, rows: Rows
    ) -> None:
        described = BatchFunction.from_json(spec.transform or {})
        self._name = described.name
        self._function = described.load()
        self._arguments = described.arguments
        self._spec = spec
        self._tasks = FrameTasks(session)
        self._source = source
        self._rows = rows

    def __call__(self, planned: PlannedBatch) -> None:
        """Write and commit a micro-batch.

        Raises:
            TransformError: The function failed, or returned something else than rows.
            CloudFilesError: The batch cannot be read, written or committed.
        """
        rows = self._tasks.frame(self._source.rows(), planned.parts, self._rows.schema)
        found = self._called(rows)
        if self._rows.on_schema is not None:
            self._rows.on_schema(found.schema)
        writer = new_writer(self._spec, schema=found.schema, **self._rows.stream)
        commit_or_abort(writer, planned.number, partial(self._written, found, writer))

    def _written(self, found: DataFrame, writer: TableWriter) -> list[TaskWritten]:
        """Have tasks write rows; that they cannot be written is an error of the function's."""
        try:
            return self._tasks.write(found, partial(_write, writer))
        except TaskFailure as failed:
            if isinstance(failed.failure, CloudFilesError):
                raise
            ours = self._as_ours(failed.failure, "what it returned cannot be written")
            ours.__cause__ = failed.failure
            raise TaskFailure(ours, failed.written) from failed

    def _called(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import DataFrame as Frame  # noqa: PLC0415

        try:
            found = self._function(rows, **self._arguments)
        except CloudFilesError:
            raise
        except Exception as error:
            raise self._as_ours(error, "it raised") from error
        if not isinstance(found, Frame):
            what = "None" if found is None else f"{type(found).__name__}"
            raise TransformError(
                f"The function {self._name} returned {what}: it must return a DataFrame, the rows "
                "to write. To write none of them, return batch.limit(0)."
            )
        if found.isStreaming:
            raise TransformError(
                f"The function {self._name} returned a stream: it must return a DataFrame that is "
                "made of the micro-batch that it is given."
            )
        return found

    def _as_ours(self, error: BaseException, what: str) -> CloudFilesError:
        """Find the error of ours behind a failure, else build one that names the function."""
        text = str(error)
        ours = errors.from_text(text)
        if ours is not None:
            return ours
        return TransformError(
            f"The function {self._name} failed on a micro-batch, of which nothing was committed: "
            f"{what}: {type(error).__name__}: {text[:_MOST_CHARACTERS]}",
            retry=not isinstance(error, AnalysisException),
        )


def _write(writer: TableWriter, rows: Iterator[pa.RecordBatch]) -> TaskWritten:
    """Write the rows of a task."""
    log_to_stderr()
    return writer.write_rows(rows)
