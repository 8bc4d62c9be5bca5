"""List the streams of an Airflow, those in trouble first.

Names, tables and tasks come from Airflow's database; how each stream is, from the summary that its
newest run has left. Searching, filtering, sorting and paging are the server's: a list is an address
that can be kept, and needs no script.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from airflow_cloudfiles.engine.extensions.overview.status import StreamStatus, summarized_status
from airflow_cloudfiles.plugins.statuses import StateKey, Statuses
from airflow_cloudfiles.plugins.tasks import Hooks, RenderedTask, TaskStream, main_of
from airflow_cloudfiles.plugins.views import read

ROWS: Final = 50
"""How many streams a page has."""
FIRST_ANSWER_SECONDS: Final = 3.0
"""How long the rows of a page wait for states that were not read yet."""
BEHIND: Final = timedelta(hours=1)
"""A stream is behind when a file waits for longer."""
STANDINGS: Final = ("failed", "undecided", "unreadable", "behind", "unread", "new", "ok")
"""The words for how a stream is, in the order of the list."""
TROUBLE: Final = "trouble"
_TROUBLES: Final = frozenset({"failed", "undecided", "unreadable", "behind"})
_FAILED: Final = frozenset({"failed", "upstream_failed"})
Looks = Mapping[StateKey, Callable[[], StreamStatus]]
"""How states are read."""
_statuses = Statuses()


@dataclass(frozen=True, slots=True)
class ListedStream:
    """One row.

    Attributes:
        main: The task instance that it leads to.
        tasks: All of its task instances.
        source: Its source, as it was rendered.
        format: Of the source.
        target: Its table, if known.
        standing: One of `STANDINGS`.
        sentence: What is to know or to do.
        status: What its state says; `None` where that was not read.
        key: Its state; `None` where it cannot be located.
    """

    main: RenderedTask | TaskStream
    tasks: Sequence[RenderedTask | TaskStream]
    source: str
    format: str
    target: str | None
    standing: str = "unread"
    sentence: str = ""
    status: StreamStatus | None = None
    key: StateKey | None = None

    @property
    def is_trouble(self) -> bool:
        """Whether somebody has to look."""
        return self.standing in _TROUBLES

    @property
    def dag_ids(self) -> set[str]:
        """The DAGs that work on it."""
        return {each.key.dag_id for each in self.tasks}

    def as_read(self, status: StreamStatus | None) -> ListedStream:
        """Give the row with what is known of the state, and what Airflow says of the tasks."""
        standing, sentence = (
            ("unread", "") if status is None else (status.standing, status.sentence)
        )
        failed = [each.name for each in self.tasks if each.state in _FAILED]
        if failed and standing in {"ok", "new", "unread", "behind"}:
            standing, sentence = "failed", f"The task {failed[0]} has failed: its log says why."
        return replace(self, standing=standing, sentence=sentence, status=status)


def located(found: Sequence[RenderedTask]) -> tuple[list[ListedStream], Looks]:
    """Find the streams of some task instances, and how the state of each is read.

    Returns:
        The rows, without what their states say, in the order of their names; and the looks.
    """
    hooks: Hooks = {}
    by_state: dict[StateKey, list[TaskStream]] = {}
    rows: list[ListedStream] = []
    for task in found:
        stream = read(partial(task.stream, hooks))
        if stream.value is not None:
            conn_id = task.fields.get("conn_id")
            key = StateKey(stream.value.stream.checkpoint_location, conn_id and str(conn_id))
            by_state.setdefault(key, []).append(stream.value)
        elif stream.problem:
            rows.append(_not_located(task, stream.problem))
    looks: dict[StateKey, Callable[[], StreamStatus]] = {}
    for key, tasks in by_state.items():
        main = main_of(tasks)
        given = main.stream
        elsewhere = given.schema_location
        looks[key] = partial(
            summarized_status,
            key.location,
            main.access,
            schema_location=elsewhere,
            behind=BEHIND,
        )
        rows.append(ListedStream(main, tasks, given.source, given.format, given.target, key=key))
    return sorted(rows, key=lambda row: row.main.name), looks


def _not_located(task: RenderedTask, problem: str) -> ListedStream:
    source, kind = (str(task.fields.get(name, "")) for name in ("source", "format"))
    status = StreamStatus(standing="unreadable", sentence=problem)
    return ListedStream(task, [task], source, kind, None, "unreadable", problem, status)


def ask(looks: Looks) -> None:
    """Begin to read the states that are not known, or not fresh."""
    _statuses.ask(looks)


def read_rows(
    rows: Sequence[ListedStream], seconds: float = FIRST_ANSWER_SECONDS
) -> list[ListedStream]:
    """Give the rows with what is known of their states.

    Args:
        rows: What `located` gave.
        seconds: How long to wait for what was never read.
    """
    _statuses.wait([row.key for row in rows if row.key is not None], seconds)
    return [row if row.key is None else row.as_read(_statuses.of(row.key)) for row in rows]


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What is asked of the list.

    Attributes:
        q: A part of a name, source, table or location; any case.
        dag: The id of a DAG; empty for any.
        status: One of `STANDINGS`, or `TROUBLE`; empty for any.
        state: What Airflow calls the state of one of its task instances; empty for any.
        sort: One of `SORTS`, perhaps with a `-` before it for the other direction.
        page: From 1.
    """

    q: str = ""
    dag: str = ""
    status: str = ""
    state: str = ""
    sort: str = ""
    page: int = 1

    def address(self, **changes: object) -> str:
        """Build the query of an address; a change of anything begins with the first page."""
        asked = {**asdict(self), "page": 1, **changes}
        given = {name: value for name, value in asked.items() if value not in {"", 1}}
        return f"?{urlencode(given)}" if given else "?"

    def sorted_by(self, name: str) -> str:
        """Build the query of the address that a head of a column leads to."""
        return self.address(sort=f"-{name}" if self.sort == name else name)

    def direction(self, name: str) -> str:
        """Say how a column is sorted, in the words of `aria-sort`."""
        if self.sort.removeprefix("-") != name:
            return "none"
        return "descending" if self._is_reversed(name) else "ascending"

    def sort_rows(self, rows: list[ListedStream]) -> None:
        """Sort rows; those that are alike by name."""
        name = self.sort.removeprefix("-")
        name = name if name in SORTS else "status"
        rows.sort(key=lambda row: row.main.name)
        rows.sort(key=SORTS[name][0], reverse=self._is_reversed(name))

    def _is_reversed(self, name: str) -> bool:
        return SORTS[name][1] != self.sort.startswith("-")

    def fits(self, row: ListedStream) -> bool:
        """Tell whether a row is wanted, whatever its status."""
        if self.dag and self.dag not in row.dag_ids:
            return False
        if self.state and self.state not in {each.state for each in row.tasks}:
            return False
        if not self.q:
            return True
        location = row.key.location if row.key else ""
        texts = (row.source, row.target or "", location, *(each.name for each in row.tasks))
        return any(self.q.casefold() in each.casefold() for each in texts)

    def has_status(self, row: ListedStream) -> bool:
        """Tell whether a row has the wanted status."""
        if self.status == TROUBLE:
            return row.is_trouble
        return self.status in {"", row.standing}


