"""Read an inventory report, and find what completes it.

A report is of the past, and eventually consistent: of what came in the day before it was begun, or
later, it may lack anything. So it never counts as a full listing by itself:

1. Its files are recorded, data file by data file, in batches that are sorted like a listing.
2. The edges are compared with the bucket: a report that leaves out a part of the source, because it
   is of another prefix, is refused.
3. What the report may lack is found by
   - the queue or the event log, if that has announced every file since a day before the report was
     begun;
   - an incremental listing from where the files end that came before that day
     (`useIncrementalListing=true`);
   - else one full listing, which the next discovery makes: nothing notes one as made.

Of a file that is gone meanwhile nothing is asked here: the reader decides (`ignoreMissingFiles`),
as for every file that goes between discovery and reading.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.listing.ranges import being_listed
from airflow_cloudfiles.engine.discovery.listing.state import ListingState, load_state, save_state
from airflow_cloudfiles.engine.extensions.inventory.base import (
    FileRead,
    FoundBy,
    Report,
    ReportProgress,
    ReportSource,
    bucket_of,
    load_progress,
    newest_report,
    refused,
    save_progress,
    settled_us,
)
from airflow_cloudfiles.engine.extensions.inventory.data_files import DataFiles
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.storage.base import UnorderedListingError

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import KnownKeys, Recorder
    from airflow_cloudfiles.engine.discovery.filters import FileFilter
    from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
    from airflow_cloudfiles.engine.discovery.listing.run import ListingReport
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access

_log = logging.getLogger(__name__)

CompletedBy = Literal["notifications", "incremental listing", "full listing", "later reports"]

BATCH_FILES: Final = 100_000
"""Most files in one call of `record`; that is what bounds the memory."""
PROGRESS_SECONDS: Final = 5.0
_PAGE_KEYS: Final = 1000
_DAY: Final = 86400
_KEPT_SECONDS: Final = {"s3": 4 * _DAY}
_KEPT_SECONDS_ELSEWHERE: Final = 7 * _DAY
"""How long queues keep messages unless somebody has asked for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryReport:
    """What reading a report came to.

    Attributes:
        uri: Of its manifest.
        started_us: When it was begun, in microseconds since 1970.
        data_files: How many data files it has.
        rows: How many rows these have.
        listed: How many files below the source it names, also unwanted ones.
        new: How many of its files were recorded now.
        completed_by: What finds the files that it lacks.
        requests: Requests to the store of the report.
        seconds: How long it took, without a listing.
        listing: The incremental listing that completed it.
    """

    uri: str
    started_us: int
    data_files: int
    rows: int
    listed: int
    new: int
    completed_by: CompletedBy
    requests: int
    seconds: float
    listing: ListingReport | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all files that were there are recorded."""
        return self.completed_by in {"notifications", "incremental listing"}

    @property
    def settled_us(self) -> int:
        """Files that came before this time, in microseconds since 1970, are in the report."""
        return settled_us(self.started_us)

    @property
    def needs_listing(self) -> bool:
        """Whether the source is to be listed as it would be without a report."""
        return self.completed_by == "later reports"

    def to_json(self) -> dict[str, Any]:
        """Encode it for reports and XCom."""
        return {**asdict(self), "listing": self.listing.to_json() if self.listing else None}


@dataclass(eq=False)
class InventoryDiscovery:
    """Discovers the files that an inventory report names.

    Attributes:
        source: The folder the files land in.
        filter: Which of its files are input.
        options: `inventory` and what belongs to it.
        state: The checkpoint location.
        access: How the cloud of the reports is reached.
        clock: Seconds since 1970.
    """

    source: ObjectStore
    filter: FileFilter
    options: DiscoveryOptions
    state: ObjectStore
    access: Access | None = None
    clock: Callable[[], float] = time.time

    def is_waiting(self) -> bool:
        """Tell whether a report is still to be read, at all or to its end; ask the state only."""
        progress = load_progress(self.state)
        return progress.is_unfinished or (
            not progress.is_done and load_state(self.state).full_started <= 0
        )

    def run(
        self,
        recorder: Recorder,
        listing: DirectoryListing,
        *,
        queue: str | None,
        announced_since_us: Callable[[], int | None] = lambda: None,
    ) -> InventoryReport | None:
        """Read a report, if one takes the place of a full listing now.

        Killed or failing at any point, it leaves each file recorded once or not yet; the next run
        goes on with the data file that was not read to its end.

        Args:
            recorder: Where new files go.
            listing: Lists the source, where a report is completed by an incremental listing.
            queue: What the options call the queue that announces new files; `None` without one.
            announced_since_us: Asked when a report is to be read: since when, in microseconds since
                1970, an event log has every new file; takes the place of `notificationsSince`. It
                answers `None` where nothing has.

        Returns:
            What it came to; `None` when none is due, or the newest one has been read.

        Raises:
            InventoryError: There is no report that can be used.
            ListingError: A store does not answer.
            StateError: The state cannot be read or written.
        """
        remembered, progress = load_state(self.state), load_progress(self.state)
        found_by = self._due(remembered, progress, recorder.known, queue)
        if found_by is None or self.options.inventory is None:
            return None
        now = self.clock()
        report = newest_report(
            self.options.inventory,
            self.access,
            ReportSource.of(self.source.uri, self.filter.prefix),
            oldest_us=int((now - self.options.inventory_max_age_seconds) * 1_000_000),
        )
        if (progress.report, progress.filter) != (report.id, self.filter.fingerprint):
            progress = ReportProgress(report.id, self.filter.fingerprint, found_by)
        elif progress.is_done:
            _log.info("%s has been read; there is no newer report", printable_path(report.uri))
            return None
        run = _Run(self, report, recorder, progress, now)
        run.announced_since_us = announced_since_us()
        return run.go(listing, remembered, queue)

    def _due(
        self,
        remembered: ListingState,
        progress: ReportProgress,
        known: KnownKeys,
        queue: str | None,
    ) -> FoundBy | None:
        """Describe how files of a report are found now; `None` when no report is to be read."""
        if progress.is_unfinished:
            return progress.found_by
        if remembered.full_started <= 0:
            return None if progress.is_done else "listing"
        interval = self.options.backfill_interval_seconds
        if interval is None or not remembered.is_older(interval, self.clock()):
            return None
        if queue is not None and not self._is_drained(remembered, known, queue):
            return None  # what came to no queue, or another one, is to be listed at once
        return "backfill"

    def _is_drained(self, remembered: ListingState, known: KnownKeys, queue: str) -> bool:
        """Tell whether the queue has been read since the last full listing of the same files."""
        return (
            remembered.has_notifications
            and remembered.queue == queue
            and remembered.is_of(known, self.filter.fingerprint)
        )


class _Run:
    """One report that is being read."""

    def __init__(
        self,
        given: InventoryDiscovery,
        report: Report,
        recorder: Recorder,
        progress: ReportProgress,
        now: float,
    ) -> None:
        self._given = given
        self._report = report
        self._recorder = recorder
        self._progress = progress
        self._now = now
        self.announced_since_us: int | None = None
        self._new = 0
        self._began = time.monotonic()
        self._next_word = self._began + PROGRESS_SECONDS
        self._store = bucket_of(report.uri, given.access)
        root = ReportSource.of(given.source.uri, "").root
        self._data = DataFiles(self._store, report, root)

    def go(
        self, listing: DirectoryListing, remembered: ListingState, queue: str | None
    ) -> InventoryReport:
        """Read it, and do or note what has to follow."""
        report, progress = self._report, self._progress
        by = self._completed_by(queue)
        _log.info(
            "Reading the inventory report %s (%s, %d read before); what it lacks is found by: %s",
            printable_path(report.uri),
            counted(len(report.files), "data file"),
            len(progress.read),
            by,
        )
        self._data.check()
        before_us = report.settled_us if by == "incremental listing" else None
        self._read([at for at in range(len(report.files)) if at not in progress.read], before_us)
        self._check_rows()
        if not report.is_prefix_known:
            self._check_cover()
        seconds = time.monotonic() - self._began
        self._note(remembered, by, queue)
        listed = None
        if by == "incremental listing":
            listed = listing.run(self._recorder)
            self._read([at for at, each in self._progress.read.items() if each.has_recent], None)
        crash_point("before-inventory-done")
        self._progress = replace(self._progress, is_done=True)
        save_progress(self._given.state, self._progress)
        return self._result(by, listed, seconds)

    def _completed_by(self, queue: str | None) -> CompletedBy:
        """Choose what finds the files that the report lacks."""
        is_first = self._progress.found_by == "listing"
        if self.announced_since_us is not None and is_first:
            return "notifications" if self._is_logged(self.announced_since_us) else "full listing"
        if queue is not None:
            return "notifications" if not is_first or self._is_announced() else "full listing"
        if not is_first:
            return "later reports"
        is_incremental = self._given.options.use_incremental_listing == "true"
        return "incremental listing" if is_incremental else "full listing"

    def _is_announced(self) -> bool:
        """Tell whether the queue has every file that the report may lack."""
        since_us = self._given.options.notifications_since_us
        if since_us is None:
            return False
        settled_us = self._report.settled_us
        scheme = self._given.source.uri.partition(":")[0]
        kept = _KEPT_SECONDS.get(scheme, _KEPT_SECONDS_ELSEWHERE)
        is_kept = self._now - settled_us / 1_000_000 <= kept
        if since_us <= settled_us and is_kept:
            return True
        _log.warning(
            "%s is not completed by notifications: they have to come since a day before it was "
            "begun, and a queue may have lost those older than %d days. A full listing follows.",
            printable_path(self._report.uri),
            kept // _DAY,
        )
        return False

    def _is_logged(self, since_us: int) -> bool:
        """Tell whether a log with every file since a time has those that the report may lack."""
        is_logged = since_us <= self._report.settled_us
        if not is_logged:
            _log.warning(
                "%s is not completed by the event log, which has not every event of the day before "
                "it was begun. A full listing follows.",
                printable_path(self._report.uri),
            )
        return is_logged

    def _read(self, numbers: Iterable[int], before_us: int | None) -> None:
        """Record the files of some data files that came before a time."""
        for number, rows, files in self._data.read(list(numbers)):
            read = self._record(files, before_us)
            self._progress = self._progress.after(number, replace(read, rows=rows.rows))
            save_progress(self._given.state, self._progress)
            crash_point("after-inventory-file")

    def _record(self, files: Iterable[FileEntry], before_us: int | None) -> FileRead:
        """Record files in batches; gives what there was, without the number of rows."""
        count, has_recent, first, last = 0, False, "", ""
        batch: list[FileEntry] = []
        accepts = self._given.filter.accepts
        for file in files:
            path = file.path
            if path < first or not count:
                first = path
            last = max(last, path)
            count += 1
            if before_us is not None and file.modification_time_us >= before_us:
                has_recent = True
            elif accepts(file):
                batch.append(file)
                if len(batch) >= BATCH_FILES:
                    self._append(batch)
                    batch = []
        self._append(batch)
        return FileRead(0, count, first, last, has_recent=has_recent)

    def _append(self, batch: list[FileEntry]) -> None:
        if batch:
            self._new += self._recorder.record(batch, self._progress.found_by)
        if time.monotonic() >= self._next_word:
            self._next_word = time.monotonic() + PROGRESS_SECONDS
            _log.info(
                "Reading %s: %d of %s, %s so far",
                printable_path(self._report.uri),
                len(self._progress.read),
                counted(len(self._report.files), "data file"),
                counted(self._new, "new file"),
            )

    def _check_rows(self) -> None:
        """Refuse a report whose files hold other rows than it says."""
        rows = sum(each.rows for each in self._progress.read.values())
        if self._report.rows is not None and rows != self._report.rows:
            why = f"its manifest says {self._report.rows} rows, and its data files have {rows}"
            raise refused(self._report.uri, why, "Wait for the next report.")

    def _check_cover(self) -> None:
        """Refuse a report of another prefix: one or two requests.

        A prefix is one range of keys. So where a report leaves out a part of the source, the first
        or the last keys of the source are in that part.
        """
        read = [each for each in self._progress.read.values() if each.files]
        try:
            with being_listed(self._given.source):
                self._check_range("", min((each.first for each in read), default=""))
                if read:
                    self._check_range(max(each.last for each in read), "")
        except UnorderedListingError:
            _log.info(
                "%s lists in no order: how much of it the report covers is not checked.",
                self._given.source.uri,
            )

    def _check_range(self, after: str, before: str) -> None:
        """Check that the first page of a range has no file that the report had to name."""
        prefix, wanted = self._given.filter.prefix, self._given.filter
        found = self._given.source.list(
            prefix, start_after=after, end_before=before, skip=wanted.skip_folder
        )
        for file in islice(found, _PAGE_KEYS):
            is_settled = file.modification_time_us < self._report.settled_us
            if is_settled and wanted.accepts_in_folder(file):
                name = printable_path(self._given.source.child_uri(file.path))
                why = f"it lacks {name}, which is older"
                raise refused(self._report.uri, why, "Name a report of all of the source.")

    def _note(self, remembered: ListingState, by: CompletedBy, queue: str | None) -> None:
        """Note it as a full listing, where nothing else has to follow."""
        if by == "full listing":
            return
        if by == "incremental listing" and remembered.full_started > 0:
            return  # noted before; a listing that was killed since may have left it in doubt
        noted = replace(remembered, full_started=self._now, incremental=0, unfinished=None)
        if queue is not None:
            noted = replace(noted, notified=self._now, queue=queue)
        if by != "later reports":
            noted = replace(
                noted,
                full_listed=sum(each.files for each in self._progress.read.values()),
                filter=self._given.filter.fingerprint,
                witness=self._recorder.known.last() or "",
            )
        save_state(self._given.state, noted)

    def _result(
        self, by: CompletedBy, listing: ListingReport | None, seconds: float
    ) -> InventoryReport:
        read = self._progress.read.values()
        return InventoryReport(
            uri=printable_path(self._report.uri),
            started_us=self._report.started_us,
            data_files=len(self._report.files),
            rows=sum(each.rows for each in read),
            listed=sum(each.files for each in read),
            new=self._new,
            completed_by=by,
            requests=self._store.requests.total(),
            seconds=round(seconds, 3),
            listing=listing,
        )
