"""Where is a stream, and what waits for it?

For people who look at it: nothing is locked, written or discovered. What it costs does not grow
with the files of the stream, nor with its runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.files import Offset, printable_path
from airflow_cloudfiles.engine.intake.stream_logs import files_and_bytes, oldest
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import existing_metadata
from airflow_cloudfiles.engine.state.sink_log import position

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

MOST_ENTRIES: Final = 500
"""The outstanding files of so many entries are counted; each may cost a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOverview:
    """A stream of files, as its state shows it.

    Attributes:
        source: URI of the source, printable.
        format: Of its files.
        stream_id: Its id.
        last_batch: The last micro-batch that is committed; -1 before the first.
        entries: How many entries the file log has.
        newest_found: When the newest file was found: ISO 8601, UTC; `None` before the first.
        outstanding_files: Files that are found and not committed.
        outstanding_bytes: Their size.
        oldest_outstanding: When the oldest of them was found; `None` where there is none.
        is_counted: Whether all of them were counted.
    """

    source: str
    format: str
    stream_id: str
    last_batch: int
    entries: int
    newest_found: str | None
    outstanding_files: int
    outstanding_bytes: int
    oldest_outstanding: str | None
    is_counted: bool


def stream_overview(state: ObjectStore) -> StreamOverview:
    """Look at a stream.

    Args:
        state: The checkpoint location.

    Raises:
        StateError: There is no state of files, or it cannot be read.
        CorruptedStateError: It is damaged.
    """
    metadata = existing_metadata(state)
    log = FileLog(state)
    committed = position(state)
    head = log.head()
    last = min(head, Offset(committed.end.entry + MOST_ENTRIES, 0))
    files, size = files_and_bytes(log, committed.end, last)
    return StreamOverview(
        source=printable_path(metadata.source),
        format=metadata.format,
        stream_id=metadata.stream_id,
        last_batch=committed.batch,
        entries=head.entry,
        newest_found=log.summary(head.entry - 1).created if head.entry else None,
        outstanding_files=files,
        outstanding_bytes=size,
        oldest_outstanding=oldest(log, committed.end, last) if files else None,
        is_counted=last == head,
    )
