"""A stream's source is cleaned of what its table has: by runs, and by `cloudfiles clean`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import (
    LostBatchesError,
    OptionError,
    StateError,
    StateLockedError,
)
from airflow_cloudfiles.engine.extensions.cleaning import of_stream as cleaning
from airflow_cloudfiles.engine.extensions.cleaning.of_stream import (
    clean_after_run,
    clean_source,
    task_of,
)
from airflow_cloudfiles.engine.job import run as job
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.spark.source import CloudFilesDataSource
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.storage import open_store
from tests.support.cleaned import age
from tests.support.crash_points import CLEANING_POINTS
from tests.support.ingested import Ingested
from tests.support.laws import some

FILES = ["f0", "f1", "f2", "f3"]
MODE = "cloudFiles.cleanSource"


class Source(Ingested):
    """A stream that moves its files at once."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.archive = folder / "archive"
        move = {
            MODE: "MOVE",
            f"{MODE}.retentionDuration": "0 seconds",
            f"{MODE}.moveDestination": str(self.archive),
        }
        super().__init__(folder, **{**move, **options})

    def clean(self, **how: Any) -> dict[str, Any]:
        return clean_source(self.spec("clean", clean=how))

    def clean_after_run(self) -> dict[str, Any]:
        """Clean as a run does that began when everything was committed."""
        spec, report = self.spec(), {"warnings": ["of the run"]}
        options = CloudFilesOptions.parse(spec.source_options(), path=spec.source)
        clean_after_run(spec, options, self.position(), report, {})
        return report

    def left(self) -> list[str]:
        return _names(self.source)

    def moved(self) -> list[str]:
        return _names(self.archive)


def _names(folder: Path) -> list[str]:
    return sorted(each.stem for each in folder.rglob("*.json"))


@pytest.fixture
def stream(tmp_path: Path) -> Source:
    found = Source(tmp_path)
    found.add(*FILES)
    found.run()
    return found


def test_what_the_table_has_is_moved(stream: Source) -> None:
    stream.add("not ingested")
    assert stream.clean(dry_run=True)["files"] == 4
    assert stream.moved() == []
    found = stream.clean()
    assert (found["mode"], found["files"], found["others"]) == ("MOVE", 4, {})
    assert found["bytes"] == sum(each.stat().st_size for each in stream.archive.iterdir())
    assert (stream.left(), stream.moved()) == (["not ingested"], FILES)
    stream.run()
    assert stream.rows() == sorted([*FILES, "not ingested"])


@pytest.mark.parametrize("options", [{}, {"cloudFiles.useIncrementalListing": "true"}])
def test_a_source_that_is_cleaned_again_and_again_goes_on(
    tmp_path: Path, options: dict[str, str]
) -> None:
    stream = Source(tmp_path, **options)
    names = []
    for number in range(6):
        mine = [f"2026/{number:02}-a", f"2026/{number:02}-b"]
        (stream.source / "2026").mkdir(exist_ok=True)
        stream.add(*mine)
        names += mine
        stream.run()
        assert stream.clean()["files"] == 2
    assert stream.rows() == names
    assert stream.left() == []


def test_a_table_that_lost_batches_stops_it(stream: Source) -> None:
    stream.table.restore(2)
    with pytest.raises(LostBatchesError):
        stream.clean()
    with pytest.raises(LostBatchesError):
        stream.clean(dry_run=True)
    assert stream.left() == FILES
    stream.replay(0)
    assert stream.clean()["files"] == 4


def test_files_of_a_loss_that_was_accepted_stay(stream: Source) -> None:
    stream.table.restore(2)
    lost = stream.replay(0, dry_run=True)["batches"]
    stream.replay(min(lost), accept_loss=True)
    assert stream.clean()["files"] == len(FILES) - len(lost)
    assert len(stream.left()) == len(lost)


