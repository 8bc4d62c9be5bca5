"""Say in one sentence what matters of a stream now, with links to what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote

from airflow_cloudfiles.engine.errors import FileMissingError, FileUnreadableError
from airflow_cloudfiles.engine.messages import counted, plural, short_time

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.extensions.overview.runs import RunSummary, StreamOverview
    from airflow_cloudfiles.engine.extensions.overview.status import StreamStatus
    from airflow_cloudfiles.engine.schema.proposals import Proposal
    from airflow_cloudfiles.plugins.tasks import UnfinishedTask

Tone = Literal["succeeded", "waiting", "working", "failed", "plain"]
_OPERATIONS: Final = "/docs/how-to/operate-on-files"
_OF_FILES: Final = frozenset({FileUnreadableError.code, FileMissingError.code})


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a sentence.

    Attributes:
        text: What it says.
        path: Where it leads.
        below: What the path begins at: the address of Airflow, of all pages of this package, or of
            the pages of this stream.
    """

    text: str
    path: str
    below: Literal["airflow", "pages", "stream"]


@dataclass(frozen=True, slots=True)
class Lead:
    """What matters of a stream now.

    Attributes:
        tone: How it is colored.
        sentence: What is, and what is to be done.
        links: Where that is done.
        is_changing: Whether it is another one soon, without anybody.
    """

    tone: Tone
    sentence: str
    links: Sequence[Link] = ()
    is_changing: bool = False


def lead_of(
    status: StreamStatus,
    proposal: Proposal | None,
    unfinished: Sequence[UnfinishedTask],
    problem: str = "",
) -> Lead:
    """Choose what matters most.

    Args:
        status: How the stream is, as its state says.
        proposal: The change of its schema that waits, or was refused.
        unfinished: The task instances of the stream that have not ended.
        problem: Why its runs or its proposals could not be read.
    """
    if proposal is not None and proposal.refused_by is None:
        return _waits(proposal, unfinished)
    working = next((each for each in unfinished if each.is_at_work), None)
    if working is not None:
        return _works(working, status)
    if problem:
        return Lead("failed", f"The state cannot be read: {problem}")
    newest = status.newest
    if newest is not None and status.is_trouble:
        return _failed(newest, proposal, unfinished)
    if newest is None or status.sentence:
        is_healed = newest is not None and not newest.error
        sentence = status.sentence or "Plain queries ingest it: no run has left a report"
        return Lead("succeeded" if is_healed else "plain", f"{sentence}.")
    return _went_well(newest, status.overview)


def question_path(task: UnfinishedTask) -> str:
    """Build the path, in Airflow, of the form in which a task asks."""
    key = task.key
    dag, run, name = (quote(each, safe="") for each in (key.dag_id, key.run_id, key.task_id))
    mapped = f"/mapped/{key.map_index}" if key.map_index >= 0 else ""
    return f"/dags/{dag}/runs/{run}/tasks/{name}{mapped}/required_actions"


def _waits(proposal: Proposal, unfinished: Sequence[UnfinishedTask]) -> Lead:
    text = f"Waits for a decision: {proposal.in_short()}."
    schema = Link("Decide", "/schema", "stream")
    asking = next((each for each in unfinished if each.is_asking), None)
    if asking is not None and asking.is_own:
        return Lead("waiting", text, [schema])
    if asking is not None:
        shown = Link("What would change", "/schema", "stream")
        return Lead("waiting", text, [Link("Decide", question_path(asking), "airflow"), shown])
    going_on = next((each for each in unfinished if each.state != "up_for_retry"), None)
    if going_on is not None:
        text = f"{going_on.key.task_id} goes on with the answer about {proposal.in_short()}."
        return Lead("working", text, is_changing=True)
    return Lead("waiting", f"{text} No task asks now: start the DAG, which asks.", [schema])


def _works(task: UnfinishedTask, status: StreamStatus) -> Lead:
    newest = status.newest
    who = f"{task.key.task_id}, try {task.try_number}"
    since = f" since {short_time(task.started.isoformat())} UTC" if task.started else ""
    if newest is not None and newest.run_id == task.run_id and not newest.error:
        text = f"{_ingested(newest)} The task is still at work{since}: {who}."
    else:
        text = f"At work{since}: {who}."
        if newest is not None and newest.heals and not newest.is_healed:
            text += f" The try before failed once, and {newest.healed_by}."
        elif newest is not None and newest.error and not newest.asked:
            text += f" The run before failed with {newest.error}."
    return Lead("working", text, is_changing=True)


def _failed(
    newest: RunSummary, proposal: Proposal | None, unfinished: Sequence[UnfinishedTask]
) -> Lead:
    links = []
    if newest.code:
        path = f"/errors/{quote(newest.code, safe='')}"
        links.append(Link(f"{newest.code}: why, and what to do", path, "pages"))
    if newest.code in _OF_FILES:
        links.append(Link("Files that wait", "/files?status=outstanding", "stream"))
        links.append(Link("Quarantine, skip or replay it", _OPERATIONS, "pages"))
    retries = any(each.state == "up_for_retry" for each in unfinished)
    after = " Airflow tries again by itself." if retries else ""
    when = short_time(newest.started)
    if newest.heals:
        text = f"Failed once at {when} UTC, and {newest.healed_by}: the next run goes on.{after}"
        return Lead("waiting", text, links, is_changing=retries)
    if proposal is not None:
        text = f"{proposal.refused_by} has refused {proposal.in_short()}. Files ask for it."
        return Lead("failed", text, [Link("What was refused", "/schema", "stream"), *links])
    text = f"The newest ingestion failed, at {when} UTC: {newest.message}{after}"
    return Lead("failed", text, links, is_changing=retries)


def _went_well(newest: RunSummary, overview: StreamOverview | None) -> Lead:
    if newest.outcome != "succeeded":
        text = "A query goes on at the Spark server without its driver."
        return Lead("working", text, is_changing=True)
    found = []
    if newest.rescued_rows:
        found.append(f"rescued data in {counted(newest.rescued_rows, 'row')}")
    if newest.corrupt_records:
        found.append(counted(newest.corrupt_records, "corrupt record"))
    if found:
        text = f"{_ingested(newest)} It has {' and '.join(found)}."
        return Lead("waiting", text, [Link("Rescued data", "/rescued", "stream")])
    if newest.warnings:
        return Lead("waiting", f"{_ingested(newest)} It warns: {newest.warnings[0]}")
    if overview is not None and overview.outstanding_files:
        waiting = counted(overview.outstanding_files, "file")
        since = short_time(overview.oldest_outstanding or "")
        text = f"{waiting} {plural(overview.outstanding_files, 'waits', 'wait')} for the next run"
        files = Link("Files that wait", "/files?status=outstanding", "stream")
        return Lead("plain", f"{text}, since {since} UTC.", [files])
    return Lead("succeeded", f"Nothing to do. {_ingested(newest)}")


def _ingested(newest: RunSummary) -> str:
    what = f"{counted(newest.files, 'file')} and {counted(newest.rows, 'row')}"
    return f"The newest run ingested {what} at {short_time(newest.started)} UTC."
