"""Announce the files of a stream from the event log of its bucket, from where it has read.

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
from airflow_cloudfiles.engine.errors import ListingError, OptionError, SourceAccessError
from airflow_cloudfiles.engine.extensions.event_log.collector import (
    EventCollector,
    collect_unless_fresh,
)
from airflow_cloudfiles.engine.extensions.event_log.log import (
    EventLog,
    EventsGoneError,
    LogReach,
    reach_of,
)
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.intake.results import AnnouncedFiles
from airflow_cloudfiles.engine.storage.base import now_us
from airflow_cloudfiles.engine.storage.outage import is_transient, reaching_state, read_if_there
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import Recorder
    from airflow_cloudfiles.engine.discovery.filters import FileFilter
    from airflow_cloudfiles.engine.intake.announcements import Stream
    from airflow_cloudfiles.engine.intake.results import ReadReport
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


class EventLogAnnouncements:
    """The event log of the bucket (`Announcements`).

    Args:
        stream: The stream.

    Raises:
        OptionError: The log is of another place.
    """

    def __init__(self, stream: Stream) -> None:
        location = stream.options.file_events_location or ""
        log = EventLog.open(location, stream.access)
        _check_source(log, stream.source.uri)
        self._stream = stream
        self._log = log
        self._collector = EventCollector(log, stream.access)
        self._reader = EventReader(log, stream.source, stream.filter, stream.options, stream.state)
        self._start: int | None = None
        self._end = 0
        self._reach: LogReach | None = None
        self._collected: int | None = None

    @property
    def name(self) -> str:
        """Which log it is (`Announcements.name`)."""
        return f"events:{self._log.description.id}"

    def begin(self) -> bool:
        """Drain the queue for all streams, unless that was done just now; find the place."""
        stream = self._stream
        log = self._log.description.id
        start = load_position(stream.state, stream.files, log)
        place = start if start is not None else self._log.hint()
        report, seen = collect_unless_fresh(self._log, self._collector, place)
        self._collected = None if report is None else report.received
        is_lost = seen.is_gone or log != self._log.description.id
        self._start = None if start is None or is_lost or start > seen.end else start
        self._end = seen.end
        return self._start is None

    def begin_anew(self) -> None:
        """Read from here on (`Announcements.begin_anew`)."""
        self._start = self._end

    def announced_since_us(self) -> int:
        """Begin now, where the stream has a position: it may have passed what is wanted now."""
        stream = self._stream
        self.begin()
        is_new = load_position(stream.state, stream.files, self._log.description.id) is None
        self._reach = reach_of(self._log) if is_new else None
        return self._reach.since_us if self._reach else now_us()

    def read_behind(self, report: ReadReport) -> None:
        """Do nothing: the report is noted as a listing; a kill here leads to a full listing."""
        reach = self._reach
        if reach is not None and reach.since_us <= report.settled_us:
            self._start = reach.start(report.settled_us)
            self._remember(self._start)

    def nothing_listed(self) -> None:
        """Else each check would list again until a run comes, where the position was gone."""
        self._remember(self._end)

    def record(self, recorder: Recorder) -> EventLogReport:
        """Record what the log has (`Announcements.record`)."""
        start = self._end if self._start is None else self._start
        if self._start == self._end:  # after a listing; else nothing has come, and this is known
            self._remember(start)
        try:
            return self._reader.read(recorder, start, self._end, collected=self._collected)
        except EventsGoneError as failure:
            raise self._too_late(failure) from failure

    def announced(self, recorder: Recorder) -> AnnouncedFiles:
        """Collect what there is to record (`Announcements.announced`)."""
        start = self._end if self._start is None else self._start
        try:
            return AnnouncedFiles(unrecorded=self._reader.has_new(recorder, start, self._end))
        except EventsGoneError as failure:
            raise self._too_late(failure) from failure

    def queue(self) -> None:
        """Return `None`: the queue is shared by all streams."""

    def _remember(self, number: int) -> None:
        stream, log = self._stream, self._log.description.id
        if load_position(stream.state, stream.files, log) != number:
            save_position(stream.state, EventPosition(log, number))

    def _too_late(self, failure: EventsGoneError) -> ListingError:
        return ListingError(
            f"{failure} was dropped from the event log while it was to be read. Run again: "
            f"{printable_path(self._stream.source.uri)} is listed then."
        )


def _check_source(log: EventLog, source: str) -> None:
    """Refuse a log that is not of the source, or of a part of it only."""
    of = log.description.source
    if source.rstrip("/") != of and not source.startswith(f"{of}/"):
        raise OptionError(
            f"cloudFiles.fileEventsLocation: the event log in {printable_path(log.store.uri)} is "
            f"of {of}, and {printable_path(source)} is not below that. Give the log of its bucket."
        )
