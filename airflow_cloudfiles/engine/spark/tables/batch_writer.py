"""How does Spark write a DataFrame to a Delta table without jars?

`df.write.format("deltalake").mode("append").save(path)` (and `format("delta")` where no Delta jar
is): each task writes data files, and one process commits them (`delta.batch_write`). With
`mergeKeys` and `replaceWhere` the files are read again for the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.batches.error_marks import marking_errors
from airflow_cloudfiles.engine.batches.task_log import log_to_stderr
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.delta.batch_write import BatchWrite
from airflow_cloudfiles.engine.delta.commit import remove_files
from airflow_cloudfiles.engine.delta.predicates import holds, parse_predicate
from airflow_cloudfiles.engine.delta.write.rows import write_rows
from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError, SinkError
from airflow_cloudfiles.engine.messages import counted, plural
from airflow_cloudfiles.engine.options.sink import BatchWriteOptions
from airflow_cloudfiles.engine.spark.data_source_api import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.delta.data_files import DataFile
    from airflow_cloudfiles.engine.delta.write.layout import FileLayout

_log = logging.getLogger(__name__)


class PartWritten(WriterCommitMessage):
    """What one task has written."""

    def __init__(self, files: list[DataFile], layout: FileLayout | None) -> None:
        self.files = files
        self.layout = layout


@marking_errors
class DeltaBatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame to one table.

    Args:
        target: Path or URI of the table.
        options: As strings, by their names in lower case.
        schema: Of the DataFrame.
        overwrite: Whether the mode is `overwrite`.

    Raises:
        OptionError: An option is not valid, or does not go with the mode.
    """

    def __init__(
        self, target: str, options: dict[str, str], schema: StructType, *, overwrite: bool
    ) -> None:
        read = BatchWriteOptions.read(options)
        for name, is_given in (
            ("overwriteSchema", read.overwrite_schema),
            ("replaceWhere", read.replace_where is not None),
        ):
            if is_given and not overwrite:
                raise OptionError(f'{name} needs mode("overwrite").')
        if read.merge_keys and overwrite:
            raise OptionError('mergeKeys needs mode("append"): it changes rows of the table.')
        self._write = BatchWrite.begin(target, read, to_arrow(schema), overwrites=overwrite)
        self._schema = schema
        self._where = read.replace_where

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartWritten:
        """Write this task's rows to data files nobody sees yet."""
        schema = to_arrow(self._schema)
        rows = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in iterator)
        how = self._write.how
        layout = how.layout(schema)
        checked = self._checked(rows, schema)
        files = write_rows(self._write.target, schema, checked, layout, how.settings)
        crash_point("after-data-files")
        return PartWritten(files, layout)

    def commit(self, messages: list[Any]) -> None:
        """Commit the rows of all tasks."""
        log_to_stderr()
        parts = [message for message in messages if isinstance(message, PartWritten)]
        done = self._write.commit(
            [file for part in parts for file in part.files],
            to_arrow(self._schema),
            parts[0].layout if parts else None,
        )
        counts = ", ".join(f"{value} {name}" for name, value in done.counts.items())
        _log.info("Table version %s%s", done.version, f": {counts}" if counts else "")

    def abort(self, messages: list[Any]) -> None:
        """Remove the data files of a write of which a task failed; a killed task's stay.

        Spark calls this after a commit that failed, too, which may have happened: then every task
        has written, and nothing is touched.
        """
        written = [message for message in messages if isinstance(message, PartWritten)]
        if len(written) == len(messages):
            return
        try:
            remove_files(self._write.target, [file for each in written for file in each.files])
        except (CloudFilesError, OSError) as failure:
            # Not raised: Spark would show it in place of what the task failed with.
            _log.warning("Data files stay until vacuum: %s", failure)

    def _checked(
        self, rows: Iterator[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """The rows, all of which `replaceWhere` must be true for."""
        if self._where is None:
            yield from rows
            return
        predicate = parse_predicate("replaceWhere", self._where, schema)
        for batch in rows:
            found = holds(predicate, batch)
            if not pc.all(found).as_py() and batch.num_rows:
                count = batch.num_rows - pc.sum(found).as_py()
                raise SinkError(
                    f"{counted(count, 'row')} of the DataFrame {plural(count, 'does', 'do')} not "
                    f"match replaceWhere {self._where!r}: {plural(count, 'it', 'they')} would be "
                    "written beside the rows that are replaced. Filter such rows out, or widen the "
                    "predicate."
                )
            yield batch
