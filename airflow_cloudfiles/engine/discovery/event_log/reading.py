"""Which files of a stream do the events in a log announce?

As a queue of its own would: an event names a place in the bucket, and is a candidate when that is
below the source and the options want it. But the log is read from a position on, by any number of
streams, and nothing is deleted from it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.event_log.position import EventPosition, save_position
from airflow_cloudfiles.engine.discovery.events.base import FileEvent
from airflow_cloudfiles.engine.discovery.events.candidates import Candidates
from airflow_cloudfiles.engine.errors import ListingError, SourceAccessError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.storage.outage import is_transient

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import Recorder
    from airflow_cloudfiles.engine.discovery.event_log.log import EventLog
    from airflow_cloudfiles.engine.discovery.filters import FileFilter
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
    from airflow_cloudfiles.engine.storage import ObjectStore

_log = logging.getLogger(__name__)
RECORDED_EVENTS = 1000
"""After so many events of a stream, their files are recorded, with the position behind them."""
_WORKERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogReport:
    """What reading an event log came to.

    Attributes:
        location: Of the log.
        start: The first entry that was read.
        end: The entry that is to be read next.
        events: Events of files below the source.
        files: Of their files, those that are wanted.
        new: Of these, how many nobody had recorded.
        rejected: Files that the options leave out.
        ignored: Events that are of no file after all, by reason.
        not_there: URIs of the first files that were announced and are not there.
        collected: How many messages this discovery has moved from the queue into the log, for all
            streams; `None` where another process had done so.
        seconds: How long it took.
    """

    location: str
    start: int
    end: int
    events: int
    files: int
    new: int
    rejected: int
    ignored: dict[str, int]
    not_there: tuple[str, ...]
    collected: int | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """As a report writes it."""
        return asdict(self)


@dataclass(slots=True)
class EventReader:
    """Reads an event log for one stream.

    Args:
        log: The log.
        source: The source.
        filter: Which of its files are wanted.
        options: `identity`.
        state: The checkpoint location.
    """

    log: EventLog
    source: ObjectStore
    filter: FileFilter
    options: DiscoveryOptions
    state: ObjectStore
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def below(self) -> str:
        """How the paths of the source's files begin in the log."""
        root = f"{self.log.description.source}/"
        place = f"{self.source.uri.rstrip('/')}/"
        return place.removeprefix(root) if place != root else ""

    def read(
        self, recorder: Recorder, start: int, end: int, *, collected: int | None
    ) -> EventLogReport:
        """Record the files of the events in some entries, and how far that goes.

        Killed at any point, it leaves each file recorded once or not yet, and no position that is
        behind a file that is not.

        Raises:
            EventsGoneError: An entry is not kept any more.
            StateError: The log or the state cannot be read or written.
            ListingError: The source did not answer when it was asked about a file.
        """
        began = time.monotonic()
        self.counts = Counter()
        candidates = Candidates(self.source, self.filter, self.options)
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="cloudfiles-events") as pool:
            for files, number in self._files(candidates, start, end, pool):
                self.counts["files"] += len(files)
                position = EventPosition(self.log.description.id, number)
                new = recorder.record(files, "notification", position=str(position))
                self.counts["new"] += new
        if end > start:
            crash_point("before-event-position")
            save_position(self.state, EventPosition(self.log.description.id, end))
        return EventLogReport(
            location=self.log.store.uri,
            start=start,
            end=end,
            events=self.counts["events"],
            files=self.counts["files"],
            new=self.counts["new"],
            rejected=candidates.rejected,
            ignored=dict(candidates.ignored),
            not_there=tuple(candidates.missing),
            collected=collected,
            seconds=round(time.monotonic() - began, 3),
        )

    def has_new(self, recorder: Recorder, start: int, end: int) -> bool:
        """Whether `read` would record something; records nothing.

        Raises:
            EventsGoneError: As for `read`, and so are the others.
        """
        candidates = Candidates(self.source, self.filter, self.options)
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="cloudfiles-events") as pool:
            for files, _ in self._files(candidates, start, end, pool):
                if next(recorder.unseen(files), None) is not None:
                    return True
        return False

    def _files(
        self, candidates: Candidates, start: int, end: int, pool: ThreadPoolExecutor
    ) -> Iterator[tuple[list[FileEntry], int]]:
        """Give the wanted files of about a thousand events, and the entry behind them."""
        events: list[FileEvent] = []
        for number in range(start, end):
            events += self._events(number)
            if events and (len(events) >= RECORDED_EVENTS or number + 1 == end):
                self.counts["events"] += len(events)
                files = self._inspected(candidates, events, pool)
                events = []
                if files:
                    yield files, number + 1

    def _events(self, number: int) -> Iterator[FileEvent]:
        root = self.log.description.source
        for each in self.log.read(number, below=self.below):
            yield FileEvent(
                location=f"{root}/{each.path}",
                size=each.size,
                time_us=each.time_us,
                etag=each.etag,
                kind=each.kind,
                sequencer=each.sequencer,
            )

    def _inspected(
        self, candidates: Candidates, events: list[FileEvent], pool: ThreadPoolExecutor
    ) -> list[FileEntry]:
        try:
            return list(candidates.of(events, pool))
        except OSError as failure:
            name = printable_path(self.source.uri)
            kind = ListingError if is_transient(failure) else SourceAccessError
            raise kind(
                f"The files that the event log announces in {name} could not be inspected: "
                f"{failure} They stay in the log. Run again."
            ) from failure
