"""How a stream is: by the summary of its newest ingestion, or by its state."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import SchemaProposedError, UnknownFieldException, to_record
from airflow_cloudfiles.engine.extensions.overview.status import stream_status, summarized_status
from airflow_cloudfiles.engine.job.counts import add_counts
from airflow_cloudfiles.engine.job.launch import JobSpec, LocalPython, launch
from airflow_cloudfiles.engine.state.run_history import SUMMARY, write_report
from airflow_cloudfiles.engine.storage.small_objects import seal
from tests.support.counted_calls import counted_calls
from tests.support.written_state import WrittenState

ENDED = "2026-11-23T08:00:09+00:00"
NOW = timedelta(0)


@pytest.fixture
def written(tmp_path: Path) -> WrittenState:
    found = WrittenState(f"file://{tmp_path}/state")
    found.discover("a.json", "bb.json")
    found.plan(max_files=1)
    found.commit()
    return found


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    return counted_calls(monkeypatch)


def _spec(written: WrittenState, run_id: str = "r", kind: str = "ingest") -> JobSpec:
    return JobSpec(
        kind=kind,
        source="s3://lake/orders",
        format="json",
        checkpoint_location=written.uri,
        target=written.uri.replace("/state", "/table"),
        run_id=run_id,
    )


def _run_ends(written: WrittenState, *, has_counts: bool = True, **more: Any) -> None:
    """A run leaves its report, with what it counts itself."""
    report: dict[str, Any] = {
        "run_id": "r",
        "kind": "ingest",
        "outcome": "succeeded",
        "started": "2026-11-23T08:00:00+00:00",
        "ended": ENDED,
        "warnings": [],
    }
    if has_counts:
        last = written.files.latest()
        newest = written.files.summary(last).created
        add_counts(report, _spec(written), -1, last, None, newest_found=newest)
    write_report(written.state, "_reports/r.json", {**report, **more})


def test_the_summary_says_of_a_stream_what_its_state_does(
    written: WrittenState, calls: Counter[str]
) -> None:
    full = stream_status(written.uri, behind=NOW)
    _run_ends(written, rows=10)
    calls.clear()
    found = summarized_status(written.uri, behind=NOW)
    assert calls == {"get": 1}
    assert (found.standing, found.overview, found.as_of) == ("behind", full.overview, ENDED)
    assert found.newest is not None
    assert (found.newest.run_id, found.newest.rows) == ("r", 10)
    assert found.sentence == full.sentence
    assert summarized_status(written.uri, behind=timedelta(days=1)).standing == "ok"


def test_a_stream_that_is_well_costs_two_requests(
    written: WrittenState, calls: Counter[str]
) -> None:
    written.plan()
    written.commit()
    _run_ends(written)
    calls.clear()
    assert stream_status(written.uri, behind=NOW).standing == "ok"
    assert calls == {"get": 1, "list": 1}


def test_what_was_recorded_after_the_run_is_seen(written: WrittenState) -> None:
    written.plan()
    written.commit()
    _run_ends(written)
    written.discover("c.json")
    found = stream_status(written.uri, behind=NOW)
    assert (found.standing, found.overview and found.overview.outstanding_files) == ("behind", 1)
    assert summarized_status(written.uri, behind=NOW).standing == "ok", "as of the end of the run"


def test_a_failure_is_looked_at_once_more(written: WrittenState) -> None:
    error = to_record(UnknownFieldException("New fields: price."))
    _run_ends(written, has_counts=False, outcome="failed", error=error)
    for look in (summarized_status, stream_status):
        found = look(written.uri)
        assert (found.standing, found.overview is None) == ("failed", look is summarized_status)
        assert found.sentence.startswith("UnknownFieldException: New fields: price. [CF501]")


def test_a_change_that_waits_is_in_the_summary(written: WrittenState) -> None:
    error = to_record(SchemaProposedError("Proposal 0 waits."))
    _run_ends(written, outcome="failed", error=error)
    found = summarized_status(written.uri)
    assert (found.standing, found.sentence) == ("undecided", "Proposal 0 waits.")


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        seal({"version": 9, "ended": ENDED}),
        seal({"version": 1, "ended": ENDED, "files": "many"}),
        seal({"version": 1, "ended": ENDED, "metrics": [], "position": 7}),
        seal({"version": 1}),
        seal({"version": 1, "ended": "soon", "started": ENDED}),
        seal({"version": 1, "ended": ENDED, "started": "2026-11-23"}),
    ],
)
def test_without_a_summary_that_can_be_read_the_state_is(
    written: WrittenState, content: bytes | None
) -> None:
    full = stream_status(written.uri, behind=NOW)
    _run_ends(written)
    written.state.delete("_reports/r.json")
    written.state.delete(SUMMARY)
    if content is not None:
        written.state.put(SUMMARY, content)
    assert replace(summarized_status(written.uri, behind=NOW), as_of=None) == full
    assert stream_status(written.uri, behind=NOW) == full


def test_a_summary_is_small_whatever_a_run_has_to_say(written: WrittenState) -> None:
    error = {"class": "E", "code": "", "message": "m" * 10**5, "blamed": "b" * 10**5}
    _run_ends(written, error=error, warnings=["w" * 10**5] * 20, schema="s" * 10**5)
    assert len(written.state.get(SUMMARY)) < 10_000


def test_other_runs_leave_the_summary_of_the_newest_ingestion(written: WrittenState) -> None:
    _run_ends(written)
    before = written.state.get(SUMMARY)
    for kind in ("infer", "promote", "replay", "clean"):
        write_report(written.state, f"_reports/{kind}.json", {"kind": kind, "ended": ENDED})
    assert written.state.get(SUMMARY) == before


def test_a_summary_that_cannot_be_written_fails_no_run(
    written: WrittenState, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = type(written.state).put

    def put(store: Any, key: str, content: bytes) -> None:
        if key == SUMMARY:
            raise TimeoutError("The store does not answer")
        real(store, key, content)

    monkeypatch.setattr(type(written.state), "put", put)
    _run_ends(written)
    assert json.loads(written.state.get("_reports/r.json"))["run_id"] == "r"


@pytest.mark.slow
def test_a_run_leaves_its_summary(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "1.json").write_text('{"a": 1}\n')
    spec = JobSpec(
        kind="ingest",
        source=str(source),
        format="json",
        checkpoint_location=str(tmp_path / "state"),
        target=str(tmp_path / "table"),
        run_id="r",
    )
    report = launch(spec, LocalPython(), on_log=lambda _: None).wait()
    found = summarized_status(spec.checkpoint_location, behind=NOW)
    assert (found.standing, found.as_of, found.sentence) == ("ok", report["ended"], "")
    assert found.newest is not None
    assert (found.newest.rows, found.newest.target_version) == (1, report["target_version"])
    now = stream_status(spec.checkpoint_location)
    assert found.overview == now.overview
    assert found.overview is not None
    assert datetime.fromisoformat(str(found.overview.newest_found)) <= datetime.now(UTC)
