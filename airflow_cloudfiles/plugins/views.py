"""Write the pages of a stream, with plots of its newest runs.

Each view reads what its page needs and nothing else. What cannot be read is said on the page, in
the words of the error; the rest is shown.

Bars, as numbers between 0 and 100; the page draws them. No script runs in a page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from airflow.providers.common.compat.sdk import AirflowException

from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError
from airflow_cloudfiles.engine.intake.file_states import STATUSES, FileQuery
from airflow_cloudfiles.engine.messages import install
from airflow_cloudfiles.engine.overview.runs import (
    Runs,
    RunSummary,
    StreamOverview,
    newest_files,
    newest_runs,
    stream_overview,
)
from airflow_cloudfiles.engine.overview.status import judge
from airflow_cloudfiles.engine.schema.diff import in_words
from airflow_cloudfiles.engine.schema.history import ColumnOrigin, SchemaEntry, SchemaHistory
from airflow_cloudfiles.engine.schema.proposals import Proposal, SchemaProposals
from airflow_cloudfiles.engine.source import source_of
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.hooks.approval import choices_of
from airflow_cloudfiles.plugins.lead import Lead, lead_of, question_path
from airflow_cloudfiles.plugins.tasks import (
    TaskStream,
    UnfinishedTask,
    asking_of,
    unfinished_of,
)

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.overview.rescued import RescuedFields
    from airflow_cloudfiles.engine.schema.proposals import ProposedChange


HEIGHT: Final = 100.0


@dataclass(frozen=True, slots=True)
class Bar:
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
    bars: Sequence[Bar]


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
    return [_plot(title, unit, measure, runs) for title, unit, measure in _MEASURES] if runs else []


def _plot(
    title: str, unit: str, measure: Callable[[RunSummary], float], runs: Sequence[RunSummary]
) -> Plot:
    highest = max(map(measure, runs))
    bars = [Bar(_height(measure(run), highest), measure(run), run) for run in runs]
    return Plot(title, unit, highest, bars)


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
        from airflow_cloudfiles.engine.overview.rescued import (  # noqa: PLC0415 - needs extras
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
