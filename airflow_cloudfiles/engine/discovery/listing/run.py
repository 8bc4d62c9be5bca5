"""How does one listing go on, and what does it leave behind?

Readers report files they found and how far they are. From that come the report, what later
listings have to know (`state.py`), and marks from which a full listing that is interrupted
can be continued.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.discovery.listing.choice import (
    Choice,
    Circumstances,
    Kind,
    answers_something,
)
from airflow_cloudfiles.engine.discovery.listing.edges import KeyRange
from airflow_cloudfiles.engine.discovery.listing.state import (
    KEY,
    ListingState,
    TrackRecord,
    Unfinished,
    save_state,
)
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.storage.base import UnorderedListingError
from airflow_cloudfiles.engine.storage.fetched_ahead import aside

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.listing.ranges import Readers
    from airflow_cloudfiles.engine.discovery.listing.state import IncrementalPlan
    from airflow_cloudfiles.engine.storage import ObjectStore

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
        """For reports and XCom."""
        return {**asdict(self), "missed_sample": list(self.missed_sample)}


@dataclass
class _Comparison:
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
        """What is known about each hypothesis now."""
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
        is_full = choice.kind == "full"
        self._comparison = _Comparison(given.plans, given.plan) if is_full else _Comparison()
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
        """Whether files would be unseen before known ones if this process were killed now."""
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
        """Whether the next listing would be the same without a note of this one."""
        given = self._given
        pages = given.remembered.full_listed // given.page_size
        return (
            self._choice.kind == "full"
            and readers.new == 0
            and readers.listed // given.page_size == pages
            and not self._has_seen_order(readers)
            and not answers_something(given)
        )

    def _has_seen_order(self, readers: Readers) -> bool:
        """Whether it is certain now, and was not before, that the store lists in order."""
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
