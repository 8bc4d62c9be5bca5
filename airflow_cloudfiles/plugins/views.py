"""Write the pages of a stream, with plots of its newest runs.

Each view reads what its page needs and nothing else. What cannot be read is said on the page, in
the words of the error; the rest is shown.

Bars, as numbers between 0 and 100; the page draws them. No script runs in a page.

The lead of a page says in one sentence what matters now, with links to what can be done about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar
from urllib.parse import quote

from airflow.providers.common.compat.sdk import AirflowException
from airflow.utils.session import create_session

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    FileMissingError,
    FileUnreadableError,
    OptionError,
    StateConflictError,
)
from airflow_cloudfiles.engine.extensions.overview.runs import (
    Runs,
    RunSummary,
    StreamOverview,
    newest_files,
    newest_runs,
    stream_overview,
)
from airflow_cloudfiles.engine.extensions.overview.status import judge
from airflow_cloudfiles.engine.intake.file_states import STATUSES, FileQuery
from airflow_cloudfiles.engine.messages import counted, install, plural, short_time
from airflow_cloudfiles.engine.schema.diff import in_words
from airflow_cloudfiles.engine.schema.history import ColumnOrigin, SchemaEntry, SchemaHistory
from airflow_cloudfiles.engine.schema.proposals import Proposal, SchemaProposals
from airflow_cloudfiles.engine.source import source_of
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.hooks.approval import OPTIONS, choices_of, decision_of
from airflow_cloudfiles.plugins.tasks import (
    TaskStream,
    UnfinishedTask,
    asking_of,
    unfinished_of,
)

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

    from airflow_cloudfiles.engine.extensions.overview.rescued import RescuedFields
    from airflow_cloudfiles.engine.extensions.overview.status import StreamStatus
    from airflow_cloudfiles.engine.schema.proposals import ProposedChange


HEIGHT: Final = 100.0


@dataclass(frozen=True, slots=True)
class RunBar:
    """One run in a plot.

    Attributes:
        height: Of the bar, at most `HEIGHT`; one that is not zero can be seen.
        value: What it stands for.
        run: The run.
    """

    height: float
    value: float
    run: RunSummary


@dataclass(frozen=True, slots=True)
class Plot:
    """One measure over the newest runs, the oldest first.

    Attributes:
        title: What it shows.
        unit: Of its values: `""` for a count, `s` for seconds.
        highest: Its highest value.
        bars: A bar for each run.
    """

    title: str
    unit: str
    highest: float
    bars: Sequence[RunBar]


_MEASURES: Final[Sequence[tuple[str, str, Callable[[RunSummary], float]]]] = (
    ("Files", "", lambda run: run.files),
    ("Rows", "", lambda run: run.rows),
    ("Rescued rows", "", lambda run: run.rescued_rows),
    ("Corrupt records", "", lambda run: run.corrupt_records),
    ("Duration", "s", lambda run: run.seconds or 0.0),
)


def plots_of(newest: Sequence[RunSummary]) -> list[Plot]:
    """Make the plots of some runs of which the newest comes first; only those that ingested."""
    runs = [run for run in reversed(newest) if run.kind == "ingest"]
    plots = []
    for title, unit, measure in _MEASURES if runs else ():
        highest = max(map(measure, runs))
        bars = [RunBar(_height(measure(run), highest), measure(run), run) for run in runs]
        plots.append(Plot(title, unit, highest, bars))
    return plots


def _height(value: float, highest: float) -> float:
    return 0.0 if value <= 0 else max(2.0, round(HEIGHT * value / highest, 1))


MOST_VERSIONS: Final = 50
"""How many versions of a schema are shown."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Read(Generic[_T]):
    """What was read, or why it was not.

    Attributes:
        value: What was read.
        problem: Why it was not, for people.
    """

    value: _T | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StreamView:
    """The first page of a stream."""

    lead: Lead
    newest: RunSummary | None
    overview: Read[StreamOverview]
    runs: Read[Runs]
    plots: Sequence[Plot]


@dataclass(frozen=True, slots=True)
class VersionView:
    """One version of a schema, and how it differs from the one before."""

    entry: SchemaEntry
    changes: Sequence[str]
    files: Sequence[str]


@dataclass(frozen=True, slots=True)
class SchemaView:
    """The page of the schema.

    Attributes:
        versions: The newest first.
        columns: Of the newest version.
        has_older: Whether there are older versions.
        proposal: The change that waits, or was refused.
        asking: The task that asks for it; `None` where none does.
    """

    versions: Sequence[VersionView]
    columns: Sequence[ColumnOrigin]
    has_older: bool
    proposal: Proposal | None = None
    asking: UnfinishedTask | None = None

    @property
    def question(self) -> str:
        """The path, in Airflow, of the form in which the task asks; empty where none does."""
        return question_path(self.asking) if self.asking else ""

    @property
    def choices(self) -> Sequence[tuple[ProposedChange, Sequence[str]]]:
        """What would change, each with what may become of it."""
        return [(each, choices_of(each)) for each in self.proposal.changes] if self.proposal else []


@dataclass(frozen=True, slots=True)
class FilesView:
    """The page of files."""

    files: Sequence[Mapping[str, Any]]
    is_all: bool


def read(look: Callable[[], _T]) -> Read[_T]:
    """Call what reads a state; what a person can do something about becomes words."""
    try:
        return Read(look())
    except (CloudFilesError, AirflowException) as failure:
        return Read(problem=str(failure))
    except OSError as failure:
        return Read(problem=f"The storage could not be read: {failure}")


