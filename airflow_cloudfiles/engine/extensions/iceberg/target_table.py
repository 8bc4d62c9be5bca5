"""Know an Iceberg table that a stream writes to, and write its micro-batches to it.

As with a Delta table, whose records these are: tasks write Parquet files, and each micro-batch is
one commit (`iceberg.commit`). pyiceberg is an extra of this package, so this module is imported by
its name (`target_table.iceberg_table`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.extensions.iceberg import commit
from airflow_cloudfiles.engine.extensions.iceberg.catalog import IcebergLocation
from airflow_cloudfiles.engine.extensions.iceberg.commit import TableRules
from airflow_cloudfiles.engine.extensions.iceberg.data_files import IcebergFileWriter
from airflow_cloudfiles.engine.extensions.iceberg.lineage import SnapshotPresence
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.state.sink_log import BatchId, CommitResult, ExpectedBatch
from airflow_cloudfiles.engine.tables.table_writer import TableWriter, TaskWritten
from airflow_cloudfiles.engine.tables.target_table import TargetTable

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.options.sink import TableOptions
    from airflow_cloudfiles.engine.state.sink_log import FoundBatch
    from airflow_cloudfiles.engine.tables.delta.write.former_rows import FormerRows


class IcebergTargetTable(TargetTable):
    """A table of an Iceberg catalog, or the name of one."""

    def writer(self, options: SinkOptions, **stream: Any) -> IcebergWriter:
        """Make the writer of a micro-batch (`TargetTable.writer`)."""
        return IcebergWriter(self, options, **stream)

    def check(self, columns: pa.Schema, options: TableOptions, *, merge_schema: bool) -> str | None:
        """Check that rows fit, and change nothing (`TargetTable.check`)."""
        return commit.check_table(self.uri, columns, _rules(options, merge_schema=merge_schema))

    def check_has(self, stream: str, expected: ExpectedBatch) -> None:
        """Refuse a table that lacks a batch (`TargetTable.check_has`)."""
        commit.check_expected(self.uri, stream, expected)

    def has(self, stream: str, batch: int) -> bool:
        """Tell whether the table has a batch (`TargetTable.has`)."""
        return commit.presence_of(self.uri, stream, batch) is SnapshotPresence.PRESENT

    def find(self, stream: str, batch: int, *, since: int) -> FoundBatch | None:  # noqa: ARG002 - snapshots are all there
        """Find a batch by its note (`TargetTable.find`)."""
        return commit.find_batch(self.uri, stream, batch)

    def newest_of_origin(self, origin: str, *, besides: str | None) -> int | None:
        """Give the newest batch of an origin (`TargetTable.newest_of_origin`)."""
        return commit.newest_of_origin(self.uri, origin, besides=besides)

    def newest_version(self) -> int | None:
        """Give the newest sequence number; `None` where there is no table."""
        table = IcebergLocation.of(self.uri).load()
        return None if table is None else table.last_sequence_number


def _rules(options: TableOptions, *, merge_schema: bool) -> TableRules:
    return TableRules(
        merge_schema=merge_schema,
        widens=options.type_widening is True,
        partition_by=", ".join(options.partition_by) or None,
    )


class IcebergWriter(TableWriter):
    """Writes micro-batches of one stream to one Iceberg table.

    Raises:
        OptionError: An option is not one of Iceberg tables.
    """

    def __init__(self, table: TargetTable, options: SinkOptions, **stream: Any) -> None:
        super().__init__(table, options, **stream)
        options.require_iceberg()

    def _rules(self) -> TableRules:
        return _rules(self._options, merge_schema=self._options.merge_schema is True)

    def _write_rows(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> TaskWritten:
        target = IcebergLocation.of(self._target)
        # The table then has all columns of the batch.
        table = commit.ready_table(target, schema, self._rules())
        files = IcebergFileWriter(target, table).write(rows)
        crash_point("after-data-files")
        return TaskWritten(files, schema, {"rows": sum(file.rows for file in files)})

    def make_visible(
        self,
        batch: BatchId,
        written: Sequence[TaskWritten],
        expected: ExpectedBatch | None,
        former: Sequence[FormerRows],
    ) -> CommitResult:
        """Commit data files (`TableWriter.make_visible`)."""
        if any(each.need_rows for each in former):
            from airflow_cloudfiles.engine.tables.delta.write.former_rows import (  # noqa: PLC0415 - few do
                refuse_former,
            )

            refuse_former(former, self._target, "it is an Iceberg table")
        return commit.commit_batch(
            self._target,
            batch=batch,
            files=[file for message in written for file in message.files],
            columns=written[0].schema if written else self._arrow_schema,
            rules=self._rules(),
            expected=expected,
            former=former,
        )

    def _knows(self, batch: BatchId) -> bool:
        found = commit.presence_of(self._target, batch.app_id, batch.number)
        return found is not SnapshotPresence.NEVER

    def _remove(self, files: Sequence[Any]) -> None:
        commit.remove_files(self._target, files)
