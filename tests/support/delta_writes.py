"""Batches that are written to a Delta table as the sink's tasks and driver do it, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from airflow_cloudfiles.engine.extensions.merge.batch_write import BatchWrite
from airflow_cloudfiles.engine.extensions.merge.commit import merge_batch
from airflow_cloudfiles.engine.extensions.merge.source_rows import MergeRule
from airflow_cloudfiles.engine.options.sink import BatchWriteOptions
from airflow_cloudfiles.engine.state.sink_log import BatchId, CommitResult
from airflow_cloudfiles.engine.tables.delta.commit import check_target, commit_batch
from airflow_cloudfiles.engine.tables.delta.data_files import DataFileWriter, FileSettings
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.log import STAGED
from airflow_cloudfiles.engine.tables.delta.read.snapshot import Snapshot, TableLog
from airflow_cloudfiles.engine.tables.delta.write.evolve import (
    WriteRules,
    layout_for,
)
from airflow_cloudfiles.engine.tables.delta.write.rows import write_rows
from tests.support.delta_tables import read, read_by_duckdb, sorted_rows

ANY_SIZE = 10 * 2**30
"""`widened_bytes` of `WriteRules` that no test exceeds."""


class Sink:
    """A stream that writes to a table.

    Args:
        target: The table.
        app: The stream.
        options: As `WriteRules`.
    """

    def __init__(
        self,
        target: Path | str,
        *,
        app: str = "stream",
        partition_by: tuple[str, ...] = (),
        merge_schema: bool = True,
        widening: int | None = None,
        **properties: str,
    ) -> None:
        self.target = str(target)
        self.app = app
        self.rules = WriteRules(
            merge_schema=merge_schema,
            widened_bytes=widening,
            partition_by=partition_by,
            properties={key.replace("_", "."): value for key, value in properties.items()},
        )
        self.batch = -1

    def write(self, rows: pa.Table | list[dict[str, Any]], schema: pa.Schema | None = None) -> Any:
        """Write the next batch."""
        self.batch += 1
        return self.repeat(rows, schema)

    def repeat(
        self, rows: pa.Table | list[dict[str, Any]], schema: pa.Schema | None = None
    ) -> CommitResult:
        """Write the batch of the present number, perhaps again."""
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, schema)
        return self.commit(*self.task(table), table.schema)

    def task(self, table: pa.Table) -> tuple[Any, Any]:
        """What the driver does before a batch, and one task then: the files, and their layout."""
        state = check_target(self.target, table.schema, self.rules)
        layout = None if state is None else layout_for(state, table.schema, self.rules)
        return write_rows(self.target, table.schema, table.to_batches(), layout), layout

    def commit(self, files: Any, layout: Any, schema: pa.Schema) -> CommitResult:
        """What the driver does after a batch."""
        return commit_batch(
            self.target,
            batch=BatchId(self.app, self.batch),
            files=files,
            schema=schema,
            rules=self.rules,
            layout=layout,
        )


def snapshot_of(target: Path | str) -> Snapshot:
    """The newest version."""
    return TableLog(DeltaLocation.to_read(str(target))).snapshot()


def read_by_all(target: Path | str, *, deltalake: bool = True) -> pa.Table:
    """The rows of the newest version, which three implementations read alike.

    Args:
        target: The table.
        deltalake: Whether `deltalake` reads it, too; it reads no table whose types widen.
    """
    ours = read(target)
    rows = sorted_rows(ours)
    theirs = read_by_duckdb(target).select(ours.column_names)
    assert sorted_rows(_cast(theirs, ours.schema)) == rows, "DuckDB"
    if deltalake:
        scanned = pa.table(DeltaTable(str(target)).scan().read_all())
        assert sorted_rows(_cast(scanned.select(ours.column_names), ours.schema)) == rows, "scan"
    return ours


def read_by_another(target: Path | str) -> pa.Table:
    """The rows of the newest version by DuckDB, or by `deltalake` where DuckDB is wrong.

    It finds values of partition columns by the names of the columns. Delta's protocol keeps them
    under their physical names.
    """
    snapshot = snapshot_of(target)
    mapped = snapshot.metadata.property("delta.columnMapping.mode", "none") != "none"
    if mapped and snapshot.metadata.partition_columns:
        return pa.table(DeltaTable(str(target)).scan().read_all())
    return read_by_duckdb(target)


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in the same types: readers differ in which of Arrow's they give strings."""
    return table.cast(pa.schema([(each.name, _nullable(each.type)) for each in schema]))


def _nullable(kind: pa.DataType) -> pa.DataType:
    """The type without NOT NULL: values inside of a struct that is null are nothing."""
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _nullable(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_type), _nullable(kind.item_type))
    return kind


def merge_rows(
    target: Path | str,
    number: int,
    rows: pa.Table,
    *,
    keys: tuple[str, ...],
    void: bool = False,
    **rule: Any,
) -> CommitResult:
    """Merge rows into a table as a batch of a stream; `void` is for columns without a type."""
    files = DataFileWriter(str(target), rows.schema, FileSettings(folder=STAGED)).write(
        rows.to_batches()
    )
    return merge_batch(
        str(target),
        rule=MergeRule(keys, **rule),
        batch=BatchId("merges", number),
        files=files,
        schema=rows.schema,
        rules=WriteRules(merge_schema=True, takes_void=void),
    )


def write_dataframe(target: Path | str, rows: pa.Table, **options: str) -> CommitResult:
    """Write rows as `DataFrame.write` does; with `replaceWhere` or `overwrite`, over others."""
    read_options = BatchWriteOptions.read({key.lower(): each for key, each in options.items()})
    overwrites = bool({"replaceWhere", "overwriteSchema"} & options.keys())
    write = BatchWrite.begin(str(target), read_options, rows.schema, overwrites=overwrites)
    how = write.how
    layout = how.layout(rows.schema)
    files = write_rows(str(target), rows.schema, rows.to_batches(), layout, how.settings)
    return write.commit(files, rows.schema, layout)
