"""Full or incremental?

The rules, in the order in which they are asked. A full listing is always right; so each rule only
has to be right when it allows an incremental one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airflow_cloudfiles.engine.discovery.listing.edges import KeyRange
from airflow_cloudfiles.engine.discovery.listing.state import (
    HYPOTHESES,
    IncrementalPlan,
    best,
    is_known,
    trusted,
    unproven,
)

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import FoundBy, KnownKeys
    from airflow_cloudfiles.engine.discovery.listing.state import ListingState
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions

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
    """Whether a full listing that finds nothing new changes what is listed next.

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
    """The option that makes overwritten files new ones."""
    if options.file_identity is None:
        return "cloudFiles.allowOverwrites"
    return f"cloudFiles.fileIdentity={options.file_identity}"


def _why_full(given: Circumstances) -> str:
    """Why a full listing is due; empty when none is."""
    options, remembered = given.options, given.remembered
    rules = [
        (not given.has_order, NO_ORDER),
        (options.use_incremental_listing == "false", "cloudFiles.useIncrementalListing is false"),
        (options.sees_overwrites, f"{_identity(options)} needs known files listed, too"),
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
    """What `auto` asks besides: whether it is safe, and whether it saves anything."""
    remembered = given.remembered
    pages = remembered.full_listed / given.page_size
    return (
        (remembered.lexical is None, "it is not known yet whether new files come last"),
        (remembered.lexical is False, "new files do not come last here"),
        (remembered.incremental >= INCREMENTAL_BEFORE_FULL, "the last seven were incremental"),
        (pages <= WORTHWHILE_PAGES, "it costs two pages at most"),
    )


def _may_resume(given: Circumstances, found_by: FoundBy) -> bool:
    """Whether an interrupted full listing can be believed, and is young enough."""
    unfinished = given.remembered.unfinished
    return (
        unfinished is not None
        and given.has_order
        and not given.options.sees_overwrites
        and unfinished.found_by == found_by
        and unfinished.filter == given.fingerprint
        and is_known(given.known, unfinished.witness)
        and 0 <= given.now - unfinished.saved < RESUME_SECONDS
    )
