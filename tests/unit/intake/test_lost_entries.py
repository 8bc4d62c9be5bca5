"""A state whose file log has lost entries is refused, every time, wherever it is opened."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from airflow_cloudfiles.cli import main
from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.files import START, Offset, ReadLimit
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.ledger import opening
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.spark.source import CloudFilesStreamReader
from airflow_cloudfiles.engine.stream.definition import given_schema

ENTRIES = 4
GONE = {
    "first": [0],
    "middle": [1],
    "newest": [ENTRIES - 1],
    "newest two": [ENTRIES - 2, ENTRIES - 1],
    "all": list(range(ENTRIES)),
}
SCHEMA = StructType([StructField("a", StringType())])


class Stream:
    """A source with one entry of the file log a file."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.source, self.state, self.cache = folder / "in", folder / "state", cache
        self.source.mkdir()
        for number in range(ENTRIES):
            (self.source / f"{number}.json").write_text(f'{{"a": "{number}"}}\n')
            self.discover()

    def intake(self) -> Intake:
        return Intake.open(
            source=str(self.source), format="json", checkpoint_location=str(self.state)
        )

    def discover(self) -> None:
        """As a sensor does."""
        intake = self.intake()
        try:
            intake.discover()
        finally:
            intake.close()

    def look(self) -> bool:
        """As a trigger does; whether it calls for a sensor or a run, which then is refused."""
        intake = self.intake()
        try:
            return bool(intake.arrivals())
        except CorruptedStateError:
            return True
        finally:
            intake.close()

    def plan(self) -> None:
        """As the source does, for a query that goes on behind what is planned."""
        options = CloudFilesOptions.parse(
            {"cloudFiles.format": "json", "checkpointLocation": str(self.state)},
            path=str(self.source),
            has_schema=True,
        )
        reader = CloudFilesStreamReader(options, given_schema(SCHEMA, options))
        try:
            reader.prepareForTriggerAvailableNow()
            reader.latestOffset(START.to_json(), reader.getDefaultReadLimit())
        finally:
            reader.stop()

    def plan_all(self) -> None:
        intake = self.intake()
        intake.plans.plan(intake.files, START, ReadLimit(), Offset(ENTRIES, 0))
        intake.close()

    def command(self) -> None:
        """As a person does."""
        given = ["--source", str(self.source), "--checkpoint-location", str(self.state)]
        assert main(["discover", *given]) == 0, "refused"

    def entry(self, number: int) -> Path:
        return self.state / "_source/files" / f"{number:020d}"

    def lose(self, gone: str) -> None:
        for number in GONE[gone]:
            self.entry(number).unlink()

    def recorded(self) -> list[str]:
        intake = self.intake()
        found = [file.path for file in intake.files.slice(START, intake.head())]
        intake.close()
        return found


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """A stream that has recorded its files."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(cache))
    return Stream(tmp_path, cache)


WAYS: dict[str, Callable[[Stream], None]] = {"sensor": Stream.discover, "planning": Stream.plan}


@pytest.mark.slow
@pytest.mark.parametrize("is_planned", [True, False], ids=["planned", "not planned"])
@pytest.mark.parametrize("has_index", [True, False], ids=["with index", "without index"])
@pytest.mark.parametrize("gone", GONE)
def test_lost_entries_are_refused_every_time(
    stream: Stream, gone: str, has_index: bool, is_planned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if is_planned:
        stream.plan_all()
    stream.lose(gone)
    before = sorted(path.name for path in (stream.state / "_source/files").iterdir())
    (stream.source / "new.json").write_text('{"a": "new"}\n')
    for _ in range(3):
        for way in WAYS.values():
            if not has_index:
                shutil.rmtree(stream.cache, ignore_errors=True)
            with pytest.raises(CorruptedStateError, match=r"is missing|has lost") as told:
                way(stream)
            assert not told.value.is_retryable
            assert "restore the checkpoint location" in str(told.value).lower()
        assert stream.look()
        with pytest.raises(AssertionError, match="refused"):
            stream.command()
        assert "_source/files" in capsys.readouterr().err
    after = sorted(path.name for path in (stream.state / "_source/files").iterdir())
    assert after == before, "nothing was appended"


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["newest", "newest two", "all"])
@pytest.mark.parametrize("evidence", ["index", "plan", "offset"])
def test_each_piece_of_evidence_suffices_alone(stream: Stream, evidence: str, gone: str) -> None:
    if evidence == "plan":
        stream.plan_all()
    if evidence == "offset":
        for folder, text in (
            ("offsets", f'v1\n{{}}\n{{"entry":{ENTRIES},"index":0}}'),
            ("commits", "v1\n{}"),
        ):
            (stream.state / folder).mkdir()
            (stream.state / folder / "0").write_text(text)
    if evidence != "index":
        shutil.rmtree(stream.cache)
    (stream.state / opening.HEAD).unlink()
    stream.lose(gone)
    for _ in range(3):
        with pytest.raises(CorruptedStateError, match="has lost"):
            stream.discover()


def test_a_snapshot_suffices_as_evidence(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_cloudfiles.engine.intake.ledger.snapshots.WORTH_ENTRIES", 1)
    monkeypatch.setattr(
        "airflow_cloudfiles.engine.intake.ledger.snapshots.maybe_snapshot.__kwdefaults__",
        {"worth_files": 1, "worth_entries": 1},
    )
    (stream.source / "more.json").write_text("{}\n")
    stream.discover()
    shutil.rmtree(stream.cache)
    (stream.state / opening.HEAD).unlink()
    stream.entry(ENTRIES).unlink()
    with pytest.raises(CorruptedStateError, match="a snapshot of the index refers to entry 4"):
        stream.discover()


@pytest.mark.parametrize("gone", ["newest", "all"])
def test_what_nothing_remembers_is_found_again(stream: Stream, gone: str) -> None:
    shutil.rmtree(stream.cache)
    (stream.state / opening.HEAD).unlink()
    stream.lose(gone)
    stream.discover()
    assert stream.recorded() == [f"{number}.json" for number in range(ENTRIES)]


def test_a_state_restored_as_a_whole_goes_on_when_the_index_is_deleted(stream: Stream) -> None:
    backup = stream.state.with_name("backup")
    shutil.copytree(stream.state, backup)
    (stream.source / "late.json").write_text("{}\n")
    stream.discover()
    shutil.rmtree(stream.state)
    shutil.copytree(backup, stream.state)
    with pytest.raises(CorruptedStateError, match="CLOUDFILES_CACHE_DIR"):
        stream.discover()
    shutil.rmtree(stream.cache)
    stream.discover()
    assert stream.recorded()[-1] == "late.json"


def test_a_plan_log_with_a_gap_is_refused(stream: Stream) -> None:
    intake = stream.intake()
    start = START
    for _ in range(ENTRIES):
        start = intake.plans.plan(intake.files, start, ReadLimit(max_files=1), Offset(ENTRIES, 0))
    intake.close()
    (stream.state / "_source/plans" / f"{1:020d}").unlink()
    for _ in range(3):
        with pytest.raises(CorruptedStateError, match=f"plans/{1:020d} is missing"):
            stream.plan()
