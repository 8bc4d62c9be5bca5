"""Decide whether a listing is full or incremental, carry it out, and keep what it leaves behind.

Readers report files they found and how far they are. From that come the report, what later
listings have to know (`state.py`), and marks from which a full listing that is interrupted
can be continued.

The rules, in the order in which they are asked. A full listing is always right; so each rule only
has to be right when it allows an incremental one.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from airflow_cloudfiles.engine.discovery.listing.edges import KeyRange
from airflow_cloudfiles.engine.discovery.listing.state import (
    HYPOTHESES,
    KEY,
    IncrementalPlan,
    ListingState,
    TrackRecord,
    UnfinishedListing,
    best,
    is_known,
    save_state,
    trusted,
    unproven,
)
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.storage.base import UnorderedListingError
from airflow_cloudfiles.engine.storage.fetched_ahead import aside

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import FoundBy, KnownKeys
    from airflow_cloudfiles.engine.discovery.listing.ranges import Readers
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
    from airflow_cloudfiles.engine.storage import ObjectStore


INCREMENTAL_BEFORE_FULL = 7
"""`auto` makes a full listing after so many incremental ones (B81)."""
WORTHWHILE_PAGES = 2
"""A full listing of no more pages is so cheap that `auto` makes no other."""
RESUME_SECONDS = 6 * 3600.0
"""An interrupted full listing is continued when it is younger."""
BACKFILL = "cloudFiles.backfillInterval has passed"
NO_ORDER = "the store does not list keys in order, or does not report which"

Kind = Literal["full", "incremental", "resumed"]


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be listed, and why."""

    kind: Kind
    reason: str
    ranges: Sequence[KeyRange]
    found_by: FoundBy


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the choice depends on.

    Attributes:
        options: What the user asked for.
        remembered: What earlier listings have shown.
        known: The known files.
        fingerprint: Of the filter.
        plans: What incremental listings could read; none where none is possible.
        page_size: Keys on a page.
        has_order: Whether the store lists keys in order.
        now: Seconds since 1970.
    """

    options: DiscoveryOptions
    remembered: ListingState
    known: KnownKeys
    fingerprint: str
    plans: Sequence[IncrementalPlan]
    page_size: int
    has_order: bool
    now: float

    @property
    def plan(self) -> IncrementalPlan | None:
        """What an incremental listing would read now; `None` when none may be made."""
        evidence = self.remembered.evidence
        if self.options.use_incremental_listing == "true":
            return best(unproven(self.plans, evidence))
        return best(trusted(self.plans, evidence))


def choose(given: Circumstances, *, full: bool, found_by: FoundBy) -> Choice:
    """Decide what is listed now.

    Args:
        given: What it depends on.
        full: A full listing was asked for; it is never the rest of another.
        found_by: What files are recorded as.
    """
    if full:
        return Choice("full", "it was asked for", [KeyRange()], found_by)
    reason, plan = _why_full(given), given.plan
    if not reason and plan is not None:
        where = f"new files come {HYPOTHESES[plan.name]} here"
        return Choice("incremental", where, plan.edges.ranges, found_by)
    if _may_resume(given, found_by) and (unfinished := given.remembered.unfinished):
        age = int(given.now - unfinished.saved)
        reason = f"a full one was interrupted {age} seconds ago"
        return Choice("resumed", reason, unfinished.ranges, found_by)
    if reason == BACKFILL and found_by == "listing":
        found_by = "backfill"
    return Choice("full", reason, [KeyRange()], found_by)


def answers_something(given: Circumstances) -> bool:
    """Tell whether a full listing that finds nothing new changes what is listed next.

    Where listings are full anyway it does not, and need not be remembered.
    """
    remembered = given.remembered
    return (
        remembered.full_started <= 0
        or remembered.incremental > 0
        or remembered.unfinished is not None
        or remembered.has_notifications
        or not remembered.is_of(given.known, given.fingerprint)
        or _is_backfill_due(given)
    )


def _is_backfill_due(given: Circumstances) -> bool:
    interval = given.options.listing_backfill_seconds
    return interval is not None and given.remembered.is_older(interval, given.now)


def _identity(options: DiscoveryOptions) -> str:
    """Find the option that makes overwritten files new ones."""
    if options.file_identity is None:
        return "cloudFiles.allowOverwrites"
    return f"cloudFiles.fileIdentity={options.file_identity}"


def _why_full(given: Circumstances) -> str:
    """Say why a full listing is due; empty when none is."""
    options, remembered = given.options, given.remembered
    rules = [
        (not given.has_order, NO_ORDER),
        (options.use_incremental_listing == "false", "cloudFiles.useIncrementalListing is false"),
        (options.sees_overwrites, f"{_identity(options)} needs known files listed, too"),
        (options.deletes, "cloudFiles.onDelete=delete needs known files listed, too"),
        (options.lists_all, "cloudFiles.completionMarker may make any file a new one"),
        (remembered.full_started <= 0, "none was finished before"),
        (remembered.is_in_doubt, "one did not come to its end"),
        (not remembered.is_of(given.known, given.fingerprint), "other files are input than before"),
        (remembered.has_notifications, "notifications came before"),
        (_is_backfill_due(given), BACKFILL),
        *(_rules_of_auto(given) if options.use_incremental_listing == "auto" else ()),
        (given.plan is None, "it costs no more than an incremental one would"),
    ]
    return next((reason for holds, reason in rules if holds), "")


def _rules_of_auto(given: Circumstances) -> Sequence[tuple[bool, str]]:
    """List what `auto` asks besides: whether it is safe, and whether it saves anything."""
    remembered = given.remembered
    pages = remembered.full_listed / given.page_size
    return (
        (remembered.lexical is None, "it is not known yet whether new files come last"),
        (remembered.lexical is False, "new files do not come last here"),
        (remembered.incremental >= INCREMENTAL_BEFORE_FULL, "the last seven were incremental"),
        (pages <= WORTHWHILE_PAGES, "it costs two pages at most"),
    )


def _may_resume(given: Circumstances, found_by: FoundBy) -> bool:
    """Tell whether an interrupted full listing can be believed, and is young enough."""
    unfinished = given.remembered.unfinished
    return (
        unfinished is not None
        and given.has_order
        and not (given.options.sees_overwrites or given.options.deletes)
        and unfinished.found_by == found_by
        and unfinished.filter == given.fingerprint
        and is_known(given.known, unfinished.witness)
        and 0 <= given.now - unfinished.saved < RESUME_SECONDS
    )


_log = logging.getLogger(__name__)

PROGRESS_SECONDS = 5.0
_SAVE_SECONDS = 10.0
_SAMPLE_FILES = 5


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
        edges: How many ranges an incremental listing read.
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
        """Encode it for reports and XCom."""
        return {**asdict(self), "missed_sample": list(self.missed_sample)}


@dataclass
class _ListingComparison:
    """What a full listing found, beside where an incremental one would have listed.

    Attributes:
        plans: The hypotheses that were possible.
        used: The one that an incremental listing would have used; `None` when none was made.
    """

    plans: Sequence[IncrementalPlan] = ()
    used: IncrementalPlan | None = None
    found: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, files: Sequence[FileEntry]) -> None:
        """Count new files."""
        self.found += len(files)
        for plan in self.plans:
            for file in files:
                if not plan.edges.covers(file.path):
                    self.missed[plan.name] += 1
                    sample = self.samples.setdefault(plan.name, [])
                    if len(sample) < _SAMPLE_FILES:
                        sample.append(printable_path(file.path))

    @property
    def judged(self) -> str:
        """The hypothesis that the report is about: the one in use, else the one that did best."""
        if self.used is not None:
            return self.used.name
        best = min(self.plans, key=lambda plan: self.missed[plan.name], default=None)
        return best.name if best else ""

    def evidence(self, before: ListingState) -> dict[str, TrackRecord]:
        """Return what is known about each hypothesis now."""
        known = dict(before.evidence)
        if self.found:
            for plan in self.plans:
                known[plan.name] = known.get(plan.name, TrackRecord()).after(self.missed[plan.name])
        return known


class ListingRun:
    """One listing, as its readers report it: progress, marks, what it has shown."""

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
        self._has_marks = False
        is_full = choice.kind == "full"
        self._comparison = (
            _ListingComparison(given.plans, given.plan) if is_full else _ListingComparison()
        )
        self._began = time.monotonic()
        self._next_word = self._began + PROGRESS_SECONDS
        self._next_save = self._began + _SAVE_SECONDS

    def read(self, readers: Readers, check_source: Callable[[], None]) -> None:
        """List; remember how far it came, or what it has shown.

        A local folder that went meanwhile, perhaps with what is mounted there, appears as an empty
        one.
        """
        self._readers = readers
        try:
            readers.run()
            check_source()
        except UnorderedListingError:  # what came before the marks is not all there was
            raise
        except Exception:
            self._save_marks(readers)
            raise
        self._save_result(readers)

    def found(self, files: Sequence[FileEntry]) -> None:
        """Compare new files with what an incremental listing would have read."""
        self._comparison.add(files)
        remembered = self._given.remembered
        if self._state is None or self._doubt or not remembered.full_started:
            return
        if self._may_leave_gaps():
            self._doubt = remembered.in_doubt()
            save_state(self._state, self._doubt)

    def advanced(self, readers: Readers) -> None:
        """Log how far it is, and note it, now and then."""
        now = time.monotonic()
        if now >= self._next_word:
            self._next_word = now + PROGRESS_SECONDS
            _log.info(
                "Listing %s: %s so far, %s, %d of %s done",
                self._name,
                counted(readers.listed, "key"),
                counted(readers.new, "new file"),
                readers.ranges_done,
                counted(readers.ranges_begun, "range"),
            )
        if now >= self._next_save:
            self._save_marks(readers)
            self._next_save = time.monotonic() + _SAVE_SECONDS

    def report(self, readers: Readers, rejected: Counter[str], list_calls: int) -> ListingReport:
        """Report what it did; warn about what only a full listing finds."""
        comparison, given = self._comparison, self._given
        missed = comparison.missed[comparison.judged]
        sample = comparison.samples.get(comparison.judged, ())
        if missed:
            _log.warning(
                "An incremental listing would have missed %d of %s in %s, such as %s. "
                "Listings stay full until one of its rules has been seen to find all. With "
                "cloudFiles.useIncrementalListing=true such files wait for a backfill.",
                missed,
                counted(comparison.found, "new file"),
                self._name,
                ", ".join(sample),
            )
        is_incremental = self._choice.kind == "incremental"
        return ListingReport(
            kind=self._choice.kind,
            reason=self._choice.reason,
            listed=max(0, readers.listed - rejected.total()),
            new=readers.new,
            list_calls=list_calls,
            ranges=readers.ranges_begun,
            edges=len(given.plan.edges.ranges) if is_incremental and given.plan else 0,
            missed_by_incremental=missed,
            missed_sample=tuple(sample),
            rejected=dict(rejected),
            seconds=round(time.monotonic() - self._began, 3),
        )

    def _may_leave_gaps(self) -> bool:
        """Tell whether a kill of this process now would leave unseen files before known ones."""
        is_shared = self._readers is not None and self._readers.are_several
        is_other = self._given.remembered.filter != self._given.fingerprint
        return is_shared or is_other or self._choice.kind == "resumed"

    def _save_marks(self, readers: Readers) -> None:
        """Note what of a full listing is left, unless that is all, or nothing."""
        left = readers.unfinished()
        if self._state is None or self._choice.kind == "incremental" or not self._given.has_order:
            return
        if not left or left == [KeyRange()]:
            return
        unfinished = UnfinishedListing(
            saved=self._clock(),
            found_by=self._choice.found_by,
            filter=self._given.fingerprint,
            witness=self._given.known.last() or "",
            ranges=tuple(left),
        )
        remembered = self._doubt or self._given.remembered
        save_state(self._state, replace(remembered, unfinished=unfinished))
        self._has_marks = True

    def _has_shown_nothing(self, readers: Readers) -> bool:
        """Tell whether the next listing would be the same without a note of this one.

        What was noted of its own progress, or of an interrupted one before it, has to go.
        """
        given = self._given
        pages = given.remembered.full_listed // given.page_size
        return (
            self._choice.kind == "full"
            and not self._has_marks
            and given.remembered.unfinished is None
            and readers.new == 0
            and readers.listed // given.page_size == pages
            and not self._has_seen_order(readers)
            and not answers_something(given)
        )

    def _has_seen_order(self, readers: Readers) -> bool:
        """Tell whether it has become certain that the store lists in order."""
        given = self._given
        return readers.is_order_certain and given.has_order and not given.remembered.order

    def _save_result(self, readers: Readers) -> None:
        """Note what the next listing has to know."""
        if self._state is None or self._has_shown_nothing(readers):
            return
        remembered, given = self._given.remembered, self._given
        if self._has_seen_order(readers):
            remembered = replace(remembered, order="seen")
        if self._choice.kind == "incremental":
            now = replace(remembered, incremental=remembered.incremental + 1)
        elif self._choice.kind == "resumed":
            now = replace(self._doubt or remembered, unfinished=None)
        else:
            now = replace(
                remembered,
                full_started=given.now,
                full_listed=readers.listed,
                incremental=0,
                evidence=self._comparison.evidence(remembered),
                filter=given.fingerprint,
                witness=given.known.last() or "",
                unfinished=None,
            )
        is_incremental = self._choice.kind == "incremental"
        over = self._doubt or remembered if is_incremental else None
        aside(self._state, KEY, partial(save_state, self._state, now, over=over))
