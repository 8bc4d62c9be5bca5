"""Write the micro-batches of a stream to an Iceberg table.

As with a Delta table, whose records these are: tasks write Parquet files, and each micro-batch is
one commit (`iceberg.commit`). pyiceberg is imported when a writer is made, since it is an extra of
this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.batches.table_writer import TableWriter, TaskWritten
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.delta.commit import BatchId, Committed
from airflow_cloudfiles.engine.delta.lineage import Expected
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.storage.extras import import_with_extra

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.delta.write.former_rows import FormerRows
    from airflow_cloudfiles.engine.iceberg.commit import TableRules
    from airflow_cloudfiles.engine.iceberg.data_files import IcebergFileWriter

_ENGINE = "airflow_cloudfiles.engine.iceberg"


class IcebergWriter(TableWriter):
    """Writes micro-batches of one stream to one Iceberg table.

    Raises:
        OptionError: An option is not one of Iceberg tables, or the extra `iceberg` is missing.
    """

    def __init__(self, target: str, options: SinkOptions, **stream: Any) -> None:
        super().__init__(target, options, **stream)
        options.require_iceberg()
        import_with_extra(f"{_ENGINE}.commit", "iceberg", needed_for=target)

    def _rules(self) -> TableRules:
        from airflow_cloudfiles.engine.iceberg.commit import TableRules  # noqa: PLC0415 - an extra

        return TableRules(
            merge_schema=self._options.merge_schema is True,
            widens=self._options.type_widening is True,
            partition_by=", ".join(self._options.partition_by) or None,
        )

    def _write_rows(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> TaskWritten:
        files = self._open(schema).write(rows)
        crash_point("after-data-files")
        return TaskWritten(files, schema, {"rows": sum(file.rows for file in files)})

    def _open(self, schema: pa.Schema) -> IcebergFileWriter:
        """Open a writer of data files, whose table then has all columns of the batch."""
        from airflow_cloudfiles.engine.iceberg.catalog import IcebergTarget  # noqa: PLC0415
        from airflow_cloudfiles.engine.iceberg.commit import ready_table  # noqa: PLC0415
        from airflow_cloudfiles.engine.iceberg.data_files import (  # noqa: PLC0415
            IcebergFileWriter,
        )

        target = IcebergTarget.of(self._target)
        return IcebergFileWriter(target, ready_table(target, schema, self._rules()))

    def make_visible(
        self,
        batch: BatchId,
        written: Sequence[TaskWritten],
        expected: Expected | None,
        former: Sequence[FormerRows],
    ) -> Committed:
        """Commit data files (`TableWriter.make_visible`)."""
        from airflow_cloudfiles.engine.iceberg.commit import (  # noqa: PLC0415
            IcebergBatch,
            commit_batch,
        )

        if former:
            from airflow_cloudfiles.engine.delta.write.former_rows import (  # noqa: PLC0415
                refuse_former,
            )

            refuse_former(former, self._target, "it is an Iceberg table")
        done = commit_batch(
            self._target,
            batch=IcebergBatch(
                batch.app_id,
                batch.number,
                batch.plan or "",
                batch.schema_version,
                batch.counts,
                batch.origin,
            ),
            files=[file for message in written for file in message.files],
            columns=written[0].schema if written else self._arrow_schema,
            rules=self._rules(),
            expected=None if expected is None else expected.record,
            state="" if expected is None else expected.state,
        )
        return Committed(done.sequence, is_new=done.is_new, table_id=done.table_id)

    def _knows(self, batch: BatchId) -> bool:
        from airflow_cloudfiles.engine.iceberg.commit import knows_batch  # noqa: PLC0415

        return knows_batch(self._target, batch.app_id, batch.number)

    def _remove(self, files: Sequence[Any]) -> None:
        from airflow_cloudfiles.engine.iceberg.commit import remove_files  # noqa: PLC0415

        remove_files(self._target, files)
