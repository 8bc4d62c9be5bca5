"""Without tracking, a new column needs a restart, and any other change is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import BlockedSchemaChangeError, TableEvolvedError
from tests.support.delta_tables import OLD, HandMadeTable, column
from tests.support.table_streams import GrowingTable, Query

CHANGES = {
    "RENAME COLUMN b to c": lambda table: table.rename("b", "c"),
    "DROP COLUMN b": lambda table: table.drop("b"),
    "TYPE CHANGE b from bigint to double": lambda table: table.retype("b", "double"),
}


@pytest.fixture
def table(tmp_path: Path) -> GrowingTable:
    """Columns a and b, and one row."""
    found = GrowingTable(tmp_path / "t", "a", "b")
    found.append(1)
    return found


@pytest.fixture
def query(table: GrowingTable, tmp_path: Path) -> Query:
    """A stream without tracking that has read all."""
    found = Query(table.folder, tmp_path / "checkpoint")
    assert found.run() == [{"a": 1, "b": 1}]
    return found


def test_a_new_column_fails_a_running_stream_and_the_restart_goes_on(
    table: GrowingTable, query: Query
) -> None:
    query.start(available_now=False)
    table.append(2)
    table.add("c", 3)
    table.append(3)
    with pytest.raises(TableEvolvedError, match=r"(?s)ADD COLUMN c.*restarting the query"):
        query.plan()
    assert "load()" in query.failing(TableEvolvedError, reload=False)  # the same frame
    assert query.run() == [{"a": 2, "b": 2, "c": None}, {"a": 3, "b": 3, "c": 3}]


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("is_between", [True, False])
def test_another_change_is_refused_with_a_fresh_and_with_a_stale_frame(
    table: GrowingTable, query: Query, what: str, *, fresh: bool, is_between: bool
) -> None:
    if is_between:
        table.append(2)
    CHANGES[what](table)
    table.append(3)
    for _ in range(2):
        message = query.failing(BlockedSchemaChangeError, reload=fresh)
        assert "USE_SCHEMA_LOG" in message
        assert what in message
        assert "schemaTrackingLocation" in message
    assert query.rows == [{"a": 1, "b": 1}]


def test_a_change_in_mid_stream_is_refused(table: GrowingTable, query: Query) -> None:
    query.start(available_now=False)
    table.rename("b", "c")
    with pytest.raises(BlockedSchemaChangeError, match="RENAME COLUMN b to c"):
        query.plan()


def test_a_change_before_the_stream_began_does_not_matter(
    table: GrowingTable, tmp_path: Path
) -> None:
    table.rename("b", "c")
    query = Query(table.folder, tmp_path / "another")
    assert query.run() == [{"a": 1, "c": 1}]


def test_a_change_behind_the_version_to_start_at_is_refused(
    table: GrowingTable, tmp_path: Path
) -> None:
    table.rename("b", "c")
    query = Query(table.folder, tmp_path / "another", startingVersion=1)
    assert "RENAME COLUMN b to c" in query.failing(BlockedSchemaChangeError)


def test_relaxed_nullability_needs_no_restart(tmp_path: Path) -> None:
    table = HandMadeTable(tmp_path / "t")
    strict = [{**column("a", "long"), "nullable": False}]
    table.create(table.file("0.parquet", {"a": [1]}), columns=strict)
    query = Query(table.folder, tmp_path / "checkpoint")
    query.start(available_now=False)
    assert query.plan()
    query.execute()
    table.commit(table.metadata([column("a", "long")]), table.file("1.parquet", {"a": [None]}))
    assert query.plan()
    query.execute()
    assert query.rows == [{"a": 1}, {"a": None}]


def test_a_column_that_an_overwrite_drops_is_refused_without_column_mapping(tmp_path: Path) -> None:
    table = HandMadeTable(tmp_path / "t")
    table.create(table.file("0.parquet", {"a": [1], "s": ["x"]}), protocol=OLD)
    query = Query(table.folder, tmp_path / "checkpoint", ignoreChanges=True)
    query.run()
    table.commit(table.metadata([column("a", "long")]), table.file("1.parquet", {"a": [2]}))
    assert "DROP COLUMN s" in query.failing(BlockedSchemaChangeError)


def test_other_partition_columns_are_refused(table: GrowingTable, query: Query) -> None:
    table.commit(table.metadata(table.columns, ("b",), {"delta.columnMapping.mode": "name"}))
    assert "other partition columns" in query.failing(BlockedSchemaChangeError)


def test_a_partition_column_in_the_middle_is_found_by_name_and_by_id(tmp_path: Path) -> None:
    for mode in ("name", "id"):
        table = HandMadeTable(tmp_path / mode)
        columns = [column("a", "long", 1), column("p", "integer", 2), column("b", "long", 3)]
        file = table.file("0.parquet", {"col-1": [1], "col-3": [3]}, partition={"col-2": "2"})
        table.create(
            file,
            protocol={"minReaderVersion": 2, "minWriterVersion": 5},
            columns=columns,
            partitions=("p",),
            delta_columnMapping_mode=mode,
        )
        query = Query(table.folder, tmp_path / f"c-{mode}")
        assert query.run() == [{"a": 1, "p": 2, "b": 3}]
