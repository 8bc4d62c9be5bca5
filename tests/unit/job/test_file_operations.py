"""Single files are ingested again, left out, put aside or forgotten, once and for good reasons."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_cloudfiles import cloud_files_state, operate_on_files
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    FileMissingError,
    IncompatibleStateError,
    OptionError,
    SinkError,
    StateError,
    StateLockedError,
)
from airflow_cloudfiles.engine.extensions.cleaning.clean import Clock, due_files
from airflow_cloudfiles.engine.extensions.cleaning.one_file import CleaningProgress
from airflow_cloudfiles.engine.extensions.file_operations import operate as file_operations
from airflow_cloudfiles.engine.files import ReadLimit
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.sink import TableOptions
from airflow_cloudfiles.engine.state import metadata_format
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.operations import announce
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.tables.delta.commit import check_target
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.files import DataFileReader, TableColumns
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from tests.support.crash_points import FILE_OPERATION_POINTS, FORMER_ROWS_POINTS
from tests.support.ingested import Ingested
from tests.support.laws import some
from tests.support.operated import ODD, asked, started, told

_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(
    ["tests.support.ingested", "airflow_cloudfiles.engine.extensions.file_operations.of_table"]
)


@pytest.fixture
def stream(tmp_path: Path) -> Ingested:
    return started(tmp_path)


def opened(stream: Ingested) -> closing[Intake]:
    return closing(
        Intake.open(source=str(stream.source), format="json", checkpoint_location=str(stream.state))
    )


def planned(stream: Ingested) -> None:
    """Discover, and plan a batch of one file."""
    with opened(stream) as intake:
        intake.discover()
        last = intake.plans.latest()
        assert last is not None
        intake.plans.plan(intake.files, last.end, ReadLimit(max_files=1), intake.head())


def overwrite(stream: Ingested, name: str, *values: str) -> None:
    lines = [json.dumps({"a": value}) for value in values]
    (stream.source / f"{name}.json").write_text("".join(f"{line}\n" for line in lines))


# ── replay ───────────────────────────────────────────────────────────────────────────────────────


def test_a_replayed_file_replaces_its_rows_in_the_commit_that_adds_the_new_ones(
    stream: Ingested,
) -> None:
    overwrite(stream, "a b", "new 1", "new 2")
    version = stream.table.version()
    done = asked(stream, "replay", "a b", "e=+", reason="it was wrong")
    assert done.files == [f"file://{stream.source}/{name}.json" for name in ("a b", "e=+")]
    assert stream.rows() == sorted(ODD), "nothing happens before the next run"
    stream.run()
    assert stream.rows() == sorted(["new 1", "new 2", *ODD[1:]])
    assert stream.table.version() == version + 1
    commit = stream.table.history(1)[0]
    assert (commit["operation"], commit["operationParameters"]["mode"]) == ("WRITE", "Overwrite")
    assert [(name, batch) for name, _, batch in told(stream)][-2:] == [("a b", 2), ("e=+", 2)]
    stream.run()
    assert stream.table.version() == version + 1


@pytest.mark.parametrize(
    "sink",
    [
        {"partitionby": "day"},
        {"delta.columnMapping.mode": "name"},
        {"partitionby": "day", "delta.columnMapping.mode": "name"},
    ],
    ids=["partitioned", "mapped", "both"],
)
def test_rows_are_replaced_in_every_kind_of_table(tmp_path: Path, sink: dict[str, str]) -> None:
    stream = Ingested(tmp_path, **{"cloudFiles.metadataColumns": "file_path AS source"})
    stream.given["cloudFiles.maxFilesPerTrigger"] = "10"
    columns = pa.schema([(name, pa.string()) for name in ("a", "day", "_rescued_data", "source")])
    rules = WriteRules.of(TableOptions.read({**sink, "mergeschema": "true"}))
    check_target(str(stream.target), columns, rules)
    for name, day in (("x", "1 a"), ("y", "1 a"), ("z", "2%")):
        stream.add(name, day=day)
    stream.run()
    asked(stream, "replay", "x", "z", path_column="source")
    stream.add("x", day="2%")
    stream.run()
    snapshot = TableLog(DeltaLocation.to_read(str(stream.target))).snapshot()
    reader = DataFileReader(TableColumns.of(snapshot), ["a", "day"], open_store(str(stream.target)))
    read = [
        row for file in snapshot.files for batch in reader.read(file) for row in batch.to_pylist()
    ]
    assert sorted((row["a"], row["day"]) for row in read) == [
        ("x", "2%"),
        ("y", "1 a"),
        ("z", "2%"),
    ]


def test_a_replay_is_asked_for_once_however_often(stream: Ingested) -> None:
    asked(stream, "replay", "a b")
    again = asked(stream, "replay", "a b")
    assert (again.files, again.entries) == ([], [])
    assert list(again.unchanged.values()) == ["it is not ingested yet: the next run does it"]
    stream.run()
    assert stream.rows() == sorted(ODD)


def test_with_append_the_former_rows_stay(stream: Ingested) -> None:
    asked(stream, "replay", "a b", append=True)
    stream.run()
    assert stream.rows() == sorted([*ODD, "a b"])


def test_former_rows_stay_where_the_file_gives_none(tmp_path: Path) -> None:
    stream = started(tmp_path, ignoreMissingFiles="true")
    asked(stream, "replay", "a b", "c%20d")
    (stream.source / "a b.json").unlink()
    overwrite(stream, "c%20d", "new")
    stream.run()
    assert stream.rows() == sorted(["a b", "new", *ODD[2:]])


def test_a_replay_without_what_it_needs_is_refused_and_says_what_helps(tmp_path: Path) -> None:
    stream = Ingested(tmp_path)
    stream.add("x", "y")
    stream.run()
    with pytest.raises(SinkError, match=r"no column with the URI.*metadataColumns.*--append"):
        asked(stream, "replay", "x")
    with pytest.raises(SinkError, match="no column nowhere"):
        asked(stream, "replay", "x", path_column="nowhere")
    stream.given["cloudFiles.metadataColumns"] = "_metadata"
    stream.add("z")
    stream.run()
    with pytest.raises(SinkError, match=r"has no row.*before the table had that column"):
        asked(stream, "replay", "x", "z")
    with pytest.raises(OptionError, match="is an Iceberg table"):
        operate_on_files(str(stream.state), "replay", "z.json", target="iceberg://c/n/t")
    (stream.state / "_runs").mkdir()
    stream.given["mergeKeys"] = "a"
    merging = stream.spec()
    (stream.state / merging.spec_key).write_bytes(merging.sealed())
    with pytest.raises(SinkError, match="the stream merges"):
        asked(stream, "replay", "z")
    assert {status for _, status, _ in told(stream)} == {"committed"}
    (stream.source / "z.json").unlink()
    with pytest.raises(FileMissingError, match="gone from the source"):
        asked(stream, "replay", "z", append=True)


# ── skip, quarantine, release ────────────────────────────────────────────────────────────────────


def test_a_poison_file_is_taken_out_of_the_batch_that_fails(stream: Ingested) -> None:
    (stream.source / "poison.json").write_bytes(b'{"a": "b"\n')
    stream.given["mode"] = "FAILFAST"
    stream.add("good")
    for _ in range(2):
        with pytest.raises(CloudFilesError):
            stream.run()
    assert ("poison", "planned", 2) in told(stream)
    asked(stream, "quarantine", "poison", reason="not JSON")
    stream.run()
    assert stream.rows() == sorted([*ODD, "good"])
    assert told(stream, status="quarantined") == [("poison", "quarantined", None)]
    assert told(stream, batch_id=2) == [("good", "committed", 2)]
    overwrite(stream, "poison", "repaired")
    asked(stream, "release", "poison")
    asked(stream, "release", "poison")
    stream.run()
    assert stream.rows() == sorted([*ODD, "good", "repaired"])
    assert [each for each in told(stream) if each[0] == "poison"] == [
        ("poison", "released", None),
        ("poison", "committed", 3),
    ]


def test_a_batch_of_which_nothing_is_left_is_committed_empty(tmp_path: Path) -> None:
    stream = started(tmp_path, files_per_batch=1)
    stream.add("x")
    stream.given["cloudFiles.maxFilesPerTrigger"] = "1"
    planned(stream)
    asked(stream, "skip", "x")
    stream.run()
    assert stream.position().batch == 4
    assert stream.rows() == sorted(ODD)
    stream.batch_again(4)
    assert stream.rows() == sorted(ODD)


@pytest.mark.parametrize("is_discovered", [True, False])
def test_what_is_skipped_is_never_ingested_nor_outstanding(
    stream: Ingested, is_discovered: bool
) -> None:
    stream.add("x")
    if is_discovered:
        with opened(stream) as intake:
            intake.discover()
    asked(stream, "skip", "x", reason="sent by mistake")
    with opened(stream) as intake:
        assert not intake.has_arrivals()
        assert not intake.has_work()
        assert intake.outstanding().files == 0
    stream.run()
    stream.add("y")
    stream.run()
    assert stream.rows() == sorted([*ODD, "y"])
    assert ("x", "skipped", None) in told(stream)
    row = cloud_files_state(str(stream.state), path="x.json").read_all().to_pylist()[0]
    assert (row["operation"], row["operation_reason"]) == ("skip", "sent by mistake")


def test_a_file_that_the_table_has_is_not_left_out_of_its_batch(stream: Ingested) -> None:
    stream.add("x")
    stream.run()
    stream.forget(2)  # killed right after the commit of the table
    for action in ("skip", "quarantine"):
        with pytest.raises(StateError, match="in batch 2, which the table has"):
            asked(stream, action, "x")
    stream.run()
    with pytest.raises(StateError, match="was ingested in batch 2"):
        asked(stream, "skip", "x")
    assert stream.rows() == sorted([*ODD, "x"])


def test_files_put_aside_by_a_pattern_are_released_by_one(stream: Ingested) -> None:
    stream.add("x1", "x2", "y")
    with opened(stream) as intake:
        intake.discover()
    done = operate_on_files(
        str(stream.state), "quarantine", "x*.json", pattern=True, target=str(stream.target)
    )
    assert len(done.files) == 2
    stream.run()
    assert stream.rows() == sorted([*ODD, "y"])
    operate_on_files(str(stream.state), "release", "*.json", pattern=True)
    stream.run()
    assert stream.rows() == sorted([*ODD, "y", "x1", "x2"])
    with pytest.raises(OptionError, match="matches no file of this stream to release"):
        operate_on_files(str(stream.state), "release", "*.json", pattern=True)


# ── forget ───────────────────────────────────────────────────────────────────────────────────────


def test_a_forgotten_file_is_found_as_new(stream: Ingested) -> None:
    asked(stream, "forget", "a b")
    assert list(asked(stream, "forget", "a b").unchanged.values()) == ["it is forgotten already"]
    stream.run()
    assert stream.rows() == sorted([*ODD, "a b"])
    stream.run()
    assert stream.rows() == sorted([*ODD, "a b"])


def test_a_file_of_a_batch_that_is_not_committed_is_not_forgotten(stream: Ingested) -> None:
    (stream.source / "x.json").write_bytes(b'{"a": "b"\n')
    stream.given["mode"] = "FAILFAST"
    with pytest.raises(CloudFilesError):
        stream.run()
    with pytest.raises(
        StateError, match=r"in batch 2, which is planned and not committed.*quarant"
    ):
        asked(stream, "forget", "x")
    asked(stream, "quarantine", "x")
    asked(stream, "forget", "x")
    overwrite(stream, "x", "good")
    stream.run()
    assert stream.rows() == sorted([*ODD, "good"])
    assert [each for each in told(stream) if each[0] == "x"] == [
        ("x", "forgotten", None),
        ("x", "committed", 3),
    ]


# ── names, locks, versions ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ODD)
def test_a_file_is_named_exactly_by_path_uri_or_column(stream: Ingested, name: str) -> None:
    table = stream.table.to_pyarrow_dataset().to_table().to_pylist()
    in_table = {row["a"]: row["_metadata"]["file_path"] for row in table}
    path = f"{stream.source}/{name}.json"
    for each in (f"{name}.json", path, f"file:{path}", f"file://{path}", in_table[name]):
        done = operate_on_files(
            str(stream.state), "replay", each, target=str(stream.target), dry_run=True
        )
        assert (done.files, done.entries) == ([f"file://{path}"], [])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("e=+.jsn", r"The nearest file that is recorded is 'e=\+\.json'"),
        ("a+b.json", "is 'a b.json'"),
        ("c d.json", "is 'c%20d.json'"),
        ("/elsewhere/x.json", "not below the source"),
        ("../in/a b.json", "is no file of this stream"),
        ("", "paths must name files"),
    ],
)
def test_a_wrong_name_is_an_error_that_names_the_nearest(
    stream: Ingested, wrong: str, says: str
) -> None:
    with pytest.raises(OptionError, match=says):
        operate_on_files(str(stream.state), "forget", ["ü日本.json", wrong])
    assert {status for _, status, _ in told(stream)} == {"committed"}, "all or nothing"


def test_no_operation_while_a_run_is_at_work_nor_without_a_state(
    stream: Ingested, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_operations, "LOCK_PATIENCE_SECONDS", 0.0)
    with RunLock(open_store(str(stream.state))), pytest.raises(StateLockedError):
        asked(stream, "forget", "a b")
    with pytest.raises(StateError, match="There is no state"):
        operate_on_files(str(tmp_path / "nothing"), "forget", "x.json")
    assert not (tmp_path / "nothing").exists()


def test_a_discovery_that_is_faster_takes_the_number_and_the_operation_the_next(
    stream: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    def discover_first(store: ObjectStore, number: int) -> None:
        monkeypatch.undo()
        stream.add("x")
        with opened(stream) as intake:
            assert intake.discover().files == 1
        announce(store, number)

    monkeypatch.setattr(file_operations, "announce", discover_first)
    assert asked(stream, "replay", "a b").entries == [2]
    stream.run()
    assert stream.rows() == sorted([*ODD, "x"])


def test_older_versions_refuse_a_state_with_operations(
    stream: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(stream, "forget", "a b")
    monkeypatch.setattr(metadata_format, "FORMAT_VERSION", 3)
    with pytest.raises(IncompatibleStateError, match="has format version 4"):
        read_metadata(open_store(str(stream.state)))


# ── killed ───────────────────────────────────────────────────────────────────────────────────────

STANDINGS = ["committed", "skipped", "quarantined", "released", "forgotten"]
ASKED = {
    "replay": "a b",
    "skip": "new",
    "quarantine": "planned",
    "release": "held",
    "forget": "e=+",
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream with files in each standing, and what is left to the next run."""
    folder = tmp_path_factory.mktemp("operated")
    stream = started(folder)
    stream.add("held")
    asked(stream, "skip", "held")
    stream.add("planned", "planned 2")
    planned(stream)
    stream.add("new")
    return folder


