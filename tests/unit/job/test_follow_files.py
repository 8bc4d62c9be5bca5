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
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import TableFeatures
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
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.files import DataFileReader, TableColumns
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from tests.support.crash_points import FOLLOWING_POINTS
from tests.support.delta_tables import base85, bitmap, read_by_duckdb
from tests.support.iceberg_tables import LocalCatalog
from tests.support.ingested import Ingested
from tests.support.laws import examples, some
from tests.support.operated import told

FOLLOWS = {
    "cloudFiles.onOverwrite": "replace",
    "cloudFiles.onDelete": "delete",
    "cloudFiles.maxDeletedShare": "1",
    "cloudFiles.metadataColumns": "_metadata",
}
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["tests.support.ingested"])


def following(folder: Path, **options: str) -> Ingested:
    return Ingested(folder, **{**FOLLOWS, "cloudFiles.maxFilesPerTrigger": "2", **options})


def put(stream: Ingested, name: str, *values: str) -> None:
    lines = [json.dumps({"a": value}) for value in values]
    path = stream.source / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def delete(stream: Ingested, *names: str) -> None:
    for name in names:
        (stream.source / f"{name}.json").unlink()


def there(stream: Ingested) -> list[str]:
    """What reading the folder afresh gives."""
    lines = [
        line for path in stream.source.rglob("*.json") for line in path.read_text().splitlines()
    ]
    return sorted(json.loads(line)["a"] for line in lines)


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
    stream = following(tmp_path)
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


def with_vectors(stream: Ingested) -> None:
    """Have rows of the table of a stream be deleted by vectors, as another writer may."""
    alter = stream.table.alter
    alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    alter.set_table_properties({"delta.enableDeletionVectors": "true"}, raise_if_not_exists=False)


def test_rows_that_a_deletion_vector_has_deleted_do_not_come_back(tmp_path: Path) -> None:
    stream = following(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "10"})
    put(stream, "x", "x 1", "x 2")
    put(stream, "y", "y 1", "y 2")
    put(stream, "z", "z 1")
    stream.run()
    with_vectors(stream)
    assert live(stream) == ["x 1", "x 2", "y 1", "y 2", "z 1"]
    _delete_by_vector(stream, "y 2")
    put(stream, "x", "new")
    delete(stream, "z")
    stream.run()
    assert live(stream) == ["new", "y 1"]
    delete(stream, "x", "y")
    stream.run()
    assert live(stream) == []


def test_in_a_table_with_deletion_vectors_no_data_file_is_written_anew(tmp_path: Path) -> None:
    """Read by this package, and by another implementation of Delta."""
    stream = following(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "10"})
    for name in ("x", "y", "z"):
        put(stream, name, f"{name} 1", f"{name} 2")
    stream.run()
    with_vectors(stream)
    (written,) = files_of(stream)
    put(stream, "x", "new")
    stream.run()
    delete(stream, "y")
    stream.run()
    put(stream, "z")
    put(stream, "new", "last")
    stream.run()
    assert live(stream) == ["last", "new"]
    assert written not in files_of(stream)
    assert len([*stream.target.glob("*.parquet")]) == 3, "one for each batch that has rows"
    assert len([*stream.target.glob("deletion_vector_*.bin")]) == 2
    adds = [
        json.loads(line)["add"]
        for path in sorted((stream.target / "_delta_log").glob("*.json"))
        for line in path.read_text().splitlines()
        if "deletionVector" in line and line.startswith('{"add"')
    ]
    assert [each["deletionVector"]["cardinality"] for each in adds] == [2, 4]
    for each in adds:
        stats = json.loads(each["stats"])
        assert (each["path"], stats["numRecords"], stats["tightBounds"]) == (written, 6, False)
        assert stats["minValues"]["a"] == "x 1"


