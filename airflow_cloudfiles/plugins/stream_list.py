"""List the streams of an Airflow, those in trouble first.

Names, tables and tasks come from Airflow's database; how each stream is, from the summary that its
newest run has left. Searching, filtering, sorting and paging are the server's: a list is an address
that can be kept, and needs no script.

How streams are is kept: what was read last is given at once, and read again behind. Each stream is
one small request. Threads make some at once, and few of a place that has not answered yet. A thread
whose state does not answer in time is counted no more, so that it takes no turn from others; a
place that has several of these is asked nothing until one of them ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from airflow_cloudfiles.engine.extensions.overview.status import StreamStatus, summarized_status
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.plugins.tasks import Hooks, RenderedTask, TaskStream, main_of
from airflow_cloudfiles.plugins.views import read

ANSWER_SECONDS: Final = 8.0
"""A state that has not answered by then is said to be silent."""
FRESH_SECONDS: Final = 10.0
"""What was read before that is read again when somebody looks."""
_FORGOTTEN_SECONDS: Final = 3600.0
_LOOK_SECONDS: Final = 0.2
_AT_ONCE: Final = 32
_FIRST_OF_A_PLACE: Final = 4
"""Reads at once of a place that has not answered yet; each answer allows one more."""
_MOST_SILENT: Final = 8
"""A place with so many states that do not answer is asked no more until one does."""
_log = logging.getLogger(__name__)


class Place(NamedTuple):
    """A bucket, container or disk, as a connection reaches it."""

    root: str
    conn_id: str | None


class StateKey(NamedTuple):
    """Names a state for one connection: another one may reach something else there."""

    location: str
    conn_id: str | None = None

    @property
    def place(self) -> Place:
        """Where it is."""
        scheme, _, rest = self.location.rpartition("://")
        return Place(f"{scheme}://{rest.partition('/')[0]}", self.conn_id)


@dataclass(slots=True, eq=False)
class _StatusEntry:
    """What is known of a state; times are of the monotonic clock."""

    place: Place
    look: Callable[[], StreamStatus]
    wanted_at: float
    status: StreamStatus | None = None
    read_at: float | None = None
    queued_at: float | None = None
    began_at: float | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it is to be read, or is being read."""
        return self.queued_at is not None or self.began_at is not None

    def is_silent(self, now: float) -> bool:
        """Whether it is being read for too long."""
        return self.began_at is not None and now - self.began_at >= ANSWER_SECONDS

    def is_held_up(self, now: float) -> bool:
        """Whether others keep it waiting for too long."""
        return self.queued_at is not None and now - self.queued_at >= ANSWER_SECONDS


class Statuses:
    """The statuses of streams, for the length of a process."""

    def __init__(self) -> None:
        self._known: dict[StateKey, _StatusEntry] = {}
        self._queues: dict[Place, deque[_StatusEntry]] = {}
        self._at_work: list[_StatusEntry] = []
        self._answers: Counter[Place] = Counter()
        self._has_changed = threading.Condition()

    def ask(self, looks: Mapping[StateKey, Callable[[], StreamStatus]]) -> None:
        """Begin to read what is not known, or not fresh; waits for nothing.

        Args:
            looks: How each state is read.
        """
        now = time.monotonic()
        with self._has_changed:
            for key, look in looks.items():
                known = self._known.setdefault(key, _StatusEntry(key.place, look, now))
                known.look, known.wanted_at = look, now
                is_fresh = known.read_at is not None and now - known.read_at < FRESH_SECONDS
                if not (is_fresh or known.is_waiting):
                    known.queued_at = now
                    self._queues.setdefault(known.place, deque()).append(known)
            self._forget(now)
            self._start(now)

    def wait(self, keys: Collection[StateKey], seconds: float) -> None:
        """Wait until something is known of each of some states, but not for long."""
        until = time.monotonic() + seconds
        with self._has_changed:
            while (now := time.monotonic()) < until and any(
                known.status is None and not (known.is_silent(now) or known.is_held_up(now))
                for key in keys
                if (known := self._known.get(key)) is not None
            ):
                self._has_changed.wait(min(until - now, _LOOK_SECONDS))
                self._start(time.monotonic())  # where some have become silent meanwhile

    def of(self, key: StateKey) -> StreamStatus | None:
        """Give what is known of a state; `None` as long as it is being read for the first time.

        One that does not answer now is unreadable, with what was known of it before.
        """
        now = time.monotonic()
        with self._has_changed:
            known = self._known.get(key)
        if known is None:
            return None
        if known.is_silent(now):
            sentence = f"Its state has not answered for more than {ANSWER_SECONDS:.0f} seconds."
            return _unreadable(sentence, known.status)
        if known.status is None and known.is_held_up(now):
            where = printable_path(known.place.root)
            return _unreadable(f"It was not read yet: others in {where} do not answer.", None)
        return known.status

    def _start(self, now: float) -> None:
        """Start threads, as many as there may be; with the lock."""
        free = _AT_ONCE - sum(not each.is_silent(now) for each in self._at_work)
        for _ in range(free):
            known = self._next(now)
            if known is None:
                return
            threading.Thread(
                target=self._read, args=(known,), name="cloudfiles-pages", daemon=True
            ).start()

    def _next(self, now: float) -> _StatusEntry | None:
        """Take the next state to read, of the places in turn; with the lock."""
        busy = Counter((each.place, each.is_silent(now)) for each in self._at_work)
        for place in list(self._queues):
            allowed = _FIRST_OF_A_PLACE + self._answers[place]
            if busy[place, False] >= allowed or busy[place, True] >= _MOST_SILENT:
                continue
            queue = self._queues.pop(place)
            known = queue.popleft()
            if queue:
                self._queues[place] = queue  # behind the other places
            known.queued_at, known.began_at = None, now
            self._at_work.append(known)
            return known
        return None

    def _read(self, known: _StatusEntry | None) -> None:
        """Read one state after the other, as long as there are some."""
        while known is not None:
            try:
                status = known.look()
            except Exception as failure:  # noqa: BLE001 - of one stream, whose row says it
                _log.warning("The state of a stream cannot be read", exc_info=True)
                status = _unreadable(f"{type(failure).__name__}: {failure}", None)
            with self._has_changed:
                now = time.monotonic()
                is_late = known.is_silent(now)
                if status.standing == "unreadable":
                    status = _unreadable(status.sentence, known.status)
                known.status, known.read_at, known.began_at = status, now, None
                self._at_work.remove(known)
                self._answers[known.place] += 1
                self._has_changed.notify_all()
                known = None if is_late else self._next(now)  # else its turn was another's
                self._start(now)

    def _forget(self, now: float) -> None:
        """Forget what nobody has wanted for long; with the lock."""
        for key, known in list(self._known.items()):
            if not known.is_waiting and now - known.wanted_at > _FORGOTTEN_SECONDS:
                del self._known[key]


def _unreadable(sentence: str, before: StreamStatus | None) -> StreamStatus:
    """Say why a state cannot be read, beside what was known of it before."""
    if before is None:
        return StreamStatus(standing="unreadable", sentence=sentence)
    return replace(before, standing="unreadable", sentence=sentence)


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
        stream = read(partial(task.located, hooks))
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
