"""List the files of a folder, and find those that nobody has seen.

A full listing reads every key below the source once; large ones with several threads
(`ranges.py`). An incremental listing reads where the source grows (`run.py`), which is far
cheaper, and right only where it has been seen to be. `choice.py` has the rules by which one
is chosen. A listing is complete or it fails: a folder that cannot be read is an error, never a gap.

All of that rests on the order in which a store lists its keys. Some stores have none, or do not
start a listing where they are asked to. That is noticed, remembered, and such a store is listed
whole each time, in one thread.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.discovery.listing.edges import KeyOrder, KeyRange, check_order
from airflow_cloudfiles.engine.discovery.listing.ranges import (
    Readers,
    being_listed,
    not_listed,
    order_of,
)
from airflow_cloudfiles.engine.discovery.listing.run import (
    PROGRESS_SECONDS,
    Choice,
    Circumstances,
    ListingReport,
    ListingRun,
    answers_something,
    choose,
)
from airflow_cloudfiles.engine.discovery.listing.state import (
    IncrementalPlan,
    ListingState,
    after_empty_listing,
    load_state,
    plan_all,
    save_state,
)
from airflow_cloudfiles.engine.errors import (
    OptionError,
    SourceNotFoundError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage.base import UnorderedListingError, is_tree

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import FoundBy, KnownKeys, Recorder
    from airflow_cloudfiles.engine.discovery.filters import FileFilter
    from airflow_cloudfiles.engine.storage import ObjectStore


_log = logging.getLogger(__name__)

_PAGE_KEYS = 1000
THREADS = 8
"""Readers of an object store, which answers slowly and many at once. A local disk has one: there
Python itself is what takes the time, and it runs in one thread at a time. So has an SFTP server,
whose store reads the next folders ahead."""


class DirectoryListing:
    """Lists a source.

    Args:
        source: The folder the files land in.
        filter: Which of its files are input.
        state: Where listings remember what they need; `None` remembers nothing.
        options: `useIncrementalListing`, `backfillInterval`, `fileIdentity`.
        clock: Seconds since 1970.

    Raises:
        OptionError: `useIncrementalListing=true` where overwritten files are new.
    """

    def __init__(
        self,
        source: ObjectStore,
        filter: FileFilter,  # noqa: A002 - what it is
        *,
        state: ObjectStore | None = None,
        options: DiscoveryOptions | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._filter = filter
        self._state = state
        self._options = options or DiscoveryOptions()
        self._clock = clock
        self._name = printable_path(source.uri)
        self._has_order = True
        if self._options.sees_overwrites and self._options.use_incremental_listing == "true":
            raise OptionError(
                "cloudFiles.useIncrementalListing=true and cloudFiles.allowOverwrites=true (or "
                "another cloudFiles.fileIdentity than path) exclude each other: an incremental "
                "listing skips most known files, so it cannot see that one was overwritten. Leave "
                "one of them out."
            )

    def run(
        self, recorder: Recorder, *, full: bool = False, found_by: FoundBy = "listing"
    ) -> ListingReport:
        """List what is to be listed now, and have new files recorded.

        Killed or failing at any point, it leaves each file recorded once or not yet; the next run
        finds the others.

        Args:
            recorder: Where new files go.
            full: List everything, from its beginning to its end, whatever the options say.
            found_by: What the files are recorded as; a full listing that `backfillInterval` asks
                for records `backfill` instead of `listing`.

        Raises:
            SourceNotFoundError: The source does not exist or is not a folder, or what was meant as
                its name is a pattern that matches nothing.
            ListingError: The source could not be listed completely.
        """
        self._check_source()
        calls, rejected = self._source.requests["list"], self._filter.rejected.copy()
        try:
            run, readers = self._run(recorder, full=full, found_by=found_by)
        except UnorderedListingError as failure:
            self._remember_no_order(failure)
            self._filter.rejected.clear()
            self._filter.rejected.update(rejected)
            run, readers = self._run(recorder, full=full, found_by=found_by)
        left_out = self._filter.rejected - rejected
        report = run.report(readers, left_out, self._source.requests["list"] - calls)
        if report.listed == 0 and report.kind == "full":
            self._check_pattern()
        return report

    def has_new(self, recorder: Recorder, *, queue: str = "") -> bool:
        """Tell whether `run` would find something new, without recording it.

        A check that finds nothing counts like a listing: after seven incremental ones `auto` lists
        everything, and that is remembered as the full listing that it was. One that finds
        something is not remembered, so that the run it leads to lists there too.

        Args:
            recorder: Knows what is recorded.
            queue: The queue that reports what arrives between full listings; empty for none.

        Raises:
            SourceNotFoundError: As for `run`.
            ListingError: Something below the source cannot be listed.
        """
        self._check_source()
        try:
            return self._has_new(recorder, queue)
        except UnorderedListingError as failure:
            self._remember_no_order(failure)
        return self._has_new(recorder, queue)

    def _has_new(self, recorder: Recorder, queue: str) -> bool:
        """List once, by the rules as they are now."""
        given = self._circumstances(recorder.known)
        choice = choose(given, full=False, found_by="listing")
        # Behind an interrupted listing there may be something too; who else would continue it?
        ranges = [KeyRange()] if choice.kind == "resumed" else choice.ranges
        with being_listed(self._source):
            if any(self._first_new(recorder, each) for each in ranges):
                return True
        self._check_source()
        self._remember_look(given, choice, queue)
        return False

    def _run(
        self, recorder: Recorder, *, full: bool, found_by: FoundBy
    ) -> tuple[ListingRun, Readers]:
        """List once, by the rules as they are now."""
        given = self._circumstances(recorder.known)
        choice = choose(given, full=full, found_by=found_by)
        _log.info("Listing %s: %s, because %s", self._name, choice.kind, choice.reason)
        is_certain = given.remembered.order == "seen" or self._is_order_promised
        if choice.kind == "incremental" and not is_certain:
            is_certain = self._check_order(recorder.known)
        run = ListingRun(self._name, self._state, given, choice, self._clock)
        readers = self._readers(recorder, choice, run, is_order_certain=is_certain)
        run.read(readers, self._check_source)
        return run, readers

    def _check_order(self, known: KnownKeys) -> bool:
        """Check once whether the store lists by the bytes of keys, before it is relied on."""
        key = known.last(self._filter.prefix) or ""
        if "/" not in key:
            return False
        with being_listed(self._source):
            return check_order(self._source, key, is_there=self._source.head(key) is not None)

    def _remember_no_order(self, failure: UnorderedListingError) -> None:
        """Note that the store is listed whole from now on.

        Raises:
            UnsupportedOptionError: `useIncrementalListing=true` relies on an order.
        """
        _log.warning("%s is listed in full each time: %s", self._name, failure)
        self._has_order = False
        if self._state is not None:
            remembered = load_state(self._state)
            save_state(self._state, replace(remembered, order="none", unfinished=None))
        self._refuse_incremental()

    def _refuse_incremental(self) -> None:
        if self._options.use_incremental_listing == "true":
            raise UnsupportedOptionError(
                f"cloudFiles.useIncrementalListing=true needs a store that lists its keys in "
                f"order, and that of {self._name} does not. Leave the option at auto: then the "
                f"source is listed in full, at one request a page, and all files are found."
            )

    def discover(self) -> Iterator[FileEntry]:
        """List all files, each once, in one thread, and in the order of the store if it has one.

        Raises:
            SourceNotFoundError: As for `run`.
            ListingError: Something below the source cannot be listed.
        """
        self._check_source()
        seen = 0
        next_word = time.monotonic() + PROGRESS_SECONDS
        # Half-way through it is too late to find that the store keeps no order.
        is_ordered = self._order is not None and self._is_order_promised
        listing = self._source.list(
            self._filter.prefix, skip=self._filter.skip_folder, ordered=is_ordered
        )
        try:
            for entry in listing:
                if not self._filter.accepts_in_folder(entry):
                    continue
                yield entry
                seen += 1
                if time.monotonic() >= next_word:
                    _log.info("Listing %s: %s so far", self._name, counted(seen, "file"))
                    next_word = time.monotonic() + PROGRESS_SECONDS
        except OSError as failure:
            raise not_listed(self._source, failure) from failure
        if seen == 0:
            self._check_pattern()

    def _first_new(self, recorder: Recorder, where: KeyRange) -> FileEntry | None:
        """Find the first new file in a range of keys."""
        listing = self._source.list(
            self._filter.prefix,
            start_after=where.after,
            end_before=where.end,
            skip=self._filter.skip_folder,
            ordered=self._order is not None,
        )
        return next(recorder.unseen(filter(self._filter.accepts_in_folder, listing)), None)

    def _remember_look(self, given: Circumstances, choice: Choice, queue: str) -> None:
        """Note a listing that found nothing, where that changes what the next one does."""
        remembered, is_full = given.remembered, choice.kind != "incremental"
        if self._state is None or (is_full and not answers_something(given)):
            return
        if is_full and queue and not (remembered.has_notifications and remembered.queue == queue):
            return  # what arrived before this queue was there is for a run to list
        seen = after_empty_listing(
            remembered,
            is_full=is_full,
            now=given.now,
            fingerprint=given.fingerprint,
            witness=given.known.last() or "",
        )
        if queue:
            seen = replace(seen, notified=given.now)
        save_state(self._state, seen, over=remembered)

    def _circumstances(self, known: KnownKeys) -> Circumstances:
        """Collect what decides how much is listed now."""
        remembered = ListingState() if self._state is None else load_state(self._state)
        if remembered.order == "none" and self._has_order:
            self._has_order = False
            self._refuse_incremental()
        return Circumstances(
            options=self._options,
            remembered=remembered,
            known=known,
            fingerprint=self._filter.fingerprint,
            plans=self._plans(known, remembered),
            page_size=self._page_size,
            has_order=self._order is not None,
            now=self._clock(),
        )

    def _readers(
        self, recorder: Recorder, choice: Choice, run: ListingRun, *, is_order_certain: bool
    ) -> Readers:
        return Readers(
            self._source,
            self._filter,
            recorder,
            choice.ranges,
            found_by=choice.found_by,
            threads=1 if is_tree(self._source) else THREADS,
            page_size=self._page_size,
            order=self._order,
            is_order_certain=is_order_certain,
            watcher=run,
        )

    def _plans(self, known: KnownKeys, remembered: ListingState) -> list[IncrementalPlan]:
        """List what incremental listings could read now; none where none is possible.

        After notifications it is not asked: what is known then shows nothing about listings.
        """
        options, order = self._options, self._order
        if options.lists_all or options.use_incremental_listing == "false":
            return []
        if order is None or remembered.full_started <= 0 or remembered.has_notifications:
            return []
        if not remembered.is_of(known, self._filter.fingerprint):
            return []
        is_always = options.use_incremental_listing == "true"
        pages = math.inf if is_always else remembered.full_listed / self._page_size
        return plan_all(known, self._filter.prefix, order, page_size=self._page_size, pages=pages)

    @property
    def _page_size(self) -> int:
        """Keys on a page; a local disk is treated as if it had pages."""
        return int(getattr(self._source, "page_size", _PAGE_KEYS))

    @property
    def _order(self) -> KeyOrder | None:
        """The order of the store; `None` where there is none, and no range can be cut."""
        if not self._has_order:
            return None
        return order_of(self._source)

    @property
    def _is_order_promised(self) -> bool:
        """Whether the order of the store needs no check."""
        return bool(getattr(self._source, "is_order_promised", True))

    def _check_source(self) -> None:
        """Check that a folder is there; an object store shows it when it is listed."""
        with being_listed(self._source):
            is_there = not is_tree(self._source) or self._source.is_folder()
        if not is_there:
            raise SourceNotFoundError(
                f"The source {self._name} does not exist or is not a folder. Create it, or correct "
                f"the path."
            )

    def _check_pattern(self) -> None:
        """Check, when nothing matches, whether the pattern was meant as a name."""
        pattern = self._filter.pattern
        if pattern is None:
            return
        with being_listed(self._source):
            found = next(self._source.list(pattern + "/", ordered=False), None)
        if found is not None:
            raise SourceNotFoundError(
                f"Nothing in {self._name} matches the pattern {pattern!r}, but there is a folder "
                f"of exactly that name. If it is meant, write a backslash before each of the "
                f"characters * ? [ {{ and \\ in it."
            )
