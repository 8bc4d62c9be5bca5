"""Keep an event log small, and say since when it is complete.

Whoever drains the queue, and holds the lease for it, does this whenever the log has another hundred
entries. What is older than the log keeps goes first, and what is more than it may hold, the oldest
first; then old entries become packs, as those of a state do.

A pack is as old as its writing, so events are kept a little longer than asked for, never shorter.
The newest entries always stay: they give the next one its number.

An event is appended after its file came. So the events of all files since a time are in the entries
that were appended since then, if none of these was dropped, the log was there already, and the
queue was drained before it could drop a message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.extensions.event_log import description
from airflow_cloudfiles.engine.extensions.event_log.log import PREFIX
from airflow_cloudfiles.engine.state.compaction import (
    KEPT,
    PACK_ENTRIES,
    Compaction,
    Folder,
    work_of,
)
from airflow_cloudfiles.engine.state.packs import widest
from airflow_cloudfiles.engine.storage.base import SKEW_SECONDS
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.extensions.event_log.log import EventLog

_log = logging.getLogger(__name__)
MOST_PACKS = 20
"""How many packs are made, and cleared, at a time: as many as a busy hour fills."""


def is_due(before: int, after: int) -> bool:
    """Tell whether a log that grew from one number to another has another hundred entries."""
    return before // PACK_ENTRIES != after // PACK_ENTRIES


def tidy(log: EventLog, may_go_on: Callable[[], None] = lambda: None) -> int:
    """Drop what is too old or too much, and pack what is old.

    Killed anywhere, it leaves a log that is whole, and the next call goes on.

    Args:
        log: The log; the caller has the lease for its queue.
        may_go_on: Raises when the caller has lost the lease.

    Returns:
        How many entries were dropped.

    Raises:
        StateError: The store fails.
    """
    with reaching_state(log.store):
        folder = Folder.of(PREFIX, log.store.list(f"{PREFIX}/"))
        now_us = log.store.clock_us()
        end = _kept_from(folder, log, now_us)
        dropped = _drop(log, folder, end, may_go_on)
        left = Folder(
            PREFIX,
            {number: each for number, each in folder.loose.items() if number >= end},
            {pack: copies for pack, copies in folder.packs.items() if pack.last >= end},
        )
        work = replace(work_of(left, now_us), merge=())  # a merged pack would count as young
        Compaction(log.store, left, may_go_on=may_go_on).run(work, most=MOST_PACKS)
    return dropped


def _kept_from(folder: Folder, log: EventLog, now_us: int) -> int:
    """Find the first number that is kept: a pack is kept with all its numbers, or not at all."""
    oldest_us = now_us - int(log.description.keep_seconds * 1_000_000)
    too_much = _bytes(folder) - log.description.keep_bytes
    end = 0
    for last, written_us, size in _may_go(folder):
        if written_us >= oldest_us and too_much <= 0:
            break
        end, too_much = last + 1, too_much - size
    return end


def parts_of(folder: Folder) -> list[tuple[int, int, int]]:
    """Packs, and entries that are in none, the oldest first: last number, time, bytes.

    The time of a pack is that of its writing, when its entries had long been appended.
    """
    packs = widest(folder.packs)
    held = {number for pack in packs for number in folder.beside(pack)}
    parts = [(pack.last, folder.written_us(pack), _pack_bytes(folder, pack.last)) for pack in packs]
    parts += [
        (number, entry.modification_time_us, entry.size)
        for number, entry in folder.loose.items()
        if number not in held
    ]
    return sorted(parts)


def _may_go(folder: Folder) -> Iterator[tuple[int, int, int]]:
    """Yield those parts of a log that are not among its newest entries."""
    first_kept = sorted(folder.loose)[-KEPT:][:1]
    return (part for part in parts_of(folder) if first_kept and part[0] < first_kept[0])


def _pack_bytes(folder: Folder, last: int) -> int:
    """Count the bytes that go with a pack: its copies, and the objects that it holds."""
    found = [pack for pack in folder.packs if pack.last == last]
    copies = sum(each.size for pack in found for each in folder.packs[pack].values())
    beside = {number for pack in found for number in folder.beside(pack)}
    return copies + sum(folder.loose[number].size for number in beside)


def _bytes(folder: Folder) -> int:
    loose = sum(entry.size for entry in folder.loose.values())
    return loose + sum(copy.size for each in folder.packs.values() for copy in each.values())


def _drop(log: EventLog, folder: Folder, end: int, may_go_on: Callable[[], None]) -> int:
    """Delete what is before a number, the oldest first: what is left has no gap."""
    numbers = sorted(number for number in folder.loose if number < end)
    packs = sorted(pack for pack in folder.packs if pack.last < end)
    gone = {*numbers, *(number for pack in packs for number in pack.numbers)}
    keys = [(pack.last, copy.path) for pack in packs for copy in folder.packs[pack].values()]
    keys += [(number, folder.loose[number].path) for number in numbers]
    for place, (_, key) in enumerate(sorted(keys)):
        if place % PACK_ENTRIES == 0:
            may_go_on()
            crash_point("before-event-drop")
        log.store.delete(key)
    if gone:
        _log.info("%s: %d entries of events are not kept any more", log.store.uri, len(gone))
    return len(gone)


UNDRAINED_SECONDS = 4 * 86400
"""How long a queue keeps messages that nobody receives, at least: SQS by default."""
_UNDRAINED_US = UNDRAINED_SECONDS * 1_000_000
_SKEW_US = SKEW_SECONDS * 1_000_000


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back an event log goes; times are microseconds since 1970.

    The clock of the log's store may be another one than that of the bucket: both answers leave a
    few minutes for that.

    Attributes:
        since_us: Every file that came since then is in the log.
        first: The oldest entry that is kept.
        appended: Numbers of entries, each with a time by which it had been appended.
    """

    since_us: int
    first: int
    appended: tuple[tuple[int, int], ...]

    def start(self, since_us: int) -> int:
        """Give the entry to read from: none before it has a file that came since a time.

        Args:
            since_us: The time; not before `Reach.since_us`.
        """
        before = (number for number, time_us in self.appended if time_us < since_us - _SKEW_US)
        return max(before, default=self.first - 1) + 1


def reach_of(log: EventLog) -> Reach:
    """List a log whose queue was drained just now.

    Raises:
        StateError: It cannot be listed.
    """
    with reaching_state(log.store):
        described = log.store.head(description.KEY)
        folder = Folder.of(PREFIX, log.store.list(f"{PREFIX}/"))
        now_us = log.store.clock_us()
    appended = tuple((last, time_us) for last, time_us, _ in parts_of(folder))
    first = min((*folder.loose, *(pack.first for pack in folder.packs)), default=0)
    since_us = now_us if described is None else described.modification_time_us
    if first > 0:  # what was dropped had been appended before what is kept
        since_us = max(since_us, min(time_us for _, time_us in appended))
    drained = sorted(time_us for _, time_us in appended if time_us > since_us)
    pauses = pairwise((since_us, *drained, now_us))
    since_us = max((end for start, end in pauses if end - start > _UNDRAINED_US), default=since_us)
    return Reach(since_us + _SKEW_US, first, appended)
