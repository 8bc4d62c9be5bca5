"""Keep what a state and its table know of each other, also after a run that was killed.

The stream's identity in the table, which batch the table must have, and the record of each commit.

A run that is killed between the commit and its record leaves a batch that only the table knows. The
next run finds it there (`found_in_table`) instead of reading its files again: they may have been
deleted or overwritten since, and what a second reading counts, or puts in `badRecordsPath`, would
not be what the table has.

The commit of the batch notes its plan and what its tasks have counted; of a merge, the history has
the counts besides. Before anybody relies on the commit, it is put on the disk: the process that
made it may have been killed before it could do so.

Data files that the library has written are synced before their commit is acknowledged.

`deltalake` (1.6) syncs none of them. So before a commit of it is acknowledged, its files are looked
at, as the log has them, and synced. A power failure before that may leave a commit whose files are
cut: it is named when it is found.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.delta.commit import BatchId, check_expected
from airflow_cloudfiles.engine.delta.durability import LOG, make_durable
from airflow_cloudfiles.engine.delta.lineage import (
    Expected,
    batch_note,
    newest_known,
    newest_of_origin,
)
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.opening import open_to_write
from airflow_cloudfiles.engine.delta.stream.commits import read_again
from airflow_cloudfiles.engine.errors import CorruptedStateError, DataFileLostError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.state import metadata, spark_checkpoint
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.sink_log import SinkLog, SinkRecord
from airflow_cloudfiles.engine.storage import ObjectStore, normalize_uri
from airflow_cloudfiles.engine.storage.local_disk import sync_file

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from airflow_cloudfiles.engine.delta.commit import Committed
    from airflow_cloudfiles.engine.files import Offset
    from airflow_cloudfiles.engine.state.run_history import BatchDone
    from airflow_cloudfiles.engine.state.sink_log import RowsFrom

COUNTS: Final[Mapping[str, str]] = {
    "inserted_rows": "num_target_rows_inserted",
    "updated_rows": "num_target_rows_updated",
    "deleted_rows": "num_target_rows_deleted",
}
"""What a merge counts, and how `deltalake` calls it."""


@dataclass(frozen=True, slots=True)
class NotedBatch:
    """A batch, as its commit noted it.

    Attributes:
        version: The version of the table that has it.
        plan: Id of its plan; `None` where there is none.
        schema_version: Version of the schema that it was read with; `None` where that is unknown.
        counts: What its tasks have counted, and the merge.
    """

    version: int
    plan: str | None = None
    schema_version: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


def find_again(
    table: DeltaTable, location: DeltaLocation, batch: BatchId, *, since: int = 0
) -> NotedBatch | None:
    """Find the commit of a batch in a table's history, and put it on the disk.

    Args:
        table: The table.
        location: Where it is.
        batch: The batch; its plan does not matter.
        since: A version that is older than the commit: history before it is not read.

    Returns:
        `None` when the history does not reach back to it.

    Raises:
        TargetUnreachableError: The table's storage failed.
        DataFileLostError: A data file of a merge is not as it was written.
        IncompatibleStateError: A newer version of this package noted it.
    """
    with location.translate_errors("has a history that cannot be read"):
        history = table.history(max(0, table.version() - since) + 1)
    entry = next((each for each in history if _is_of(each, location.target, batch)), None)
    with location.translate_errors("may lose a commit"):
        if entry is not None and entry.get("operation") == "MERGE":
            sync_data_files(location, int(entry["version"]))
        make_durable(location)
    if entry is None:
        return None
    note = batch_note(entry, location.target, batch.app_id)
    return NotedBatch(
        int(entry["version"]),
        note.get("plan"),
        note.get("schema_version"),
        {**(note.get("counts") or {}), **_merged(entry)},
    )


def counts_of(metrics: Mapping[str, Any]) -> dict[str, int]:
    """Read the counts from the metrics of a merge."""
    return {name: int(metrics.get(theirs, 0)) for name, theirs in COUNTS.items()}


def _merged(entry: Mapping[str, Any]) -> dict[str, int]:
    is_merge = entry.get("operation") == "MERGE"
    return counts_of(entry.get("operationMetrics") or {}) if is_merge else {}


def _is_of(entry: Mapping[str, Any], target: str, batch: BatchId) -> bool:
    """Tell whether an entry of a table's history is the commit of a batch."""
    note = batch_note(entry, target, batch.app_id)
    return (note.get("app_id"), note.get("number"), note.get("replay")) == (
        batch.app_id,
        batch.number,
        batch.replay,
    )


