"""Find what announces the files of a stream, if anything does.

A queue of its own (`cloudFiles.useNotifications`), or the event log of its bucket, which many
streams read (`cloudFiles.useManagedFileEvents`). Either announces what arrives; so a listing is
needed only for what neither can announce.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.event_log.collector import (
    EventCollector,
    collect_unless_fresh,
)
from airflow_cloudfiles.engine.discovery.event_log.log import (
    EventLog,
    EventsGoneError,
    Reach,
    reach_of,
)
from airflow_cloudfiles.engine.discovery.event_log.reading import (
    EventLogReport,
    EventPosition,
    EventReader,
    load_position,
    save_position,
)
from airflow_cloudfiles.engine.discovery.listing.state import load_state
from airflow_cloudfiles.engine.discovery.queues.base import MessageQueue, open_queue, waiting
from airflow_cloudfiles.engine.discovery.queues.notifications import (
    NotificationDiscovery,
    NotificationReport,
)
from airflow_cloudfiles.engine.errors import ListingError, OptionError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.intake.results import Announced
from airflow_cloudfiles.engine.storage.base import now_us

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import KnownKeys, Recorder
    from airflow_cloudfiles.engine.discovery.filters import FileFilter
    from airflow_cloudfiles.engine.discovery.inventory.reading import (
        InventoryDiscovery,
        InventoryReport,
    )
    from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
    from airflow_cloudfiles.engine.state.file_log import FileLog
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What announcements are for.

    Attributes:
        source: The source.
        filter: Which of its files are wanted.
        options: How they are found.
        state: The checkpoint location.
        files: The file log.
        access: How the clouds are reached.
    """

    source: ObjectStore
    filter: FileFilter
    options: DiscoveryOptions
    state: ObjectStore
    files: FileLog
    access: Access | None


class Announcements(Protocol):
    """Where it is announced that files have arrived."""

    @property
    def name(self) -> str:
        """Which one it is: another one has announced nothing of what came before it."""

    def begin(self) -> bool:
        """Begin a discovery, or a check; before anything is listed.

        Returns:
            Whether what came since the last discovery is not announced any more.
        """

    def begin_anew(self) -> None:
        """Read from here on: the source is about to be listed."""

    def announced_since_us(self) -> int | None:
        """Since when it has every new file, in microseconds since 1970; `None` if it cannot tell.

        Asked when an inventory report is about to be read.
        """

    def read_behind(self, report: InventoryReport) -> None:
        """Read what an inventory report lacks, if it has all of that; else it reads nothing."""

    def nothing_listed(self) -> None:
        """Note that a listing since `begin` has found nothing new."""

    def record(self, recorder: Recorder) -> NotificationReport | EventLogReport:
        """Record what is announced, and acknowledge it."""

    def announced(self, recorder: Recorder) -> Announced:
        """Collect what there is to record; record and acknowledge nothing."""

    def queue(self) -> MessageQueue | None:
        """Return the stream's own queue, if it has one."""


def announcements(stream: Stream) -> Announcements | None:
    """Build what announces the files of a stream; `None` where they are found by listing."""
    if stream.options.use_managed_file_events:
        return _FromEventLog(stream)
    return _FromQueue(stream) if stream.options.use_notifications else None


def is_listing_due(
    announced: Announcements,
    stream: Stream,
    known: KnownKeys,
    *,
    has_listed: bool,
) -> bool:
    """Tell whether the source must be listed although something announces what arrives.

    So that nothing is missed that will not be announced: what was there before the first start,
    what came while files were found by listing, or to another queue or log or none, what events
    lost (B97, B100), and what other options would have left out.

    Args:
        announced: What announces.
        stream: The stream.
        known: The known files.
        has_listed: Whether this process has listed the source in full.
    """
    options, remembered = stream.options, load_state(stream.state)
    interval = options.listing_backfill_seconds
    return (
        not remembered.has_notifications
        or remembered.queue != announced.name
        or not remembered.is_of(known, stream.filter.fingerprint)
        or (options.list_on_start and not has_listed)
        or (interval is not None and remembered.is_older(interval, time.time()))
    )


def read_report(
    inventory: InventoryDiscovery,
    recorder: Recorder,
    listing: DirectoryListing,
    announced: Announcements | None,
) -> InventoryReport | None:
    """Read an inventory report, if that is due; what it lacks may be announced.

    Args:
        inventory: Reads it.
        recorder: Where new files go.
        listing: Lists the source, where that completes a report.
        announced: What announces files, if anything does.
    """
    if announced is None:
        return inventory.run(recorder, listing, queue=None)
    since_us = announced.announced_since_us
    report = inventory.run(recorder, listing, queue=announced.name, announced_since_us=since_us)
    if report is not None:
        crash_point("before-inventory-position")
        announced.read_behind(report)
    return report


class _FromQueue:
    """A queue of the stream's own."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._queue: MessageQueue | None = None
        self._discovery: NotificationDiscovery | None = None

    @property
    def name(self) -> str:
        given = self._stream.options
        return given.queue_url or given.queue_name or given.subscription or ""

    def begin(self) -> bool:
        return False

    def begin_anew(self) -> None:
        """Messages stay in the queue until they are read."""

    def announced_since_us(self) -> None:
        """Return `None`: only the options decide (`notificationsSince`)."""

    def read_behind(self, report: InventoryReport) -> None:
        """Do nothing: all of its messages are read anyway."""

    def nothing_listed(self) -> None:
        """Messages of recorded files are deleted when they are read."""

    def record(self, recorder: Recorder) -> NotificationReport:
        if self._discovery is None:
            stream = self._stream
            self._discovery = NotificationDiscovery(
                self.queue(), stream.source, stream.filter, stream.options
            )
        return self._discovery.run(recorder)

    def announced(self, recorder: Recorder) -> Announced:  # noqa: ARG002 - the protocol's
        messages, newest_us = waiting(self.queue())
        return Announced(messages=messages, newest_us=newest_us)

    def queue(self) -> MessageQueue:
        if self._queue is None:
            stream = self._stream
            self._queue = open_queue(stream.source.uri, stream.options, stream.access)
        return self._queue


class _FromEventLog:
    """The event log of the bucket."""

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
        self._reach: Reach | None = None
        self._collected: int | None = None

    @property
    def name(self) -> str:
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
        self._start = self._end

    def announced_since_us(self) -> int:
        """Begin now, where the stream has a position: it may have passed what is wanted now."""
        stream = self._stream
        self.begin()
        is_new = load_position(stream.state, stream.files, self._log.description.id) is None
        self._reach = reach_of(self._log) if is_new else None
        return self._reach.since_us if self._reach else now_us()

    def read_behind(self, report: InventoryReport) -> None:
        """Do nothing: the report is noted as a listing; a kill here leads to a full listing."""
        reach = self._reach
        if reach is not None and reach.since_us <= report.settled_us:
            self._start = reach.start(report.settled_us)
            self._remember(self._start)

    def nothing_listed(self) -> None:
        """Else each check would list again until a run comes, where the position was gone."""
        self._remember(self._end)

    def record(self, recorder: Recorder) -> EventLogReport:
        start = self._end if self._start is None else self._start
        if self._start == self._end:  # after a listing; else nothing has come, and this is known
            self._remember(start)
        try:
            return self._reader.read(recorder, start, self._end, collected=self._collected)
        except EventsGoneError as failure:
            raise self._too_late(failure) from failure

    def announced(self, recorder: Recorder) -> Announced:
        start = self._end if self._start is None else self._start
        try:
            return Announced(unrecorded=self._reader.has_new(recorder, start, self._end))
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
