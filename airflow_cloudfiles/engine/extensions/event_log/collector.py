"""Drain the one queue of a bucket into its event log, one process at a time.

Whoever comes first: a stream that looks for files, or a collector that does nothing else. Under a
lease, one at a time:

1. Messages are received, and hidden from others.
2. What they announce is appended to the event log.
3. Only then are the messages deleted.
4. The log is marked: a stream that comes within a few seconds reads, and leaves the queue alone.

A kill before step 3 leaves messages whose events are in the log, or not. They are delivered again,
and an event that is in the log twice is one file to each stream. So is nothing wrong when two hold
the lease, because one of them was away for long: the log is put-if-absent.

A watcher of many folders makes one check: it drains the queue, unless that was done just now, and
reads the new entries once. Which of them are of a folder is then counted in memory.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.queues.base import MessageQueue, open_queue
from airflow_cloudfiles.engine.discovery.queues.notifications import (
    NotificationDiscovery,
    NotificationReport,
)
from airflow_cloudfiles.engine.errors import StateError, StateLockedError
from airflow_cloudfiles.engine.extensions.event_log.log import (
    EventLog,
    EventsGoneError,
    LoggedEvent,
    LogView,
    distinct,
    is_due,
    tidy,
)
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.storage import ObjectStore, normalize_uri, open_store
from airflow_cloudfiles.engine.storage.base import SKEW_SECONDS, Moment, now_us

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

LOCK = "collector.lock"
FRESH_SECONDS = 10.0
"""A stream leaves the queue alone that was drained so short a time ago. So 200 streams that look
every minute cost no more receives than one that looks every ten seconds."""
WAIT_SECONDS = 45.0
"""How long a stream waits for another's draining: longer than a lease outlives its holder."""
THREADS = 4
"""How many threads of a collector receive."""
LATE_SECONDS = 7 * 86400 - 3600
"""A queue that was not drained for so long may have dropped messages: those that are set up for
logs keep them for seven days at least."""
_LOOK_AGAIN_SECONDS = 3600.0
_POLL_SECONDS = 0.5
_log = logging.getLogger(__name__)


class _OutsideLog:
    """Which files of a bucket are worth a line: all but those of the log itself."""

    marker = None

    def __init__(self, source: ObjectStore, log: ObjectStore) -> None:
        own = source.key_of(log.uri)
        self._own = None if own is None else f"{own}/".removeprefix("/")

    def accepts(self, entry: FileEntry) -> bool:
        """Tell whether a file is outside the log, whose every entry would announce the next one."""
        return self._own is None or not entry.path.startswith(self._own)


class EventCollector:
    """Drains the queue of an event log into it; keeps the lease between two calls of `try_begin`.

    Args:
        log: The log.
        access: How queue and bucket are reached.
        queue: The queue; `None` opens the one that the log names.
    """

    def __init__(
        self, log: EventLog, access: Access | None = None, *, queue: MessageQueue | None = None
    ) -> None:
        self._log = log
        self._access = access
        self._queue = queue
        self._discovery: NotificationDiscovery | None = None
        self._lock = RunLock(log.store, LOCK)
        self._collected: Moment | None = None

    def try_begin(self) -> bool:
        """Take the lease; to be called again and again, as that a holder is gone shows in time.

        Raises:
            StateError: The store of the log cannot be reached.
        """
        if self._lock.is_held:
            return True
        try:
            self._lock.acquire()
        except StateLockedError:
            return False
        return True

    def end(self) -> None:
        """Give the lease back."""
        self._lock.release()

    def collect(self) -> NotificationReport:
        """Drain the queue once; the caller has the lease.

        Whatever goes wrong, messages whose events are not in the log stay in the queue.

        Raises:
            QueueError: The queue cannot be read now.
            QueueAccessError: There is no such queue, or the identity may not read it.
            StateError: The log cannot be read or written, or the lease was lost.
            ListingError: The bucket did not answer when it was asked about a file.
        """
        self._renew_if_late()
        if self._discovery is None:
            self._discovery = self._discover()
        appended: list[int] = []
        report = self._discovery.drain(
            lambda found: self._append([LoggedEvent.of(each) for each in found], appended),
            lambda gone: self._append([LoggedEvent.of_gone(each) for each in gone], appended),
            looks=False,
        )
        self._log.mark_collected()
        crash_point("after-collection")
        if appended and is_due(appended[0] - 1, appended[-1]):
            tidy(self._log, self._may_go_on)
        return report

    def _append(self, events: Sequence[LoggedEvent], appended: list[int]) -> int:
        events = distinct(events)
        if events:
            appended.append(self._log.append(events))
        return len(events)

    def _renew_if_late(self) -> None:
        """Give the log another id where its queue may have dropped messages since the last time."""
        if self._collected is None or self._collected.seconds_ago() > _LOOK_AGAIN_SECONDS:
            seen = self._log.look(self._log.hint())
            seconds = (now_us() - seen.collected_us) / 1_000_000
            if seen.collected_us > 0 and seconds > LATE_SECONDS:
                _log.warning(
                    "The queue of %s was not drained for %.1f days and may have dropped messages. "
                    "Each stream lists its source once.",
                    printable_path(self._log.store.uri),
                    seconds / 86400,
                )
                self._log.renew()
        self._collected = Moment.now()

    def _may_go_on(self) -> None:
        if not self._lock.is_held:
            raise StateError(
                f"The lease for the event log in {printable_path(self._log.store.uri)} was lost. "
                "Nothing is: what was received is in the log, or comes again."
            )

    def _discover(self) -> NotificationDiscovery:
        described = self._log.description
        source, options = open_store(described.source, self._access), described.queue_options
        return NotificationDiscovery(
            self._queue or open_queue(described.source, options, self._access),
            source,
            _OutsideLog(source, self._log.store),
            replace(options, fetch_parallelism=THREADS),
        )


