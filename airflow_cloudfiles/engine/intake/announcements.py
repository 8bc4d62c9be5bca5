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
from airflow_cloudfiles.engine.discovery.listing.state import load_state
from airflow_cloudfiles.engine.discovery.queues.base import MessageQueue, open_queue, waiting
from airflow_cloudfiles.engine.discovery.queues.notifications import (
    NotificationDiscovery,
    NotificationReport,
)
from airflow_cloudfiles.engine.intake.results import AnnouncedFiles, PartOfReport, ReadReport
from airflow_cloudfiles.engine.registry import extension

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_cloudfiles.engine.discovery.base import KnownKeys, Recorder
    from airflow_cloudfiles.engine.discovery.filters import FileFilter
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

    def read_behind(self, report: ReadReport) -> None:
        """Read what an inventory report lacks, if it has all of that; else it reads nothing."""

    def nothing_listed(self) -> None:
        """Note that a listing since `begin` has found nothing new."""

    def record(self, recorder: Recorder) -> PartOfReport:
        """Record what is announced, and acknowledge it."""

    def announced(self, recorder: Recorder) -> AnnouncedFiles:
        """Collect what there is to record; record and acknowledge nothing."""

    def queue(self) -> MessageQueue | None:
        """Return the stream's own queue, if it has one."""


class ReportReader(Protocol):
    """Reads inventory reports."""

    def is_waiting(self) -> bool:
        """Tell whether there is a report that is not read yet."""

    def run(
        self,
        recorder: Recorder,
        listing: DirectoryListing,
        *,
        queue: str | None,
        announced_since_us: Callable[[], int | None] = ...,
    ) -> ReadReport | None:
        """Read a report, if that is due."""


def announcements(stream: Stream) -> Announcements | None:
    """Build what announces the files of a stream; `None` where they are found by listing."""
    if stream.options.use_managed_file_events:
        log: Announcements = extension("event log")(stream)
        return log
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
    inventory: ReportReader,
    recorder: Recorder,
    listing: DirectoryListing,
    announced: Announcements | None,
) -> ReadReport | None:
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

    def read_behind(self, report: ReadReport) -> None:
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

    def announced(self, recorder: Recorder) -> AnnouncedFiles:  # noqa: ARG002 - the protocol's
        messages, newest_us = waiting(self.queue())
        return AnnouncedFiles(messages=messages, newest_us=newest_us)

    def queue(self) -> MessageQueue:
        if self._queue is None:
            stream = self._stream
            self._queue = open_queue(stream.source.uri, stream.options, stream.access)
        return self._queue
