"""A file that has changed since it was ingested is reported once, with what ingests it again."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shlex
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles import cloud_files_state
from airflow_cloudfiles.cli import main
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.intake import changes
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.job.counts import add_counts
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from tests.support.crash_points import NOTICE_POINTS
from tests.support.ingested import Ingested
from tests.support.operated import asked, started

_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["tests.support.ingested"])
AGAIN = "has changed since it was ingested"


@pytest.fixture
def stream(tmp_path: Path) -> Ingested:
    return started(tmp_path)


def discover(stream: Ingested, **options: Any) -> Any:
    intake = Intake.open(
        source=str(stream.source),
        format="json",
        checkpoint_location=str(stream.state),
        discovery=DiscoveryOptions(**options),
    )
    with closing(intake):
        return intake.discover()


def grow(stream: Ingested, name: str = "a b", text: str = '{"a": "more"}\n') -> None:
    with (stream.source / f"{name}.json").open("a") as file:
        file.write(text)


def test_the_rest_of_a_file_that_was_ingested_half_written_is_reported_and_can_be_had(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = Ingested(tmp_path, **{"cloudFiles.metadataColumns": "_metadata"})
    stream.given["cloudFiles.schemaHints"] = "a bigint"
    half = stream.source / "it's half.json"
    half.write_text('{"a": 10}\n{"a": 1')
    stream.run()
    assert _values(stream) == [10, None]
    with half.open("a") as file:
        file.write('1}\n{"a": 12}\n')

    stream.run()
    stream.run()
    told = [record.getMessage() for record in caplog.records if AGAIN in record.getMessage()]
    (message,) = told
    assert f"it's half.json {AGAIN}: it had 17 bytes and has 30" in message
    command = message.partition("To ingest it again: ")[2]
    program, *arguments = shlex.split(command)
    assert program == "cloudfiles"

    assert _values(stream) == [10, None], "the report itself changes nothing"
    assert main([arguments[0], arguments[1], "--target", str(stream.target), *arguments[2:]]) == 0
    stream.run()
    assert _values(stream) == [10, 11, 12]
    assert len([each for each in caplog.records if AGAIN in each.getMessage()]) == 1
    assert not discover(stream).changed_files


def _values(stream: Ingested) -> list[int | None]:
    values = stream.table.to_pyarrow_dataset().to_table()["a"].to_pylist()
    return sorted(values, key=lambda value: (value is None, value))


def test_a_changed_file_is_in_the_result_once_and_in_the_state_for_good(stream: Ingested) -> None:
    grow(stream)
    found = discover(stream)
    assert found.changed_files == found.to_json()["changed_files"] == 1
    (entry,) = found.to_json()["changed"]
    assert entry["path"] == "a b.json"
    assert entry["change"].startswith("it had 13 bytes and has 27, it was modified at 20")
    assert entry["replay"].endswith(" -- 'a b.json'")
    grow(stream)
    for _ in range(2):
        assert discover(stream).changed_files == 0, "it is the same file that was ingested once"
    assert _changed(stream) == {"a b.json"}


def test_the_report_of_a_run_warns_of_changed_files_and_has_what_waits(stream: Ingested) -> None:
    for name in ("a b", "e=+"):
        grow(stream, name)
    stream.add("young")
    report: dict[str, Any] = {"warnings": []}
    found = discover(stream, min_file_age_seconds=3600.0)
    add_counts(report, stream.spec(), 1, 0, found.to_json())
    (warning,) = report["warnings"]
    then = "2 files have changed since they were ingested; the table has what they were then. "
    assert warning.startswith(f"{then}a b.json: it had 13 bytes and has 27, ")
    assert warning.endswith(" -- 'a b.json'")
    assert report["discovery"]["waiting_files"] == 1


def _changed(stream: Ingested) -> set[str]:
    table = cloud_files_state(str(stream.state)).read_all().to_pylist()
    return {Path(row["path"]).name for row in table if row["changed_time"] is not None}


def test_a_file_that_changes_after_its_replay_is_reported_anew(stream: Ingested) -> None:
    grow(stream)
    assert discover(stream).changed_files == 1
    asked(stream, "replay", "a b")
    grow(stream)
    assert discover(stream).changed_files == 0, "its replay is still to come, and reads all of it"
    stream.run()
    assert discover(stream).changed_files == 0
    grow(stream)
    assert discover(stream).changed_files == 1


def test_a_file_that_had_changed_before_it_was_read_has_not_changed_since(
    stream: Ingested, caplog: pytest.LogCaptureFixture
) -> None:
    stream.add("late")
    discover(stream)
    grow(stream, "late")
    stream.run()
    assert "its current content is read" in caplog.text
    assert "more" in stream.rows()
    assert discover(stream).changed_files == 0
    grow(stream, "late")
    assert discover(stream).changed_files == 1


def test_a_file_that_is_rewritten_or_touched_is_reported_and_one_that_is_gone_is_not(
    stream: Ingested,
) -> None:
    (stream.source / "a b.json").unlink()
    os.utime(stream.source / "e=+.json", (1, 1))
    stream.add("ü日本")
    found = {entry["path"]: entry["change"] for entry in discover(stream).to_json()["changed"]}
    assert set(found) == {"e=+.json", "ü日本.json"}
    assert "since at 1970-01-01T00:00:01+00:00" in found["e=+.json"]


@pytest.mark.parametrize(
    "options", [{"notice_changes": "false"}, {"allow_overwrites": True}], ids=str
)
def test_nothing_is_reported_where_it_is_not_asked_for_or_the_file_is_a_new_one(
    stream: Ingested, options: dict[str, Any]
) -> None:
    grow(stream)
    assert discover(stream, **options).changed_files == 0


def test_a_file_that_was_never_ingested_has_not_changed_since(tmp_path: Path) -> None:
    stream = started(tmp_path)
    stream.add("skipped", "known")
    asked(stream, "skip", "skipped")
    discover(stream)
    for name in ("skipped", "known"):
        grow(stream, name)
    assert discover(stream).changed_files == 0


def test_many_changed_files_are_logged_in_short_and_none_is_left_out(
    stream: Ingested, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.given["cloudFiles.maxFilesPerTrigger"] = "100"
    names = [f"{number:02}" for number in range(12)]
    stream.add(*names)
    stream.run()
    for name in names:
        grow(stream, name)
    monkeypatch.setattr(changes, "MOST_FILES", 8)
    with caplog.at_level(logging.WARNING):
        assert [discover(stream).changed_files for _ in range(3)] == [8, 4, 0]
    assert "3 more files have changed since they were ingested" in caplog.text
    assert _changed(stream) == {f"{name}.json" for name in names}


def _discover_killed(stream: Ingested, point: str) -> None:
    os.environ[CRASH_AT] = point
    discover(stream)


@pytest.mark.slow
@pytest.mark.parametrize("point", NOTICE_POINTS)
def test_a_discovery_that_is_killed_leaves_the_report_to_the_next_one(
    stream: Ingested, point: str
) -> None:
    grow(stream)
    process = _FORKED.Process(target=_discover_killed, args=(stream, point))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert [discover(stream).changed_files for _ in range(3)] == [1, 0, 0]
    assert _changed(stream) == {"a b.json"}
