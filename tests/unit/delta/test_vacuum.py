"""A vacuum removes what no version within the retention names, and nothing else."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import (
    OptionError,
    TargetCorruptedError,
    TargetNotDeltaError,
    UnsupportedTableError,
)
from airflow_cloudfiles.engine.extensions.upkeep import vacuum as module
from airflow_cloudfiles.engine.extensions.upkeep.optimize import optimize
from airflow_cloudfiles.engine.extensions.upkeep.vacuum import VacuumReport, vacuum
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.tables.delta.data_files import DataFileWriter
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.log import STAGED
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from tests.support.delta_tables import HandMadeTable, column, features, read, removed
from tests.support.delta_writes import Sink

HOUR = timedelta(hours=1)
DAY_US = 86400 * 10**6
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


class LaterStore(LocalStore):
    """A local store some days later, on which files arrive when their modification time says so."""

    def __init__(self, uri: str, days: float = 8) -> None:
        super().__init__(uri)
        self.days = days
        self.before_delete: Callable[[], Any] = lambda: None

    def clock_us(self) -> int:
        return super().clock_us() + int(self.days * DAY_US)

    def arrived_us(self, entry: FileEntry) -> int:
        return entry.modification_time_us

    def delete(self, key: str) -> None:
        self.before_delete()
        super().delete(key)


def run(folder: Path, days: float = 8, **options: Any) -> VacuumReport:
    store = LaterStore(str(folder), days)
    return vacuum(TableLog(DeltaLocation.to_read(str(folder)), store), **options)


def age(path: Path, days: float) -> None:
    """Make a file older."""
    then = path.stat().st_mtime - days * 86400
    os.utime(path, (then, then))


def files_of(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "_delta_log" not in path.parts
    }


def replaced(folder: Path) -> HandMadeTable:
    """A table whose second version has another file than the first."""
    made = HandMadeTable(folder)
    first = made.file("part-0.parquet", {"a": [1], "s": ["x"]})
    made.create(first)
    made.commit(removed(first), made.file("part-1.parquet", {"a": [2], "s": ["y"]}))
    return made


def test_files_of_versions_outside_the_retention_go(tmp_path: Path) -> None:
    made = replaced(tmp_path / "t")
    made.file("orphan.parquet", {"a": [3], "s": ["z"]})
    size = sum((made.folder / name).stat().st_size for name in ("part-0.parquet", "orphan.parquet"))
    planned = run(made.folder)
    assert files_of(made.folder) == {"part-0.parquet", "part-1.parquet", "orphan.parquet"}
    done = run(made.folder, dry_run=False)
    assert planned.paths == done.paths == ["orphan.parquet", "part-0.parquet"]
    assert planned.bytes == done.bytes == size
    assert (planned.is_dry_run, done.is_dry_run) == (True, False)
    assert files_of(made.folder) == {"part-1.parquet"}
    assert read(made.folder)["a"].to_pylist() == [2]
    assert run(made.folder, dry_run=False).paths == []


@pytest.mark.parametrize("days", [0, 6.9])
def test_what_is_younger_than_the_retention_stays(tmp_path: Path, days: float) -> None:
    made = replaced(tmp_path / "t")
    made.file("orphan.parquet", {"a": [3], "s": ["z"]})
    report = run(made.folder, days, dry_run=False)
    assert (report.paths, report.young) == ([], 1)  # the log names the other
    assert len(files_of(made.folder)) == 3


def test_every_version_within_the_retention_stays_readable(tmp_path: Path) -> None:
    """Version 0 was the newest until a commit within the retention: its old file is needed."""
    made = replaced(tmp_path / "t")
    for name in ("part-0.parquet", "part-1.parquet", "_delta_log/" + "0" * 20 + ".json"):
        age(made.folder / name, 30)
    assert run(made.folder, 6, dry_run=False).paths == []
    assert read(made.folder, 0)["a"].to_pylist() == [1]
    assert run(made.folder, 8, dry_run=False).paths == ["part-0.parquet"]


def test_a_removal_that_only_a_checkpoint_still_has_counts(tmp_path: Path) -> None:
    now_ms = LocalStore(str(tmp_path)).clock_us() // 1000
    first = {"add": {"path": "part-0.parquet"}}
    later = HandMadeTable(tmp_path / "u")
    keeps = later.file("part-1.parquet", {"a": [2], "s": ["y"]})
    later.file("part-0.parquet", {"a": [1], "s": ["x"]})
    later.create()
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}]
    actions += [later.metadata([column("a", "long"), column("s", "string")]), keeps]
    actions += [removed(first, deletionTimestamp=now_ms)]
    later.checkpoint(f"{1:020}.checkpoint.parquet", actions)
    for path in (later.folder / "part-0.parquet", later.log / f"{0:020}.json"):
        age(path, 30)
    assert run(later.folder, 6, dry_run=False).paths == []
    # The writer's clock may be behind the store's.
    assert run(later.folder, 7 + 0.5 / 24, dry_run=False).paths == []
    assert run(later.folder, 7.1, dry_run=False).paths == ["part-0.parquet"]


def test_deletion_vectors_go_with_the_versions_that_name_them(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    plain = made.file("part-0.parquet", {"a": [0, 1, 2], "s": ["", "", ""]})
    made.create(plain, protocol=features("deletionVectors"))
    first = {"add": {**plain["add"], "deletionVector": made.vector([1], prefix="ab")}}
    second = {"add": {**plain["add"], "deletionVector": made.vector([1, 2])}}
    made.commit(removed(plain), first)
    made.commit(removed(first), second)
    made.vector([0])  # of a commit that was never made
    assert run(made.folder, 6, dry_run=False).paths == []
    report = run(made.folder, dry_run=False)
    assert {kind: n for kind, n in report.kinds.items() if n} == {"deletion_vectors": 2}
    assert read(made.folder)["a"].to_pylist() == [0]


def test_change_data_goes_with_its_commit(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    write_deltalake(
        str(folder),
        pa.table({"a": [1, 2]}),
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    DeltaTable(str(folder)).delete("a = 1")
    [change] = folder.glob("_change_data/*.parquet")
    assert run(folder, 6, dry_run=False).paths == []
    report = run(folder, dry_run=False)
    assert {kind: n for kind, n in report.kinds.items() if n} == {"data_files": 1, "change_data": 1}
    assert not change.exists()
    assert read(folder)["a"].to_pylist() == [2]


def test_what_is_no_file_of_a_table_stays(tmp_path: Path) -> None:
    made = replaced(tmp_path / "t")
    others = {
        "_hidden/x.parquet", ".hidden.parquet", "_x.parquet", "a/_x/y.parquet", "notes.txt",
        "checkpoint/offsets/0", "x.bin", "deletion_vector_x.bin", "_change_data.parquet",
        "below/_change_data/x.parquet",
    }  # fmt: skip
    nested = HandMadeTable(made.folder / "sub" / "table")
    nested.create(nested.file("part-0.parquet", {"a": [1], "s": ["x"]}))
    nested.file("p/orphan.parquet", {"a": [1], "s": ["x"]})
    for name in others:
        (made.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (made.folder / name).write_bytes(b"x")
    before = files_of(made.folder)
    report = run(made.folder, dry_run=False)
    assert report.nested_tables == ["sub/table"]
    assert before - files_of(made.folder) == {"part-0.parquet"}


def test_a_store_without_folders_is_vacuumed_alike(tmp_path: Path) -> None:
    made = replaced(tmp_path / "t")
    nested = HandMadeTable(made.folder / "sub" / "table")
    nested.create(nested.file("part-0.parquet", {"a": [1], "s": ["x"]}))
    nested.file("p/nested-orphan.parquet", {"a": [1], "s": ["x"]})
    made.file("_hidden/x.parquet", {"a": [1]})
    made.file("p/orphan.parquet", {"a": [1]})
    store = open_store("memory://vacuumed/t")
    for path in made.folder.rglob("*.*"):
        store.put(str(path.relative_to(made.folder)), path.read_bytes())
    while store.clock_us() <= max(each.modification_time_us for each in store.list()):
        time.sleep(0.001)
    log = TableLog(DeltaLocation.to_read(store.uri), store)
    report = vacuum(log, retention=timedelta(0), allow_short_retention=True, dry_run=False)
    # The clock of a writer may be an hour behind: what its last commit removed stays.
    assert (report.paths, report.nested_tables) == (["p/orphan.parquet"], ["sub/table"])
    assert {each.path for each in store.list() if each.path.endswith(".parquet")} == {
        "_hidden/x.parquet", "part-0.parquet", "part-1.parquet",
        "sub/table/p/nested-orphan.parquet", "sub/table/part-0.parquet",
    }  # fmt: skip


def test_folders_of_partitions_are_vacuumed_whatever_they_are_called(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    names = ["_p=%2Fx y/ü.parquet", "_p=__HIVE_DEFAULT_PARTITION__/1.parquet"]
    paths = ["_p=%252Fx%20y/%C3%BC.parquet", names[1]]
    values = ["/x y", None]
    files = [
        made.file(name, {"a": [1]}, path=path, partition={"_p": value})
        for name, path, value in zip(names, paths, values, strict=True)
    ]
    columns = [column("a", "long"), column("_p", "string")]
    made.create(*files, columns=columns, partitions=("_p",))
    made.file("_p=q/orphan.parquet", {"a": [1]})
    assert run(made.folder, dry_run=False).paths == ["_p=q/orphan.parquet"]
    assert files_of(made.folder) == set(names)


def test_files_with_absolute_paths_are_named(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    where = (tmp_path / "t" / "part 0.parquet").as_uri()
    file = made.file("part 0.parquet", {"a": [1], "s": ["x"]}, path=where)
    vector = made.vector([0], kind="p")
    made.create(
        {"add": {**file["add"], "deletionVector": vector}}, protocol=features("deletionVectors")
    )
    assert run(made.folder, dry_run=False).paths == []


def test_files_that_a_task_has_written_and_nobody_committed_stay_while_they_are_young(
    tmp_path: Path,
) -> None:
    made = replaced(tmp_path / "t")
    for path in made.folder.rglob("*.*"):
        age(path, 30)
    schema = pa.schema({"a": pa.int64(), "s": pa.string()})
    batch = pa.record_batch({"a": [5], "s": ["new"]}, schema=schema)
    [waiting] = DataFileWriter(str(made.folder), schema).write([batch])
    assert run(made.folder, 0, dry_run=False).paths == ["part-0.parquet"]
    add = {"path": waiting.name, "partitionValues": {}, "size": waiting.size, "dataChange": True}
    made.commit({"add": {**add, "modificationTime": waiting.modification_time_ms}})
    assert sorted(read(made.folder)["a"].to_pylist()) == [2, 5]


def test_a_file_that_a_commit_takes_back_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = replaced(tmp_path / "t")
    orphan = made.file("a-orphan.parquet", {"a": [3], "s": ["z"]})
    restored = {"add": {**orphan["add"], "path": "part-0.parquet"}}
    monkeypatch.setattr(module, "_PART", 1)
    store = LaterStore(str(made.folder))
    store.before_delete = lambda: made.commit(restored)
    log = TableLog(DeltaLocation.to_read(str(made.folder)), store)
    report = vacuum(log, dry_run=False)
    assert (report.paths, report.version) == (["a-orphan.parquet"], 2)
    assert sorted(read(made.folder)["a"].to_pylist()) == [1, 2]


def test_an_age_is_that_of_the_arrival(tmp_path: Path) -> None:
    """A file that was moved into the table keeps its old modification time on a disk."""
    made = replaced(tmp_path / "t")
    age(made.folder / "part-0.parquet", 100)
    log = TableLog(DeltaLocation.to_read(str(made.folder)))
    report = vacuum(log, retention=HOUR, allow_short_retention=True, dry_run=False)
    assert report.paths == []


@pytest.mark.parametrize(
    ("setting", "hours"),
    [("interval 30 days", 720), ("INTERVAL 1 week", 168), ("interval 36 hours", 36), (None, 168)],
)
def test_the_retention_is_that_of_the_table(
    tmp_path: Path, setting: str | None, hours: int
) -> None:
    made = HandMadeTable(tmp_path / "t")
    own = {} if setting is None else {"delta_deletedFileRetentionDuration": setting}
    made.create(**own)
    assert run(made.folder).retention == hours * HOUR
    longer = run(made.folder, retention=(hours + 1) * HOUR)
    assert longer.retention == (hours + 1) * HOUR
    with pytest.raises(OptionError, match=f"which is {hours}\\."):
        run(made.folder, retention=(hours - 1) * HOUR)
    short = run(made.folder, retention=HOUR, allow_short_retention=True)
    assert short.retention == HOUR


def test_a_retention_that_is_not_read_is_refused(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    made.create(delta_deletedFileRetentionDuration="a month")
    with pytest.raises(OptionError, match="'a month'"):
        run(made.folder)
    assert run(made.folder, retention=HOUR, allow_short_retention=True).retention == HOUR


@pytest.mark.parametrize("name", ["somethingNew", "icebergCompatV9"])
def test_a_table_that_may_name_files_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    made = HandMadeTable(tmp_path / "t")
    made.create(protocol=features(writer=(name,)))
    with pytest.raises(UnsupportedTableError, match=f"cannot be vacuumed.*{name}"):
        run(made.folder)


def test_a_damaged_log_removes_nothing(tmp_path: Path) -> None:
    made = replaced(tmp_path / "t")
    (made.log / f"{1:020}.json").write_text('{"add"')
    with pytest.raises(TargetCorruptedError):
        run(made.folder, dry_run=False)
    assert len(files_of(made.folder)) == 2


def test_no_table_is_not_vacuumed(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"x")
    with pytest.raises(TargetNotDeltaError):
        run(tmp_path, dry_run=False)
    assert files_of(tmp_path) == {"part-0.parquet"}


_PROGRAM = """
import sys
from airflow_cloudfiles.engine.extensions.upkeep import vacuum as module
from tests.unit.delta.test_vacuum import Path, run
module._PART = 1
print(len(run(Path(sys.argv[1]), dry_run=False).paths))
"""


@pytest.mark.slow
def test_a_vacuum_that_is_killed_is_repeated(tmp_path: Path) -> None:
    made = replaced(tmp_path / "t")
    for number in range(3):
        made.file(f"orphan-{number}.parquet", {"a": [3], "s": ["z"]})
    command = [sys.executable, "-c", _PROGRAM, str(made.folder)]
    killed = subprocess.run(
        command,
        env={**os.environ, CRASH_AT: "after-part-of-vacuum:2", "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert len(files_of(made.folder)) == 3
    assert read(made.folder)["a"].to_pylist() == [2]
    assert len(run(made.folder, dry_run=False).paths) == 2
    assert files_of(made.folder) == {"part-1.parquet"}


def test_rows_that_a_killed_merge_has_left_go_when_they_are_old(tmp_path: Path) -> None:
    made = HandMadeTable(tmp_path / "t")
    made.create(made.file("part-0.parquet", {"a": [1], "s": ["x"]}))
    (made.folder / STAGED).mkdir()
    left = made.folder / STAGED / "part-1.parquet"
    left.write_bytes((made.folder / "part-0.parquet").read_bytes())
    assert (run(made.folder, days=1).paths, run(made.folder, days=1).young) == ([], 1)
    report = run(made.folder, dry_run=False)
    assert {kind: n for kind, n in report.kinds.items() if n} == {"staged_rows": 1}
    assert not left.exists()


def _append_to(target: str, first: int, last: int) -> None:
    for number in range(first, last):
        Sink(target, app=f"app-{number}").write([{"a": number}], pa.schema([("a", pa.int64())]))


def test_a_vacuum_beside_a_writer_and_an_optimizer_takes_no_row(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _append_to(str(target), 0, 5)
    optimize(str(target))
    for path in target.glob("*.parquet"):
        age(path, 8)
    leftovers = [target / f"part-{number}-left.parquet" for number in range(20)]
    for path in leftovers:
        path.write_bytes(b"left")
        age(path, 8)
    spawn = multiprocessing.get_context("spawn")
    writer = spawn.Process(target=_append_to, args=(str(target), 5, 15))
    writer.start()
    removed_files, is_last = 0, False
    while not is_last:
        is_last = not writer.is_alive()
        optimize(str(target))
        removed_files += len(run(target, days=0, dry_run=False).paths)
    writer.join()
    assert writer.exitcode == 0
    assert not any(path.exists() for path in leftovers)
    assert removed_files == len(leftovers)
    assert sorted(read(target)["a"].to_pylist()) == list(range(15))
    for version in range(DeltaTable(target).version() + 1):
        read(target, version)  # every version is within the retention
