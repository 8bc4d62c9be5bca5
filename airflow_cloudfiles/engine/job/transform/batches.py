"""How does the query of a run write what a function makes of each micro-batch?

With `foreachBatch`, in the driver:

1. Of a source of files, a micro-batch is rows that say what to read, as in every job. Tasks read
   the files, so the function is given the rows of the files. Of a Delta table it is given its rows.
2. The function returns a DataFrame, by which nothing is read yet.
3. That is written, and committed under the number of the micro-batch, by the writer that commits
   the batches of every job. So a batch that the table has is recognised and dropped, whatever the
   function would return this time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, PySparkException

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.errors import CloudFilesError, RunFailedError, TransformError
from airflow_cloudfiles.engine.job.target import sink_format
from airflow_cloudfiles.engine.job.transform.function import BatchFunction
from airflow_cloudfiles.engine.spark import split_rows
from airflow_cloudfiles.engine.spark.error_marks import marking
from airflow_cloudfiles.engine.spark.source import log_to_stderr
from airflow_cloudfiles.engine.spark.tables.one_batch import BATCH
from airflow_cloudfiles.engine.stream.task_reader import TaskReader
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.job.spec import JobSpec

_MOST_CHARACTERS = 2000
"""Of what a function failed with, in the message of an error."""


class TransformedBatches:
    """What `foreachBatch` calls for each micro-batch of a run.

    Args:
        spec: The run; its `transform` is the function.
        sink: Options of the sink.
        reads: What makes rows of a micro-batch; `None` where it has them.
        on_schema: Called with the schema of what is written.

    Raises:
        TransformError: The function cannot be loaded.
    """

    def __init__(
        self,
        spec: JobSpec,
        sink: Mapping[str, str],
        *,
        reads: tuple[ReadSplits, StructType] | None = None,
        on_schema: Callable[[StructType], None] | None = None,
    ) -> None:
        described = BatchFunction.from_json(spec.transform or {})
        self._name = described.name
        self._function = described.load()
        self._arguments = described.arguments
        self._target = str(spec.target)
        self._sink = dict(sink)
        self._reads = reads
        self._on_schema = on_schema

    def of(self, batch: DataFrame, number: int) -> None:
        """Write a micro-batch.

        Args:
            batch: What the source has emitted for it.
            number: Spark's number of it.

        Raises:
            TransformError: The function failed, or returned something else than rows.
            CloudFilesError: The batch cannot be read, written or committed.
        """
        rows = batch if self._reads is None else batch.mapInArrow(*self._reads)
        found = self._called(rows)
        if self._on_schema is not None:
            self._on_schema(found.schema)
        writer = found.write.format(sink_format(self._target)).mode("append")
        writer = writer.options(**self._sink, **{BATCH: str(number)})
        try:
            writer.save(self._target)
        except PySparkException as error:
            raise self._as_ours(error, "what it returned cannot be written") from error

    def _called(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import DataFrame as Frame  # noqa: PLC0415 - needs a JVM

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

    def _as_ours(self, error: Exception, what: str) -> CloudFilesError:
        """The error of ours behind a failure, else one that names the function."""
        text = str(error)
        ours = errors.from_text(text)
        if ours is not None:
            return ours
        return TransformError(
            f"The function {self._name} failed on a micro-batch, of which nothing was committed: "
            f"{what}: {type(error).__name__}: {text[:_MOST_CHARACTERS]}",
            retry=not isinstance(error, AnalysisException),
        )


def as_callback(batches: TransformedBatches) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch`, whose errors stay what they are on their way."""
    return marking(batches.of)


class ReadSplits:
    """Reads the files that the rows of a micro-batch name, in tasks.

    Args:
        token: Of the query (`split_rows`).
        schema: Of the rows.
    """

    def __init__(self, token: str, schema: StructType) -> None:
        self._token = token
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the files."""
        return marking(self._rows)(batches)  # type: ignore[no-any-return]

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        log_to_stderr()
        schema = to_arrow(self._schema)
        for batch in batches:
            for row in batch.column(0):
                reader = TaskReader(split_rows.decode(row.as_py(), self._token))
                if reader.arrow_schema.names != schema.names:
                    raise RunFailedError(
                        "The schema of the stream has changed while the run began. Nothing was "
                        "read: run again."
                    )
                yield from reader.read()