def _operate(folder: str, cache: str, action: Any, point: str) -> None:
    os.environ.update({CRASH_AT: point, "CLOUDFILES_CACHE_DIR": cache})
    asked(Ingested(Path(folder)), action, ASKED[action], operation_id="once")


def _run(folder: str, cache: str, point: str) -> None:
    os.environ.update({CRASH_AT: point, "CLOUDFILES_CACHE_DIR": cache})
    Ingested(Path(folder), **{"cloudFiles.metadataColumns": "_metadata"}).run()


def _ended(target: Any, *arguments: str) -> int | None:
    process = _FORKED.Process(target=target, args=arguments)
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.slow
@pytest.mark.parametrize("action", ASKED)
def test_an_operation_that_is_killed_anywhere_is_done_once_by_repeating_it(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: Any
) -> None:
    results = set()
    points = some(FILE_OPERATION_POINTS, len(FILE_OPERATION_POINTS) // 2, name=f"kills of {action}")
    for number, point in enumerate(("", *points)):
        folder, cache = tmp_path / str(number), str(tmp_path / f"cache {number}")
        monkeypatch.setenv("CLOUDFILES_CACHE_DIR", cache)
        folder.mkdir()
        (folder / "in").symlink_to(template / "in")
        shutil.copytree(template / "state", folder / "state")
        shutil.copytree(template / "table", folder / "table")
        ended = _ended(_operate, str(folder), cache, action, point)
        assert ended == (-signal.SIGKILL if point else 0), point
        stream = Ingested(template)
        stream.state, stream.target = folder / "state", folder / "table"
        stream.given["cloudFiles.metadataColumns"] = "_metadata"
        stream.add("late")
        with opened(stream) as intake:  # takes the number that the killed one may have announced
            intake.discover()
        asked(stream, action, ASKED[action], operation_id="once")
        log = FileLog(open_store(str(stream.state)))
        assert [each.action for each in log.operations.after()] == ["skip", action]
        stream.run()
        (template / "in" / "late.json").unlink()
        standing = sorted(each[:2] for each in told(stream, status=STANDINGS))
        results.add((tuple(stream.rows()), tuple(standing)))
        assert asked(stream, action, ASKED[action], operation_id="once").files == []
    assert len(results) == 1


@pytest.mark.slow
def test_a_commit_that_replaces_rows_is_killed_anywhere_and_replaces_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, point in enumerate(FORMER_ROWS_POINTS):
        folder, cache = tmp_path / str(number), str(tmp_path / f"cache {number}")
        monkeypatch.setenv("CLOUDFILES_CACHE_DIR", cache)
        folder.mkdir()
        stream = started(folder)
        overwrite(stream, "a b", "new")
        asked(stream, "replay", "a b")
        assert _ended(_run, str(folder), cache, point) == -signal.SIGKILL
        stream.run()
        assert stream.rows() == sorted(["new", *ODD[1:]])


def test_cleaning_leaves_what_is_put_aside_or_to_be_ingested_again(stream: Ingested) -> None:
    stream.add("poison")
    asked(stream, "quarantine", "poison")
    asked(stream, "replay", "a b")
    asked(stream, "forget", "c%20d")
    clock = Clock(open_store(str(stream.source)), retention_seconds=0.0)

    def due() -> list[str]:
        parts = due_files(str(stream.state), CleaningProgress(), None, clock)
        return [each.file.path.removesuffix(".json") for part in parts for each in part.files]

    assert due() == ["e=+", "ü日本"]
    stream.run()
    assert sorted(due()) == sorted(ODD)
