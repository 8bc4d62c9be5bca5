"""Tell what a stream has recorded and what of it is committed, from its logs alone.

Nothing here looks at the source, and nothing writes.

`numFilesOutstanding`, `numBytesOutstanding`, `isBacklogComputationComplete` and, of a queue,
`approximateQueueSize`, as texts, which Spark's metrics of a source are. What is outstanding is what
the file log has behind a position; counting it reads headers of entries only.

Some files of a micro-batch are named in few characters (`name_files`), by their places in the range
of the plan, which is the same for ever. So an error that crosses the JVM as a text can name
hundreds of files in it, where their paths would be cut off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby, islice
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.errors import CloudFilesError, CorruptedStateError
from airflow_cloudfiles.engine.files import Offset, printable_path
from airflow_cloudfiles.engine.intake.ledger.opening import check_whole
from airflow_cloudfiles.engine.intake.results import Backlog
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import existing_metadata
from airflow_cloudfiles.engine.state.packs import beyond_repair
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import Position, position
from airflow_cloudfiles.engine.storage import ObjectStore, open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.queues.base import MessageQueue
    from airflow_cloudfiles.engine.storage.access import Access


MOST_ENTRIES = 64
"""A query that is at work counts the files of so many entries; each may cost a request, once."""

_SAMPLE = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceMetrics:
    """What a source has still to give.

    Attributes:
        files: How many files are outstanding.
        bytes: Their size.
        is_complete: Whether all of them were counted.
        queue_size: About how many messages wait in the queue; `None` without one, or where nobody
            counts them.
    """

    files: int
    bytes: int
    is_complete: bool = True
    queue_size: int | None = None

    def to_json(self) -> dict[str, str]:
        """Encode them as Auto Loader shows them in `StreamingQueryProgress`."""
        queue = {} if self.queue_size is None else {"approximateQueueSize": str(self.queue_size)}
        return {
            "numFilesOutstanding": str(self.files),
            "numBytesOutstanding": str(self.bytes),
            "isBacklogComputationComplete": "true" if self.is_complete else "false",
            **queue,
        }


def cloud_files_metrics(
    checkpoint_location: str, *, access: Access | None = None
) -> dict[str, str]:
    """Give the metrics of a stream from its state, whether or not it is at work.

    Nothing is discovered, changed or locked. What is outstanding is what is recorded and not
    committed.

    Args:
        checkpoint_location: Path or URI of the state.
        access: How the clouds are reached; `None` for the environment's own chain.

    Returns:
        `numFilesOutstanding` and `numBytesOutstanding`, as texts.

    Raises:
        StateError: There is no state, or it cannot be read.
    """
    state = open_store(checkpoint_location, access)
    existing_metadata(state)
    start, log = position(state).end, FileLog(state)
    files, size = files_and_bytes(log, start, log.head())
    return SourceMetrics(files, size).to_json()


def source_metrics(
    log: FileLog, start: Offset, end: Offset, queue: Callable[[], MessageQueue | None] | None = None
) -> SourceMetrics:
    """Count what is between two positions, of a few entries at most, and what a queue has."""
    last = min(end, Offset(start.entry + MOST_ENTRIES, 0))
    files, size = files_and_bytes(log, start, last)
    return SourceMetrics(files, size, last == end, None if queue is None else _waiting(queue))


def _waiting(queue: Callable[[], MessageQueue | None]) -> int | None:
    """About how many messages wait; a query does not fail for not knowing."""
    try:
        found = queue()
        return None if found is None else found.approximate_size()
    except (CloudFilesError, OSError) as failure:
        _log.warning("The messages in the queue cannot be counted: %s", failure)
        return None


def backlog(log: FileLog, start: Offset, end: Offset, name: str) -> Backlog:
    """Report what is between what is committed and the end of the file log.

    Args:
        log: The file log.
        start: What is committed.
        end: Up to where.
        name: URI of the checkpoint location.

    Raises:
        CorruptedStateError: More is committed than is recorded.
    """
    if start > end:
        raise beyond_repair(
            f"The stream in {printable_path(name)} has committed up to {start.to_json()}, but the "
            f"file log ends at {end.to_json()}. They do not belong together."
        )
    files, size = files_and_bytes(log, start, end)
    if files == 0:
        return Backlog(0, 0, None, None, ())
    sample = tuple(printable_path(file.path) for file in islice(log.slice(start, end), _SAMPLE))
    return Backlog(files, size, start.entry, end.entry - 1, sample)


def files_and_bytes(log: FileLog, start: Offset, end: Offset) -> tuple[int, int]:
    """Count the files to ingest from one position to the end of another's entry.

    Args:
        log: The file log.
        start: The first file that counts.
        end: Behind the last one: a position between two entries.

    Returns:
        How many files, and their size in bytes.
    """
    files, size = 0, 0
    excluded = log.operations.excluded(start.entry) if start < end else {}
    for number in range(start.entry, end.entry):
        first = start.index if number == start.entry else 0
        out = excluded.get(number, ())
        summary = log.summary(number)
        if not summary.is_ingested:
            continue
        if first > 0 or out:
            rest = log.read(number).files[first:]
            left = [file for index, file in enumerate(rest, first) if index not in out]
            files += len(left)
            size += sum(file.size for file in left)
        else:
            files += summary.files
            size += summary.bytes
    return files, size


def oldest(log: FileLog, start: Offset, end: Offset) -> str | None:
    """Find out since when the files between two positions wait, reading headers of entries only.

    Returns:
        When the first of them was found: ISO 8601, UTC; `None` where there is none.
    """
    for number in range(start.entry, end.entry):
        entry = log.summary(number)
        first = start.index if number == start.entry else 0
        if entry.is_ingested and entry.files > first:
            return entry.created
    return None


def has_files(log: FileLog, entries: range) -> bool:
    """Tell whether some entries have a file to ingest; read no more than it takes."""
    excluded = log.operations.excluded(entries.start)
    summaries = (log.summary(number) for number in entries)
    return any(
        each.is_ingested and each.files > len(excluded.get(each.number, ())) for each in summaries
    )


class StreamLogs:
    """The logs of a stream, read only.

    Args:
        state: The checkpoint location.
        files: The file log in it.

    Attributes:
        state: The checkpoint location.
        files: The file log.
        plans: The plan log.
    """

    def __init__(self, state: ObjectStore, files: FileLog) -> None:
        self.state = state
        self.files = files
        self.plans = PlanLog(state)
        self._is_checked = False
        self._position: Position | None = None

    def head(self) -> Offset:
        """Give the position behind everything that is recorded now."""
        return self.files.head()

    def known_head(self) -> Offset:
        """Give the position behind everything that was recorded when the log was last read here.

        After `discover`, what it has found is before it. Asks nobody.
        """
        return self.files.known_head()

    def committed(self) -> Offset:
        """Give the position up to which the stream is committed.

        Returns:
            The end of the last committed batch; `START` when none was committed.

        Raises:
            CorruptedStateError: The state cannot be understood.
        """
        return self._committed().end

    def begin_at(self, committed: Position) -> None:
        """Take a position for the one that is committed, which the caller has read.

        For a job, which alone commits as long as it has its lock. `committed` does not ask again.

        Args:
            committed: What `position` gave under the lock.
        """
        self._position = committed

    def _committed(self) -> Position:
        return self._position or position(self.state, self.plans)

    def check(self) -> None:
        """Refuse a state that has lost entries of its file log; checks once.

        Done before the first entry is appended, and before batches are planned.

        Raises:
            CorruptedStateError: Entries are missing.
        """
        if not self._is_checked:
            check_whole(self.state, self.files, self.plans, self._position)
            self._is_checked = True

    def outstanding(self, *, up_to: Offset | None = None) -> Backlog:
        """Report what is recorded and not yet committed; discovers nothing.

        Args:
            up_to: Only what is before this position of the file log; `None` asks for its end.

        Raises:
            CorruptedStateError: Spark has committed more than is recorded.
        """
        return backlog(self.files, self.committed(), up_to or self.head(), self.state.uri)

    def has_work(self, *, up_to: Offset | None = None) -> bool:
        """Tell whether a batch is planned, or something is recorded, and not yet committed.

        Discovers nothing, and reads no further than the first entry that is to be ingested. What
        another process plans meanwhile is its own to finish.

        Args:
            up_to: As for `outstanding`; a planned batch counts wherever it ends.

        Raises:
            CorruptedStateError: The state cannot be understood.
        """
        start, plan = self.committed(), self.plans.known()
        if plan is not None and plan.end > start:
            return True
        end = up_to or self.head()
        first = start.entry + 1 if start.index > 0 else start.entry
        return (start.index > 0 and start < end) or has_files(self.files, range(first, end.entry))


MOST_CHARACTERS: Final = 4000
"""How long a name may be. Of files beyond that, it has the first."""


def name_files(state: ObjectStore, batch: int, paths: Collection[str]) -> str:
    """Name files of a batch.

    Args:
        state: The checkpoint location.
        batch: Number of the batch, which is planned.
        paths: The files, relative to the source; one that the batch does not have is left out.

    Returns:
        The number of the batch and the places of the files, such as `7:0-3,5`; empty for none.
    """
    if not paths:
        return ""
    places = [place for place, path in _paths(state, batch) if path in paths]
    text = ",".join(_ranges(places))
    if len(text) > MOST_CHARACTERS:
        text = text[:MOST_CHARACTERS].rpartition(",")[0]
    return f"{batch}:{text}" if text else ""


def files_named(state: ObjectStore, name: str) -> tuple[int, list[str]]:
    """Give the batch and the paths of the files that `name_files` has named.

    Raises:
        CorruptedStateError: It names none; or the state cannot be read.
    """
    number, _, text = name.partition(":")
    try:
        batch = int(number)
        parts = [part.partition("-") for part in text.split(",")]
        ranges = [range(int(first), int(last or first) + 1) for first, _, last in parts]
    except ValueError as error:
        raise CorruptedStateError(f"{name!r} names no files of a batch.") from error
    found = (path for place, path in _paths(state, batch) if any(place in each for each in ranges))
    return batch, list(dict.fromkeys(found))


def _paths(state: ObjectStore, batch: int) -> Iterator[tuple[int, str]]:
    """Yield the files in the range of a batch, also those that an operation has left out of it."""
    plan, files = PlanLog(state).at(batch), FileLog(state)
    place = count()
    for number in range(plan.start.entry, plan.end.entry + 1):
        first = plan.start.index if number == plan.start.entry else 0
        stop = plan.end.index if number == plan.end.entry else None
        if stop == 0 or not files.summary(number).is_ingested:
            continue
        yield from ((next(place), file.path) for file in files.read(number).files[first:stop])


def _ranges(places: Sequence[int]) -> Iterator[str]:
    for _, group in groupby(enumerate(places), lambda each: each[1] - each[0]):
        run = [place for _, place in group]
        yield str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"