def test_another_table_is_not_the_one(stream: Source, tmp_path: Path) -> None:
    spec = stream.spec("clean")
    object.__setattr__(spec, "target", str(tmp_path / "none"))
    with pytest.raises(LostBatchesError):
        clean_source(spec)
    object.__setattr__(spec, "target", None)
    assert clean_source(spec)["files"] == 4, "the state names the table"


def test_a_query_that_writes_no_table_has_to_be_trusted(stream: Source) -> None:
    shutil.rmtree(stream.state / "_source/sink")
    shutil.rmtree(stream.target)
    spark = open_store(str(stream.state))
    spark.put("offsets/3", b'v1\n{"batchWatermarkMs":0}\n{"entry":1,"index":0}')
    spark.put("commits/3", b'v1\n{"nextBatchWatermarkMs":0}')
    spec = stream.spec("clean")
    object.__setattr__(spec, "target", None)
    with pytest.raises(StateError, match="--trust-checkpoint"):
        clean_source(spec)
    object.__setattr__(spec, "clean", {"trust_checkpoint": True})
    assert clean_source(spec)["files"] == 4


def test_it_waits_for_no_run(stream: Source) -> None:
    with (
        RunLock(open_store(str(stream.state)), JOB_KEY),
        pytest.raises(StateLockedError, match="Another run"),
    ):
        stream.clean()
    assert stream.left() == FILES
    with RunLock(open_store(str(stream.state))):  # a query of one's own goes on
        assert stream.clean()["files"] == 4


def test_it_says_what_it_is_not_told(stream: Source, tmp_path: Path) -> None:
    stream.given = {MODE: "OFF"}
    with pytest.raises(OptionError, match="nothing is to be cleaned"):
        stream.clean()
    other = Source(tmp_path / "in")
    with pytest.raises(StateError, match="There is no state"):
        other.clean()


@pytest.mark.parametrize("below", ["in", "in/archive", "state/x", "table/x"])
def test_a_run_that_would_move_files_to_the_wrong_place_does_not_begin(  # B121
    stream: Source, tmp_path: Path, below: str
) -> None:
    stream.given = {**stream.given, f"{MODE}.moveDestination": str(tmp_path / below)}
    report = job.run(stream.spec())
    assert report["outcome"] == "failed"
    assert report["error"]["class"] == "OptionError"
    assert "moveDestination" in report["error"]["message"]
    with pytest.raises(OptionError, match="moveDestination"):
        stream.clean()


def test_a_run_without_new_files_cleans_nothing(stream: Source) -> None:  # B124
    report = job.run(stream.spec())
    assert report["outcome"] == "succeeded"
    assert "cleaning" not in report
    assert stream.left() == FILES


def test_a_run_cleans_nothing_where_it_is_off(tmp_path: Path) -> None:  # B118
    stream = Ingested(tmp_path, **{MODE: "OFF"})
    stream.add(*FILES)
    stream.run()
    assert "cleaning" not in job.run(stream.spec())
    assert _names(stream.source) == FILES
    assert not (stream.state / "_source/cleaned").exists()


def test_a_run_reports_what_was_cleaned(stream: Source) -> None:
    stream.add("f0", changed=True)
    report = stream.clean_after_run()
    assert report["cleaning"]["files"] == 3
    assert report["cleaning"]["others"] == {"changed": 1}
    assert report["warnings"][0] == "of the run"
    assert report["warnings"][1].startswith("1 file has changed since it was ingested, and")
    assert report["warnings"][1].endswith("/in/f0.json.")


