"""Remember what a listing has to know of those before it.

One small JSON file in the state, `_source/listing.json`. It is a hint, written without conditions:
lost, stale or written by two processes at once, it may cost a full listing that was not needed, and
nothing else. So it holds no edges and no paths that a file's fate depends on, but for the marks of
a full listing that was interrupted: those are written after what lies before them was recorded, and
believed only while a file that was known at that time (`witness`) still is.

The state also remembers where a source grows.

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

import logging
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from airflow_cloudfiles.engine.discovery.listing.edges import (
    MAX_EDGES,
    EdgeRanges,
    KeyOrder,
    KeyRange,
    end_range,
    plan_edges,
)
from airflow_cloudfiles.engine.errors import StateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.storage.base import SKEW_SECONDS
from airflow_cloudfiles.engine.storage.fetched_ahead import PrefetchedStore
from airflow_cloudfiles.engine.storage.outage import read_if_there
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import as_record

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import KnownKeys
    from airflow_cloudfiles.engine.storage import ObjectStore


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
        """Build the evidence after another full listing that found new files."""
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
    """Choose the plan to use, of some that may be used."""
    cheap = [plan for plan in plans if plan.cost <= HANDFUL]
    if cheap:
        return cheap[-1]
    return min(reversed(plans), key=lambda plan: plan.cost, default=None)


def trusted(
    plans: Sequence[IncrementalPlan], evidence: Mapping[str, TrackRecord]
) -> list[IncrementalPlan]:
    """List those that full listings have shown to be safe."""
    return [plan for plan in plans if evidence.get(plan.name, TrackRecord()).is_enough]


def unproven(
    plans: Sequence[IncrementalPlan], evidence: Mapping[str, TrackRecord]
) -> list[IncrementalPlan]:
    """List those that may be used when nothing has to be shown.

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
    """Yield the last key of each group, in the order of the keys."""
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


_log = logging.getLogger(__name__)

KEY = "_source/listing.json"
_IN_DOUBT = "in doubt "
_VERSION = 2

Order = Literal["", "seen", "none"]
"""Whether the store lists keys in order, as far as that had to be seen."""


@dataclass(frozen=True, slots=True)
class UnfinishedListing:
    """A full listing that has not come to its end.

    Attributes:
        saved: When this was written, in seconds since 1970.
        found_by: What its files are recorded as.
        filter: Which files were input (`FileFilter.fingerprint`).
        witness: A path that was known then.
        ranges: What is still to be listed.
    """

    saved: float
    found_by: str
    filter: str
    witness: str
    ranges: tuple[KeyRange, ...]


@dataclass(frozen=True, slots=True)
class ListingState:
    """What is remembered; times are seconds since 1970, 0 for never.

    Attributes:
        full_started: When the last full listing that came to its end began.
        full_listed: How many keys it listed.
        incremental: How many incremental listings came after it.
        evidence: What full listings have shown about each hypothesis of where the source grows
            (`growth.HYPOTHESES`).
        order: Whether the store was seen to list keys in order.
        notified: When files were last found by notifications.
        queue: Which queue these arrived in. Another one received nothing of what came before it.
        filter: Which files were input (`FileFilter.fingerprint`).
        witness: A path that was known then.
        unfinished: A full listing that was interrupted.
    """

    full_started: float = 0.0
    full_listed: int = 0
    incremental: int = 0
    evidence: Mapping[str, TrackRecord] = field(default_factory=dict)
    order: Order = ""
    notified: float = 0.0
    queue: str = ""
    filter: str = ""
    witness: str = ""
    unfinished: UnfinishedListing | None = None

    @property
    def lexical(self) -> bool | None:
        """Whether an incremental listing may be made; `None`: nothing has been seen yet."""
        if not self.evidence:
            return None
        return any(each.is_enough for each in self.evidence.values())

    @property
    def has_notifications(self) -> bool:
        """Whether files were found by notifications since the last full listing began."""
        return self.notified > 0 and self.notified >= self.full_started

    @property
    def is_in_doubt(self) -> bool:
        """Whether a listing has begun that may leave gaps, and has not come to its end."""
        return self.filter.startswith(_IN_DOUBT)

    def is_older(self, seconds: float, now: float) -> bool:
        """Tell whether the last full listing began so long ago.

        Also if it seems not to have begun yet: then the clock was ahead, and nobody knows when that
        was. A little ahead is the clock of another machine.

        Args:
            seconds: How long.
            now: Seconds since 1970.
        """
        return not -SKEW_SECONDS <= now - self.full_started < seconds

    def in_doubt(self) -> ListingState:
        """Build the same, but no listing is incremental until one has come to its end.

        Edges rest on files being recorded in their order. Several readers record what comes last
        before what comes first, and a listing of a part leaves out the rest. Killed then, they
        leave files unseen before those that are known, where no edge is.
        """
        return replace(self, filter=_IN_DOUBT + uuid.uuid4().hex)

    def is_of(self, known: KnownKeys, fingerprint: str) -> bool:
        """Tell whether the last full listing was of this file log, and of these files."""
        return self.filter == fingerprint and is_known(known, self.witness)