def _of_overview(name: str, otherwise: Any) -> Callable[[ListedStream], Any]:
    def value(row: ListedStream) -> Any:
        overview = row.status.overview if row.status else None
        found = None if overview is None else getattr(overview, name)
        return otherwise if found is None else found

    return value


def _newest(row: ListedStream) -> str:
    return row.status.newest.started if row.status and row.status.newest else ""


SORTS: Final[Mapping[str, tuple[Callable[[ListedStream], Any], bool]]] = {
    "status": (lambda row: STANDINGS.index(row.standing), False),
    "name": (lambda row: row.main.name, False),
    "waiting": (_of_overview("outstanding_files", -1), True),
    "oldest": (_of_overview("oldest_outstanding", "~"), False),
    "found": (_of_overview("newest_found", ""), True),
    "run": (_newest, True),
}
"""What a column sorts by, and whether the highest comes first."""


@dataclass(frozen=True, slots=True)
class StreamPage:
    """One page of the list.

    Attributes:
        rows: Those of the page.
        counts: How many fit the query but for its status, by status; `TROUBLE` and `""` among them.
        total: How many fit the query.
        first: The number of the first row, from 1; 0 where there is none.
        pages: How many pages there are.
        page: Which one this is.
    """

    rows: Sequence[ListedStream]
    counts: Mapping[str, int]
    total: int
    first: int
    pages: int
    page: int


def page_of(rows: Sequence[ListedStream], asked: ListQuery) -> StreamPage:
    """Choose and sort the rows of a page."""
    fitting = [row for row in rows if asked.fits(row)]
    counts = Counter(row.standing for row in fitting)
    counts[TROUBLE] = sum(row.is_trouble for row in fitting)
    counts[""] = len(fitting)
    wanted = [row for row in fitting if asked.has_status(row)]
    asked.sort_rows(wanted)
    pages = max(1, -(-len(wanted) // ROWS))
    page = min(max(1, asked.page), pages)
    start = (page - 1) * ROWS
    shown = wanted[start : start + ROWS]
    return StreamPage(shown, counts, len(wanted), start + 1 if shown else 0, pages, page)
