"""The sentence on top of a stream's page: what matters now, and where to do something about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.commands.docs import pages
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    FileUnreadableError,
    SchemaProposedError,
    UnknownFieldException,
    to_record,
)
from airflow_cloudfiles.engine.extensions.overview.runs import newest_runs, stream_overview
from airflow_cloudfiles.engine.extensions.overview.status import judge
from airflow_cloudfiles.engine.schema.proposals import Proposal, ProposedChange
from airflow_cloudfiles.engine.state.run_history import encode_report
from airflow_cloudfiles.plugins.tasks import TaskKey, UnfinishedTask
from airflow_cloudfiles.plugins.views import Lead, lead_of
from tests.support.written_state import WrittenState

pytestmark = pytest.mark.airflow

NEW_FIELD = UnknownFieldException.of({"b": 1}, file="file:///in/2.json", retry=True)
REFUSED_FIELD = UnknownFieldException.of({"b": 1}, file="file:///in/2.json", retry=False)
CUT_OFF = FileUnreadableError("s3://lake/orders/p4.csv.gz is damaged or truncated. Replace it.")
ASKED = SchemaProposedError("The schema would change.")
CHANGES = tuple(ProposedChange("added", each, None, "string") for each in ("a", "b", "c"))
PROPOSAL = Proposal(0, "", "s3://lake/orders", "x", CHANGES, {}, {}, {})
AT = datetime(2026, 11, 23, 9, tzinfo=UTC)


@pytest.fixture
def written(tmp_path: Path) -> WrittenState:
    made = WrittenState(f"file://{tmp_path}/state")
    made.discover("a.json")
    made.plan()
    made.commit()
    return made


def _lead(
    written: WrittenState,
    *runs: CloudFilesError | dict[str, Any] | None,
    proposal: Proposal | None = None,
    unfinished: tuple[UnfinishedTask, ...] = (),
) -> Lead:
    """The sentence after some runs, the oldest first: failed, or with some counts."""
    for number, run in enumerate(runs):
        report: dict[str, Any] = {"run_id": f"r{number}", "kind": "ingest", "outcome": "succeeded"}
        report |= {"started": f"2026-11-23T08:0{number}:00+00:00", "files": 1, "rows": 10}
        if isinstance(run, CloudFilesError):
            report |= {"outcome": "failed", "error": to_record(run), "files": 0, "rows": 0}
        elif run is not None:
            report |= run
        written.state.put(f"_reports/r{number}.json", encode_report(report))
    found = newest_runs(written.state).newest
    return lead_of(judge(found, stream_overview(written.state), proposal), proposal, unfinished)


def _unfinished(state: str, *, asks: bool = False, map_index: int = -1) -> UnfinishedTask:
    return UnfinishedTask(TaskKey("d", "r+1", "t", map_index), state, AT, 2, asks)


def test_where_nothing_is_to_do_it_says_so(written: WrittenState) -> None:
    lead = _lead(written, {})
    assert (lead.tone, lead.links) == ("succeeded", ())
    assert lead.sentence.startswith("Nothing to do. The newest run ingested 1 file and 10 rows")


def test_a_change_that_waits_leads_to_where_it_is_decided(written: WrittenState) -> None:
    asking = _unfinished("awaiting_input", asks=True, map_index=3)
    lead = _lead(written, ASKED, proposal=PROPOSAL, unfinished=(asking,))
    assert (lead.tone, lead.sentence) == (
        "waiting",
        "Waits for a decision: 3 new columns: a, b, c.",
    )
    assert [(each.text, each.path) for each in lead.links] == [("Decide", "/schema")]
    airflows = replace(asking, is_own=False)
    lead = _lead(written, ASKED, proposal=PROPOSAL, unfinished=(airflows,))
    assert [(each.path, each.below) for each in lead.links] == [
        ("/dags/d/runs/r%2B1/tasks/t/mapped/3/required_actions", "airflow"),
        ("/schema", "stream"),
    ]
    nobody = _lead(written, ASKED, proposal=PROPOSAL)
    assert "No task asks now: start the DAG" in nobody.sentence
    answered = _lead(written, ASKED, proposal=PROPOSAL, unfinished=(_unfinished("queued"),))
    assert (answered.tone, answered.sentence) == (
        "working",
        "t goes on with the answer about 3 new columns: a, b, c.",
    )


def test_a_change_that_was_decided_is_no_failure(written: WrittenState) -> None:
    lead = _lead(written, ASKED)
    assert (lead.tone, "was decided" in lead.sentence) == ("plain", True)
    assert [each.shown for each in newest_runs(written.state).newest] == ["asked"]


def test_a_schema_change_that_healed_is_no_failure(written: WrittenState) -> None:
    before = _lead(written, {}, NEW_FIELD, unfinished=(_unfinished("up_for_retry"),))
    assert (before.tone, before.is_changing) == ("waiting", True)
    assert "the schema has the new field b: the next run goes on." in before.sentence
    assert "Airflow tries again by itself" in before.sentence
    after = _lead(written, {}, NEW_FIELD, NEW_FIELD, {})
    assert (after.tone, after.sentence) == (
        "succeeded",
        "Healed itself at 2026-11-23 08:03:00 UTC: the schema has the new field b.",
    )
    shown = [each.shown for each in newest_runs(written.state).newest]
    assert shown == ["succeeded", "healed", "healed", "succeeded"]


def test_new_fields_that_are_refused_are_a_failure(written: WrittenState) -> None:
    assert _lead(written, REFUSED_FIELD).tone == "failed"
    _lead(written, REFUSED_FIELD, {})
    shown = [each.shown for each in newest_runs(written.state).newest]
    assert shown == ["succeeded", "failed"]


def test_a_file_that_cannot_be_read_leads_to_what_to_do(written: WrittenState) -> None:
    lead = _lead(written, {}, CUT_OFF)
    assert lead.tone == "failed"
    assert "p4.csv.gz is damaged or truncated" in lead.sentence
    errors, files, operations = (each.path for each in lead.links)
    assert (errors, files) == ("/errors/CF401", "/files?status=outstanding")
    assert operations.removeprefix("/docs/") in pages()


def test_a_promotion_does_not_hide_that_the_ingestion_failed(written: WrittenState) -> None:
    lead = _lead(written, CUT_OFF, {"kind": "promote"})
    assert (lead.tone, "p4.csv.gz" in lead.sentence) == ("failed", True)


def test_while_a_task_works_nothing_else_is_said_to_be_the_end(written: WrittenState) -> None:
    task = _unfinished("running")
    lead = _lead(written, CUT_OFF, unfinished=(task,))
    assert (lead.tone, lead.is_changing) == ("working", True)
    assert lead.sentence == (
        "At work since 2026-11-23 09:00:00 UTC: t, try 2. "
        "The run before failed with FileUnreadableError."
    )
    ended = _lead(written, CUT_OFF, {"run_id": task.run_id}, unfinished=(task,))
    assert ended.tone == "working"
    assert "The newest run ingested 1 file and 10 rows" in ended.sentence
    assert "The task is still at work since 2026-11-23 09:00:00 UTC: t, try 2." in ended.sentence


def test_records_that_are_not_in_their_columns_are_said(written: WrittenState) -> None:
    lead = _lead(written, {"rescued_rows": 3, "corrupt_records": 1})
    assert lead.tone == "waiting"
    assert lead.sentence.endswith("It has rescued data in 3 rows and 1 corrupt record.")
    assert [each.path for each in lead.links] == ["/rescued"]


def test_files_that_wait_are_said(written: WrittenState) -> None:
    written.discover("b.json")
    lead = _lead(written, {})
    assert (lead.tone, lead.sentence[:31]) == ("plain", "1 file waits for the next run, ")


def test_a_stream_that_only_queries_have_run_says_so(written: WrittenState) -> None:
    assert _lead(written).sentence == "Plain queries ingest it: no run has left a report."
