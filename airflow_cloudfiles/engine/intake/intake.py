"""Discover what has arrived, and say what is still to be ingested.

Discovering is three steps, and may be killed between any two of them:

1. Find candidates: list the source, or receive notifications, or both.
2. Leave out what the ledger, caught up with the file log, has seen.
3. Append the rest to the file log. If another discoverer was faster: catch up, leave out what it
   recorded, and try again.

Only after step 3 are notifications deleted. A kill before step 3 has changed nothing, and after it
the files are recorded, once. The ledger is only an index of the file log, killed at any time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.filters import FileFilter
from airflow_cloudfiles.engine.discovery.listing.directory import DirectoryListing
from airflow_cloudfiles.engine.discovery.listing.run import ListingReport
from airflow_cloudfiles.engine.discovery.listing.state import (
    expect_notifications,
    remember_notifications,
)
from airflow_cloudfiles.engine.errors import LedgerError
from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.intake.ledger.base import (
    Ledger,
    catch_up,
    catch_up_whole,
    forget_old,
)
from airflow_cloudfiles.engine.intake.ledger.changed import has_overwritten
from airflow_cloudfiles.engine.intake.ledger.opening import mark_head, open_ledger
from airflow_cloudfiles.engine.intake.ledger.snapshots import maybe_snapshot
from airflow_cloudfiles.engine.intake.opening import locate, name_of
from airflow_cloudfiles.engine.intake.recorder import (
    Baseline,
    Contents,
    LedgerRecorder,
    record_overwritten,
)
from airflow_cloudfiles.engine.intake.results import (
    Arrivals,
    DiscoveryPreview,
    DiscoveryResult,
)
from airflow_cloudfiles.engine.intake.stream_logs import SourceMetrics, StreamLogs, source_metrics
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.options.values import check_ends
from airflow_cloudfiles.engine.registry import extension
from airflow_cloudfiles.engine.state.file_log import log_of
from airflow_cloudfiles.engine.state.metadata import open_metadata
from airflow_cloudfiles.engine.storage import ObjectStore, StoreOpener, open_store
from airflow_cloudfiles.engine.storage.access import Access

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.settling import UnsettledFiles
    from airflow_cloudfiles.engine.intake.announcements import Announcements, ReportReader, Stream
    from airflow_cloudfiles.engine.intake.changes import Changes
    from airflow_cloudfiles.engine.intake.recorder import Deletions
    from airflow_cloudfiles.engine.intake.results import ReadReport

_log = logging.getLogger(__name__)


class Intake(StreamLogs):
    """The arrivals of one stream: what discovery finds and what a run still has to ingest.

    Open it with `Intake.open`, or over stores of one's own. Any number of intakes, in any
    processes, may work on one state.

    Args:
        source: The folder the files land in.
        state: The checkpoint location.
        format: `cloudFiles.format`.
        exclude: As for `open`.
        pattern: Which folders and files below the source are meant; `None` for all.
        name: What the state knows the source by; `None` for source and pattern.
        discovery: As for `open`.
        access: As for `open`.
        ledger: An index of the file log to use; `None` opens the one in the local cache when files
            are first discovered.

    Attributes:
        stream_id: Id of the stream, fixed for the life of its state.
        name: What the state knows the source by: its URI, perhaps with a pattern.
        source: The folder the files land in: the part of the source path before any pattern.
        state: The checkpoint location.
        files: The file log.
        plans: The plan log.
    """

    def __init__(  # noqa: PLR0913 - the arguments of a stream
        self,
        *,
        source: ObjectStore,
        state: ObjectStore,
        format: str,  # noqa: A002 - Auto Loader's name
        exclude: Sequence[str] = (),
        pattern: str | None = None,
        name: str | None = None,
        discovery: DiscoveryOptions | None = None,
        access: Access | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        options = discovery or DiscoveryOptions()
        reports = [extension("inventory folder")(options.inventory)] if options.inventory else []
        own = [source.key_of(uri) for uri in (state.uri, *exclude, *reports)]
        file_filter = FileFilter(source.uri, pattern, options, own)
        metadata = open_metadata(
            state,
            name or name_of(source.uri, pattern),
            format,
            include_existing_files=options.include_existing_files,
            file_identity=options.identity,
            clock_us=source.clock_us,
        )
        super().__init__(state, log_of(state, metadata))
        self.stream_id = metadata.stream_id
        self.name = metadata.source
        self.source = source
        self._filter = file_filter
        self._listing = DirectoryListing(source, file_filter, state=state, options=options)
        self._discovery = options
        baseline = Baseline(source, metadata.started_us, is_first=metadata.is_new)
        self._baseline = None if metadata.include_existing_files else baseline
        self._is_part = metadata.source != name_of(source.uri, pattern)
        self._access = access
        self._inventory = self._reports()
        self._ledger = ledger
        self._announcements: Announcements | None = None
        self._has_listed = False

    @classmethod
    def open(  # noqa: PLR0913 - the arguments of a stream
        cls,
        *,
        source: str,
        format: str,  # noqa: A002 - Auto Loader's name
        checkpoint_location: str,
        exclude: Sequence[str] = (),
        discovery: DiscoveryOptions | None = None,
        access: Access | None = None,
        open_state: StoreOpener | None = None,
    ) -> Intake:
        """Open the state of a source, or begin one.

        The checkpoint location is never ingested, wherever it is.

        Args:
            source: Path or URI of the folder the files land in, or a pattern of folders. It need
                not exist yet. For a state that exists also a part of its source: a folder or a
                pattern below it (`locate`).
            format: `cloudFiles.format`.
            checkpoint_location: Path or URI of the state.
            exclude: Further locations that are not ingested where they are below the source: the
                schema location, the target.
            discovery: Which files are wanted and how they are found.
            access: How the clouds are reached; `None` for the environment's own chain.
            open_state: Opens the state, where a run has it open (`OpenedState.open`).

        Raises:
            StateConflictError: The state belongs to another source or format, or knows files in
                another way.
            OptionError: A location is not one, or is the source itself.
        """
        check_ends("The source", source)
        location = check_ends("The checkpoint location", checkpoint_location)
        state = open_state(location) if open_state else open_store(location, access)
        place = locate(source, state)
        return cls(
            source=open_store(place.root, access),
            pattern=place.pattern,
            name=place.name,
            format=format,
            state=state,
            exclude=exclude,
            discovery=discovery,
            access=access,
        )

    def discover(
        self, *, full: bool = False, on_recorded: Callable[[], None] | None = None
    ) -> DiscoveryResult:
        """Record the files that have arrived; append nothing when nothing is new.

        Killed or failing at any point, it leaves each file in at most one entry, and the next call
        records what is missing.

        Args:
            full: Whether to list everything, whatever the options are.
            on_recorded: Called when files that are to be ingested have been recorded, after each
                entry of the file log.

        Raises:
            SourceNotFoundError: The source does not exist or is not a folder.
            ListingError: The source could not be listed completely; what was found stays recorded.
            QueueError: The queue of notifications cannot be read; what was received stays there.
            StateError: The state cannot be read or written.
        """
        try:
            return self._discover(self._caught_up_ledger(), full=full, on_recorded=on_recorded)
        except LedgerError as failure:
            _log.warning("%s Rebuilding it from the file log.", failure)
        ledger = self._open_ledger()
        ledger.clear()
        catch_up(ledger, self.files)
        return self._discover(ledger, full=full, on_recorded=on_recorded)

    def preview(self) -> DiscoveryPreview:
        """List everything, and tell what `discover` would record; records nothing.

        Raises:
            SourceNotFoundError: The source does not exist or is not a folder.
            ListingError: The source could not be listed completely.
        """
        ledger = self._caught_up_ledger()
        recorder = self._recorder(ledger)
        found = DiscoveryPreview()
        for file in recorder.unseen(self._listing.discover()):
            is_known = self._discovery.replaces and ledger.entry_of(file.path) is not None
            found.add("replaced" if is_known else "new", file.path)
        for path in recorder.deleted.unlisted(ledger) if recorder.deleted is not None else ():
            found.add("deleted", path)
        return found

    def arrivals(self) -> Arrivals:
        """Look for something to ingest, without recording or acknowledging anything.

        For trigger events: `discover` finds out what. A queue gives an approximate count, a listing
        ends at the first new file.

        Raises:
            QueueError: The queue of notifications cannot be read.
        """
        head = self.head()
        while True:  # who records meanwhile may make a file neither new nor recorded, or both
            found, before = self._arrivals(head), head
            head = self.head()
            if head == before:
                return found

    def _arrivals(self, head: Offset) -> Arrivals:
        recorded, ledger = self.outstanding(up_to=head).files > 0, self._caught_up_ledger()
        announced, recorder = self._announced(), self._recorder(ledger)
        settled = recorder.has_settled()
        if announced is None or self._is_listing_due(announced, ledger):
            queue = "" if announced is None else announced.name
            is_unread = self._inventory is not None and self._inventory.is_waiting()
            unrecorded = settled or is_unread or self._listing.has_new(recorder, queue=queue)
            if recorder.deleted is not None and not unrecorded:
                unrecorded = next(recorder.deleted.unlisted(ledger), None) is not None
            if announced is not None and not unrecorded:
                announced.nothing_listed()
            return Arrivals(head, recorded, unrecorded, waiting=recorder.waiting)
        overwritten = self._discovery.sees_overwrites and has_overwritten(self.state)
        found = announced.announced(recorder)
        return Arrivals(
            head,
            recorded=recorded,
            unrecorded=settled or found.unrecorded or overwritten,
            messages=found.messages,
            newest_us=found.newest_us,
            waiting=recorder.waiting,
        )

    def has_arrivals(self) -> bool:
        """Tell whether there is something to ingest (`arrivals`)."""
        return bool(self.arrivals())

    def metrics(self, after: Offset, head: Offset) -> SourceMetrics:
        """Give Auto Loader's metrics of the source: what is recorded between two positions."""
        announced = self._announced()
        queue = None if announced is None else announced.queue
        return source_metrics(self.files, after, head, queue)

    def close(self) -> None:
        """Release the ledger; closing twice does nothing."""
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            ledger.close()

    def _caught_up_ledger(self) -> Ledger:
        """Return the index with all that is recorded now; open it where it is not."""
        if self._ledger is None:
            return self._open_ledger()
        catch_up_whole(self._ledger, self.files, self._filter.oldest_us())
        return self._ledger

    def _open_ledger(self) -> Ledger:
        if self._ledger is None:
            self._ledger = open_ledger(
                self.stream_id,
                self.files,
                self._discovery.identity,
                oldest_us=self._filter.oldest_us(),
            )
        return self._ledger

    def _announced(self) -> Announcements | None:
        """Build what announces files, where that is to be read.

        It announces files of the whole source. Who asks for a part would acknowledge those that the
        stream has not recorded; so a part is listed.
        """
        if self._is_part or self._announcements is not None or not self._discovery.is_announced:
            return self._announcements
        from airflow_cloudfiles.engine.intake.announcements import announcements  # noqa: PLC0415

        self._announcements = announcements(self._as_announced)
        return self._announcements

    @property
    def _as_announced(self) -> Stream:
        from airflow_cloudfiles.engine.intake.announcements import Stream  # noqa: PLC0415

        return Stream(
            source=self.source,
            filter=self._filter,
            options=self._discovery,
            state=self.state,
            files=self.files,
            access=self._access,
        )

    def _is_listing_due(self, announced: Announcements, ledger: Ledger) -> bool:
        """Tell whether the source must be listed although something announces what arrives."""
        from airflow_cloudfiles.engine.intake.announcements import is_listing_due  # noqa: PLC0415

        has_gap = announced.begin()
        return has_gap or is_listing_due(
            announced, self._as_announced, ledger, has_listed=self._has_listed
        )

    def _recorder(
        self, ledger: Ledger, on_recorded: Callable[[], None] | None = None
    ) -> LedgerRecorder:
        self._filter.known_from_us = ledger.expired_us
        return LedgerRecorder(
            ledger,
            self.files,
            versions=self._discovery.sees_overwrites,
            path_column=self._discovery.path_column,
            replaces=self._discovery.replaces,
            deleted=self._deleted(),
            contents=Contents(self.source) if self._discovery.identity == "content" else None,
            baseline=self._baseline,
            check=self.check,
            on_recorded=on_recorded or (lambda: None),
            settling=self._settling(),
            skips_archived=self._discovery.on_archived_file == "skip",
            changes=self._changes(ledger),
        )

    # What few streams ask for is imported by those: starting is most of a small run.

    def _reports(self) -> ReportReader | None:
        """Build the reader of inventory reports; `None` where none is to be read."""
        if self._is_part or not self._discovery.inventory:
            return None
        reports: ReportReader = extension("inventory")(
            self.source, self._filter, self._discovery, self.state, self._access
        )
        return reports

    def _settling(self) -> UnsettledFiles | None:
        """Build what makes files wait; `None` where none has to."""
        if not self._discovery.waits:
            return None
        from airflow_cloudfiles.engine.discovery.settling import (  # noqa: PLC0415
            UnsettledFiles,
        )

        is_baseline = self._baseline is not None and not self.files.baseline_complete()
        baseline = self._baseline if is_baseline else None
        return UnsettledFiles(
            self.source,
            self.state,
            self._discovery,
            self._filter,
            is_existing=lambda file: baseline is not None and bool(baseline.existing([file])),
        )

    def _deleted(self) -> Deletions | None:
        """Build what notices files that are gone; `None` where their rows stay."""
        if self._is_part or not self._discovery.deletes:
            return None
        found: Deletions = extension("deleted files")(
            self.source, self._discovery.max_deleted_share
        )
        return found

    def _changes(self, ledger: Ledger) -> Changes | None:
        """Build what reports changes; `None` where it is not asked for, or they are new files."""
        if self._discovery.notice_changes == "false" or self._discovery.sees_overwrites:
            return None
        from airflow_cloudfiles.engine.intake.changes import Changes  # noqa: PLC0415

        return Changes(
            self.source,
            self.files,
            self.plans,
            ledger,
            options=self._discovery,
            committed=self._committed,
        )

    def _bound_rebuild(self, ledger: Ledger, recorder: LedgerRecorder) -> None:
        """Mark how long the file log is by now, and perhaps save the index."""
        if recorder.recorded.has_any:
            mark_head(self.state, self.files)
        forget_old(ledger, self.files, self._filter.oldest_us())
        maybe_snapshot(ledger, self.files, self.state)

    def _list(
        self,
        ledger: Ledger,
        recorder: LedgerRecorder,
        announced: Announcements | None,
        *,
        full: bool,
    ) -> tuple[ListingReport | None, ReadReport | None]:
        """List the source, or read an inventory report of it, if that is due."""
        inventory = None
        if self._inventory is not None and not full:
            from airflow_cloudfiles.engine.intake.announcements import (  # noqa: PLC0415
                read_report,
            )

            inventory = read_report(self._inventory, recorder, self._listing, announced)
        if inventory is not None and not inventory.needs_listing:
            return inventory.listing, inventory
        if announced is None:
            full = full or self._discovery.is_announced
            return self._listing.run(recorder, full=full), inventory
        if not self._is_listing_due(announced, ledger) and not full:
            return None, inventory
        announced.begin_anew()
        listing = self._listing.run(recorder, full=True, found_by="backfill")
        self._has_listed = True
        return listing, inventory

    def _discover(
        self, ledger: Ledger, *, full: bool, on_recorded: Callable[[], None] | None
    ) -> DiscoveryResult:
        """Find, record, acknowledge; then bound the next rebuild of the index."""
        recorder = self._recorder(ledger, on_recorded)
        announced, report = self._announced(), None
        try:
            listing, inventory = self._list(ledger, recorder, announced, full=full)
        finally:
            if self._baseline:
                self._baseline.is_first = False
        crash_point("after-listing")
        if self._discovery.sees_overwrites and not self._is_part:
            record_overwritten(self.state, self.source, self._filter, recorder, self._listing)
        is_complete = bool(listing or (inventory and inventory.is_complete))
        if self._baseline and is_complete and not self._is_part:
            recorder.complete_baseline()
        recorder.end_listing(is_part=self._is_part)
        if recorder.deleted is not None and listing is not None and listing.kind == "full":
            recorder.deleted.record(recorder)
        if announced is not None:
            expected = expect_notifications(self.state)
            report = announced.record(recorder)
            remember_notifications(self.state, time.time(), announced.name, expected)
        if self._baseline:
            self._baseline.warn()
        self._bound_rebuild(ledger, recorder)
        found = DiscoveryResult.of(recorder, listing, report, inventory)
        found.log(self.source.uri)
        return found
