"""Know an Iceberg table that a stream writes to, and write its micro-batches to it.

As with a Delta table, whose records these are: tasks write Parquet files, and each micro-batch is
one commit (`iceberg.commit`). pyiceberg is imported when a writer is made, since it is an extra of
this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.batches.table_writer import TableWriter, TaskWritten
from airflow_cloudfiles.engine.batches.target_table import TargetTable
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import LostBatchesError
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.state.sink_log import BatchId, Committed, Expected, SinkRecord
from airflow_cloudfiles.engine.storage.vendors import import_with_extra

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.delta.write.former_rows import FormerRows
    from airflow_cloudfiles.engine.iceberg.commit import TableRules
    from airflow_cloudfiles.engine.iceberg.data_files import IcebergFileWriter
    from airflow_cloudfiles.engine.options.sink import TableOptions
    from airflow_cloudfiles.engine.state.sink_log import FoundBatch
    from airflow_cloudfiles.engine.storage import ObjectStore

_ENGINE = "airflow_cloudfiles.engine.iceberg"


class IcebergTargetTable(TargetTable):
    """A table of an Iceberg catalog, or the name of one."""

    def writer(self, options: SinkOptions, **stream: Any) -> IcebergWriter:
        """Make the writer of a micro-batch (`TargetTable.writer`)."""
        return IcebergWriter(self.uri, options, **stream)

    def check(self, columns: pa.Schema, options: TableOptions, *, merge_schema: bool) -> str | None:
        """Check that rows fit, and change nothing (`TargetTable.check`)."""
        rules = _rules(options, merge_schema=merge_schema)
        location: str | None = self._commit.check_table(self.uri, columns, rules)
        return location

    def check_has(self, stream: str, expected: Expected) -> None:
        """Refuse a table that lacks a batch (`TargetTable.check_has`)."""
        self._commit.check_expected(self.uri, stream, expected)

    def has(self, stream: str, batch: int) -> bool:
        """Tell whether the table has a batch (`TargetTable.has`)."""
        try:
            self.check_has(stream, Expected(SinkRecord(batch=batch), "", lambda _: None))
        except LostBatchesError:
            return False
        return True

    def find(self, stream: str, batch: int, *, since: int) -> FoundBatch | None:  # noqa: ARG002 - snapshots are all there
        """Find a batch by its note (`TargetTable.find`)."""
        found: FoundBatch | None = self._commit.find_batch(self.uri, stream, batch)
        return found

    def newest_of_origin(self, origin: str, *, besides: str | None) -> int | None:
        """Give the newest batch of an origin (`TargetTable.newest_of_origin`)."""
        newest: int | None = self._commit.newest_of_origin(self.uri, origin, besides=besides)
        return newest

    def newest_version(self) -> int | None:
        """Give the newest sequence number; `None` where there is no table."""
        newest: int | None = self._commit.newest_sequence(self.uri)
        return newest

    @property
    def _commit(self) -> Any:
        """`iceberg.commit`, which needs an extra of this package."""
        return import_with_extra(f"{_ENGINE}.commit", "iceberg", needed_for=self.uri)


def _rules(options: TableOptions, *, merge_schema: bool) -> TableRules:
    from airflow_cloudfiles.engine.iceberg.commit import TableRules  # noqa: PLC0415 - an extra

    return TableRules(
        merge_schema=merge_schema,
        widens=options.type_widening is True,
        partition_by=", ".join(options.partition_by) or None,
    )


class IcebergWriter(TableWriter):
    """Writes micro-batches of one stream to one Iceberg table.

    Raises:
        OptionError: An option is not one of Iceberg tables, or the extra `iceberg` is missing.
    """

    def __init__(self, target: str, options: SinkOptions, **stream: Any) -> None:
        super().__init__(target, options, **stream)
        options.require_iceberg()
        import_with_extra(f"{_ENGINE}.commit", "iceberg", needed_for=target)

    def _refuse_known_origin(self, state: ObjectStore) -> None:
        IcebergTargetTable(self._target).refuse_known_origin(state)

    def _rules(self) -> TableRules:
        return _rules(self._options, merge_schema=self._options.merge_schema is True)

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
        from airflow_cloudfiles.engine.iceberg.commit import commit_batch  # noqa: PLC0415

        if former:
            from airflow_cloudfiles.engine.delta.write.former_rows import (  # noqa: PLC0415
                refuse_former,
            )

            refuse_former(former, self._target, "it is an Iceberg table")
        return commit_batch(
            self._target,
            batch=batch,
            files=[file for message in written for file in message.files],
            columns=written[0].schema if written else self._arrow_schema,
            rules=self._rules(),
            expected=expected,
        )

    def _knows(self, batch: BatchId) -> bool:
        from airflow_cloudfiles.engine.iceberg.commit import knows_batch  # noqa: PLC0415

        return knows_batch(self._target, batch.app_id, batch.number)

    def _remove(self, files: Sequence[Any]) -> None:
        from airflow_cloudfiles.engine.iceberg.commit import remove_files  # noqa: PLC0415

        remove_files(self._target, files)
