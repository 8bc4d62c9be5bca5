"""Know how streams are: what was read last is given at once, and read again behind.

Each stream is one small request. Threads make some at once, and few of a place that has not
answered yet. A thread whose state does not answer in time is counted no more, so that it takes no
turn from others; a place that has several of these is asked nothing until one of them ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from airflow_cloudfiles.engine.extensions.overview.status import StreamStatus
from airflow_cloudfiles.engine.files import printable_path

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
