"""How does Spark read the files once, as a batch?

`spark.read.format("cloudFiles")`, or in SQL a view `USING cloudFiles`. The files are listed when
Spark plans the first query of a DataFrame or view, which keeps what was planned, and are shared out
to tasks that read them as those of a stream do. What an option means without a stream is said in
`stream.batch_read`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.batches.error_marks import marking_errors
from airflow_cloudfiles.engine.spark.data_source_api import (
    DataSourceReader,
    InputPartition,
)
from airflow_cloudfiles.engine.stream import batch_read

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.stream.definition import ResolvedSchema


@marking_errors
class CloudFilesBatchReader(DataSourceReader):
    """Reads what is there when it is planned.

    Args:
        options: Those of the source.
        resolved: The schema of the DataFrame.
    """

    def __init__(self, options: CloudFilesOptions, resolved: ResolvedSchema) -> None:
        options.check_batch()
        self._options = options
        self._resolved = resolved

    def partitions(self) -> Sequence[InputPartition]:
        """List the files and share them out."""
        return [InputPartition(split) for split in batch_read.plan(self._options, self._resolved)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one split; where there is none, Spark asks for one without a value."""
        if partition.value is not None:
            yield from batch_read.read(partition.value)
