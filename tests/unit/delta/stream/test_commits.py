"""Each commit of a backlog is read once, many at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import TargetCorruptedError
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.tables.delta.stream.commits import TableCommits
from tests.support.table_streams import GrowingTable

VERSIONS = 40


@pytest.fixture
def table(tmp_path: Path) -> GrowingTable:
    found = GrowingTable(tmp_path / "t", "a")
    for _ in range(VERSIONS):
        found.commit({"add": {"path": "x.parquet", "size": 1, "partitionValues": {}}})
    return found


def opened(table: GrowingTable) -> tuple[TableLog, TableCommits]:
    log = TableLog(DeltaLocation.to_read(str(table.folder)))
    table_id = table.metadata([])["metaData"]["id"]
    return log, TableCommits(log, table_id, fail_on_data_loss=True)


def test_a_commit_is_read_once_however_small_the_batches_are(table: GrowingTable) -> None:
    log, commits = opened(table)
    assert commits.poll(0) == VERSIONS
    for version in range(VERSIONS + 1):
        found = next(commits.between(version, VERSIONS))
        assert found.version == version
    assert log.store.requests["get"] == VERSIONS + 1


def test_the_whole_backlog_comes_in_order(table: GrowingTable) -> None:
    log, commits = opened(table)
    commits.poll(0)
    found = [each.version for each in commits.between(0, VERSIONS)]
    assert found == list(range(VERSIONS + 1))
    assert log.store.requests["get"] == VERSIONS + 1


def test_a_damaged_commit_fails_where_it_is_and_not_before(table: GrowingTable) -> None:
    (table.log / f"{3:020}.json").write_text("{")
    _, commits = opened(table)
    commits.poll(0)
    found = commits.between(0, VERSIONS)
    assert [next(found).version for _ in range(3)] == [0, 1, 2]
    with pytest.raises(TargetCorruptedError, match=r"00003\.json"):
        next(found)


def test_a_poll_costs_one_listing(table: GrowingTable) -> None:
    log, commits = opened(table)
    commits.poll(VERSIONS)
    before = log.store.requests["list"]
    commits.poll(VERSIONS)
    assert log.store.requests["list"] == before + 1
    assert log.store.requests["get"] == 0
