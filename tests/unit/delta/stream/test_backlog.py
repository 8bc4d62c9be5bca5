"""Spark's checkpoint says how far a query from a table is, without a Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import TargetNotDeltaError
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.delta.stream.commits import (
    CHANGE,
    TableBacklog,
    TableOffset,
    backlog,
)
from tests.support.table_streams import GrowingTable


@pytest.fixture
def table(tmp_path: Path) -> GrowingTable:
    """Versions 0 and 1."""
    found = GrowingTable(tmp_path / "t", "a")
    found.append(1)
    return found


def after(table: GrowingTable, state: Path, *offsets: TableOffset, committed: int) -> TableBacklog:
    """What is left with a checkpoint of these micro-batches."""
    for name in ("offsets", "commits"):
        (state / name).mkdir(parents=True, exist_ok=True)
    for batch, offset in enumerate(offsets):
        lines = ("v1", "{}", json.dumps(offset.to_json()))
        (state / "offsets" / str(batch)).write_text("\n".join(lines))
    for batch in range(committed):
        (state / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return backlog(open_store(str(state)), str(table.folder))


def test_a_new_checkpoint_has_all_before_it(table: GrowingTable, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    found = backlog(open_store(str(tmp_path / "state")), str(table.folder))
    assert found == TableBacklog(newest=1)
    assert found.has_work


@pytest.mark.parametrize(
    ("offset", "has_work"),
    [
        (TableOffset("id", 2), False),
        (TableOffset("id", 1), True),
        (TableOffset("id", 1, 0), True),
        (TableOffset("id", 1, 0, is_initial=True), True),
        (TableOffset("id", 2, CHANGE), True),
    ],
)
def test_what_is_left_follows_from_the_last_committed_offset(
    table: GrowingTable, tmp_path: Path, offset: TableOffset, *, has_work: bool
) -> None:
    found = after(table, tmp_path / "state", offset, committed=1)
    assert (found.newest, found.batch, found.has_work) == (1, 0, has_work)


def test_a_planned_micro_batch_is_work(table: GrowingTable, tmp_path: Path) -> None:
    done, planned = TableOffset("id", 1), TableOffset("id", 2)
    assert after(table, tmp_path / "state", done, planned, committed=1).has_work
    assert not after(table, tmp_path / "state", done, planned, committed=2).has_work


def test_a_table_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TargetNotDeltaError):
        backlog(open_store(str(tmp_path)), str(tmp_path / "nothing"))