def sync_data_files(location: DeltaLocation, version: int) -> None:
    """Put the data files that a version of a table has added on the disk.

    Raises:
        DataFileLostError: One is not as it was written, as a power failure leaves it.
        OSError: The disk failed.
    """
    if location.folder is None:
        return
    folder = Path(location.folder)
    for path, size in _added(folder / LOG / f"{version:020}.json"):
        file = folder / path
        if not file.exists() or file.stat().st_size != size:
            raise DataFileLostError(
                f"The data file {path} of version {version} of {location.target} is not as it was "
                "written. Restore the table to the version before, and run again."
            )
        sync_file(os.fsencode(file))


def _added(entry: Path) -> Iterator[tuple[str, int]]:
    """Yield the data files that an entry of a log adds, with their sizes."""
    if not entry.exists():  # cleaned up behind a checkpoint: older than any run
        return
    for line in entry.read_bytes().splitlines():
        add = json.loads(line).get("add") if line.strip() else None
        if add is not None:
            yield unquote(add["path"]), int(add["size"])


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """A batch that a table has.

    Attributes:
        version: The version that has it.
        table_id: Of the table.
        schema_version: Version of the schema that it was read with; `None` where that is unknown.
        counts: As in the note of a batch (`progress.BatchDone`).
    """

    version: int
    table_id: str
    schema_version: int | None
    counts: Mapping[str, int]


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


def refuse_known_origin(state: ObjectStore, target: str, source: str | None = None) -> None:
    """Refuse a new state at a place from which a table has batches of another one.

    Args:
        state: The checkpoint location, which has committed nothing.
        target: Path or URI of the table.
        source: What the state will know its source by; `None` where it does already.

    Raises:
        CorruptedStateError: It has.
        TargetNotDeltaError: The target is something else.
    """
    own, mark = identity(state)
    mark = mark if source is None else metadata.origin(state, source)
    table = open_to_write(target) if mark else None
    newest = None if table is None else newest_of_origin(table, target, mark, besides=own)
    if newest is not None:
        what = f"{target} has batch {newest} of a stream with this checkpoint location and source"
        raise metadata.without_log(state, what)


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
    done: BatchDone | None = None,
) -> None:
    """Record a batch that the table has; a record that exists already stays.

    `done` is what a job knows of it besides.
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


def found_in_table(state: ObjectStore, target: str, batch: int, plan: str) -> FoundBatch | None:
    """Find a batch that has no record in a table, as a run leaves it that was killed before that.

    Its commit is on the disk when this returns.

    Args:
        state: The checkpoint location.
        target: Path or URI of the table.
        batch: Number of the batch.
        plan: Id of its plan.

    Returns:
        `None` where the table lacks it, or has another batch of that number, or its history does
        not reach back to it: then its files are read, and the commit decides.

    Raises:
        TargetNotDeltaError: The target is something else.
        TargetUnreachableError: Its storage failed.
    """
    stream, table = application(state), open_to_write(target)
    if stream is None or table is None:
        return None
    before = SinkLog(state).newest()
    since = 0 if before is None else max(0, before.version)
    seen = newest_known(table, target, stream, since=since)
    if seen is None or seen < batch:
        return None
    noted = find_again(table, DeltaLocation.of(target), BatchId(stream, batch), since=since)
    if noted is None or noted.plan != plan or not noted.counts:
        return None
    table_id = str(table.metadata().id)
    return FoundBatch(noted.version, table_id, noted.schema_version, noted.counts)


def _expected(state: ObjectStore, record: SinkRecord) -> Expected:
    return Expected(record, printable_path(state.uri), partial(read_again, state))
