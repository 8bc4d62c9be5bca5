"""A commit says whether it is a blind append: a concurrent MERGE of Spark goes by that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_cloudfiles.engine.extensions.upkeep.alter import add_column
from airflow_cloudfiles.engine.extensions.upkeep.optimize import optimize
from tests.support.delta_writes import Sink, merge_rows, write_dataframe

ROWS = pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"]})


def _commits(target: Path) -> list[Any]:
    entries = sorted((target / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for each in entries for line in each.read_text().splitlines()]
    return [each["commitInfo"] for each in actions if "commitInfo" in each]


@pytest.mark.parametrize(
    "properties",
    [{}, {"delta.enableTypeWidening": "true"}, {"delta.columnMapping.mode": "name"}],
)
def test_appends_say_that_they_are_blind(tmp_path: Path, properties: dict[str, str]) -> None:
    target = tmp_path / "t"
    Sink(target, **properties).write(ROWS)
    write_dataframe(target, ROWS)
    write_dataframe(target, ROWS, txnAppId="app", txnVersion="1")
    add_column(str(target), "c STRING")
    done = [each for each in _commits(target) if each["operation"] != "CREATE TABLE"]
    assert [each.get("isBlindAppend") for each in done] == [True] * 4


@pytest.mark.parametrize("partition_by", [(), ("v",)])
def test_what_reads_or_replaces_rows_says_that_it_is_not(
    tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    target = tmp_path / "t"
    Sink(target, partition_by=partition_by).write(ROWS)
    first = len(_commits(target))
    merge_rows(target, 0, ROWS, keys=("id",))
    new = ROWS.set_column(0, "id", pa.array([7, 8], pa.int32()))
    merge_rows(target, 1, new, keys=("id",), when_matched="ignore")
    write_dataframe(target, new, replaceWhere="id > 5")
    write_dataframe(target, new, replaceWhere="id > 5", txnAppId="app", txnVersion="1")
    assert optimize(str(target)).removed_files
    found = [each.get("isBlindAppend") for each in _commits(target)[first:]]
    assert len(found) > 4
    assert set(found) == {False}
