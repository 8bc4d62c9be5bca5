"""Which files are in the folder now, and which of them has nobody seen?

A full listing looks at every key below the source once; large ones with several threads
(`ranges.py`). An incremental listing looks where a tree grows (`edges.py`), which is far cheaper,
and right only for trees that grow so. `listing_choice.py` has the rules by which one is chosen. A
listing is complete or it fails: a folder that cannot be read is an error, never a gap.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.discovery.edges import EdgeRanges, KeyOrder, KeyRange, plan_edges
from airflow_cloudfiles.engine.discovery.filters import is_hidden
from airflow_cloudfiles.engine.discovery.listing_choice import (
    Choice,
    Circumstances,
    Kind,
    answers_something,
    choose,
    lexical_after,
)
from airflow_cloudfiles.engine.discovery.listing_state import (
    ListingState,
    Unfinished,
    after_look,
    load_state,
    save_state,
)
from airflow_cloudfiles.engine.discovery.ranges import Readers, not_listed
from airflow_cloudfiles.engine.discovery_options import DiscoveryOptions
from airflow_cloudfiles.engine.errors import OptionError, SourceNotFoundError
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.storage.base import key_bytes

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import FoundBy, KnownKeys, Recorder
    from airflow_cloudfiles.engine.discovery.filters import FileFilter
    from airflow_cloudfiles.engine.storage import ObjectStore

__all__ = ["DirectoryListing", "ListingReport", "is_hidden"]

logger = logging.getLogger(__name__)

_PROGRESS_SECONDS = 5.0
_SAVE_SECONDS = 10.0
_SAMPLE_FILES = 5
_PAGE_KEYS = 1000
THREADS = 8
"""Readers of an object store, which answers slowly and many at once. A local disk has one: there
Python itself is what takes the time, and it runs in one thread at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingReport:
    """What one listing did.

    Attributes:
        kind: `full`, `incremental`, or `resumed`: the rest of a full one that was interrupted.
        reason: Why it was of this kind.
        listed: How many files were found; hidden and otherwise unwanted ones do not count.
        new: How many of them were recorded.
        list_calls: Requests for pages, and probes; on a local disk, folders that were read.
        ranges: How many ranges were read; of an incremental listing, after cutting large ones.
        edges: How many ranges an incremental listing looked at.
        missed_by_incremental: How many new files an incremental listing would not have found.
        missed_sample: The first of them, at most five.
        rejected: How many files were left out, by reason.
        seconds: How long it took.
    """

    kind: Kind
    reason: str
    listed: int
    new: int
    list_calls: int
    ranges: int
    edges: int
    missed_by_incremental: int
    missed_sample: tuple[str, ...]
    rejected: dict[str, int]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """For reports and XCom."""
        return {**asdict(self), "missed_sample": list(self.missed_sample)}


