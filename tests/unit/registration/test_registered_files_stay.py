"""No file that a table has as its data file is removed, moved or doubled by what else is done."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles import operate_on_files
from airflow_cloudfiles.engine.errors import (
    DataFileLostError,
    ExpectationError,
    OptionError,
    StateConflictError,
    StateError,
)
from airflow_cloudfiles.engine.extensions.cleaning.of_stream import clean_source
from airflow_cloudfiles.engine.extensions.overview.verify import verify_state
from airflow_cloudfiles.engine.extensions.start_over import start_over
from airflow_cloudfiles.engine.extensions.transfer.move import move_state
from airflow_cloudfiles.engine.extensions.transfer.relocate import relocate_source
from airflow_cloudfiles.engine.extensions.upkeep.optimize import optimize
from airflow_cloudfiles.engine.extensions.upkeep.vacuum import vacuum
from airflow_cloudfiles.engine.job.run import run
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.spark.source import CloudFilesDataSource
from airflow_cloudfiles.engine.state.sink_log import SinkLog
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.delta import data_files
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from tests.support.delta_tables import read_by_duckdb
from tests.support.registered import REFERENCE, Landing, ingested, multiset

FORMAT = {"cloudFiles.format": "parquet", **REFERENCE}


def rows(first: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + 3), pa.int64()), "name": ["a", "b", None]})


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """A stream that has registered two files, and has copied one."""
    landing = Landing(tmp_path)
    landing.add("one.parquet", rows())
    landing.run()
    landing.add("two.parquet", rows(10))
    landing.add("narrow.parquet", pa.table({"id": pa.array([20], pa.int8())}))
    landing.run()
    assert landing.registered() == ["one.parquet", "two.parquet"]
    return landing


def ids(landing: Landing) -> list[int]:
    return sorted(landing.rows()["id"].to_pylist())


ALL = [0, 1, 2, 10, 11, 12, 20]


def _run_once(landing: Landing, **more: Any) -> None:
    ingested(landing.spec(**more))


# What is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("cloudFiles.cleanSource.retentionDuration", "30 days", ""),
        ("cloudFiles.allowOverwrites", "true", "overwritten in place"),
        ("cloudFiles.fileIdentity", "content", "overwritten in place"),
        ("cloudFiles.metadataColumns", "file_path", "metadataColumns contradict"),
        ("ignoreCorruptFiles", "true", "only the end of a file is read"),
    ],
)
def test_options_that_contradict_it_are_refused(option: str, value: str, why: str) -> None:
    given = {**FORMAT, option: value}
    if not why:
        assert CloudFilesOptions.parse(given, path="/in").load_mode == "reference"
        return
    with pytest.raises(OptionError, match=f"cloudFiles.loadMode=reference and .*{why}"):
        CloudFilesOptions.parse(given, path="/in")
    CloudFilesOptions.parse({**given, "cloudFiles.loadMode": "copy"}, path="/in")


@pytest.mark.parametrize(
    "more",
    [
        {"cloudFiles.cleanSource": "DELETE"},
        {"cloudFiles.cleanSource": "MOVE", "cloudFiles.cleanSource.moveDestination": "/done"},
    ],
)
def test_a_source_that_is_cleaned_is_refused(more: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="would lose the files that it is made of"):
        CloudFilesOptions.parse({**FORMAT, **more}, path="/in")


def test_it_is_for_parquet_and_a_typo_is_told() -> None:
    with pytest.raises(OptionError, match="is an option of format parquet, not of json"):
        CloudFilesOptions.parse({**FORMAT, "cloudFiles.format": "json"}, path="/in")
    with pytest.raises(OptionError, match="must be one of copy, reference"):
        CloudFilesOptions.parse({**FORMAT, "cloudFiles.loadMode": "link"}, path="/in")
    with pytest.raises(OptionError, match=r"Did you mean cloudFiles\.loadMode"):
        CloudFilesOptions.parse({"cloudFiles.format": "parquet", "cloudFiles.loadMod": "copy"})


def test_a_query_of_ones_own_is_refused(landing: Landing) -> None:
    options = {**FORMAT, "path": str(landing.source)}
    for ask in (
        lambda: CloudFilesDataSource(options).schema(),
        lambda: CloudFilesDataSource(options).streamReader(None),  # type: ignore[arg-type]
        lambda: CloudFilesOptions.parse(options).check_batch(),
    ):
        with pytest.raises(OptionError, match="is for runs"):
            ask()


@pytest.mark.parametrize("folder", ["", "landing", "_delta_log/x", "_change_data", "_a=1/b", ".a"])
def test_a_source_that_a_vacuum_may_empty_is_refused(landing: Landing, folder: str) -> None:
    place = landing.target / folder if folder else landing.target.parent / "elsewhere"
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows(), place / "a.parquet")
    with pytest.raises(OptionError, match=r"needs a source in a folder of the table .*_landing"):
        _run_once(
            landing, source=str(place), checkpoint_location=str(landing.target.parent / "new")
        )


def test_runs_that_give_other_rows_are_refused(landing: Landing) -> None:
    with pytest.raises(OptionError, match="mergeKeys"):
        _run_once(landing, options={**REFERENCE, "mergeKeys": "id"})
    with pytest.raises(OptionError, match="a function makes other rows"):
        _run_once(landing, transform={"name": "f", "code": ""})
    with pytest.raises(OptionError, match="Iceberg"):
        _run_once(landing, target="iceberg://catalog/ns/table")


def test_a_table_with_column_mapping_is_refused(tmp_path: Path) -> None:
    landing = Landing(tmp_path, {**REFERENCE, "delta.columnMapping.mode": "name"})
    landing.add("one.parquet", rows())
    with pytest.raises(OptionError, match="has column mapping"):
        _run_once(landing)


# What goes wrong in a run ---------------------------------------------------------------------


def test_a_file_that_is_overwritten_before_the_commit_is_not_registered(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = landing.add("three.parquet", rows(30))
    require = data_files.require

    def overwritten(location: DeltaLocation, files: Any) -> None:
        later = path.stat().st_mtime + 5
        pq.write_table(rows(40), path)
        os.utime(path, (later, later))
        require(location, files)

    monkeypatch.setattr(data_files, "require", overwritten)
    with pytest.raises(
        DataFileLostError, match=r"three\.parquet was to be registered .* run again"
    ):
        _run_once(landing)
    monkeypatch.undo()
    assert path.exists()
    report = landing.run()
    assert (report["registered_files"], report["copied_files"]) == (0, 1)
    assert ids(landing) == [*ALL, 40, 41, 42]


def test_a_batch_that_is_refused_leaves_the_files_of_the_source(landing: Landing) -> None:
    path = landing.add("three.parquet", rows(30))
    landing.add("more.parquet", pa.table({"id": pa.array([40], pa.int16())}))
    with pytest.raises(ExpectationError, match=r"expect\.minRows"):
        _run_once(landing, options={**REFERENCE, "expect.minRows": "5"})
    assert path.exists()
    assert landing.run()["registered_files"] == 1
    assert ids(landing) == [*ALL, 30, 31, 32, 40]


def test_expected_columns_are_counted_by_the_footer(landing: Landing) -> None:
    landing.add("three.parquet", rows(30))
    asked = {**REFERENCE, "expect.requiredColumns": "ID, name", "expect.minRows": "3"}
    _run_once(landing, options=asked)
    assert "three.parquet" in landing.registered()
    landing.add("four.parquet", pa.table({"id": pa.array([40], pa.int64())}))
    with pytest.raises(ExpectationError, match="name"):
        _run_once(landing, options=asked)


def test_a_batch_that_the_table_has_leaves_the_files_of_the_source(landing: Landing) -> None:
    landing.add("three.parquet", rows(30))
    landing.add("more.parquet", pa.table({"id": pa.array([40], pa.int16())}))
    landing.run()
    newest = SinkLog(open_store(str(landing.state))).newest()
    assert newest is not None
    (landing.state / "_source" / "sink" / "0" / f"{newest.batch:020}").unlink()
    before = sorted(landing.source.iterdir())
    _run_once(landing)  # it finds that the table has the batch
    assert sorted(landing.source.iterdir()) == before
    assert ids(landing) == [*ALL, 30, 31, 32, 40]


# What is done to the table, and to the stream -------------------------------------------------


def test_a_vacuum_removes_no_file_of_the_source(landing: Landing) -> None:
    landing.add("waits.parquet", rows(50))
    old = landing.source.stat().st_mtime - 40 * 86400
    for each in landing.source.iterdir():
        os.utime(each, (old, old), follow_symlinks=False)
    there = sorted(landing.source.iterdir())
    log = TableLog(DeltaLocation.of(str(landing.target)))
    more: dict[str, Any] = {"retention": timedelta(0), "allow_short_retention": True}
    vacuum(log, dry_run=False, **more)
    assert sorted(landing.source.iterdir()) == there
    optimize(str(landing.target), all_files=True)
    assert landing.registered() == []
    vacuum(TableLog(DeltaLocation.of(str(landing.target))), dry_run=False, **more)
    DeltaTable(str(landing.target)).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True
    )
    assert sorted(landing.source.iterdir()) == there
    assert ids(landing) == ALL


def test_the_table_can_be_compacted_changed_and_read_as_any(landing: Landing) -> None:
    before = multiset(landing.rows())
    assert optimize(str(landing.target)).removed_files == 3
    assert multiset(landing.rows()) == before
    landing.add("three.parquet", rows(30))
    landing.run()
    DeltaTable(str(landing.target)).delete("id >= 31")
    assert ids(landing) == [*ALL, 30]
    assert sorted(read_by_duckdb(landing.target)["id"].to_pylist()) == [*ALL, 30]
    assert (landing.source / "three.parquet").exists()


def test_an_automatic_compaction_takes_them(landing: Landing) -> None:
    landing.options |= {"autoCompact": "true", "autoCompactMinFiles": "2"}
    landing.add("three.parquet", rows(30))
    landing.run()
    assert landing.registered() == []
    assert ids(landing) == [*ALL, 30, 31, 32]
    assert len(list(landing.source.iterdir())) == 4


def test_a_promotion_leaves_them(landing: Landing) -> None:
    landing.options["cloudFiles.schemaEvolutionMode"] = "rescue"
    landing.add("more.parquet", rows(30).append_column("more", pa.array([1, 2, 3])))
    landing.run()
    spec = landing.spec("promote", promote={"more": "BIGINT"})
    assert run(spec)["outcome"] == "succeeded"
    assert landing.registered() == ["one.parquet", "two.parquet"]
    assert sorted(filter(None, landing.rows()["more"].to_pylist())) == [1, 2, 3]


@pytest.mark.parametrize("action", ["replay", "forget"])
def test_a_file_that_is_ingested_once_more_is_copied(landing: Landing, action: Any) -> None:
    more = {"append": True} if action == "replay" else {}
    operate_on_files(str(landing.state), action, "one.parquet", target=str(landing.target), **more)
    landing.add("three.parquet", rows(30))
    assert landing.run()["registered_files"] == 1
    assert ids(landing) == sorted([*ALL, 0, 1, 2, 30, 31, 32])


def test_verify_names_a_file_that_was_written_again_or_is_gone(landing: Landing) -> None:
    state = str(landing.state)
    assert not verify_state(state).damages
    pq.write_table(rows(40), landing.source / "one.parquet", compression="none")
    (landing.source / "two.parquet").unlink()
    damages = {Path(each.name).name: each.problem for each in verify_state(state).damages}
    assert "written again" in damages["one.parquet"]
    assert "It is gone" in damages["two.parquet"]


def test_a_source_with_registered_files_is_not_cleaned(landing: Landing) -> None:
    where = str(landing.target.parent / "done")
    options = {"cloudFiles.cleanSource": "MOVE", "cloudFiles.cleanSource.moveDestination": where}
    options["cloudFiles.cleanSource.retentionDuration"] = "0 seconds"
    spec = landing.spec("clean", options=options)
    with pytest.raises(OptionError, match="2 data files that lie in the source"):
        clean_source(spec)
    assert len(list(landing.source.iterdir())) == 3
    optimize(str(landing.target), all_files=True)
    assert clean_source(spec)["files"] == 3
    assert ids(landing) == ALL


def test_a_source_with_registered_files_moves_with_its_table_only(
    landing: Landing, tmp_path: Path
) -> None:
    shutil.copytree(landing.source, tmp_path / "moved")
    with pytest.raises(StateError, match=r"2 files of .* are data files of .*Move the table with"):
        relocate_source(str(landing.state), str(tmp_path / "moved"))
    shutil.copytree(landing.target, tmp_path / "new" / "table")
    shutil.rmtree(landing.target)
    there = tmp_path / "new" / "table"
    assert relocate_source(str(landing.state), str(there / "_landing")).is_done
    landing.target, landing.source = there, there / "_landing"
    landing.add("three.parquet", rows(30))
    landing.run()
    assert ids(landing) == [*ALL, 30, 31, 32]


def test_a_moved_state_goes_on(landing: Landing, tmp_path: Path) -> None:
    move_state(str(landing.state), str(tmp_path / "elsewhere"))
    landing.state = tmp_path / "elsewhere"
    landing.add("three.parquet", rows(30))
    assert landing.run()["registered_files"] == 1
    assert ids(landing) == [*ALL, 30, 31, 32]


def test_starting_over_says_to_keep_the_source(landing: Landing) -> None:
    with pytest.raises(StateConflictError, match=r"Delete the table first without .*_landing"):
        start_over(str(landing.state), target=str(landing.target))
    shutil.rmtree(landing.target / "_delta_log")
    for each in landing.target.glob("*.parquet"):
        each.unlink()
    start_over(str(landing.state), target=str(landing.target))
    assert landing.run()["registered_files"] == 2
    assert ids(landing) == ALL