def stream_view(task: TaskStream) -> StreamView:
    """Read what the first page shows."""
    state = open_store(task.stream.checkpoint_location, task.access)
    problem = "The source is a Delta table: its log says what it has, not this state."
    overview: Read[StreamOverview] = Read(problem=problem)
    if source_of(task.stream.format).records_arrivals:
        overview = read(lambda: stream_overview(state))
    runs = read(lambda: newest_runs(state))
    proposal = read(lambda: proposals_of(task).waiting())
    newest = runs.value.newest if runs.value else ()
    status = judge(newest, overview.value, proposal.value)
    lead = lead_of(status, proposal.value, unfinished_of(task), runs.problem or proposal.problem)
    return StreamView(lead, status.newest, overview, runs, plots_of(newest))


def proposals_of(task: TaskStream) -> SchemaProposals:
    """Open the changes of a stream's schema that wait."""
    location = task.stream.schema_location or task.stream.checkpoint_location
    return SchemaProposals(location, access=task.access)


def schema_view(task: TaskStream) -> SchemaView:
    """Read the newest versions of the schema.

    Raises:
        CloudFilesError: The schema log cannot be read.
    """
    proposals = proposals_of(task)
    history = SchemaHistory(proposals.uri, access=task.access)
    versions = history.versions()
    shown = versions[: -MOST_VERSIONS - 1 : -1]
    views = [
        VersionView(each, _changes(history, each), [*each.reason.get("brought", {})])
        for each in shown
    ]
    columns = history.blame() if versions else []
    waiting = proposals.waiting()
    asks = waiting is not None and waiting.refused_by is None
    asking = asking_of(task) if asks else None
    return SchemaView(views, columns, len(shown) < len(versions), waiting, asking)


def files_view(task: TaskStream, status: str, path: str) -> FilesView:
    """Read the newest files.

    Args:
        task: The task instance.
        status: One of `STATUSES`, or empty for any.
        path: A file, a folder or a pattern; empty for any.

    Raises:
        CloudFilesError: The state cannot be read, or what was asked for is not valid.
    """
    if status and status not in STATUSES:
        raise OptionError(f"status must be one of {', '.join(STATUSES)}, got {status!r}.")
    query = FileQuery(path=path or None, status=(status,) if status else ())
    return FilesView(*newest_files(task.stream.checkpoint_location, query, task.access))


def rescued_view(task: TaskStream) -> RescuedFields | None:
    """Read the newest rescued data; `None` where the stream has no Delta table.

    Raises:
        CloudFilesError: The table cannot be read.
    """
    target = task.stream.target
    if target is None or target.startswith("iceberg:"):
        return None
    try:
        from airflow_cloudfiles.engine.extensions.overview.rescued import (  # noqa: PLC0415 - needs extras
            rescued_fields,
        )
    except ModuleNotFoundError as failure:
        raise OptionError(
            f"Rescued data is in the table, and reading that needs the package {failure.name} on "
            f"the API server. {install('spark', 'delta')}"
        ) from failure
    return rescued_fields(target, task.access, format_name=task.stream.format)


def _changes(history: SchemaHistory, entry: SchemaEntry) -> list[str]:
    if entry.version == 0:
        return []
    return [in_words(each) for each in history.diff(entry.version - 1, entry.version)]


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


def answer(task: TaskStream, fields: Mapping[str, str], user: BaseUser) -> None:
    """Answer the task of a stream that asks, as from Airflow's own form; no page writes to a state.

    The answer is checked first, so that a mistake is said where it was made.

    Args:
        task: The stream.
        fields: `answer`, one of the options; `proposal`, the number that was shown; for each change
            by its position `column<n>`, what was chosen, and `other<n>`, another type.
        user: Who answers.

    Raises:
        OptionError: It is no answer.
        SchemaHintError: A type cannot be read or does not fit.
        StateConflictError: Somebody else has decided, or no task asks any more.
        HTTPException: Airflow refuses the answer.
    """
    from airflow.api_fastapi.core_api.datamodels.hitl import (  # noqa: PLC0415 - from Airflow 3.3
        UpdateHITLDetailPayload,
    )
    from airflow.api_fastapi.core_api.routes.public.hitl import (  # noqa: PLC0415 - as above
        update_hitl_detail,
    )

    decision = decision_of(fields.get("answer"))
    asking = asking_of(task)
    proposals = proposals_of(task)
    found = proposals.waiting()
    if asking is None or not asking.is_own or found is None:
        raise StateConflictError("No task asks any more. Look at the versions below.")
    columns = {}
    for number, change in enumerate(found.changes):
        chosen = fields.get(f"other{number}", "").strip() or fields.get(f"column{number}", "")
        if chosen:
            columns[change.path] = chosen
    shown = int(fields["proposal"]) if fields.get("proposal", "").isdecimal() else -1
    proposals.check(columns if decision == "accept" else {}, proposal=shown)
    option = next(each for each in OPTIONS if each.lower() == decision)
    key = asking.key
    with create_session() as session:
        update_hitl_detail(
            dag_id=key.dag_id,
            dag_run_id=key.run_id,
            task_id=key.task_id,
            map_index=key.map_index,
            update_hitl_detail_payload=UpdateHITLDetailPayload(
                chosen_options=[option], params_input=columns
            ),
            user=user,
            session=session,
        )
