"""What has come into an event log since somebody looked last?

For a watcher of many folders: one check drains the queue, unless that was done just now, and reads
the new entries once. Which of them are of a folder is then counted in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from airflow_cloudfiles.engine.discovery.event_log.collector import (
    EventCollector,
    collect_unless_fresh,
)
from airflow_cloudfiles.engine.discovery.event_log.log import EventLog, EventsGoneError
from airflow_cloudfiles.engine.storage import normalize_uri

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

MOST_ENTRIES = 100
"""How many entries one check reads: about a hundred thousand events at most."""


class Arrived(NamedTuple):
    """A file that an entry of the log announces.

    Attributes:
        entry: The number of the entry.
        path: Of the file, below the source of the log.
        size: In bytes.
    """

    entry: int
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class LogCheck:
    """What one check has found.

    Attributes:
        log: The id of the log.
        source: URI of what the log is of.
        start: The first entry that was read.
        end: The entry to read next.
        arrived: The files of the entries in between.
        is_gone: Whether entries before `end` are not kept any more, so that some may be missing.
    """

    log: str
    source: str
    start: int
    end: int
    arrived: tuple[Arrived, ...]
    is_gone: bool = False

    def below(self, folder: str) -> Iterable[Arrived]:
        """The files of a folder.

        Args:
            folder: Path or URI, as a stream has it; what is not of this bucket has none.
        """
        root, place = f"{self.source}/", f"{normalize_uri(folder).rstrip('/')}/"
        if root.startswith(place):
            return self.arrived
        if not place.startswith(root):
            return ()
        prefix = place.removeprefix(root)
        return (each for each in self.arrived if each.path.startswith(prefix))


def check_log(
    location: str, start: int | None, access: Access | None = None, *, end: int | None = None
) -> LogCheck:
    """Drain the queue, unless that was done just now, and read what is new.

    Args:
        location: Of the log.
        start: The entry to read first; `None` reads nothing and gives the end of the log.
        access: How log, queue and bucket are reached.
        end: The entry to read no more; `None` for all, of which `MOST_ENTRIES` are read at a time.

    Raises:
        CloudFilesError: The queue cannot be drained, or the log cannot be read.
    """
    log = EventLog.open(location, access)
    place = log.hint() if start is None else start
    _, seen = collect_unless_fresh(log, EventCollector(log, access), place)
    first = seen.end if start is None or start > seen.end else start
    last = min(seen.end, first + MOST_ENTRIES, seen.end if end is None else end)
    described = log.description
    try:
        arrived = tuple(
            Arrived(number, each.path, each.size)
            for number in range(first, last)
            for each in log.read(number)
        )
    except EventsGoneError:
        return LogCheck(described.id, described.source, seen.end, seen.end, (), is_gone=True)
    return LogCheck(described.id, described.source, first, last, arrived)
