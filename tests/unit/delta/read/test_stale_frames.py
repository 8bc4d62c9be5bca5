"""A DataFrame from before a change of the columns is refused, and never reads another column."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.spark.tables.sink import DeltaDataSource
from tests.support.table_streams import GrowingTable, Query


def _loaded(folder: Path, **options: str) -> Callable[[], DataSourceReader]:
    """What `load()` does, in one process; and what Spark plans with then, in another."""
    source = DeltaDataSource({"path": str(folder), **options})
    schema = source.schema()
    frame = pickle.dumps((source, schema))

    def planned() -> DataSourceReader:
        again, columns = pickle.loads(frame)
        return DeltaDataSource.reader(again, columns)

    return planned


def _rows(reader: DataSourceReader) -> list[dict[str, Any]]:
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches).to_pylist()  # type: ignore[arg-type]


@pytest.fixture
def table(tmp_path: Path) -> GrowingTable:
    found = GrowingTable(tmp_path / "t")
    found.append(1)
    return found


def _swap(table: GrowingTable) -> None:
    table.rename("a", "c")
    table.rename("b", "a")
    table.rename("c", "b")


def _drop_and_add(table: GrowingTable) -> None:
    table.drop("b")
    table.add("b", 9)


@pytest.mark.parametrize("check", ["true", "false"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.rename("a", "c"), "Latest schema is missing field: a"),
        (lambda table: table.drop("a"), "Latest schema is missing field: a"),
        (_swap, "RENAME COLUMN a to b\nRENAME COLUMN b to a"),
        (_drop_and_add, "DROP COLUMN b"),
        (lambda table: table.retype("a", "string"), "Latest: string\nExisting: long"),
    ],
)
def test_a_change_after_load_is_refused_with_column_mapping_whatever_the_check_says(  # B139
    table: GrowingTable, change: Callable[[GrowingTable], Any], message: str, check: str
) -> None:
    planned = _loaded(table.folder, checkLatestSchemaOnRead=check)
    change(table)
    with pytest.raises(IncompatibleSchemaError) as caught:
        planned().partitions()
    said = str(caught.value).partition("\n<<")[0]
    assert "DataFrame or DeltaTable object.\nChanges:\n" in said
    assert said.endswith(message)


def test_columns_that_are_added_change_nothing(table: GrowingTable) -> None:
    planned = _loaded(table.folder)
    table.add("c", 3)
    table.append(2)
    assert _rows(planned()) == [{"a": 1, "b": 1}, {"a": 2, "b": 2}]


def test_a_version_that_is_named_stays_as_it_was(table: GrowingTable) -> None:
    planned = _loaded(table.folder, versionAsOf="1")
    _swap(table)
    assert _rows(planned()) == [{"a": 1, "b": 1}]


def test_a_stream_reads_no_other_column_after_a_rename(table: GrowingTable, tmp_path: Path) -> None:
    query = Query(table.folder, tmp_path / "state")
    query.load()
    table.rename("a", "c")
    table.append(2)
    message = query.failing(Exception, reload=False)  # type: ignore[arg-type]
    assert "RENAME COLUMN a to c" in message
    assert query.rows in ([], [{"a": 1, "b": 1}])