def is_known(known: KnownKeys, path: str) -> bool:
    """Tell whether a path is in the file log; no path at all is in any."""
    return not path or known.last(path, before=path + "\0") == path


def load_state(state: ObjectStore) -> ListingState:
    """Read what is remembered; nothing, when there is no file or it cannot be understood."""
    content = read_if_there(state, KEY)
    if content is None:
        return ListingState()
    try:
        return _decode(unseal(content))
    except ValueError as failure:
        name = printable_path(state.child_uri(KEY))
        _log.warning("%s cannot be read (%s). The source is listed in full.", name, failure)
        return ListingState()


def save_state(
    state: ObjectStore, remembered: ListingState, *, over: ListingState | None = None
) -> None:
    """Write what is to be remembered. Failing to is no reason to fail: it is a hint.

    Args:
        state: The checkpoint location.
        remembered: What is to be remembered.
        over: What was; where another full listing was remembered since, that stays.
    """
    try:
        if isinstance(state, PrefetchedStore) and state.put_if_unchanged(KEY, _encode(remembered)):
            return  # nobody has written it since this listing began
        stored = load_state(state)
        if over and (stored.filter, stored.full_started) != (over.filter, over.full_started):
            return
        notified = max(remembered.notified, stored.notified)
        state.put(KEY, _encode(replace(remembered, notified=notified)))
    except (OSError, StateError) as failure:
        name = printable_path(state.child_uri(KEY))
        _log.warning(
            "%s could not be written, so the next listing may take longer: %s", name, failure
        )


def after_empty_listing(
    remembered: ListingState, *, is_full: bool, now: float, fingerprint: str, witness: str
) -> ListingState:
    """Build what to remember after a listing that found nothing new.

    Args:
        remembered: What was remembered before it.
        is_full: Whether it listed everything.
        now: When it began, in seconds since 1970.
        fingerprint: Of the filter.
        witness: A path that is known.
    """
    if not is_full:
        return replace(remembered, incremental=remembered.incremental + 1)
    return replace(
        remembered,
        full_started=now,
        incremental=0,
        filter=fingerprint,
        witness=witness,
        unfinished=None,
    )


def expect_notifications(state: ObjectStore) -> dict[str, str]:
    """Note that files are about to be found by notifications; for `remember_notifications`.

    Should it not come to that, because the process is killed, the next listing is a full one, and
    the source is listed before notifications are read again.

    Returns:
        What stands for which filter until then.
    """
    remembered = load_state(state)
    if remembered.has_notifications or not remembered.full_started:
        return {}
    doubt = remembered.in_doubt()
    save_state(state, doubt)
    return {doubt.filter: remembered.filter}


def remember_notifications(
    state: ObjectStore, now: float, queue: str = "", expected: Mapping[str, str] | None = None
) -> None:
    """Note that files are found by notifications: the next listing is a full one (B100).

    One write until that listing; costs one read otherwise.

    Args:
        state: The checkpoint location.
        now: Seconds since 1970.
        queue: What the options call the queue.
        expected: From `expect_notifications`.
    """
    remembered = load_state(state)
    resolved = (expected or {}).get(remembered.filter)
    if resolved is not None:
        remembered = replace(remembered, filter=resolved)
    if resolved is not None or not remembered.has_notifications or remembered.queue != queue:
        save_state(state, replace(remembered, notified=now, queue=queue))


def _encode(remembered: ListingState) -> bytes:
    """Write what `_decode` reads."""
    return seal({"version": _VERSION, **asdict(remembered)})


def _decode(value: dict[str, Any]) -> ListingState:
    """Read what `_encode` wrote."""
    if value.get("version") != _VERSION:
        msg = "it is of another version"
        raise ValueError(msg)
    return as_record(value, ListingState)
