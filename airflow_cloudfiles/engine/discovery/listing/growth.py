"""Where does a source grow?

Names do not show it. `delivery-1-2024-01-01-5f0c` may be one of a thousand deliveries, or one of a
thousand files of the first; the digits of `customer=17` resemble a day. So there are several
hypotheses (`HYPOTHESES`), from the one that lists least to the one that lists most, and full
listings decide between them: each is planned before a full listing, and held against the new files
that it finds. One that has never missed a file may be used; one that has must find everything in
three full listings in a row first.

Of those that may be used, the one that lists most is used if it costs a handful of requests, and
else the cheapest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.discovery.listing.edges import (
    MAX_EDGES,
    EdgeRanges,
    KeyOrder,
    KeyRange,
    end_range,
    plan_edges,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_cloudfiles.engine.discovery.base import KnownKeys

HANDFUL = 5
"""So many requests are not worth listing less."""
COVERED_AFTER_A_MISS = 3
"""So many full listings in a row must find new files only where a hypothesis lists, once one has
not."""
HYPOTHESES = {
    "end": "behind all others",
    "folders": "at the end of each folder that grows",
    "names 1": "behind those that begin alike up to the first number",
    "names 2": "behind those that begin alike up to the second number",
    "names 3": "behind those that begin alike up to the third number",
    "places": "in the places where the tree of folders grows",
}
"""Where new files come, from the hypothesis that lists least to the one that lists most."""
WITHOUT_EVIDENCE = frozenset(HYPOTHESES) - {"end"}
"""What `useIncrementalListing=true` uses although no full listing has shown anything yet."""

_BEYOND = "9\U0010ffff"


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """What full listings have shown about one hypothesis.

    Attributes:
        covered: How many in a row found new files, all of them where it lists.
        missed: Whether one ever found a file elsewhere.
    """

    covered: int = 0
    missed: bool = False

    @property
    def is_enough(self) -> bool:
        """Whether it may be used."""
        return self.covered >= (COVERED_AFTER_A_MISS if self.missed else 1)

    def after(self, missed: int) -> TrackRecord:
        """The evidence after another full listing that found new files."""
        return TrackRecord(0, missed=True) if missed else TrackRecord(self.covered + 1, self.missed)


@dataclass(frozen=True, slots=True)
class IncrementalPlan:
    """What a listing reads by one hypothesis.

    Attributes:
        name: Of the hypothesis.
        edges: Where it lists.
        cost: Requests that it takes while nothing is new.
    """

    name: str
    edges: EdgeRanges
    cost: int


def plan_all(
    known: KnownKeys, prefix: str, order: KeyOrder, *, page_size: int, pages: float
) -> list[IncrementalPlan]:
    """Plan all hypotheses that cost less than a full listing, in the order of `HYPOTHESES`.

    Args:
        known: The known files.
        prefix: How all files of the source begin.
        order: What keys are compared by.
        page_size: Keys on a page.
        pages: What a full listing costs.
    """
    most = int(min(MAX_EDGES, pages))
    planned = {
        "end": _end(known, prefix, order),
        "folders": plan_edges(known, prefix, order, only_ends=True),
        "names 1": _names(known, prefix, order, 1, most),
        "names 2": _names(known, prefix, order, 2, most),
        "names 3": _names(known, prefix, order, 3, most),
        "places": plan_edges(known, prefix, order),
    }
    found = [
        IncrementalPlan(name, edges, edges.cost(page_size))
        for name, edges in planned.items()
        if edges
    ]
    return [plan for plan in found if plan.cost < pages]


def best(plans: Sequence[IncrementalPlan]) -> IncrementalPlan | None:
    """The plan to use, of some that may be used."""
    cheap = [plan for plan in plans if plan.cost <= HANDFUL]
    if cheap:
        return cheap[-1]
    return min(reversed(plans), key=lambda plan: plan.cost, default=None)


def trusted(
    plans: Sequence[IncrementalPlan], evidence: Mapping[str, TrackRecord]
) -> list[IncrementalPlan]:
    """Those that full listings have shown to be safe."""
    return [plan for plan in plans if evidence.get(plan.name, TrackRecord()).is_enough]


def unproven(
    plans: Sequence[IncrementalPlan], evidence: Mapping[str, TrackRecord]
) -> list[IncrementalPlan]:
    """Those that may be used when nothing has to be shown.

    Where there are some that no full listing has refuted, these.
    """
    allowed = [plan for plan in plans if plan.name in WITHOUT_EVIDENCE]
    unrefuted = [
        plan
        for plan in allowed
        if not evidence.get(plan.name, TrackRecord()).missed or plan in trusted(plans, evidence)
    ]
    return unrefuted or allowed[-1:]


def _end(known: KnownKeys, prefix: str, order: KeyOrder) -> EdgeRanges | None:
    """Behind all keys."""
    last = known.last(prefix)
    return None if last is None else EdgeRanges([end_range(known, last)], order)


def _names(
    known: KnownKeys, prefix: str, order: KeyOrder, numbers: int, most: int
) -> EdgeRanges | None:
    """Behind each group of keys that are alike up to their first, second or third number.

    Before the first group, too. `None` when there are too many, or nothing is known.
    """
    first = known.first_after(prefix)
    groups = list(islice(_groups(known, prefix, numbers), most + 1))
    if first is None or not 0 < len(groups) <= most:
        return None
    before = KeyRange(prefix, first)
    return EdgeRanges([before, *(end_range(known, last) for last in groups)], order)


def _groups(known: KnownKeys, prefix: str, numbers: int) -> Iterator[str]:
    """The last key of each group, in the order of the keys."""
    begins_alike = re.compile(rf"(?:[^0-9]*[0-9]+){{{numbers - 1}}}[^0-9]*(?=[0-9])")
    folder = prefix.rfind("/") + 1
    key = known.first_after(prefix)
    while key is not None and key.startswith(prefix):
        found = begins_alike.match(key, folder)
        if found is None:
            yield key
            key = known.first_after(key)
        else:
            alike = key[: found.end()]
            yield known.last(alike, before=alike + ":") or key  # ":" follows "9"
            key = known.first_after(alike + _BEYOND)
