"""A task asks whether the schema may change, shows only text, and goes on with the answer."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, DownstreamTasksSkipped
from airflow.sdk import DAG
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.context import OutletEventAccessors
from deltalake import DeltaTable

from airflow_cloudfiles import SchemaHistory, SchemaProposals
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.schema.proposals import Proposal, ProposedChange
from airflow_cloudfiles.hooks import approval
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.operators.schema_change import (
    CloudFilesDecideSchemaOperator,
    CloudFilesProposeSchemaOperator,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.airflow

HAS_PARKING = approval.TaskAwaitingInput is not None
needs_parking = pytest.mark.skipif(not HAS_PARKING, reason="tasks wait from Airflow 3.3 on")


class Supervisor:
    """Keeps the first question of a task instance, as Airflow's API does."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def send(self, msg: Any) -> Any:
        self.asked.append(msg)
        return self.asked[0]


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Supervisor:
    """In the place of the process that talks to Airflow's API."""
    found = Supervisor()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", found, raising=False)
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    return found


def _stream(root: Path, **changes: Any) -> dict[str, Any]:
    return {
        "source": str(root / "in"),
        "format": "json",
        "checkpoint_location": str(root / "state"),
        "target": str(root / "table"),
        "master": "local[1]",
        **changes,
    }


def _context(**more: Any) -> Any:
    ti = SimpleNamespace(
        id="0198c1a4-0000-7000-8000-000000000000",
        dag_id="d",
        run_id="r",
        task_id="t",
        map_index=-1,
        try_number=1,
        **more,
    )
    return {"ti": ti, "outlet_events": OutletEventAccessors()}


def _drop(root: Path, name: str, *records: dict[str, Any]) -> None:
    (root / "in").mkdir(exist_ok=True)
    root.joinpath("in", name).write_text("".join(f"{json.dumps(each)}\n" for each in records))


def _answered(option: str, **columns: str) -> dict[str, Any]:
    return {
        "chosen_options": [option],
        "params_input": columns,
        "responded_by_user": {"id": "7", "name": "ann"},
        "timedout": False,
    }


def _proposal(*samples: str, path: str = "b") -> Proposal:
    change = ProposedChange("added", path, None, "string", "file:///in/2.json", samples)
    return Proposal(0, "", "file:///in", "x", (change,), {}, {}, {})


@needs_parking
@pytest.mark.spark
@pytest.mark.slow
def test_a_task_waits_and_ingests_in_the_same_try(tmp_path: Path, supervisor: Supervisor) -> None:
    told: list[Any] = []
    _drop(tmp_path, "1.json", {"a": "1"}, {"a": "2"})
    task = CloudFilesIngestOperator(
        task_id="t",
        require_approval=True,
        approval_timeout=timedelta(hours=1),
        approval_default="refuse",
        on_schema_change=lambda context: told.append(context["schema_change"]),
        **_stream(tmp_path),
    )
    context = _context()
    assert task.execute(context)["rows"] == 2
    _drop(tmp_path, "2.json", {"a": "3", "b": 4})
    with pytest.raises(approval.TaskAwaitingInput) as parked:
        task.execute(context)
    assert parked.value.timeout == timedelta(hours=1)
    assert (parked.value.method_name, parked.value.kwargs) == (
        "resume_after_decision",
        {"proposal": 0},
    )
    [asked] = supervisor.asked
    assert asked.params["b"]["schema"]["enum"][:2] == ["string", "boolean"]
    assert (asked.options, asked.defaults) == (["Accept", "Rescue", "Refuse"], ["Refuse"])
    assert "+ b string added\n    in file:///" in asked.body
    assert "such as 4\n" in asked.body
    assert told == []

    for wrong in ({"b": "INTT"}, {"c": "int"}):
        with pytest.raises(AirflowFailException, match="cannot be taken, and nothing is decided"):
            task.resume_after_decision(context, proposal=0, event=_answered("Accept", **wrong))
    with pytest.raises(approval.TaskAwaitingInput):  # cleared: it asks again
        task.execute(context)
    report = task.resume_after_decision(context, proposal=0, event=_answered("Accept", b="int"))
    assert (report["rows"], report["schema_version"], report["outcome"]) == (1, 1, "succeeded")
    entry = SchemaHistory(str(tmp_path / "state")).show()
    assert (entry.reason["by"], entry.reason["hints"]) == ("ann (d.t)", "b int")
    assert [each["changes"] for each in told] == [["b int added"]]
    table = DeltaTable(str(tmp_path / "table")).to_pyarrow_dataset().to_table()
    assert sorted((row["a"], row["b"]) for row in table.to_pylist()) == [
        ("1", None),
        ("2", None),
        ("3", 4),
    ]

    _drop(tmp_path, "3.json", {"a": "5", "other": "6"})
    with pytest.raises(AirflowFailException, match="start another run of the DAG"):
        task.execute(context)  # Airflow would show the first question
    with pytest.raises(AirflowFailException, match=r"ann \(d.t\) has refused"):
        task.resume_after_decision(context, proposal=1, event=_answered("Refuse"))


