"""Find the files of a stream that the events in a log announce, from where it has read.

As a queue of its own would: an event names a place in the bucket, and is a candidate when that is
below the source and the options want it. But the log is read from a position on, by any number of
streams, and nothing is deleted from it.

All files of the stream in the entries before its position are recorded. The position is in the same
entry of the file log as the files that it comes with; and, for a stream whose files are few among
the events of the bucket, in `_source/events.json`, which is written after each reading that got
further. A position that is too small costs reading again what is recorded; so the file may be
stale, and where it is lost, the source is listed.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.events import Candidates, FileEvent
from airflow_cloudfiles.engine.errors import ListingError, SourceAccessError
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.storage.outage import is_transient, reaching_state, read_if_there
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import Recorder
    from airflow_cloudfiles.engine.discovery.filters import FileFilter
    from airflow_cloudfiles.engine.extensions.event_log.log import EventLog
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
    from airflow_cloudfiles.engine.state.file_log import FileLog
    from airflow_cloudfiles.engine.storage import ObjectStore

KEY = "_source/events.json"
FORMAT_VERSION = 1
_TEXT = re.compile(r"events:([0-9a-f]{32}):([0-9]{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class EventPosition:
    """A place in an event log.

    Attributes:
        log: The id of the log.
        number: The entry to read next.
    """

    log: str
    number: int

    def __str__(self) -> str:
        """Format it as an entry of the file log has it."""
        return f"events:{self.log}:{self.number}"


def load_position(state: ObjectStore, files: FileLog, log: str) -> int | None:
    """Read how far the stream has read a log; `None` when nothing says so.

    Args:
        state: The checkpoint location.
        files: Its file log.
        log: The id of the event log.

    Raises:
        StateError: The state cannot be read.
    """
    newest = files.known()
    found = [_of_text(files.summary(newest).position)] if newest >= 0 else []
    found.append(_of_file(state))
    return max((each.number for each in found if each and each.log == log), default=None)


def save_position(state: ObjectStore, position: EventPosition) -> None:
    """Write how far the stream has read; all before it is recorded.

    Raises:
        StateError: It cannot be written.
    """
    with reaching_state(state):
        value = {FIELD: FORMAT_VERSION, "log": position.log, "number": position.number}
        state.put(KEY, seal(value))


def _of_text(text: str | None) -> EventPosition | None:
    found = _TEXT.fullmatch(text or "")
    return None if found is None else EventPosition(found[1], int(found[2]))


def _of_file(state: ObjectStore) -> EventPosition | None:
    content = read_if_there(state, KEY)
    if content is None:
        return None
    try:
        value = unseal(content)
        if value[FIELD] == FORMAT_VERSION:
            return EventPosition(str(value["log"]), int(value["number"]))
    except (ValueError, TypeError, KeyError) as failure:
        name = printable_path(state.child_uri(KEY))
        _log.warning("%s cannot be read (%s). The source is listed in full.", name, failure)
    return None


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
        """Encode it as a report writes it."""
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
                gone, candidates.gone = candidates.gone, []
                recorder.record_gone(gone)
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
        """Tell whether `read` would record something, without recording it.

        Raises:
            EventsGoneError: As for `read`, and so are the others.
        """
        candidates = Candidates(self.source, self.filter, self.options)
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="cloudfiles-events") as pool:
            for files, _ in self._files(candidates, start, end, pool):
                if candidates.gone or next(recorder.unseen(files), None) is not None:
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
                if files or candidates.gone:
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
            return [each.file for each in candidates.found(events, pool)]
        except OSError as failure:
            name = printable_path(self.source.uri)
            kind = ListingError if is_transient(failure) else SourceAccessError
            raise kind(
                f"The files that the event log announces in {name} could not be inspected: "
                f"{failure} They stay in the log. Run again."
            ) from failure
