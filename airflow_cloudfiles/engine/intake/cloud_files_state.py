"""Was this file ingested, when, and in which batch?

`cloud_files_state` gives the answer for every file of a stream, as Auto Loader's function of that
name does: a table, read record batch by record batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.intake.file_query import FileQuery
from airflow_cloudfiles.engine.intake.file_state_columns import arrow_schema, record_batches
from airflow_cloudfiles.engine.intake.file_states import FileStates, StateSnapshot

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.storage.access import Access

__all__ = ["cloud_files_state"]


def cloud_files_state(  # noqa: PLR0913 - each narrows the table down
    checkpoint_location: str,
    *,
    path: str | None = None,
    status: str | Iterable[str] = (),
    batch_id: int | None = None,
    run_id: str | None = None,
    discovered_since: datetime | None = None,
    discovered_until: datetime | None = None,
    committed_since: datetime | None = None,
    committed_until: datetime | None = None,
    access: Access | None = None,
) -> pa.RecordBatchReader:
    """Read the state of a stream as a table of files, one row for each version of a file.

    Nothing is changed and no lock is taken; a stream that goes on meanwhile is shown as it was at
    this call. The columns are in `docs/reference/cloud-files-state.md`.

    Args:
        checkpoint_location: Path or URI of the state.
        path: A file, a folder, or a pattern as in a source path (`*`, `?`, `[a-c]`, `{a,b}`),
            relative to the source or with all of its URI. A pattern without a slash is one for
            names of files.
        status: `existing`, `discovered`, `planned`, `committed`, `lost`, `skipped`, `quarantined`,
            `released`, `forgotten`, or `outstanding`, which is discovered or planned; several in a
            list.
        batch_id: Files of this micro-batch.
        run_id: Files that this run has committed.
        discovered_since: Files discovered at this time or later. Times need a time zone.
        discovered_until: Files discovered before this time.
        committed_since: Files committed at this time or later.
        committed_until: Files committed before this time.
        access: How the clouds are reached; `None` for the environment's own chain.

    Returns:
        A reader of record batches, which reads the state as it goes on: `read_all()` for a table,
        `read_pandas()` for a DataFrame, or a loop.

    Raises:
        OptionError: An argument is not valid.
        StateError: There is no state, or no such batch.
        CorruptedStateError: The state is damaged; also while the reader reads.
    """
    import pyarrow as pa

    query = FileQuery(
        path=path,
        status=(status,) if isinstance(status, str) else tuple(status),
        batch_id=batch_id,
        run_id=run_id,
        discovered_since=discovered_since,
        discovered_until=discovered_until,
        committed_since=committed_since,
        committed_until=committed_until,
    )
    files = FileStates(StateSnapshot.take(checkpoint_location, access), query, access)
    return pa.RecordBatchReader.from_batches(arrow_schema(), record_batches(files.groups()))