def test_vectors_are_in_a_checkpoint_too_and_go_on_from_there(tmp_path: Path) -> None:
    stream = following(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "10"})
    for name in ("x", "y", "z"):
        put(stream, name, f"{name} 1", f"{name} 2")
    stream.run()
    with_vectors(stream)
    delete(stream, "x")
    stream.run()
    stream.table.create_checkpoint()
    for commit in (stream.target / "_delta_log").glob("0*.json"):
        commit.unlink()
    delete(stream, "y")
    stream.run()
    assert live(stream) == there(stream)
    assert sorted(read_by_duckdb(stream.target).column("a").to_pylist()) == there(stream)
    (file,) = files_of(stream)
    assert [each.name for each in stream.target.glob("*.parquet")] == [file]


def test_a_vector_leaves_the_digits_of_bounds_as_they_are(tmp_path: Path) -> None:
    bound = "12345678901234567890123456.123456789012"
    hints = {"cloudFiles.schemaHints": "a DECIMAL(38,12)"}
    stream = following(tmp_path, **hints, **{"cloudFiles.maxFilesPerTrigger": "10"})
    put(stream, "x", bound)
    put(stream, "y", "1.5")
    stream.run()
    with_vectors(stream)
    delete(stream, "y")
    stream.run()
    (log,) = (stream.target / "_delta_log").glob("*4.json")
    assert f'\\"maxValues\\": {{\\"a\\": {bound}' in log.read_text()
    assert [str(value) for value in live(stream)] == [bound]


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_after_any_deletions_by_vectors_the_table_has_the_rows_of_its_files(data: Any) -> None:
    names = [f"f{number}" for number in range(8)]
    with TemporaryDirectory() as folder:
        stream = following(Path(folder), **{"cloudFiles.maxFilesPerTrigger": "8"})
        put(stream, "f0", "first")
        stream.run()
        with_vectors(stream)
        for round_ in range(4):
            for name in data.draw(st.sets(st.sampled_from(names), min_size=1)):
                count = data.draw(st.integers(0, 3))
                is_there = (stream.source / f"{name}.json").exists()
                if is_there and data.draw(st.booleans()):
                    delete(stream, name)
                else:
                    put(stream, name, *(f"{name} {round_}.{row}" for row in range(count)))
            stream.run()
            assert live(stream) == there(stream)
            rows = read_by_duckdb(stream.target).column("a").to_pylist()
            assert sorted(rows) == there(stream)


def files_of(stream: Ingested) -> list[str]:
    """The data files of the newest version, as its log has them."""
    snapshot = TableLog(DeltaLocation.to_read(str(stream.target))).snapshot()
    return [file.path for file in snapshot.files]


def live(stream: Ingested) -> list[str]:
    """The rows of the newest version, without those that are deleted."""
    snapshot = TableLog(DeltaLocation.to_read(str(stream.target))).snapshot()
    reader = DataFileReader(TableColumns.of(snapshot), ["a"], open_store(str(stream.target)))
    batches = [batch for file in snapshot.files for batch in reader.read(file)]
    return sorted(row["a"] for batch in batches for row in batch.to_pylist())


def _delete_by_vector(stream: Ingested, value: str) -> None:
    """Delete a row as Delta does: the file stays, and a vector says which row is gone."""
    snapshot = TableLog(DeltaLocation.to_read(str(stream.target))).snapshot()
    log = stream.target / "_delta_log"
    version = max(int(path.stem) for path in log.glob("*.json"))
    lines = "".join(path.read_text() for path in sorted(log.glob("*.json"))).splitlines()
    adds = [json.loads(line)["add"] for line in lines if line.startswith('{"add"')]
    for file in snapshot.files:
        rows = pq.read_table(stream.target / file.path)["a"].to_pylist()
        if value not in rows:
            continue
        (add,) = [each for each in adds if each["path"] == file.path]
        content = bitmap([rows.index(value)])
        vector = {
            "storageType": "i",
            "pathOrInlineDv": base85(content),
            "sizeInBytes": len(content),
            "cardinality": 1,
        }
        remove = {"path": file.path, "deletionTimestamp": 0, "dataChange": True}
        actions = [{"remove": remove}, {"add": {**add, "deletionVector": vector}}]
        text = "".join(json.dumps(each) + "\n" for each in actions)
        (log / f"{version + 1:020}.json").write_text(text)


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
        ("iceberg://c/n/t", {}, "do not go with cloudFiles.metadataColumns=_metadata.* file_path"),
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
        with_vectors(template)
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