class DirectoryListing:
    """Lists a source.

    Args:
        source: The folder the files land in.
        filter: Which of its files are input.
        state: Where listings remember what they need; `None` remembers nothing.
        options: `useIncrementalListing`, `backfillInterval`, `allowOverwrites`.
        clock: Seconds since 1970.

    Raises:
        OptionError: `useIncrementalListing=true` together with `allowOverwrites`.
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
        if self._options.allow_overwrites and self._options.use_incremental_listing == "true":
            raise OptionError(
                "cloudFiles.useIncrementalListing=true and cloudFiles.allowOverwrites=true exclude "
                "each other: an incremental listing does not look at most known files, so it "
                "cannot see that one was overwritten. Leave one of them out."
            )

    def run(
        self, recorder: Recorder, *, full: bool = False, found_by: FoundBy = "listing"
    ) -> ListingReport:
        """List what is to be listed now, and have new files recorded.

        Killed or failing at any point, it leaves each file recorded once or not yet; the next run
        finds the others.

        Args:
            recorder: Where new files go.
            full: Look at everything, from its beginning to its end, whatever the options say.
            found_by: What the files are recorded as; a full listing that `backfillInterval` asks
                for records `backfill` instead of `listing`.

        Raises:
            SourceNotFoundError: The source does not exist or is not a folder, or what was meant as
                its name is a pattern that matches nothing.
            ListingError: The source could not be listed completely.
        """
        self._check_source()
        given = self._circumstances(recorder.known)
        choice = choose(given, full=full, found_by=found_by)
        logger.info("Listing %s: %s, because %s", self._name, choice.kind, choice.reason)
        calls, rejected = self._source.requests["list"], self._filter.rejected.copy()
        run = _Run(self._name, self._state, given, choice, self._clock)
        readers = self._readers(recorder, choice, run)
        run.read(readers, self._check_source)
        left_out = self._filter.rejected - rejected
        report = run.report(readers, left_out, self._source.requests["list"] - calls)
        if report.listed == 0 and choice.kind == "full":
            self._check_pattern()
        return report

    def has_new(self, recorder: Recorder, *, queue: str = "") -> bool:
        """Tell whether `run` would find something new; nothing is recorded.

        A look that finds nothing counts like a listing: after seven incremental ones `auto` looks
        at everything, and a look at everything is remembered as the full listing that it was. One
        that finds something is not remembered, so that the run it leads to looks there too.

        Args:
            recorder: Knows what is recorded.
            queue: The queue that tells what arrives between full listings; empty for none.

        Raises:
            SourceNotFoundError: As for `run`.
            ListingError: Something below the source cannot be listed.
        """
        self._check_source()
        given = self._circumstances(recorder.known)
        choice = choose(given, full=False, found_by="listing")
        # Behind an interrupted listing there may be something too; who else would continue it?
        ranges = [KeyRange()] if choice.kind == "resumed" else choice.ranges
        try:
            if any(self._first_new(recorder, each) for each in ranges):
                return True
        except OSError as failure:
            raise not_listed(self._source, failure) from failure
        self._check_source()
        self._remember_look(given, choice, queue)
        return False

    def discover(self) -> Iterator[FileEntry]:
        """List all files in the order of the store, each once, in one thread.

        Raises:
            SourceNotFoundError: As for `run`.
            ListingError: Something below the source cannot be listed.
        """
        self._check_source()
        seen = 0
        next_word = time.monotonic() + _PROGRESS_SECONDS
        try:
            for entry in self._source.list(self._filter.prefix, skip=self._filter.skip_folder):
                if not self._filter.accepts_in_folder(entry):
                    continue
                yield entry
                seen += 1
                if time.monotonic() >= next_word:
                    logger.info("Listing %s: %d files so far", self._name, seen)
                    next_word = time.monotonic() + _PROGRESS_SECONDS
        except OSError as failure:
            raise not_listed(self._source, failure) from failure
        if seen == 0:
            self._check_pattern()

    def _first_new(self, recorder: Recorder, where: KeyRange) -> FileEntry | None:
        """The first new file in a range of keys."""
        listing = self._source.list(
            self._filter.prefix,
            start_after=where.after,
            end_before=where.end,
            skip=self._filter.skip_folder,
        )
        return next(recorder.unseen(filter(self._filter.accepts_in_folder, listing)), None)

    def _remember_look(self, given: Circumstances, choice: Choice, queue: str) -> None:
        """Note a look that found nothing, where that changes what the next one does."""
        remembered, is_full = given.remembered, choice.kind != "incremental"
        if self._state is None or (is_full and not answers_something(given)):
            return
        if is_full and queue and not (remembered.has_notifications and remembered.queue == queue):
            return  # what arrived before this queue was there is for a run to list
        seen = after_look(
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
        """What decides how much is listed now."""
        remembered = ListingState() if self._state is None else load_state(self._state)
        edges = self._edges(known, remembered)
        return Circumstances(
            options=self._options,
            remembered=remembered,
            known=known,
            fingerprint=self._filter.fingerprint,
            edges=edges,
            page_size=self._page_size,
            now=self._clock(),
        )

    def _readers(self, recorder: Recorder, choice: Choice, run: _Run) -> Readers:
        is_serial = self._is_local or self._order is None
        return Readers(
            self._source,
            self._filter,
            recorder,
            choice.ranges,
            found_by=choice.found_by,
            threads=1 if is_serial else THREADS,
            page_size=self._page_size,
            order=self._order or key_bytes,
            watcher=run,
        )

    def _edges(self, known: KnownKeys, remembered: ListingState) -> EdgeRanges | None:
        """What an incremental listing would look at now; `None` where none is possible.

        After notifications it is not asked: what is known then says nothing about listings.
        """
        options = self._options
        if options.allow_overwrites or options.use_incremental_listing == "false":
            return None
        if self._order is None or remembered.full_started <= 0 or remembered.has_notifications:
            return None
        if not remembered.is_of(known, self._filter.fingerprint):
            return None
        return plan_edges(known, self._filter.prefix, self._order)

    @property
    def _is_local(self) -> bool:
        return self._source.uri.startswith("file:")

    @property
    def _page_size(self) -> int:
        """Keys on a page; a local disk is treated as if it had pages."""
        return int(getattr(self._source, "page_size", _PAGE_KEYS))

    @property
    def _order(self) -> KeyOrder | None:
        """The order of the store; `None` where it cannot be told, and no range can be cut."""
        order: KeyOrder | None = getattr(self._source, "key_order", key_bytes)
        return order

    def _check_source(self) -> None:
        """See that a local folder is there; an object store tells when it is listed."""
        try:
            is_there = not self._is_local or self._source.is_folder()
        except OSError as failure:
            raise not_listed(self._source, failure) from failure
        if not is_there:
            raise SourceNotFoundError(
                f"The source {self._name} does not exist or is not a folder. Create it, or correct "
                f"the path."
            )

    def _check_pattern(self) -> None:
        """When nothing matches, see whether the pattern was meant as a name."""
        pattern = self._filter.pattern
        if pattern is None:
            return
        try:
            key = self._source.key_after(pattern)
        except OSError as failure:
            raise not_listed(self._source, failure) from failure
        if key is not None and key.startswith(pattern + "/"):
            raise SourceNotFoundError(
                f"Nothing in {self._name} matches the pattern {pattern!r}, but there is a folder "
                f"of exactly that name. If it is meant, write a backslash before each of the "
                f"characters * ? [ {{ and \\ in it."
            )


@dataclass
class _Comparison:
    """What a full listing found, beside where an incremental one would have looked."""

    edges: EdgeRanges | None
    found: int = 0
    missed: int = 0
    sample: list[str] = field(default_factory=list)

    def add(self, files: Sequence[FileEntry]) -> None:
        """Count new files."""
        if self.edges is None:
            return
        self.found += len(files)
        for file in files:
            if not self.edges.covers(file.path):
                self.missed += 1
                if len(self.sample) < _SAMPLE_FILES:
                    self.sample.append(printable_path(file.path))


class _Run:
    """One listing, as its readers tell of it: progress, marks, what it has shown."""

    def __init__(
        self,
        name: str,
        state: ObjectStore | None,
        given: Circumstances,
        choice: Choice,
        clock: Callable[[], float],
    ) -> None:
        self._name = name
        self._state = state
        self._given = given
        self._choice = choice
        self._clock = clock
        self._readers: Readers | None = None
        self._doubt: ListingState | None = None
        self._comparison = _Comparison(given.edges if choice.kind == "full" else None)
        self._began = time.monotonic()
        self._next_word = self._began + _PROGRESS_SECONDS
        self._next_save = self._began + _SAVE_SECONDS

    def read(self, readers: Readers, check_source: Callable[[], None]) -> None:
        """List; remember how far it came, or what it has shown.

        A local folder that went meanwhile, perhaps with what is mounted there, looks like an empty
        one.
        """
        self._readers = readers
        try:
            readers.run()
            check_source()
        except Exception:
            self._save_marks(readers)
            raise
        self._save_result(readers)

    def found(self, files: Sequence[FileEntry]) -> None:
        """Compare new files with where an incremental listing would have looked."""
        self._comparison.add(files)
        remembered = self._given.remembered
        if self._state is None or self._doubt or not remembered.full_started:
            return
        if self._may_leave_gaps():
            self._doubt = remembered.in_doubt()
            save_state(self._state, self._doubt)

    def advanced(self, readers: Readers) -> None:
        """Say how far it is, and note it, now and then."""
        now = time.monotonic()
        if now >= self._next_word:
            self._next_word = now + _PROGRESS_SECONDS
            logger.info(
                "Listing %s: %d keys so far, %d new files, %d of %d ranges done",
                self._name,
                readers.listed,
                readers.new,
                readers.ranges_done,
                readers.ranges_begun,
            )
        if now >= self._next_save:
            self._save_marks(readers)
            self._next_save = time.monotonic() + _SAVE_SECONDS

    def report(self, readers: Readers, rejected: Counter[str], list_calls: int) -> ListingReport:
        """Tell what it did; warn about what only a full listing finds."""
        comparison, given = self._comparison, self._given
        if comparison.missed:
            logger.warning(
                "%d of %d new files in %s lie where an incremental listing does not look, such as "
                "%s. Listings stay full until new files come last; "
                "cloudFiles.useIncrementalListing=true would miss such files until a backfill.",
                comparison.missed,
                comparison.found,
                self._name,
                ", ".join(comparison.sample),
            )
        is_incremental = self._choice.kind == "incremental"
        return ListingReport(
            kind=self._choice.kind,
            reason=self._choice.reason,
            listed=max(0, readers.listed - rejected.total()),
            new=readers.new,
            list_calls=list_calls,
            ranges=readers.ranges_begun,
            edges=len(given.edges.ranges) if is_incremental and given.edges else 0,
            missed_by_incremental=comparison.missed,
            missed_sample=tuple(comparison.sample),
            rejected=dict(rejected),
            seconds=round(time.monotonic() - self._began, 3),
        )

    def _may_leave_gaps(self) -> bool:
        """Whether files would be unseen before known ones if this process were killed now."""
        is_shared = self._readers is not None and self._readers.are_several
        is_other = self._given.remembered.filter != self._given.fingerprint
        return is_shared or is_other or self._choice.kind == "resumed"

    def _save_marks(self, readers: Readers) -> None:
        """Note what of a full listing is left, unless that is all, or nothing."""
        left = readers.unfinished()
        if self._state is None or self._choice.kind == "incremental":
            return
        if not left or left == [KeyRange()]:
            return
        unfinished = Unfinished(
            saved=self._clock(),
            found_by=self._choice.found_by,
            filter=self._given.fingerprint,
            witness=self._given.known.last() or "",
            ranges=tuple(left),
        )
        remembered = self._doubt or self._given.remembered
        save_state(self._state, replace(remembered, unfinished=unfinished))

    def _has_shown_nothing(self, readers: Readers) -> bool:
        """Whether the next listing would be the same without a word of this one."""
        given = self._given
        pages = given.remembered.full_listed // given.page_size
        return (
            self._choice.kind == "full"
            and readers.new == 0
            and readers.listed // given.page_size == pages
            and not answers_something(given)
        )

    def _save_result(self, readers: Readers) -> None:
        """Note what the next listing has to know."""
        if self._state is None or self._has_shown_nothing(readers):
            return
        remembered, given = self._given.remembered, self._given
        if self._choice.kind == "incremental":
            now = replace(remembered, incremental=remembered.incremental + 1)
        elif self._choice.kind == "resumed":
            now = replace(self._doubt or remembered, unfinished=None)
        else:
            lexical, covered = lexical_after(
                remembered, found=self._comparison.found, missed=self._comparison.missed
            )
            now = replace(
                remembered,
                full_started=given.now,
                full_listed=readers.listed,
                incremental=0,
                lexical=lexical,
                covered=covered,
                filter=given.fingerprint,
                witness=given.known.last() or "",
                unfinished=None,
            )
        is_incremental = self._choice.kind == "incremental"
        save_state(self._state, now, over=self._doubt or remembered if is_incremental else None)
