"""What does a state know of the table that its stream writes to?

The stream's identity in the table, which batch the table must have, and the record of each commit.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.delta.commit import check_expected
from airflow_cloudfiles.engine.delta.lineage import Expected
from airflow_cloudfiles.engine.delta.stream.backlog import read_again
from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.state import spark_checkpoint
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.sink_log import SinkLog, SinkRecord
from airflow_cloudfiles.engine.storage import ObjectStore, normalize_uri

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.delta.commit import Committed
    from airflow_cloudfiles.engine.files import Offset
    from airflow_cloudfiles.engine.state.sink_log import RowsFrom


def application(state: ObjectStore) -> str | None:
    """Identify the stream that writes: the id in the state, or else Spark's own id of the query.

    Returns:
        The application id of its commits; `None` when the state is new.
    """
    stream = read_metadata(state)
    if stream is not None:
        return stream.stream_id
    query, is_whole = spark_checkpoint.query_id(state)
    if (query is None or not is_whole) and state.head(spark_checkpoint.METADATA) is not None:
        name = printable_path(state.child_uri(spark_checkpoint.METADATA))
        raise CorruptedStateError(
            f"{name} is damaged: it does not name the query that writes. Restore the checkpoint "
            "location as a whole from a backup."
        )
    return query


def expected(log: SinkLog, batch: int) -> Expected | None:
    """Find what the table must have when a batch is to be committed.

    Raises:
        LostBatchesError: A replay has not come to its end.
    """
    record = log.expected(batch)
    return None if record is None else _expected(log.state, record)


def note(  # noqa: PLR0913 - what a record holds
    log: SinkLog,
    target: str,
    batch: int,
    committed: Committed,
    *,
    plan: str | None,
    read_by: RowsFrom,
    end: Offset | None = None,
) -> None:
    """Record a batch that the table has; the record that is there stays."""
    log.add(
        SinkRecord(
            batch=batch,
            table_id=committed.table_id,
            version=committed.version,
            target=normalize_uri(target),
            plan=plan or "",
            read_by=read_by,
            end=end,
        )
    )
    crash_point("after-sink-record")


def check_before_run(state: ObjectStore, target: str, app_id: str | None = None) -> None:
    """Refuse to start a run into a table that lacks batches of the stream.

    Args:
        state: The checkpoint location.
        target: Path or URI of the table.
        app_id: The application id of the commits, if it is not the stream's own.

    Raises:
        LostBatchesError: It does, or a replay has not come to its end.
        TargetNotDeltaError: The target is something else.
    """
    app_id = app_id or application(state)
    log = SinkLog(state)
    record = None if app_id is None else log.must_have()
    if app_id is not None and record is not None:
        check_expected(target, app_id, _expected(state, record))


def _expected(state: ObjectStore, record: SinkRecord) -> Expected:
    return Expected(record, printable_path(state.uri), partial(read_again, state))
