"""How does Spark write the stream to an Iceberg table without jars?

`writeStream.format("pyiceberg").start("iceberg://catalog/namespace/table")`. As with the Delta
sink, whose tasks and records these are: tasks write Parquet files, one process beside the driver
commits each micro-batch (`iceberg.commit`). pyiceberg is imported when a query is started, since it
is an extra of this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType  # noqa: TC002 - Spark reads the annotations of none

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.delta.commit import BatchId, Committed
from airflow_cloudfiles.engine.delta.lineage import Expected
from airflow_cloudfiles.engine.delta.write.former_rows import FormerRows, refuse_former
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.reading.splits import Split
from airflow_cloudfiles.engine.spark.error_marks import marking_errors
from airflow_cloudfiles.engine.spark.tables.expectations import Observer
from airflow_cloudfiles.engine.spark.tables.one_batch import BATCH, OneBatchWriter
from airflow_cloudfiles.engine.spark.tables.sink import refuse_misspelt
from airflow_cloudfiles.engine.spark.tables.stream_writer import (
    TableStreamWriter,
    TaskWritten,
    added,
    flat,
    lead_of,
)
from airflow_cloudfiles.engine.storage.extras import import_with_extra
from airflow_cloudfiles.engine.storage.uri import iceberg_name
from airflow_cloudfiles.engine.stream.task_reader import TaskReader
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.iceberg.commit import TableRules
    from airflow_cloudfiles.engine.iceberg.data_files import IcebergFileWriter

_ENGINE = "airflow_cloudfiles.engine.iceberg"


@marking_errors
class IcebergDataSource(DataSource):
    """The sink `pyiceberg`.

    Options: `path` (`iceberg://catalog/namespace/table`), `checkpointLocation`, `mergeSchema`
    (false), `typeWidening` (false), `partitionBy` (none), `txnAppId` (default: the id of the stream
    whose state is in the checkpoint location).
    """

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return "pyiceberg"

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> IcebergStreamWriter:
        """The writer of one query.

        Raises:
            OptionError: No table, an output mode other than append, an option that looks like one
                of the sink's and is none, or the extra `iceberg` is not installed.
        """
        options = {key.lower(): value for key, value in dict(self.options).items()}
        target = str(options.get("path") or "")
        iceberg_name(target)
        if overwrite:
            raise OptionError("The pyiceberg sink appends: use outputMode append.")
        refuse_misspelt(options, SinkOptions, self.name())
        import_with_extra(f"{_ENGINE}.commit", "iceberg", needed_for=target)
        return IcebergStreamWriter(target, options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> OneBatchWriter:  # noqa: FBT001
        """The writer of a micro-batch that a function has made, in a job.

        Raises:
            OptionError: It is a DataFrame of somebody else.
        """
        options = {key.lower(): value for key, value in dict(self.options).items()}
        batch = options.get(BATCH.lower())
        if batch is None:
            raise OptionError("The pyiceberg sink is for streams: use writeStream.")
        return OneBatchWriter(self.streamWriter(schema, overwrite), int(batch))


class IcebergStreamWriter(TableStreamWriter):
    """Writes the micro-batches of one query to one Iceberg table."""

    def __init__(self, target: str, options: dict[str, str], schema: StructType) -> None:
        super().__init__(target, options, schema)
        self._options.require_iceberg()

    def _rules(self) -> TableRules:
        from airflow_cloudfiles.engine.iceberg.commit import TableRules  # noqa: PLC0415 - an extra

        return TableRules(
            merge_schema=self._options.merge_schema is True,
            widens=self._options.type_widening is True,
            partition_by=", ".join(self._options.partition_by) or None,
        )

    def _write_rows(self, rows: Iterator[pa.RecordBatch]) -> TaskWritten:
        schema = to_arrow(self._schema)
        files = self._open(schema).write(rows)
        crash_point("after-data-files")
        return TaskWritten(files, schema, {"rows": sum(file.rows for file in files)})

    def _write_splits(self, splits: Sequence[Split]) -> TaskWritten:
        """Read, parse and write in this task; all splits of a batch have one schema."""
        if not splits:
            return TaskWritten([], pa.schema([]))
        counts: dict[str, int] = {}
        observer = Observer(self._options)

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal counts
            for split in splits:
                reader = observer.reader(split)
                yield from observer.rows(split, reader)
                counts = added(counts, flat(reader.counts))

        schema = TaskReader(splits[0]).arrow_schema
        files = self._open(schema).write(rows())
        crash_point("after-data-files")
        version = splits[0].context.schema_version
        return TaskWritten(files, schema, counts, version, observed=observer.observed)

    def _open(self, schema: pa.Schema) -> IcebergFileWriter:
        """Open a writer of data files, whose table then has all columns of the batch."""
        from airflow_cloudfiles.engine.iceberg.catalog import IcebergTarget  # noqa: PLC0415
        from airflow_cloudfiles.engine.iceberg.commit import ready_table  # noqa: PLC0415
        from airflow_cloudfiles.engine.iceberg.data_files import (  # noqa: PLC0415
            IcebergFileWriter,
        )

        target = IcebergTarget.of(self._target)
        return IcebergFileWriter(target, ready_table(target, schema, self._rules()))

    def _make_visible(
        self,
        batch: BatchId,
        written: Sequence[TaskWritten],
        expected: Expected | None,
        former: Sequence[FormerRows],
    ) -> Committed:
        from airflow_cloudfiles.engine.iceberg.commit import (  # noqa: PLC0415
            IcebergBatch,
            commit_batch,
        )

        refuse_former(former, self._target, "it is an Iceberg table")
        lead = lead_of(written)
        done = commit_batch(
            self._target,
            batch=IcebergBatch(
                batch.app_id, batch.number, batch.plan or "", batch.schema_version, batch.counts
            ),
            files=[file for message in written for file in message.files],
            columns=to_arrow(self._schema) if lead is None else lead.schema,
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
