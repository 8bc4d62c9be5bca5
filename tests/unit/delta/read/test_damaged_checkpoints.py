"""A damaged checkpoint costs no row while its commits are there, and is named when they are not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cloudfiles.engine.errors import OptionError, TargetCorruptedError
from airflow_cloudfiles.engine.tables.delta.opening import open_existing
from tests.support.delta_tables import CHECKPOINT, HandMadeTable, features, read, removed
from tests.support.delta_writes import Sink, read_by_all
from tests.support.table_streams import Query
from tests.unit.delta.read.test_log import (
    EXPECTED,
    six_versions,
    values,
    write_checkpoint,
)


def _flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:20] + bytes(255 - each for each in content[20:-20]) + content[-20:])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: os.truncate(path, 0),
    "torn": lambda path: os.truncate(path, path.stat().st_size // 2),
    "zeros": lambda path: path.write_bytes(b"\0" * 4096),
    "bits": _flip,
    "of another kind": lambda path: pq.write_table(pa.table({"add": [1]}), path),
    "without rows": lambda path: pq.write_table(CHECKPOINT.empty_table(), path),
    "gone": Path.unlink,
}


WHERE = [
    ("classic", "*.checkpoint.parquet"),
    ("parts", "*.0000000002.parquet"),
    ("json", "*.checkpoint.*.json"),
    ("parquet", f"{3:020}.checkpoint.*.parquet"),
    ("json", "_sidecars/*.parquet"),
    ("parquet", "_sidecars/*.parquet"),
]


def _damaged(folder: Path, kind: str, damage: str, pattern: str) -> Path:
    protocol = None if kind in {"classic", "parts"} else features("v2Checkpoint")
    write_checkpoint(folder, six_versions(folder, protocol), kind)
    log = folder / "_delta_log"
    parts = {"parts": 2} if kind == "parts" else {}
    (log / "_last_checkpoint").write_text(json.dumps({"version": 3, "size": 6, **parts}))
    DAMAGES[damage](max(log.glob(pattern)))
    return log


@pytest.mark.parametrize(
    ("kind", "pattern", "damage"),
    [
        (*where, damage)
        for where in WHERE
        for damage in DAMAGES
        if damage != "without rows" or where in WHERE[:1]  # a part may have none
    ],
)
def test_commits_are_read_in_the_place_of_a_damaged_checkpoint(
    tmp_path: Path, kind: str, pattern: str, damage: str
) -> None:
    log = _damaged(tmp_path / "t", kind, damage, pattern)
    assert [values(tmp_path / "t", version) for version in range(6)] == EXPECTED
    assert values(tmp_path / "t") == EXPECTED[5]
    rows = Query(tmp_path / "t", tmp_path / "state").run()
    assert sorted(row["a"] for row in rows) == EXPECTED[5]
    (log / f"{1:020}.json").unlink()
    with pytest.raises((TargetCorruptedError, OptionError), match=r"0{19}3\.checkpoint|commit 1 "):
        values(tmp_path / "t")


def test_an_older_checkpoint_stands_in_for_a_damaged_one(tmp_path: Path) -> None:
    log = _damaged(tmp_path / "t", "classic", "torn", "*.checkpoint.parquet")
    whole = tmp_path / "whole"
    write_checkpoint(whole, six_versions(whole), "classic")
    lines = [
        json.loads(line)
        for version in range(3)
        for line in (log / f"{version:020}.json").read_text().splitlines()
    ]
    made = HandMadeTable.__new__(HandMadeTable)
    made.folder, made.log = tmp_path / "t", log
    made.checkpoint(f"{2:020}.checkpoint.parquet", lines)
    for version in range(3):
        (log / f"{version:020}.json").unlink()
    assert values(tmp_path / "t") == EXPECTED[5]


@pytest.mark.parametrize("hint", ["", "[]", "null", "{}", '{"version": "x"}', '{"version": 99}',
                                  '{"version": -1}', "\udcff", "x" * 10_000])  # fmt: skip
def test_a_damaged_note_of_the_last_checkpoint_changes_nothing(tmp_path: Path, hint: str) -> None:
    six_versions(tmp_path / "t")
    content = hint.encode(errors="surrogateescape")
    (tmp_path / "t" / "_delta_log" / "_last_checkpoint").write_bytes(content)
    assert values(tmp_path / "t") == EXPECTED[5]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_writer_puts_a_damaged_checkpoint_aside_and_goes_on(tmp_path: Path, damage: str) -> None:
    _damaged(tmp_path / "t", "classic", damage, "*.checkpoint.parquet")
    Sink(tmp_path / "t").write([{"a": 9, "s": "x"}], pa.schema([("a", "int64"), ("s", "string")]))
    assert sorted(read_by_all(tmp_path / "t")["a"].to_pylist()) == [*EXPECTED[5], 9]


@pytest.mark.parametrize("keeps_commits", [True, False])
def test_a_compacted_log_that_was_not_reconciled_counts_line_by_line(
    tmp_path: Path, *, keeps_commits: bool
) -> None:
    made = HandMadeTable(tmp_path / "t")
    made.create()
    lines = []
    for number in range(7):  # each version replaces all rows
        file = made.file(f"{number}.parquet", {"a": list(range(5))})
        actions = [*([removed(lines[-1])] if lines else []), file]
        made.commit(*actions)
        lines += actions
    if not keeps_commits:
        for version in range(1, 7):
            (made.log / f"{version:020}.json").unlink()
    path = made.log / f"{1:020}.{7:020}.compacted.json"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert read(tmp_path / "t")["a"].to_pylist() == list(range(5))


def test_a_first_version_that_says_nothing_of_columns_is_read(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    metadata = made.metadata([])
    del metadata["metaData"]["schemaString"]
    made.commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, metadata)
    assert read(tmp_path / "t").num_columns == 0
    query = Query(tmp_path / "t", tmp_path / "state", startingVersion=0)
    columns = [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]
    made.commit(made.metadata(columns), made.file("a.parquet", {"a": [1]}))
    assert read(tmp_path / "t", 0).num_columns == 0
    assert query.run() == read(tmp_path / "t").to_pylist() == [{"a": 1}]
    tracked = Query(tmp_path / "t", tmp_path / "tracked", track=True)
    assert tracked.run() == [{"a": 1}]


@pytest.mark.parametrize("damage", ["torn", "bits"])
def test_what_only_looks_at_the_table_names_the_checkpoint(tmp_path: Path, damage: str) -> None:
    log = _damaged(tmp_path / "t", "classic", damage, "*.checkpoint.parquet")
    before = {each.name for each in log.iterdir()}
    with pytest.raises(TargetCorruptedError, match=r"0{19}3\.checkpoint\.parquet"):
        open_existing(str(tmp_path / "t"))
    assert {each.name for each in log.iterdir()} == before
