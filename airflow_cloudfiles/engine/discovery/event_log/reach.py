"""Since when does an event log have every event, and in which entry do those since a time begin?

An event is appended after its file came. So the events of all files since a time are in the entries
that were appended since then, if none of these was dropped, the log was there already, and the
queue was drained before it could drop a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.discovery.event_log import description
from airflow_cloudfiles.engine.discovery.event_log.log import PREFIX
from airflow_cloudfiles.engine.discovery.event_log.retention import parts_of
from airflow_cloudfiles.engine.state.compaction import Folder
from airflow_cloudfiles.engine.storage.base import SKEW_SECONDS
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.event_log.log import EventLog

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
