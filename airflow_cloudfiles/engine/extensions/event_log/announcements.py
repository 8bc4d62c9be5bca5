"""Announce the files of a stream from the event log of its bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import ListingError, OptionError
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
from airflow_cloudfiles.engine.extensions.event_log.reading import (
    EventLogReport,
    EventPosition,
    EventReader,
    load_position,
    save_position,
)
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.intake.results import AnnouncedFiles
from airflow_cloudfiles.engine.storage.base import now_us

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import Recorder
    from airflow_cloudfiles.engine.intake.announcements import Stream
    from airflow_cloudfiles.engine.intake.results import ReadReport


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
