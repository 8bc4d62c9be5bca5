"""A table follows its files: overwritten ones replace their rows, deleted ones take them along."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_cloudfiles import cloud_files_state
from airflow_cloudfiles.cli import main
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import (
    MassDeletionError,
    OptionError,
    SinkError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.extensions.overview.runs import newest_runs
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.job.launch import LocalPython, launch
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import open_store
from tests.support.crash_points import FOLLOWING_POINTS
from tests.support.delta_tables import take_vectors
from tests.support.followed import FOLLOWS, delete, following, live, put, there
from tests.support.iceberg_tables import LocalCatalog
from tests.support.ingested import Ingested
from tests.support.laws import examples, some
from tests.support.operated import told

_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["tests.support.ingested"])


def test_a_newer_version_takes_the_former_rows_away_in_the_commit_that_brings_its_own(
    tmp_path: Path,
) -> None:
    stream = following(tmp_path)
    stream.add("x", "y")
    stream.run()
    version = stream.table.version()
    put(stream, "x", "new 1", "new 2")
    stream.run()
    assert stream.rows() == ["new 1", "new 2", "y"]
    assert stream.table.version() == version + 1
    stream.run()
    assert stream.table.version() == version + 1


@pytest.mark.slow
def test_the_report_and_the_list_of_runs_count_the_rows_that_were_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = following(tmp_path)
    put(stream, "x", "1", "2")
    stream.add("y")
    launch(stream.spec(), LocalPython(), on_log=print).wait()
    put(stream, "x", "new")
    report = launch(stream.spec(), LocalPython(), on_log=print).wait()
    assert (report["rows"], report["replaced_rows"]) == (1, 2)
    newest, before = newest_runs(open_store(str(stream.state))).newest
    assert (newest.others, before.others) == ("2 replaced", "")
    capsys.readouterr()
    assert main(["state", "runs", "--checkpoint-location", str(stream.state)]) == 0
    assert "    Also 2 replaced\n" in capsys.readouterr().out


def test_a_deleted_file_takes_its_rows_along_and_may_come_back(tmp_path: Path) -> None:
    stream = following(tmp_path)
    stream.add("x", "y", "z")
    stream.run()
    delete(stream, "x")
    stream.run()
    assert stream.rows() == ["y", "z"]
    assert told(stream)[-1] == ("x", "deleted", 2)
    assert told(stream, status=["deleted"]) == [("x", "deleted", 2)]
    stream.add("x")
    stream.run()
    assert stream.rows() == ["x", "y", "z"]


def test_a_renamed_file_keeps_its_rows_once(tmp_path: Path) -> None:
    stream = following(tmp_path, **{"cloudFiles.metadataColumns": "_metadata"})
    stream.add("x", "y")
    stream.run()
    (stream.source / "x.json").rename(stream.source / "renamed é%20.json")
    stream.run()
    assert stream.rows() == ["x", "y"]
    paths = {each["file_path"] for each in stream.table.to_pyarrow_table()["_metadata"].to_pylist()}
    assert {path.rsplit("/", 1)[1] for path in paths} == {"renamed%20é%2520.json", "y.json"}


def test_a_version_without_rows_takes_the_former_ones_away(tmp_path: Path) -> None:
    stream = following(tmp_path)
    stream.add("x", "y")
    stream.run()
    put(stream, "x")
    stream.run()
    assert stream.rows() == ["y"]


def test_rows_stay_where_the_options_say_so(tmp_path: Path) -> None:
    stream = following(tmp_path, **{"cloudFiles.onDelete": "ignore"})
    stream.add("x", "y")
    stream.run()
    delete(stream, "y")
    put(stream, "x", "new")
    stream.run()
    assert stream.rows() == ["new", "y"]

    (tmp_path / "other").mkdir()
    other = following(tmp_path / "other", **{"cloudFiles.onOverwrite": "append"})
    other.add("x", "y")
    other.run()
    delete(other, "y")
    put(other, "x", "new")
    other.run()
    assert other.rows() == ["new", "x"]


def test_of_versions_in_one_batch_only_the_newest_is_read(tmp_path: Path) -> None:
    """Also where the store gives an older one once more, which its entry would accept."""
    stream = following(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "100"})
    stream.add("x", "y")
    kept = stream.source / "x.json"
    first = kept.stat()
    stream.discover()
    put(stream, "x", "other")
    stream.discover()
    stream.add("x")
    os.utime(kept, ns=(first.st_atime_ns, first.st_mtime_ns))
    stream.run()
    assert stream.rows() == ["x", "y"]
    delete(stream, "x")
    stream.discover()
    stream.add("x")
    os.utime(kept, ns=(first.st_atime_ns, first.st_mtime_ns))
    stream.run()
    assert stream.rows() == ["x", "y"]


def test_rows_stay_until_a_newer_version_is_read_that_is_overwritten_in_turn(
    tmp_path: Path,
) -> None:
    stream = following(tmp_path)
    stream.add("x", "y")
    stream.run()
    put(stream, "x", "second")
    stream.plan()
    put(stream, "x", "third, of another size")
    stream.run(batches=1)
    rows = stream.rows()
    assert rows in (["x", "y"], ["third, of another size", "y"])
    stream.run()
    assert stream.rows() == ["third, of another size", "y"]


def test_a_file_that_is_gone_before_it_is_read_holds_nothing_up(tmp_path: Path) -> None:
    """Although its batch is gone as a whole, and so is all beside it: the file log says so."""
    stream = following(tmp_path)
    stream.add("x")
    stream.plan()
    delete(stream, "x")
    stream.run()
    assert stream.rows() == []


def test_what_was_there_before_the_first_start_and_goes_is_forgotten(tmp_path: Path) -> None:
    stream = following(tmp_path, **{"cloudFiles.includeExistingFiles": "false"})
    stream.add("x", "y")
    os.utime(stream.source / "x.json", (1, 1))
    stream.discover()
    put(stream, "x", "overwritten")
    delete(stream, "y")
    stream.run()
    assert stream.rows() == ["overwritten"]


def test_an_iceberg_table_follows_its_files(tmp_path: Path) -> None:
    lake = LocalCatalog(tmp_path)
    stream = following(tmp_path, **{"cloudFiles.metadataColumns": "file_path AS source"})
    stream.given["cloudFiles.maxFilesPerTrigger"] = "10"
    stream.iceberg = lake.uri("t")
    for name in ("x", "y", "z"):
        put(stream, name, f"{name} 1", f"{name} 2")
    stream.run()

    def rows() -> list[str]:
        return sorted(row["a"] for row in lake.rows("t"))

    assert rows() == there(stream)
    put(stream, "x", "new")
    delete(stream, "z")
    stream.run()
    assert rows() == ["new", "y 1", "y 2"]
    snapshots = len(lake.table("t").snapshots())
    stream.run()
    assert len(lake.table("t").snapshots()) == snapshots
    delete(stream, "x", "y")
    stream.run()
    assert rows() == []


# ── the guard ────────────────────────────────────────────────────────────────────────────────────


def test_very_many_files_that_go_at_once_stop_the_run_by_name(tmp_path: Path) -> None:
    stream = following(tmp_path, **{"cloudFiles.maxDeletedShare": "0.5"})
    stream.add("a", "b", "c", "d")
    stream.run()
    delete(stream, "a", "b")
    stream.add("new")
    stream.run()
    assert stream.rows() == ["c", "d", "new"], "half of them is not more than half"
    away = tmp_path / "away"
    stream.source.rename(away)
    stream.source.mkdir()
    with pytest.raises(MassDeletionError, match=r"3 of the 3 known files .*maxDeletedShare=1"):
        stream.run()
    assert stream.rows() == ["c", "d", "new"]
    stream.source.rmdir()
    away.rename(stream.source)
    stream.run()
    assert stream.rows() == ["c", "d", "new"]
    delete(stream, "c", "d", "new")
    stream.given["cloudFiles.maxDeletedShare"] = "1"
    stream.run()
    assert stream.rows() == []


def test_a_file_that_the_filter_leaves_out_by_now_is_not_gone(tmp_path: Path) -> None:
    stream = following(tmp_path, **{"cloudFiles.maxDeletedShare": "0"})
    stream.add("x", "y")
    stream.run()
    stream.given["pathGlobFilter"] = "x*"
    stream.run()
    assert stream.rows() == ["x", "y"]


def test_a_dry_run_shows_what_would_go_and_records_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = following(tmp_path)
    stream.add("x", "y", "z")
    stream.run()
    put(stream, "x", "overwritten")
    delete(stream, "y")
    stream.add("new")
    command = ["discover", "--dry-run", "--source", str(stream.source)]
    command += ["--checkpoint-location", str(stream.state), "--json"]
    for name, value in FOLLOWS.items():
        command += ["--option", f"{name}={value}"]
    before = FileLog(open_store(str(stream.state))).latest()
    for _ in range(2):
        assert main(command) == 0
        assert json.loads(capsys.readouterr().out) == {
            "new": {"files": 1, "paths": ["new.json"]},
            "replaced": {"files": 1, "paths": ["x.json"]},
            "deleted": {"files": 1, "paths": ["y.json"]},
        }
    assert FileLog(open_store(str(stream.state))).latest() == before


def test_what_wakes_a_trigger_is_also_a_file_that_is_gone(tmp_path: Path) -> None:
    stream = following(tmp_path)
    stream.add("x", "y")
    stream.run()

    def has_arrivals() -> bool:
        options = CloudFilesOptions.parse(stream.spec().source_options(), path=str(stream.source))
        with closing(
            Intake.open(
                source=str(stream.source),
                format="json",
                checkpoint_location=str(stream.state),
                discovery=options.discovery,
            )
        ) as intake:
            return intake.has_arrivals()

    assert not has_arrivals()
    delete(stream, "x")
    assert has_arrivals()
    stream.run()
    assert not has_arrivals()


def test_a_lost_batch_is_read_again_without_touching_the_rows_of_later_ones(
    tmp_path: Path,
) -> None:
    stream = following(tmp_path)
    stream.add("x", "y", "z", "w")
    stream.run()
    put(stream, "x", "second")
    delete(stream, "z")
    stream.run()
    version = stream.table.version()
    stream.add("new", "z")
    put(stream, "x", "third version")
    stream.run()
    assert stream.rows() == ["new", "third version", "w", "y", "z"]
    table = stream.table
    lost = stream.position().batch
    table.restore(version)
    stream.replay(lost - 1)
    assert stream.rows() == ["new", "third version", "w", "y", "z"]


# ── what cannot be meant ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"cloudFiles.metadataColumns": ""}, "metadataColumns=_metadata, or file_path"),
        ({"cloudFiles.metadataColumns": "file_name"}, "metadataColumns=_metadata, or file_path"),
        ({"cloudFiles.cleanSource": "DELETE"}, "cleanSource=DELETE contradict"),
        ({"cloudFiles.maxFileAge": "30 days"}, "maxFileAge contradict"),
        ({"cloudFiles.fileIdentity": "content"}, "fileIdentity=content contradict"),
        ({"cloudFiles.fileIdentity": "path"}, "fileIdentity=path contradict"),
        ({"cloudFiles.allowOverwrites": "false"}, "Remove cloudFiles.allowOverwrites"),
        ({"cloudFiles.useIncrementalListing": "true"}, "useIncrementalListing=true contradict"),
        ({"cloudFiles.onOverwrite": "replaced"}, "onOverwrite must be"),
        ({"cloudFiles.onOverwrites": "replace"}, "onOverwrite"),
        ({"cloudFiles.maxDeletedShare": "2"}, "maxDeletedShare"),
    ],
    ids=lambda each: next(iter(each)).partition(".")[2] if isinstance(each, dict) else "",
)
def test_what_would_leave_rows_behind_is_refused(options: dict[str, str], named: str) -> None:
    given = {"cloudFiles.format": "json", **FOLLOWS, **options}
    given = {name: value for name, value in given.items() if value}
    with pytest.raises(OptionError, match=named):
        CloudFilesOptions.parse(given, path="/in")


@pytest.mark.parametrize(
    ("target", "options", "named"),
    [
        ("/t", {"mergeKeys": "id"}, "do not go with mergeKeys"),
        (
            "iceberg://c/n/t",
            {"cloudFiles.metadataColumns": "_metadata"},
            "do not go with cloudFiles.metadataColumns=_metadata.* file_path",
        ),
    ],
)
def test_a_run_that_cannot_know_its_rows_by_file_is_refused(
    tmp_path: Path, target: str, options: dict[str, str], named: str
) -> None:
    spec = following(tmp_path).spec()
    spec = replace(spec, target=target, options={**spec.options, **options})
    with pytest.raises(UnsupportedOptionError, match=named):
        spec.check_follows(spec.parsed())


def test_a_table_with_rows_of_unknown_files_is_refused(tmp_path: Path) -> None:
    stream = following(tmp_path)
    stream.add("x", "y")
    stream.run()
    put(stream, "x", "new")
    stream.given["cloudFiles.metadataColumns"] = "file_path AS elsewhere"
    with pytest.raises(SinkError, match=r"whose column elsewhere is null.* start the stream over"):
        stream.run()


# ── killed, and in any order ─────────────────────────────────────────────────────────────────────


def _at(folder: Path, source: Path) -> Ingested:
    stream = following(folder)
    stream.source = source
    return stream


def _run(folder: str, source: str, cache: str, point: str) -> None:
    os.environ.update({CRASH_AT: point, "CLOUDFILES_CACHE_DIR": cache})
    _at(Path(folder), Path(source)).run()


def _ended(*arguments: str) -> int | None:
    process = _FORKED.Process(target=_run, args=arguments)
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.slow
@pytest.mark.parametrize("has_vectors", [False, True])
def test_a_run_is_killed_anywhere_and_the_next_one_ends_with_the_rows_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_vectors: bool
) -> None:
    template = following(tmp_path)
    template.add("x", "y", "z", "w")
    template.run()
    if has_vectors:
        take_vectors(template.table)
    put(template, "x", "new 1", "new 2")
    put(template, "y")
    delete(template, "z")
    template.add("more")
    for number, point in enumerate(some(FOLLOWING_POINTS, 5, name="kills of a run that follows")):
        folder, cache = tmp_path / str(number), str(tmp_path / f"cache {number}")
        monkeypatch.setenv("CLOUDFILES_CACHE_DIR", cache)
        folder.mkdir()
        shutil.copytree(template.state, folder / "state")
        shutil.copytree(template.target, folder / "table")
        assert _ended(str(folder), str(template.source), cache, point) == -signal.SIGKILL, point
        stream = _at(folder, template.source)
        stream.run()
        assert live(stream) == there(template), point
        log = FileLog(open_store(str(stream.state)))
        assert [each.action for each in log.operations.after()] == ["replace", "delete"], point


NAMES = ("a", "b c", "d/e%20f", "g=1/h")
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(NAMES), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("rename"), st.sampled_from(NAMES), st.integers(0, 3)),
        st.tuples(st.just("touch"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("discover"), st.just(""), st.just(0)),
        st.tuples(st.just("plan"), st.just(""), st.just(0)),
        st.tuples(st.just("batch"), st.just(""), st.just(0)),
        st.tuples(st.just("lost index"), st.just(""), st.just(0)),
        st.tuples(st.just("run"), st.just(""), st.just(0)),
    ),
    max_size=14,
)


@pytest.mark.law
@settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(events=EVENTS, size=st.integers(1, 3))
def test_after_any_history_the_table_has_the_rows_of_the_folder(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, str, int]], size: int
) -> None:
    folder = tmp_path_factory.mktemp("history")
    stream = following(folder, **{"cloudFiles.maxFilesPerTrigger": str(size)})
    put(stream, "always", "always")
    for number, (what, name, rows) in enumerate(events):
        _happen(stream, what, name, [f"{number}.{row}" for row in range(rows)])
    stream.run()
    stream.run()  # what tasks have left to the next discovery
    assert stream.rows() == there(stream)
    paths = cloud_files_state(str(stream.state)).read_all()["path"].to_pylist()
    assert len(paths) >= len(set(paths))


def _happen(stream: Ingested, what: str, name: str, values: list[str]) -> None:
    path = stream.source / f"{name}.json"
    other: Any = {
        "discover": stream.discover,
        "run": stream.run,
        "batch": lambda: stream.run(batches=1),
        "lost index": lambda: shutil.rmtree(os.environ["CLOUDFILES_CACHE_DIR"], ignore_errors=True),
    }
    if what == "put":
        put(stream, name, *values)
    elif what == "plan":
        if stream.position().end < stream.discover():
            stream.plan()
    elif what in other:
        other[what]()
    elif path.exists():
        if what == "delete":
            path.unlink()
        elif what == "touch":
            os.utime(path)
        else:
            path.rename(path.with_name(f"{path.stem}-{len(values)}.json"))
