"""Keep what a state and its table know of each other, also after a run that was killed.

The stream's identity in the table, which batch the table must have, and the record of each commit.

A run that is killed between the commit and its record leaves a batch that only the table knows. The
next run finds it there (`TargetTable.find_unrecorded`) instead of reading its files again: they may
have been deleted or overwritten since, and what a second reading counts, or puts in
`badRecordsPath`, would not be what the table has.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.state import metadata, spark_checkpoint
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.sink_log import ExpectedBatch, SinkLog, SinkRecord
from airflow_cloudfiles.engine.storage import ObjectStore, normalize_uri
from airflow_cloudfiles.engine.tables.delta.stream.commits import read_again

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_cloudfiles.engine.files import Offset
    from airflow_cloudfiles.engine.state.run_history import BatchDone
    from airflow_cloudfiles.engine.state.sink_log import CommitResult, RowsFrom
    from airflow_cloudfiles.engine.tables.delta.write.former_rows import FormerRows


def application(state: ObjectStore) -> str | None:
    """Identify the stream that writes: the id in the state, or else Spark's own id of the query.

    Returns:
        The application id of its commits; `None` when the state is new.
    """
    return identity(state)[0]


def identity(state: ObjectStore) -> tuple[str | None, str]:
    """Identify the stream that writes, and name the place of its state and its source.

    Returns:
        `application`; and `earlier_life.origin`, empty where the state has no source of files.
    """
    stream = read_metadata(state)
    if stream is not None:
        return stream.stream_id, metadata.origin(state, stream.source)
    query, is_whole = spark_checkpoint.query_id(state)
    if (query is None or not is_whole) and state.head(spark_checkpoint.METADATA) is not None:
        name = printable_path(state.child_uri(spark_checkpoint.METADATA))
        raise CorruptedStateError(
            f"{name} is damaged: it does not name the query that writes. Restore the checkpoint "
            "location as a whole from a backup."
        )
    return query, ""


def expected(log: SinkLog, batch: int) -> ExpectedBatch | None:
    """Find what the table must have when a batch is to be committed.

    Raises:
        LostBatchesError: A replay has not come to its end.
    """
    record = log.expected(batch)
    return None if record is None else expected_of(log.state, record)


def note(  # noqa: PLR0913 - what a record holds
    log: SinkLog,
    target: str,
    batch: int,
    committed: CommitResult,
    *,
    plan: str | None,
    read_by: RowsFrom,
    end: Offset | None = None,
    done: BatchDone | None = None,
) -> None:
    """Record a batch that the table has; a record that exists already stays.

    `done` is what those who have read its files know of it besides.
    """
    log.add(
        SinkRecord(
            batch=batch,
            table_id=committed.table_id,
            version=committed.version,
            target=normalize_uri(target),
            plan=plan or "",
            read_by=read_by,
            end=end,
            run_id=None if done is None else done.run_id,
            schema_version=None if done is None else done.schema_version,
            counts={} if done is None else dict(done.counts),
        )
    )
    crash_point("after-sink-record")


def expected_of(state: ObjectStore, record: SinkRecord) -> ExpectedBatch:
    """Build what a table must have from the record of it."""
    return ExpectedBatch(record, printable_path(state.uri), partial(read_again, state))


def former_rows(
    state: ObjectStore, batch: int, left_out: Collection[tuple[int, int]]
) -> tuple[FormerRows, ...]:
    """Find which rows the commit of a micro-batch replaces; most replace none.

    Args:
        state: The checkpoint location.
        batch: Number of the batch, which is that of its plan.
        left_out: Files that its tasks have left out, each by its entry and its index there.
    """
    metadata = read_metadata(state)
    if metadata is None or not metadata.has_operations:
        return ()
    from airflow_cloudfiles.engine.tables.delta.write.former_rows import (  # noqa: PLC0415 - of few streams
        replaced_by,
    )

    return replaced_by(state, metadata.source, batch, left_out)
