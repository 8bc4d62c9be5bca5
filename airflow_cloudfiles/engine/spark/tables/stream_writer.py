"""What Spark calls to write the micro-batches of a query of the user's own.

It makes one writer in the process beside the driver, and sends it to the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.batches.error_marks import marking_errors
from airflow_cloudfiles.engine.batches.table_writer import TableWriter, TaskWritten
from airflow_cloudfiles.engine.batches.task_log import log_to_stderr
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.spark.data_source_api import (
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

STATE = "cloudFiles.internal.state"
"""Option of the sink: where the stream's state is, if Spark's checkpoint is somewhere else."""


class WriterMessage(WriterCommitMessage):
    """What a task has written, on its way to the process that commits."""

    def __init__(self, written: TaskWritten) -> None:
        self.written = written


@marking_errors
class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query.

    Args:
        writer: Of the table.
    """

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterMessage:
        """Write this task's rows to data files nobody sees yet."""
        log_to_stderr()
        return WriterMessage(self._writer.write_rows(iterator))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Commit a micro-batch; a batch the table has is recognised and dropped."""
        log_to_stderr()
        written = [each.written for each in messages if isinstance(each, WriterMessage)]
        self._writer.commit(written, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Remove the data files of a batch of which a task failed (`TableWriter.abort`)."""
        written = [each.written if isinstance(each, WriterMessage) else None for each in messages]
        self._writer.abort(written, batchId)


def new_writer(
    kind: type[TableWriter], target: str, options: Mapping[str, str], schema: StructType
) -> TableWriter:
    """Make the writer of a query.

    Args:
        kind: Of the table.
        target: Path or URI of the table.
        options: Of the sink, by their names in lower case.
        schema: Of the rows.

    Raises:
        OptionError: An option is not valid.
    """
    read = SinkOptions.read(options)
    state = options.get(STATE.lower()) or read.checkpoint_location
    return kind(target, read, state=state, schema=schema)
