"""Small files become few, and no row changes, whoever writes beside it or is killed."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures

from airflow_cloudfiles.cli import main
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import SinkError, TargetNotDeltaError
from airflow_cloudfiles.engine.extensions.upkeep.optimize import auto_compact, optimize
from airflow_cloudfiles.engine.options.sink import TableOptions
from airflow_cloudfiles.engine.state.sink_log import BatchId
from airflow_cloudfiles.engine.tables.delta.commit import commit_batch
from airflow_cloudfiles.engine.tables.delta.data_files import DataFileWriter
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from tests.support.crash_points import OPTIMIZE_POINTS
from tests.support.delta_tables import read_by_duckdb, sorted_rows
from tests.support.ingested import Ingested
from tests.support.laws import some

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", pa.string())])


def _append(target: str, first: int, count: int = 1, app: str = "app") -> None:
    for number in range(first, first + count):
        rows = [{"a": number, "b": number % 3, "s": f"{number}-{row}"} for row in range(10)]
        commit_batch(
            target,
            batch=BatchId(app, number),
            files=DataFileWriter(target, SCHEMA).write([pa.RecordBatch.from_pylist(rows, SCHEMA)]),
            schema=SCHEMA,
            rules=WriteRules(merge_schema=True),
        )


def _rows(target: str) -> list[str]:
    table = DeltaTable(target).to_pyarrow_dataset().to_table()
    return sorted_rows(table)


def _files(target: str) -> int:
    return len(DeltaTable(target).file_uris())


def test_small_files_are_written_together(tmp_path: Path) -> None:
    target = str(tmp_path / "t")
    _append(target, 0, 8)
    before = _rows(target)
    plan = optimize(target, dry_run=True)
    assert (plan.removed_files, plan.added_files, plan.version) == (8, 1, 8)
    assert _files(target) == 8
    done = optimize(target)
    assert (done.removed_files, done.added_files, done.skipped_groups) == (8, 1, 0)
    assert (_files(target), _rows(target)) == (1, before)
    assert sorted_rows(read_by_duckdb(target)) == before
    entry = (tmp_path / "t" / "_delta_log" / f"{done.version:020}.json").read_text()
    actions = [json.loads(line) for line in entry.splitlines()]
    changes = [each[kind]["dataChange"] for each in actions for kind in ("add", "remove")
               if kind in each]  # fmt: skip
    assert changes == [False] * 9, "streams that read the table skip the commit"
    again = optimize(target)
    assert (again.removed_files, again.version) == (0, done.version)
    assert len(DeltaTable(target, version=8).file_uris()) == 8, "older versions stay readable"


def test_files_get_about_the_size_that_is_asked_for(tmp_path: Path) -> None:
    target = str(tmp_path / "t")
    _append(target, 0, 12)
    [size, *_] = pa.table(DeltaTable(target).get_add_actions())["size_bytes"].to_pylist()
    done = optimize(target, target_bytes=size * 4)
    assert (done.removed_files, done.added_files) == (12, 3)
    assert len(_rows(target)) == 120


def test_all_files_are_written_anew_where_that_is_asked_for(tmp_path: Path) -> None:
    target = str(tmp_path / "t")
    _append(target, 0, 2)
    before, old = _rows(target), set(DeltaTable(target).file_uris())
    [size, *_] = pa.table(DeltaTable(target).get_add_actions())["size_bytes"].to_pylist()
    assert optimize(target, target_bytes=size).removed_files == 0
    done = optimize(target, all_files=True, target_bytes=size)
    assert (done.removed_files, done.added_files, _rows(target)) == (2, 2, before)
    assert not old & set(DeltaTable(target).file_uris())


def test_tables_that_cannot_be_rewritten_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TargetNotDeltaError):
        optimize(str(tmp_path / "t"))
    tracked = str(tmp_path / "tracked")
    features = [TableFeatures.RowTracking, TableFeatures.DomainMetadata]
    DeltaTable.create(tracked, SCHEMA).alter.add_feature(
        features, allow_protocol_versions_increase=True
    )
    with pytest.raises(SinkError, match="because it has rowTracking"):
        optimize(tracked, all_files=True)


def _optimize_often(target: str, all_files: bool) -> None:
    for _ in range(5):
        optimize(target, all_files=all_files)


@pytest.mark.slow
def test_optimizers_and_writers_beside_each_other_keep_every_row(tmp_path: Path) -> None:
    target = str(tmp_path / "t")
    _append(target, 0, 5)
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=_append, args=(target, 100, 15, "one")),
        spawn.Process(target=_append, args=(target, 200, 15, "two")),
        spawn.Process(target=_optimize_often, args=(target, False)),
        spawn.Process(target=_optimize_often, args=(target, False)),
        spawn.Process(target=_optimize_often, args=(target, True)),
    ]
    for each in processes:
        each.start()
    for each in processes:
        each.join(300)
    assert [each.exitcode for each in processes] == [0] * 5
    assert len(_rows(target)) == len(set(_rows(target))) == 350
    optimize(target)
    assert len(_rows(target)) == 350


def _killed(target: str, point: str, all_files: bool) -> None:
    os.environ[CRASH_AT] = point
    optimize(target, all_files=all_files)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "all_files"),
    some([*product(OPTIMIZE_POINTS, (False, True))], 2, name="kills of an optimizer"),
)
def test_an_optimizer_that_is_killed_changes_no_row(
    tmp_path: Path, point: str, all_files: bool
) -> None:
    target = str(tmp_path / "t")
    _append(target, 0, 4)
    before = _rows(target)
    process = multiprocessing.get_context("spawn").Process(
        target=_killed, args=(target, point, all_files)
    )
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    assert _rows(target) == before
    optimize(target, all_files=all_files)
    assert (_files(target), _rows(target)) == (1, before)


def test_a_stream_compacts_after_a_batch_when_it_is_asked_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Ingested(tmp_path)
    stream.add("a", "b", "c", "d")
    stream.run()
    assert _files(str(stream.target)) == 4, "off by default"
    options: dict[str, Any] = {"auto_compact": True, "auto_compact_min_files": 4}
    assert auto_compact(str(stream.target), TableOptions(auto_compact=True)) == {}
    found = auto_compact(str(stream.target), TableOptions(**options))
    assert found == {"compacted_files": 4, "compacted_into_files": 1}
    assert stream.rows() == ["a", "b", "c", "d"]
    stream.add("e")
    stream.run()
    assert stream.rows() == ["a", "b", "c", "d", "e"]
    with caplog.at_level(logging.WARNING):
        assert auto_compact(str(tmp_path / "none"), TableOptions(**options)) == {}
    assert "was not compacted, which loses nothing" in caplog.text


def test_the_property_of_a_table_turns_automatic_compaction_on(tmp_path: Path) -> None:
    target = str(tmp_path / "t")
    DeltaTable.create(target, SCHEMA, configuration={"delta.autoOptimize.autoCompact": "true"})
    _append(target, 0, 3)
    assert auto_compact(target, TableOptions(auto_compact=False, auto_compact_min_files=3)) == {}
    assert auto_compact(target, TableOptions(auto_compact_min_files=3))["compacted_files"] == 3


def test_the_command_says_what_it_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "t")
    _append(target, 0, 3)
    assert main(["table", "optimize", "--target", target, "--dry-run"]) == 0
    assert "Nothing was changed. Leave out --dry-run to optimize." in capsys.readouterr().out
    arguments = ["--all", "--target-size", "1m", "--json"]
    assert main(["table", "optimize", "--target", target, *arguments]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["removed_files"], value["added_files"], value["version"]) == (3, 1, 4)
    with pytest.raises(SystemExit):
        main(["table", "optimize", "--target", target, "--target-size", "x"])
    assert "must be a size" in capsys.readouterr().err
