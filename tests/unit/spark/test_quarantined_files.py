"""The files of a refused batch that are to blame are put aside, and the rest is committed, once."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    CorruptedStateError,
    ExpectationError,
    FilesQuarantinedError,
)
from airflow_cloudfiles.engine.extensions.file_operations.of_table import (
    operate_on_files,
    put_aside,
)
from airflow_cloudfiles.engine.files import FileCounts
from airflow_cloudfiles.engine.intake import stream_logs
from airflow_cloudfiles.engine.intake.file_state_columns import cloud_files_state
from airflow_cloudfiles.engine.intake.stream_logs import files_named, name_files
from airflow_cloudfiles.engine.options.sink import TaskSinkOptions
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.expectations import ObservedRows, to_blame, unmet
from tests.support.iceberg_tables import LocalCatalog
from tests.support.ingested import Ingested

RESCUE = {
    "cloudFiles.schemaEvolutionMode": "rescue",
    "cloudFiles.schemaHints": "a STRING, b BIGINT",
    "cloudFiles.maxFilesPerTrigger": "4",
}
_SPAWNED = multiprocessing.get_context("spawn")


@pytest.fixture
def stream(tmp_path: Path) -> Ingested:
    """Four files are a batch; one that was good is committed."""
    found = Ingested(tmp_path, **RESCUE)
    found.add("0", b=0)
    found.run()
    return expecting(found, maxRescuedShare="0.1")


def expecting(stream: Ingested, **options: str) -> Ingested:
    given = {"onViolation": "quarantine", **options}
    stream.sink = {f"expect.{name}".lower(): value for name, value in given.items()}
    return stream


def refused(stream: Ingested) -> CloudFilesError:
    """Run until a batch is refused, as a driver: what it fails with."""
    with pytest.raises(ExpectationError) as caught:
        stream.run()
    crossed = errors.from_text(f"Job aborted: {errors.marked(caught.value)}\n at java")
    assert crossed is not None
    return put_aside(stream.spec(), crossed)


def put_aside_files(stream: Ingested) -> set[str]:
    shown = cloud_files_state(str(stream.state), status="quarantined")
    return {Path(row["path"]).name for row in shown.read_all().to_pylist()}


def test_of_several_files_the_bad_ones_are_put_aside_and_released_later(stream: Ingested) -> None:
    stream.add("1", "2", b=1)
    stream.add('od"d é', "worse", b="x")
    error = refused(stream)
    assert type(error) is FilesQuarantinedError
    assert error.is_retryable
    assert error.message.startswith(
        "Batch 1 is not what was expected, and nothing of it was committed to "
    )
    assert "but it has rescued data in 2 of 4 rows, most in " in error.message
    assert ". 2 files are quarantined for that: file://" in error.message
    assert "The next run commits batch 1 without." in error.message
    assert stream.rows() == ["0"]
    assert put_aside_files(stream) == {'od"d é.json', "worse.json"}
    stream.run()
    assert stream.rows() == ["0", "1", "2"]
    stream.run()
    assert stream.position().batch == 1
    stream.add("worse", b=3)
    operate_on_files(str(stream.state), "release", "worse.json", target=str(stream.target))
    stream.run()
    stream.run()
    assert stream.rows() == ["0", "1", "2", "worse"]
    assert put_aside_files(stream) == {'od"d é.json'}


def test_a_file_that_is_released_as_it_was_is_put_aside_again(stream: Ingested) -> None:
    stream.add("bad", b="x")
    assert type(refused(stream)) is FilesQuarantinedError
    stream.run()
    operate_on_files(str(stream.state), "release", "bad.json", target=str(stream.target))
    assert "batch 2 without" in refused(stream).message
    stream.run()
    assert stream.rows() == ["0"]


def test_a_batch_of_bad_files_only_is_committed_without_a_row(stream: Ingested) -> None:
    stream.add("1", "2", "3", "4", b="x")
    assert "4 files are quarantined" in refused(stream).message
    stream.run()
    assert stream.rows() == ["0"]
    assert stream.position().batch == 1
    stream.add("5", b=5)
    stream.run()
    assert stream.rows() == ["0", "5"]


def test_a_file_within_the_bound_stays_beside_one_that_is_not(stream: Ingested) -> None:
    lines = [json.dumps({"a": "many", "b": each}) for each in (*range(19), "x")]
    (stream.source / "many.json").write_text("\n".join(lines) + "\n")
    stream.add("bad", "worse", b="x")
    assert type(refused(stream)) is FilesQuarantinedError
    assert put_aside_files(stream) == {"bad.json", "worse.json"}
    stream.run()
    assert stream.rows() == ["0", *["many"] * 20]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "bad records"])
def test_files_with_corrupt_records_are_put_aside_kept_or_not(tmp_path: Path, mode: str) -> None:
    apart = {"badRecordsPath": str(tmp_path / "bad")} if mode == "bad records" else {"mode": mode}
    stream = Ingested(tmp_path, **RESCUE, **apart)
    stream.add("0", b=0)
    stream.run()
    expecting(stream, maxCorruptShare="0.2")
    stream.add("1", "2", b=1)
    (stream.source / "cut.json").write_text('{"a": "3"\n{"b"\n')
    assert "2 corrupt records of 4" in refused(stream).message
    assert put_aside_files(stream) == {"cut.json"}
    stream.run()
    assert stream.rows() == ["0", "1", "2"]


def test_where_no_file_is_to_blame_none_is_put_aside(stream: Ingested) -> None:
    expecting(stream, maxRescuedShare="0.1", minRows="3", requiredColumns="b")
    stream.add("1", b="x")
    error = refused(stream)
    assert type(error) is ExpectationError
    assert not error.is_retryable
    assert "No file is to blame for expect.requiredColumns, expect.minRows, so none is" in str(
        error
    )
    assert put_aside_files(stream) == set()


def test_a_file_that_is_cut_is_judged_as_a_whole() -> None:
    options = TaskSinkOptions.read({"expect.maxrescuedshare": "0.1"})
    counts = {"files": 3, "rows": 42, "rescued_rows": 6}
    parts = [
        {"cut": FileCounts(20, 2), "bad": FileCounts(2, 2)},
        {"cut": FileCounts(20, 2)},
    ]
    found = unmet(options, counts)
    assert to_blame(options, found, [ObservedRows(by_file=each) for each in parts]) == {"bad"}


def test_files_of_an_iceberg_table_are_put_aside_too(tmp_path: Path) -> None:
    lake, stream = LocalCatalog(tmp_path), Ingested(tmp_path, **RESCUE)
    stream.iceberg = lake.uri("t")
    stream.add("1", b=1)
    stream.add("2", b="x")
    assert type(refused(expecting(stream, maxRescuedShare="0"))) is FilesQuarantinedError
    stream.run()
    assert [row["a"] for row in lake.rows("t")] == ["1"]
    lake.close()


# ── killed, and in the way of others ─────────────────────────────────────────────────────────────


def _refused(folder: str, cache: str, point: str) -> None:
    os.environ.update({CRASH_AT: point, "CLOUDFILES_CACHE_DIR": cache})
    refused(expecting(Ingested(Path(folder), **RESCUE), maxRescuedShare="0.1"))


@pytest.mark.parametrize(
    ("point", "is_recorded"),
    [
        ("before-file-operation", False),
        ("after-file-operation-note", False),
        ("after-file-log-append:2", True),
        ("after-file-operation", True),
    ],
)
def test_killed_between_refusing_and_recording_each_row_is_there_once(
    stream: Ingested, tmp_path: Path, point: str, is_recorded: bool
) -> None:
    stream.add("1", "2", b=1)
    stream.add("bad", b="x")
    cache = str(tmp_path / "cache")
    process = _SPAWNED.Process(target=_refused, args=(str(tmp_path), cache, point))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert stream.rows() == ["0"]
    stream.add("3", b=3)
    if not is_recorded:
        assert type(refused(stream)) is FilesQuarantinedError
    stream.run()
    assert stream.rows() == ["0", "1", "2", "3"]
    assert put_aside_files(stream) == {"bad.json"}
    stream.add("bad", b=4)
    operate_on_files(str(stream.state), "release", "bad.json", target=str(stream.target))
    stream.run()
    stream.run()
    assert stream.rows() == ["0", "1", "2", "3", "bad"]


def test_while_another_run_is_at_work_nothing_is_put_aside_and_a_retry_helps(
    stream: Ingested,
) -> None:
    stream.add("bad", b="x")
    with pytest.raises(ExpectationError) as caught:
        stream.run()
    with RunLock(open_store(str(stream.state)), JOB_KEY):
        error = put_aside(stream.spec(), caught.value)
    assert (type(error), error.is_retryable) == (ExpectationError, True)
    assert "They could not be quarantined: Another run is working" in error.message
    assert put_aside_files(stream) == set()


def test_what_names_no_file_puts_none_aside(stream: Ingested) -> None:
    stream.add("bad", b="x")
    with pytest.raises(ExpectationError) as caught:
        stream.run()
    plain = ExpectationError("refused")
    assert put_aside(stream.spec(), plain) is plain
    for wrong in ("1:", "x", "1:a-b", "1"):
        damaged = ExpectationError("refused")
        damaged.blamed = wrong
        assert "names no files of a batch" in put_aside(stream.spec(), damaged).message
    caught.value.blamed = "1:7"
    assert put_aside(stream.spec(), caught.value).is_retryable is False


def test_a_batch_names_its_files_briefly(stream: Ingested) -> None:
    stream.add("1", "2", "3", "4", b=1)
    stream.run()
    state = open_store(str(stream.state))
    paths = [f"{each}.json" for each in ("1", "2", "4")]
    name = name_files(state, 1, [*paths, "0.json"])
    assert name == "1:0-1,3"
    assert files_named(state, name) == (1, paths)
    assert name_files(state, 1, []) == ""
    assert name_files(state, 1, ["0.json"]) == ""
    with pytest.raises(CorruptedStateError):
        files_named(state, "")


def test_a_long_name_is_cut_between_two_files(
    stream: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.add("1", "2", "3", "4", b=1)
    stream.run()
    monkeypatch.setattr(stream_logs, "MOST_CHARACTERS", 2)
    state = open_store(str(stream.state))
    assert name_files(state, 1, ["1.json", "3.json"]) == "1:0"
