"""Files of a partition become few, within it, and no row changes its partition or is lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.extensions.upkeep.optimize import auto_compact, optimize
from airflow_cloudfiles.engine.options.sink import TableOptions
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from tests.support.crash_points import OPTIMIZE_POINTS
from tests.support.delta_tables import read, sorted_rows
from tests.support.delta_writes import Sink, read_by_all

ODD = ["plain", "100%", "x%20y", "sp ace", "a/b=c", "ä€😀", "+&;#?", "x" * 300, None]
VALUES = pa.array(ODD, pa.string())


def _append(target: str | Path, times: int, first: int = 0) -> None:
    """Append to each partition, a file and a version each time."""
    for number in range(first, first + times):
        ids = range(number * 100, number * 100 + len(ODD))
        sink = Sink(target, app=f"app-{number}", partition_by=("p",))
        sink.write(pa.table({"id": pa.array(ids), "p": VALUES}))


def _rows(target: str | Path) -> list[str]:
    return sorted_rows(read(target))


def _added(target: str | Path) -> list[Any]:
    return list(TableLog(DeltaLocation.of(str(target))).snapshot().files)


@pytest.mark.slow
def test_files_are_written_together_within_partitions_of_odd_values(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _append(target, 4)
    before, version = _rows(target), DeltaTable(target).version()
    plan = optimize(str(target), dry_run=True)
    assert (plan.removed_files, plan.added_files) == (4 * len(ODD), len(ODD))
    assert DeltaTable(target).version() == version
    done = optimize(str(target))
    assert (done.removed_files, done.added_files) == (4 * len(ODD), len(ODD))
    assert (done.version, done.skipped_groups) == (version + len(ODD), 0)
    found = read_by_all(target)
    assert sorted_rows(found) == before == _rows(target)
    values = [file.partition_values["p"] for file in _added(target)]
    assert sorted(values, key=str) == sorted(ODD, key=str), "a file for each partition"
    assert optimize(str(target)).removed_files == 0
    _append(target, 1, first=50)
    assert len(read_by_all(target)) == 5 * len(ODD), "the sink appends to it as before"


def test_the_log_has_partition_values_and_no_change_of_rows(tmp_path: Path) -> None:
    target = tmp_path / "t"
    sink = Sink(target, partition_by=("p",))
    for number in range(2):
        sink.write(pa.table({"id": [number], "p": ["50% off"]}))
    [old, _] = _added(target)
    done = optimize(str(target))
    entry = (target / "_delta_log" / f"{done.version:020}.json").read_text(encoding="utf-8")
    actions = [json.loads(line) for line in entry.splitlines()]
    removes = [each["remove"] for each in actions if "remove" in each]
    [add] = [each["add"] for each in actions if "add" in each]
    assert len(removes) == 2
    assert old.path in {each["path"] for each in removes}, "as the log has it"
    for each in [*removes, add]:
        assert (each["partitionValues"], each["dataChange"]) == ({"p": "50% off"}, False)
    assert add["path"].startswith("p=50%2525%20off/"), "the folder, and its name encoded once"
    [file] = {path for path in target.rglob("*.parquet") if path.name in add["path"]}
    assert file.parent.name == "p=50%25 off"
    assert pq.read_schema(file).names == ["id"], "the partition's value is in the log only"
    assert json.loads(add["stats"])["maxValues"] == {"id": 1}
    history = DeltaTable(target).history(1)[0]
    assert history["operation"] == "OPTIMIZE"


def test_several_partition_columns_of_other_writers(tmp_path: Path) -> None:
    target = str(tmp_path / "t")
    for number in range(3):
        rows = pa.table(
            {
                "day": pa.array([20_000, None, 20_000, None], pa.date32()),
                "v": [number] * 4,
                "n": pa.array([1, 1, None, None], pa.int32()),
            }
        )
        write_deltalake(target, rows, mode="append", partition_by=["n", "day"])
    before = _rows(target)
    done = optimize(target)
    assert (done.removed_files, done.added_files) == (12, 4)
    assert sorted_rows(read_by_all(tmp_path / "t", deltalake=True)) == before


def _optimize_often(target: str, all_files: bool) -> None:
    for _ in range(3):
        optimize(target, all_files=all_files)


@pytest.mark.slow
def test_optimizers_and_writers_beside_each_other_keep_every_row(tmp_path: Path) -> None:
    target = str(tmp_path / "t")
    _append(target, 3)
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=_append, args=(target, 8, 100)),
        spawn.Process(target=_append, args=(target, 8, 200)),
        spawn.Process(target=_optimize_often, args=(target, False)),
        spawn.Process(target=_optimize_often, args=(target, True)),
    ]
    for each in processes:
        each.start()
    for each in processes:
        each.join(300)
    assert [each.exitcode for each in processes] == [0] * 4
    optimize(target)
    rows = sorted_rows(read_by_all(tmp_path / "t"))
    assert len(rows) == len(set(rows)) == 19 * len(ODD)
    assert len(_added(target)) == len(ODD)


def _killed(target: str, point: str, all_files: bool) -> None:
    os.environ[CRASH_AT] = point
    optimize(target, all_files=all_files)


@pytest.mark.slow
@pytest.mark.parametrize("all_files", [False, True])
@pytest.mark.parametrize("point", OPTIMIZE_POINTS)
def test_an_optimizer_that_is_killed_changes_no_row(
    tmp_path: Path, point: str, all_files: bool
) -> None:
    target = str(tmp_path / "t")
    _append(target, 2)
    before, version = _rows(target), DeltaTable(target).version()
    process = multiprocessing.get_context("spawn").Process(
        target=_killed, args=(target, point, all_files)
    )
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    assert DeltaTable(target).version() == version + (point == OPTIMIZE_POINTS[1])
    assert _rows(target) == before
    optimize(target, all_files=all_files)
    assert (len(_added(target)), _rows(target)) == (len(ODD), before)


def test_automatic_compaction_counts_files_that_have_a_neighbour(tmp_path: Path) -> None:
    target = tmp_path / "t"
    options = TableOptions(auto_compact=True, auto_compact_min_files=2 * len(ODD))
    _append(target, 1)
    assert auto_compact(str(target), options) == {}, "a file in each partition is few"
    _append(target, 1, first=1)
    found = auto_compact(str(target), options)
    assert found == {"compacted_files": 2 * len(ODD), "compacted_into_files": len(ODD)}
    assert auto_compact(str(target), options) == {}
    assert len(read_by_all(target)) == 2 * len(ODD)


def test_versions_are_checkpointed_when_that_is_due(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _append(target, 2)
    DeltaTable(target).alter.set_table_properties({"delta.checkpointInterval": "5"})
    before = _rows(target)
    done = optimize(str(target))
    due = [number for number in range(3, done.version + 1) if number % 5 == 0]
    names = [path.name for path in (target / "_delta_log").glob("*.checkpoint.parquet")]
    assert sorted(names) == [f"{number:020}.checkpoint.parquet" for number in due]
    assert _rows(target) == before
