"""How is one micro-batch of a query written, which a function has made of another?

As a DataFrame, by the writer of streams: it commits the number of the micro-batch with its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from airflow_cloudfiles.engine.spark.error_marks import marking_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.spark.tables.stream_writer import TableStreamWriter

BATCH: Final = "cloudFiles.internal.batch"
"""Option of the sink: the number that Spark gives to the micro-batch that is written."""


@marking_errors
class OneBatchWriter(DataSourceArrowWriter):
    """Writes a micro-batch of a query that is not Spark's own sink.

    Args:
        writer: Of the query.
        batch: The number that Spark gives to the micro-batch.
    """

    def __init__(self, writer: TableStreamWriter, batch: int) -> None:
        self._writer = writer
        self._batch = batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write this task's rows to data files nobody sees yet."""
        return self._writer.write(iterator)

    def commit(self, messages: list[Any]) -> None:
        """Commit the micro-batch; one that the table has is recognised and dropped."""
        self._writer.commit(messages, self._batch)

    def abort(self, messages: list[Any]) -> None:
        """Remove the data files of a batch of which a task failed; a killed task's stay."""
        self._writer.abort(messages, self._batch)
