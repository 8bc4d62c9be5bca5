"""Write batches to an Iceberg table as the tasks and the committer of a run do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from airflow_cloudfiles.engine.extensions.iceberg.catalog import IcebergLocation
from airflow_cloudfiles.engine.extensions.iceberg.commit import (
    TableRules,
    commit_batch,
    ready_table,
)
from airflow_cloudfiles.engine.extensions.iceberg.data_files import IcebergFileWriter
from airflow_cloudfiles.engine.state.sink_log import (
    BatchId,
    CommitResult,
    ExpectedBatch,
    SinkRecord,
)
from tests.support.iceberg_tables import LocalCatalog


class IcebergSink:
    """A stream into the table `db.t`, whose batches have the numbers of their calls.

    Args:
        lake: The catalog.
        partition_by: How the table is partitioned when it is created.
        stream: Its name.
    """

    def __init__(
        self, lake: LocalCatalog, partition_by: str | None = None, stream: str = "stream"
    ) -> None:
        self.lake, self.stream, self.batches = lake, stream, 0
        self.rules = TableRules(merge_schema=True, widens=True, partition_by=partition_by)

    def write(self, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> CommitResult:
        """Write the next batch."""
        self.batches += 1
        return self.write_again(rows, schema)

    def write_again(self, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> CommitResult:
        """Write the batch that was written last."""
        target = IcebergLocation.of(self.lake.uri("t"))
        table = ready_table(target, schema, self.rules)
        batch = pa.RecordBatch.from_pylist(list(rows), schema)
        written = self.batches - 2
        record = SinkRecord(batch=written, table_id=str(table.metadata.table_uuid))
        known = ExpectedBatch(record, "/state", lambda _: None)
        return commit_batch(
            target.uri,
            batch=BatchId(self.stream, self.batches - 1),
            files=IcebergFileWriter(target, table).write([batch] if rows else []),
            columns=schema,
            rules=self.rules,
            expected=known if written >= 0 else None,
        )