@pytest.mark.spark
@pytest.mark.slow
def test_two_tasks_around_airflows_own_do_the_same(tmp_path: Path, supervisor: Supervisor) -> None:
    stream = _stream(tmp_path, master=None, engine="local")
    with DAG("d", schedule=None):
        propose = CloudFilesProposeSchemaOperator(task_id="propose", **stream)
        decide = CloudFilesDecideSchemaOperator(
            task_id="decide", decision=["Rescue"], decided_by="bob", **stream
        )
        propose >> decide  # type: ignore[operator]
    _drop(tmp_path, "1.json", {"a": "1"})
    pushed: dict[str, Any] = {}
    context = _context(xcom_push=lambda key, value: pushed.update({key: value}))
    context["task"] = propose
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        propose.execute(context)
    assert skipped.value.tasks == ["decide"]
    assert (pushed["return_value"]["proposal"], pushed["return_value"]["report"]["rows"]) == (
        None,
        1,
    )
    _drop(tmp_path, "2.json", {"a": "2", "b": "3"})
    found = propose.execute(context)
    assert (found["proposal"], found["changes"]) == (0, ["b string added"])
    decide.proposal = "0"
    assert decide.execute(_context())["rescued_rows"] == 1
    assert decide.execute(_context())["rows"] == 0  # a retry decides nothing anew
    entry = SchemaHistory(str(tmp_path / "state")).show()
    assert (entry.version, entry.reason["change"], entry.reason["by"]) == (
        1,
        "rescued",
        "bob (d.t)",
    )
    assert SchemaProposals(str(tmp_path / "state")).waiting() is None
    assert supervisor.asked == []


def test_nothing_of_a_file_can_leave_the_block_that_shows_it() -> None:
    bad = '"```\\u202e</script><img src=x onerror=alert(1)> [x](https://evil.example) | `"'
    body = approval.question_of(_proposal(bad, path="`x\n# heading`"), "/in").body
    fence, *rest = body.split("\n")
    assert fence == "````diff"
    end = rest.index("````")
    assert all("img" not in line and "evil" not in line for line in rest[end:])
    assert rest[0] == "+ `x\\n# heading` string added"
    assert bad in rest[2]
    assert "evil" not in approval.question_of(_proposal(bad), "/in").subject


def test_a_question_has_an_end() -> None:
    body = approval.question_of(_proposal(*(['"x"'] * 10_000)), "/in").body
    assert len(body) < approval.MOST_CHARACTERS + 1000
    assert "cloudfiles schema proposed" in body


def test_an_answer_that_does_not_come_fails_the_task_for_good() -> None:
    late = {"error": "The timeout has passed.", "error_type": "timeout"}
    for event in (late, None, {"chosen_options": []}):
        with pytest.raises(AirflowFailException, match="the next run of the stream asks again"):
            approval.answer_of(event)
    default = {**_answered("Refuse"), "responded_by_user": None, "timedout": True}
    assert approval.answer_of(default) == approval.Answer("refuse", "")


@pytest.mark.parametrize(
    ("chosen", "decision"),
    [("accept", "accept"), (["Rescue"], "rescue"), ("Approve", "accept"), (["Reject"], "refuse")],
)
def test_what_airflows_operators_return_is_understood(chosen: object, decision: str) -> None:
    assert approval.decision_of(chosen) == decision


@pytest.mark.parametrize("chosen", ["", "maybe", [], ["Accept", "Refuse"], None])
def test_what_is_no_decision_is_refused(chosen: object) -> None:
    with pytest.raises(OptionError, match="decision must be accept, rescue, refuse"):
        approval.decision_of(chosen)


def test_a_column_may_become_one_of_some_types_or_none() -> None:
    field = approval.question_of(_proposal('"12.50"', '"\u202e"'), "/in").fields["b"]
    assert (field["value"], field["description"]) == ("string", 'Such as "12.50", "\\u202e".')
    assert field["schema"]["enum"][-3:] == ["timestamp", "rescue", "refuse"]
    assert field["schema"]["values_display"]["string"] == "string (proposed)"
    nested = ProposedChange("added", "s", None, "struct<a:string>")
    wider = ProposedChange("retyped", "n", "int", "bigint")
    assert approval.choices_of(nested) == ["struct<a:string>", "rescue", "refuse"]
    assert approval.choices_of(wider) == ["bigint", "rescue", "refuse"]
    assert approval.field_of(wider)["description"] == "Was int."


@needs_parking
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"approval_default": "yes"}, "must be accept, rescue, refuse or None"),
        ({"approval_default": "accept"}, "without approval_timeout"),
        ({"approval_timeout": 60}, "must be a timedelta"),
        ({"format": "delta"}, "is for streams of files"),
    ],
)
def test_a_mistake_fails_when_the_dag_is_parsed(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        CloudFilesIngestOperator(
            task_id="t", **{**_stream(tmp_path), "require_approval": True, **changes}
        )


def test_before_airflow_3_3_the_error_says_what_to_write_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approval, "TaskAwaitingInput", None)
    with pytest.raises(OptionError, match=r"needs Airflow 3\.3.*CloudFilesProposeSchemaOperator"):
        CloudFilesIngestOperator(task_id="t", require_approval=True, **_stream(tmp_path))
    task = CloudFilesProposeSchemaOperator(task_id="t", **_stream(tmp_path))
    assert task.stream_arguments().options == {"cloudFiles.requireApproval": True}


@needs_parking
def test_a_mapped_task_may_wait() -> None:
    with DAG("mapped", schedule=None):
        mapped = CloudFilesIngestOperator.partial(
            task_id="t", format="json", require_approval=True
        ).expand_kwargs([{"source": "/a", "checkpoint_location": "/b", "target": "/c"}])
    assert mapped.partial_kwargs["require_approval"]
