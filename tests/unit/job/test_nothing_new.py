"""A run that finds nothing new starts no Spark; one that has anything to do starts it at once.

No test here has a JVM: whoever started one would fail (`tests.support.markers`). What a run with
work does is seen in the moment in which it would start Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.files import ReadLimit
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.results import DiscoveryResult
from airflow_cloudfiles.engine.job import run as job
from airflow_cloudfiles.engine.job.session import SparkStart
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.state.plan_log import PREFIX, PlanLog
from airflow_cloudfiles.engine.state.sink_log import SinkLog, position
from airflow_cloudfiles.engine.storage import open_store
from tests.support.ingested import Ingested


class _WouldStartSparkError(Exception):
    pass


def _opened(stream: Ingested) -> closing[Intake]:
    return closing(
        Intake.open(source=str(stream.source), format="json", checkpoint_location=str(stream.state))
    )


def _sense(stream: Ingested) -> DiscoveryResult:
    """Record what is new, as a sensor does."""
    with _opened(stream) as intake:
        return intake.discover()


@pytest.fixture
def stream(tmp_path: Path) -> Ingested:
    """A stream that has ingested two files, in two batches."""
    stream = Ingested(tmp_path)
    stream.add("one", "two")
    stream.run()
    return stream


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Callable[[Ingested], list[str]]:
    """Run, and give what was done up to the start of Spark, in order."""

    def starts(stream: Ingested, **more: Any) -> list[str]:
        seen: list[str] = []

        def begin(_: SparkStart) -> None:
            seen.append("begin")

        def context(_: SparkStart) -> None:
            seen.append("context")
            raise _WouldStartSparkError

        discover = Intake.discover

        def discovered(intake: Intake, **given: Any) -> Any:
            seen.append("discover")
            return discover(intake, **given)

        monkeypatch.setattr(SparkStart, "begin", begin)
        monkeypatch.setattr(SparkStart, "context", context)
        monkeypatch.setattr(Intake, "discover", discovered)
        job.run(stream.spec(**more))
        return list(dict.fromkeys(seen))

    return starts


def test_a_run_that_finds_nothing_new_ends_with_a_report_and_no_spark(stream: Ingested) -> None:
    version = stream.table.version()
    report = job.run(stream.spec())
    assert report["outcome"] == "succeeded", report
    assert (report["files"], report["rows"], report["batches"]) == (0, 0, 0)
    assert report["schema_version"] == 0
    assert report["target_version"] == version == stream.table.version()
    assert report["discovery"]["found_by"] == {}
    assert "spark_start_seconds" not in report["durations"]
    assert open_store(str(stream.state)).get(f"_reports/{report['run_id']}.json")


def test_a_new_file_starts_spark_when_it_is_recorded(
    stream: Ingested, starts: Callable[..., list[str]]
) -> None:
    stream.add("three")
    assert starts(stream) == ["discover", "begin", "context"]


def test_a_recorded_file_starts_spark_before_anything_is_listed(
    stream: Ingested, starts: Callable[..., list[str]]
) -> None:
    """As a sensor has left it."""
    stream.add("three")
    _sense(stream)
    assert starts(stream) == ["begin", "discover", "context"]


def test_a_planned_batch_is_always_finished(
    stream: Ingested, starts: Callable[..., list[str]]
) -> None:
    """Planned by a run that was killed before Spark knew of it."""
    stream.add("three")
    with _opened(stream) as reader:
        reader.discover()
        PlanLog(open_store(str(stream.state))).plan(
            reader.files, reader.committed(), ReadLimit(max_files=1), reader.head()
        )
    assert starts(stream) == ["begin", "discover", "context"]
    # Also when the run is for files that were all ingested before.
    assert starts(stream, batch={"last_entry": 0}) == ["begin", "context"]


def test_batches_that_only_the_table_knows_are_recorded_without_spark(
    stream: Ingested, starts: Callable[..., list[str]]
) -> None:
    """As kills between commit and record leave them; the files may be gone by now."""
    version = stream.table.version()
    for number in (0, 1):
        stream.forget(number)
    (stream.source / "two.json").unlink()
    assert starts(stream) == ["discover"]
    records = SinkLog(open_store(str(stream.state)))
    assert [(each.batch, each.version) for each in map(records.find, (0, 1)) if each] == [
        (0, 1),
        (1, 2),
    ]
    assert position(records.state).batch == 1
    assert stream.table.version() == version
    stream.forget(1)
    report = job.run(stream.spec())
    counted = ("outcome", "files", "rows", "batches", "batches_recovered", "schema_version")
    assert [report[name] for name in counted] == ["succeeded", 1, 1, 1, 1, 0]


def test_a_batch_of_another_plan_is_not_taken_for_the_one_in_the_table(
    stream: Ingested, starts: Callable[..., list[str]]
) -> None:
    """As a state that was restored from an older backup has it."""
    stream.forget(1)
    plan = stream.state / "_source" / "plans" / f"{1:020}"
    log = NumberedLog(open_store(str(stream.state)), PREFIX)
    header = log.read(1).header
    plan.unlink()
    log.append(1, {name: header[name] for name in ("start", "end", "files", "bytes")})
    assert starts(stream) == ["begin", "discover", "context"]


def test_a_run_for_files_that_are_all_ingested_starts_nothing(
    stream: Ingested, starts: Callable[..., list[str]]
) -> None:
    stream.add("three")
    assert starts(stream, batch={"last_entry": 0}) == []


def test_a_run_for_some_files_lists_nothing(
    stream: Ingested, starts: Callable[..., list[str]]
) -> None:
    stream.add("three")
    found = _sense(stream)
    assert starts(stream, batch={"last_entry": found.last_entry}) == ["begin", "context"]


def test_the_files_that_a_first_schema_is_inferred_from_start_spark(
    tmp_path: Path, starts: Callable[..., list[str]]
) -> None:
    stream = Ingested(tmp_path)
    stream.add("one")
    assert starts(stream) == ["begin", "discover", "context"]


def test_spark_starts_before_the_first_schema_is_inferred(
    tmp_path: Path, starts: Callable[..., list[str]]
) -> None:
    """Here the inference fails: no file has a record."""
    stream = Ingested(tmp_path)
    (stream.source / "empty.json").write_text("")
    assert starts(stream) == ["begin"]
    assert not (stream.state / "_source" / "metadata.json").exists()


def test_a_source_without_files_starts_no_spark(
    tmp_path: Path, starts: Callable[..., list[str]]
) -> None:
    assert starts(Ingested(tmp_path)) == []


def test_files_that_are_not_to_be_ingested_start_nothing(
    tmp_path: Path, starts: Callable[..., list[str]]
) -> None:
    """B88: what was there before the first start is recorded, and is no work."""
    stream = Ingested(tmp_path, **{"cloudFiles.includeExistingFiles": "false"})
    stream.add("old")
    assert starts(stream) == ["discover"]
    assert starts(stream) == ["discover"]


def test_a_source_that_does_not_exist_binds_no_state(tmp_path: Path) -> None:
    stream = Ingested(tmp_path)
    stream.source.rmdir()
    report = job.run(stream.spec())
    assert report["error"]["class"] == "SourceNotFoundError"
    assert not (stream.state / "_source" / "metadata.json").exists()


def test_what_is_wrong_is_found_also_when_nothing_is_new(stream: Ingested) -> None:
    stream.given["cloudFiles.schemaHints"] = "a struct<"
    report = job.run(stream.spec())
    assert report["outcome"] == "failed"
    assert report["error"]["class"] == "SchemaHintError"


@pytest.mark.parametrize("cache", ["kept", "lost"])
@pytest.mark.parametrize("lost", [[0], [1], [0, 1]])
def test_a_state_that_has_lost_entries_is_refused_also_when_nothing_is_new(
    stream: Ingested, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: list[int], cache: str
) -> None:
    """Planning, which looks for that too, is not reached: there is nothing to plan."""
    stream.add("three")
    stream.run()
    entries = sorted((stream.state / "_source" / "files").iterdir())
    assert len(entries) == 2, "one for each discovery"
    for number in lost:
        entries[number].unlink()
    if cache == "lost":
        monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "another machine"))
    for _ in range(2):
        report = job.run(stream.spec())
        assert report["outcome"] == "failed", report
        assert report["error"]["class"] == "CorruptedStateError", report


@pytest.mark.parametrize("content", ["", "v1", "v1\n{}\n{torn"])
def test_a_torn_record_of_a_batch_is_refused(stream: Ingested, content: str) -> None:
    """It was synced before it counted, so it is no power failure that did this."""
    record = stream.state / "_source" / "sink" / "0" / f"{1:020}"
    record.write_text(content)
    report = job.run(stream.spec())
    assert report["error"]["class"] == "CorruptedStateError", report
    assert str(record) in report["error"]["message"]
