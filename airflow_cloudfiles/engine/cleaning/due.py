"""Which committed files are due?

Batch by batch, in the order of the file log, from where cleaning has come to. A batch is due when
its commit is as long ago as the retention. The first one that is not ends the search: those behind
it were committed later.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.cleaning.record import Due
from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.intake.file_query import FileQuery
from airflow_cloudfiles.engine.intake.file_states import FileGroup, FileStates, StateSnapshot

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.cleaning.record import Cleaned
    from airflow_cloudfiles.engine.state.batch_states import BatchState
    from airflow_cloudfiles.engine.state.sink_log import Position
    from airflow_cloudfiles.engine.storage import ObjectStore

_COMMITTED: Final = FileQuery(status=("committed",))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


PART_FILES: Final = 1000
"""Files of a batch that are given at once, at most."""


@dataclass(frozen=True, slots=True)
class DueFiles:
    """Files of one micro-batch.

    Attributes:
        files: The files; none where only the position moves on.
        batch: Their micro-batch.
        end: The position behind them.
        has_given_up: Whether rows of one of the batch's files may be missing in the table, because
            the file was damaged; `None` where that was not noted.
    """

    files: tuple[Due, ...]
    batch: int
    end: Offset
    has_given_up: bool | None = False


class Clock:
    """Since when must a file be committed to be due?

    The clock of this machine and that of the source's store have to agree that it is: one that runs
    ahead must not remove anything early. The store is asked once, when this machine says so. Where
    it cannot be asked, this machine decides alone.

    Args:
        source: The store of the source.
        retention_seconds: How long a file stays.
    """

    def __init__(self, source: ObjectStore, retention_seconds: float) -> None:
        self._source = source
        self._retention = timedelta(seconds=retention_seconds)
        self._store_time: datetime | None = None
        self._asked = 0.0

    def is_due(self, committed: datetime) -> bool:
        """Whether what was committed at a time may be cleaned."""
        if committed + self._retention > datetime.now(UTC):
            return False
        if not getattr(self._source, "tells_time", True):
            return True
        if self._store_time is None:
            self._store_time = _EPOCH + timedelta(microseconds=self._source.clock_us())
            self._asked = time.monotonic()
        since = timedelta(seconds=time.monotonic() - self._asked)
        return committed + self._retention <= self._store_time + since


def due_files(
    location: str, cleaned: Cleaned, up_to: Position | None, clock: Clock
) -> Iterator[DueFiles]:
    """Give the files that are due, a batch after the other; lazy.

    Args:
        location: The checkpoint location.
        cleaned: How far it is cleaned.
        up_to: Only batches up to this position; `None` for all that are committed.
        clock: Decides which are due.

    Raises:
        CorruptedStateError: The state is damaged, or its parts do not belong together.
    """
    snapshot = StateSnapshot.take(location, shows_archived=False)
    if up_to is not None and up_to.end < snapshot.committed.end:
        snapshot = replace(snapshot, committed=up_to)
    end = snapshot.committed.end
    states = FileStates(snapshot, _COMMITTED, start=cleaned.position, after_batch=cleaned.batch)
    for number in range(cleaned.position.entry, end.entry + (end.index > 0)):
        for group in states.groups(range(number, number + 1)):
            batch = group.batch
            if group.operation is not None and group.operation.number > number:
                continue  # its file is to be ingested again: the record of that decides
            if batch is None or batch.committed is None or not clock.is_due(batch.committed):
                begin = Offset(group.entry.number, group.indexes[0])
                if cleaned.position < begin:  # what lies before is never cleaned: move on
                    yield DueFiles((), _before(batch), begin)
                return
            yield from _parts(group, batch, batch.committed)


def _before(batch: BatchState | None) -> int:
    """The batch before one; -1 where it is not known."""
    return -1 if batch is None else batch.plan.number - 1


def _parts(group: FileGroup, batch: BatchState, committed: datetime) -> Iterator[DueFiles]:
    """Cut a group, all of whose files have the same batch."""
    number = group.entry.number
    given_up = batch.counts.get("corrupt_files", 0) > 0 if batch.counts else None
    for start in range(0, len(group.files), PART_FILES):
        files = group.files[start : start + PART_FILES]
        last = group.indexes[start + len(files) - 1] + 1
        end = Offset(number + 1, 0) if last == group.entry.files else Offset(number, last)
        # A batch may end in a later entry: then a search begins at the one before it.
        behind = batch.plan.number if end >= batch.plan.end else batch.plan.number - 1
        yield DueFiles(tuple(Due(file, committed) for file in files), behind, end, given_up)