@pytest.mark.parametrize("error", [OSError("the store is gone"), RuntimeError("a mistake")])
def test_a_run_is_not_failed_by_its_cleaning(
    stream: Source, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(cleaning, "clean", failing)
    report = stream.clean_after_run()
    assert report["warnings"][1] == f"The source was not cleaned to the end: {error}"
    assert report["cleaning"]["is_complete"] is False
    assert stream.left() == FILES


def test_a_stream_is_not_defined_that_would_move_files_into_its_source(  # B121
    stream: Source, tmp_path: Path
) -> None:
    given = {**stream.spec().source_options(), "path": str(stream.source)}
    given[f"{MODE}.moveDestination"] = str(tmp_path / "in/archive")
    with pytest.raises(OptionError, match="is below the source"):
        CloudFilesDataSource(given).schema()


def test_a_query_of_ones_own_says_that_it_does_not_clean(
    stream: Source, caplog: pytest.LogCaptureFixture
) -> None:
    options = {**stream.spec().source_options(), "path": str(stream.source)}
    query = CloudFilesDataSource(options)
    reader = query.streamReader(query.schema())
    reader.prepareForTriggerAvailableNow()
    reader.stop()
    assert "a query of your own does not clean its source" in caplog.text
    caplog.clear()
    stream.add("late")
    stream.run()
    assert "does not clean" not in caplog.text
    assert stream.left() == sorted([*FILES, "late"])


def test_another_stream_whose_table_is_gone_stops_it(stream: Source, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Ingested(tmp_path / "other")
    other.source = stream.source
    other.run()
    stream.given = {**stream.given, f"{MODE}.otherCheckpoints": str(other.state)}
    shutil.rmtree(other.target)
    with pytest.raises(LostBatchesError):
        stream.clean()
    other.replay(0)
    assert stream.clean()["files"] == 4


def test_files_are_deleted_after_their_retention(stream: Source) -> None:
    stream.given = {MODE: "DELETE", f"{MODE}.retentionDuration": "8 days"}
    for batch in (0, 1):
        age(open_store(str(stream.state)), batch, 9)
    assert stream.clean()["files"] == 2
    assert (len(stream.left()), stream.archive.exists()) == (2, False)


def _contents(*folders: Path) -> list[bytes]:
    """What is in all files, also hidden ones."""
    files = {each.stat().st_ino: each for folder in folders for each in folder.rglob("*")}
    return sorted(each.read_bytes() for each in files.values() if each.is_file())


@pytest.mark.slow
@pytest.mark.parametrize("point", some(CLEANING_POINTS, 3, name="kills of a cleaning"))
def test_a_cleaning_that_is_killed_loses_no_file(stream: Source, point: str) -> None:
    expected = _contents(stream.source)
    code = (
        "import sys, pathlib\n"
        "from airflow_cloudfiles.engine.extensions.cleaning import clean\n"
        "from tests.unit.job.test_cleaning import Source\n"
        "clean.PART_FILES = 1\n"
        "Source(pathlib.Path(sys.argv[1])).clean()\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, str(stream.source.parent)],
        env={**os.environ, CRASH_AT: f"{point}:2", "PYTHONPATH": str(Path.cwd())},
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert _contents(stream.source, stream.archive) == expected
    stream.clean()
    assert (stream.left(), stream.moved()) == ([], FILES)
    assert _contents(stream.archive) == expected
    assert _contents(stream.source) == []


@pytest.mark.parametrize(
    ("name", "value", "is_exact"),
    [
        ("fileIdentity", "path", False),
        ("fileIdentity", "pathAndVersion", False),
        ("fileIdentity", "content", False),
        ("fileIdentity", "pathAndModificationTime", True),
        ("allowOverwrites", "true", True),
    ],
)
def test_a_time_makes_another_version_only_where_files_are_known_by_it(
    tmp_path: Path, name: str, value: str, is_exact: bool
) -> None:  # B104
    place = {"source": str(tmp_path / "in"), "checkpoint_location": str(tmp_path / "state")}
    given = {f"cloudFiles.{name}": value, "cloudFiles.format": "json"}
    spec = JobSpec(kind="clean", format="json", run_id="run", **place)
    options = CloudFilesOptions.parse(given, path=place["source"])
    assert task_of(spec, options).is_exact is is_exact