def collect_unless_fresh(
    log: EventLog, collector: EventCollector, start: int, *, wait_seconds: float = WAIT_SECONDS
) -> tuple[NotificationReport | None, LogView]:
    """Drain the queue for all streams, unless somebody has done so just now.

    Args:
        log: The log.
        collector: Of the log.
        start: From where on the caller reads the log: the listing costs least there.
        wait_seconds: How long to wait while another one drains.

    Returns:
        What the draining came to, `None` where another one has drained; and the log after it.

    Raises:
        CloudFilesError: As for `EventCollector.collect`.
    """
    deadline = time.monotonic() + wait_seconds
    before = seen = log.look(start)
    if -SKEW_SECONDS < (now_us() - seen.collected_us) / 1_000_000 < FRESH_SECONDS:
        return None, seen
    while seen.collected_us == before.collected_us:
        if collector.try_begin():
            try:
                report = collector.collect()
            finally:
                collector.end()
            return report, log.look(start)
        if time.monotonic() >= deadline:
            _log.warning(
                "Another process has been draining the queue of %s for long. What it has not "
                "appended yet is found the next time.",
                printable_path(log.store.uri),
            )
            break
        time.sleep(_POLL_SECONDS)
        seen = log.look(start)
    return None, log.look(start)


def collect_on(
    collector: EventCollector,
    on_round: Callable[[NotificationReport | None], None],
    stop: threading.Event,
    *,
    poll_seconds: float,
) -> None:
    """Drain the queue again and again, until it is asked to stop.

    While another collector has the lease, this one stands by. A queue or store that does not answer
    is tried again; what a person has to correct ends it.

    Args:
        collector: Of the log.
        on_round: Called after each round, with what it came to; `None` while standing by.
        stop: Ends it between two rounds.
        poll_seconds: The pause between two rounds.

    Raises:
        CloudFilesError: What does not pass by itself.
    """
    try:
        while not stop.is_set():
            on_round(collector.collect() if collector.try_begin() else None)
            stop.wait(poll_seconds)
    finally:
        collector.end()


MOST_ENTRIES = 100
"""How many entries one check reads: about a hundred thousand events at most."""


class ArrivedFile(NamedTuple):
    """A file that an entry of the log announces.

    Attributes:
        entry: The number of the entry.
        path: Of the file, below the source of the log.
        size: In bytes.
    """

    entry: int
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class LogCheck:
    """What one check has found.

    Attributes:
        log: The id of the log.
        source: URI of what the log is of.
        start: The first entry that was read.
        end: The entry to read next.
        arrived: The files of the entries in between.
        is_gone: Whether entries before `end` are not kept any more, so that some may be missing.
    """

    log: str
    source: str
    start: int
    end: int
    arrived: tuple[ArrivedFile, ...]
    is_gone: bool = False

    def below(self, folder: str) -> Iterable[ArrivedFile]:
        """Yield the files of a folder.

        Args:
            folder: Path or URI, as a stream has it; what is not of this bucket has none.
        """
        root, place = f"{self.source}/", f"{normalize_uri(folder).rstrip('/')}/"
        if root.startswith(place):
            return self.arrived
        if not place.startswith(root):
            return ()
        prefix = place.removeprefix(root)
        return (each for each in self.arrived if each.path.startswith(prefix))


def check_log(
    location: str, start: int | None, access: Access | None = None, *, end: int | None = None
) -> LogCheck:
    """Drain the queue, unless that was done just now, and read what is new.

    Args:
        location: Of the log.
        start: The entry to read first; `None` reads nothing and gives the end of the log.
        access: How log, queue and bucket are reached.
        end: The entry to read no more; `None` for all, of which `MOST_ENTRIES` are read at a time.

    Raises:
        CloudFilesError: The queue cannot be drained, or the log cannot be read.
    """
    log = EventLog.open(location, access)
    place = log.hint() if start is None else start
    _, seen = collect_unless_fresh(log, EventCollector(log, access), place)
    first = seen.end if start is None or start > seen.end else start
    last = min(seen.end, first + MOST_ENTRIES, seen.end if end is None else end)
    described = log.description
    try:
        arrived = tuple(
            ArrivedFile(number, each.path, each.size)
            for number in range(first, last)
            for each in log.read(number)
        )
    except EventsGoneError:
        return LogCheck(described.id, described.source, seen.end, seen.end, (), is_gone=True)
    return LogCheck(described.id, described.source, first, last, arrived)
