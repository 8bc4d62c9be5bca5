"""Make a micro-batch one snapshot of an Iceberg table.

1. The data files are there already, invisible: before a task wrote its first one, the table was
   created, or given the columns it lacked (`ready_table`), since a file has the ids of its columns.
2. If the table lacks a batch that it had, this one is refused (`lineage`). If it has this batch,
   the files are removed and nothing else happens.
3. One commit adds the files and notes the batch, in the snapshot and in a table property. It holds
   only if the table has not changed since step 2: then the steps begin again, on the newer table.

pyiceberg's own retries are off: they would append to a newer table without step 2. The answer to a
commit may get lost. Then step 2 of the next try finds the batch, with these very files, which stay.
"""

from __future__ import annotations

import hashlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyiceberg import expressions
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import TableProperties

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    CorruptedStateError,
    LostBatchesError,
    SinkError,
    TargetChangedError,
)
from airflow_cloudfiles.engine.extensions.iceberg import data_files
from airflow_cloudfiles.engine.extensions.iceberg.catalog import (
    FORMAT_VERSION,
    IcebergLocation,
    without_retries,
)
from airflow_cloudfiles.engine.extensions.iceberg.data_files import IcebergDataFile
from airflow_cloudfiles.engine.extensions.iceberg.lineage import (
    BATCH,
    ORIGIN,
    STREAM,
    NotedBatch,
    SnapshotLineage,
    SnapshotPresence,
    check_has,
    lineage,
)
from airflow_cloudfiles.engine.extensions.iceberg.schema import (
    Partitioner,
    TablePlan,
    check_spec,
    new_schema,
    new_spec,
    plan_of,
)
from airflow_cloudfiles.engine.messages import few
from airflow_cloudfiles.engine.state.sink_log import BatchId, CommitResult, FoundBatch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table, Transaction

    from airflow_cloudfiles.engine.state.sink_log import ExpectedBatch
    from airflow_cloudfiles.engine.tables.delta.write.former_rows import FormerRows

COMMIT_TRIES = 20
"""How often a commit is tried against other writers before giving up."""
_PAUSE_SECONDS = 0.05
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRules:
    """What a table may become.

    Attributes:
        merge_schema: Whether columns it lacks are added.
        widens: Whether columns are widened, as far as Iceberg allows it.
        partition_by: How it is partitioned when it is created (`schema.parse`).
    """

    merge_schema: bool = False
    widens: bool = False
    partition_by: str | None = None


def ready_table(target: IcebergLocation, columns: pa.Schema, rules: TableRules) -> Table:
    """Open a table that has all columns of a stream; create or change it where it lacks them.

    Repeating it is harmless.

    Args:
        target: The table.
        columns: Of the stream's data files.
        rules: What the table may become.

    Raises:
        SchemaMismatchError: The columns do not fit, or the table may not get them.
        OptionError: `partition_by` cannot be read, or the table is partitioned otherwise.
        SinkError: Other writers committed first at every try, or there is no such namespace.
        TargetUnreachableError: Its catalog or its storage failed.
    """

    def attempt() -> Table:
        table = target.load()
        if table is None:
            return _create(target, columns, rules)
        plan = _checked(target, table, columns, rules)
        if plan:
            _change(target, table, plan)
        return attempt() if plan else table

    return _retried(target, attempt)


def check_table(target: str, columns: pa.Schema, rules: TableRules) -> str | None:
    """Find out before a stream starts whether a table can take rows of this schema.

    Nothing is changed.

    Returns:
        The location of the table; `None` where there is none yet.

    Raises:
        CloudFilesError: As `ready_table`.
    """
    place = IcebergLocation.of(target)
    table = place.load()
    if table is None:
        schema = new_schema(columns, target)
        new_spec(rules.partition_by, schema, target)
        return None
    _checked(place, table, columns, rules)
    return table.location()


def check_expected(target: str, stream: str, expected: ExpectedBatch) -> None:
    """Find out before a stream starts whether the table has what was committed to it.

    Raises:
        LostBatchesError: It lacks the batch.
    """
    check_has(IcebergLocation.of(target).load(), target, stream, expected)


def find_batch(target: str, stream: str, number: int) -> FoundBatch | None:
    """Find a batch in a table.

    Returns:
        `None` where the table lacks it, or its snapshot has expired.

    Raises:
        TargetUnreachableError: Its catalog failed.
    """
    table = IcebergLocation.of(target).load()
    noted = None if table is None else lineage(table.metadata, stream).batches.get(number)
    if table is None or noted is None:
        return None
    table_id = str(table.metadata.table_uuid)
    return FoundBatch(noted.sequence, table_id, noted.plan, noted.schema_version, noted.counts)


def presence_of(target: str, stream: str, number: int) -> SnapshotPresence:
    """Find whether a table has a batch with this number, or had it.

    Raises:
        TargetUnreachableError: Its catalog failed.
    """
    table = IcebergLocation.of(target).load()
    known = SnapshotLineage() if table is None else lineage(table.metadata, stream)
    return known.presence(number)


def newest_of_origin(target: str, origin: str, *, besides: str | None = None) -> int | None:
    """Give the newest batch whose snapshot notes an origin, of any stream besides one."""
    table = IcebergLocation.of(target).load()
    kept = [] if table is None else table.metadata.snapshots
    notes = [each.summary.additional_properties for each in kept if each.summary is not None]
    of_origin = (note for note in notes if note.get(ORIGIN) == origin)
    return max((int(each[BATCH]) for each in of_origin if each[STREAM] != besides), default=None)


def commit_batch(  # noqa: PLR0913 - what a batch is, and what a table may become
    target: str,
    *,
    batch: BatchId,
    files: Sequence[IcebergDataFile],
    columns: pa.Schema,
    rules: TableRules,
    expected: ExpectedBatch | None = None,
    former: Sequence[FormerRows] = (),
) -> CommitResult:
    """Make a micro-batch visible, exactly once however often it is called.

    Files of a batch that is refused, or is in the table already, are removed. They stay where
    it is unknown whether the commit has happened: the next try will find out.

    Args:
        target: URI of the table.
        batch: Which micro-batch of which stream; its number grows and never means other files.
        files: Data files of the table; may be empty.
        columns: Of the data files.
        rules: What the table may become.
        expected: The batch that the table must have already; `None` for none.
        former: The rows that those of the batch replace; pyiceberg reads each data file that has
            some of them into memory, and writes it anew.

    Raises:
        LostBatchesError: The table lacks a batch that it had, or must have.
        DataFileLostError: A file vanished since it was written; nothing is visible.
        SchemaMismatchError: The columns do not fit.
        CorruptedStateError: The table has a batch of this number with other files.
        TargetChangedError: The data files were written for another table, or partitioning.
        TargetUnreachableError: Its catalog or storage failed; the batch may be in the table or not.
        SinkError: Other writers committed first at every try.
    """
    place = IcebergLocation.of(target)

    def attempt() -> CommitResult:
        table = place.load()
        try:
            if expected is not None:
                check_has(table, target, batch.app_id, expected)
            _check_same(place, table, files)
            ready = table if table is not None and files else ready_table(place, columns, rules)
        except CloudFilesError as error:
            if table is not None and not error.is_retryable:
                data_files.remove(table, [file.path for file in files])
            raise
        found = lineage(ready.metadata, batch.app_id, None if expected is None else expected.record)
        presence = found.presence(batch.number)
        if presence is SnapshotPresence.PRESENT:
            return _committed_before(place, ready, found, batch, files)
        if presence is SnapshotPresence.LOST:
            data_files.remove(ready, [file.path for file in files])
            raise _rolled_back(target, batch, found)
        data_files.require(place, ready, files)
        crash_point("before-sink-commit")
        sequence, counts = _append(place, ready, batch, files, former)
        crash_point("after-sink-commit")
        table_id = str(ready.metadata.table_uuid)
        return CommitResult(sequence, is_new=True, table_id=table_id, counts=counts)

    return _retried(place, attempt)


def write_id(files: Sequence[IcebergDataFile]) -> str:
    """Name a set of data files: a commit whose answer was lost is known by it."""
    paths = sorted(file.path for file in files)
    return hashlib.sha256("\n".join(paths).encode()).hexdigest()[:32]


def remove_files(target: str, files: Sequence[IcebergDataFile]) -> None:
    """Remove data files that are in no version of the table, nor ever will be."""
    table = IcebergLocation.of(target).load() if files else None
    if table is not None:
        data_files.remove(table, [file.path for file in files])


def _noted(
    batch: BatchId, files: Sequence[IcebergDataFile], snapshot: int, sequence: int
) -> NotedBatch:
    """Build the note that a commit carries."""
    number, plan, version = batch.number, batch.plan or "", batch.schema_version
    return NotedBatch(number, plan, write_id(files), snapshot, sequence, version, batch.counts)


def _append(
    target: IcebergLocation,
    table: Table,
    batch: BatchId,
    files: Sequence[IcebergDataFile],
    former: Sequence[FormerRows],
) -> tuple[int, dict[str, int]]:
    """Commit if the table has not changed.

    Returns:
        The sequence number of the snapshot, and what was counted.
    """
    with target.translate_errors("may not have taken a commit"):
        transaction = table.transaction()
        counts = _delete_former(target, table, transaction, former)
        sequence = transaction.table_metadata.next_sequence_number()
        summary = _noted(batch, files, 0, sequence).summary(batch.app_id)
        summary |= {ORIGIN: batch.origin} if batch.origin else {}
        update = transaction.update_snapshot(snapshot_properties=summary)
        merges = table.properties.get(TableProperties.MANIFEST_MERGE_ENABLED, "").lower() == "true"
        with update.merge_append() if merges else update.fast_append() as append:
            for file in files:
                append.append_data_file(file.entry())
        noted = _noted(batch, files, append.snapshot_id, sequence)
        transaction.set_properties(noted.properties(batch.app_id))
        try:
            transaction.commit_transaction()
        except NoSuchTableError as failure:
            raise LostBatchesError(
                f"{target.uri} was dropped while a batch was being committed to it."
            ) from failure
    return sequence, counts


def _delete_former(
    target: IcebergLocation, table: Table, transaction: Transaction, former: Sequence[FormerRows]
) -> dict[str, int]:
    """Delete the rows that a batch replaces, in snapshots before its own of the same commit.

    Raises:
        SinkError: It is not known of some rows from which file they came.
    """
    count, made = 0, cast("Any", expressions)  # whose types are those of its JSON
    for each in former:
        (column,) = each.column
        if table.scan(row_filter=made.IsNull(column)).count():
            raise SinkError(
                f"{target.uri} has rows whose column {column} is null, so it is not known whether "
                f"rows of {few(sorted(each.files))} are among them. A table that follows its files "
                "needs the column from its first row on: fill it, or start the stream over into a "
                "new table."
            )
        gone = made.In(column, each.files)
        rows = table.scan(row_filter=gone).count()
        if rows:
            transaction.delete(gone)
        count += rows
    return {"replaced_rows": count} if former else {}


def _committed_before(
    target: IcebergLocation,
    table: Table,
    found: SnapshotLineage,
    batch: BatchId,
    files: Sequence[IcebergDataFile],
) -> CommitResult:
    """Build the result for a batch that the table has, from an earlier call or from this one."""
    noted = found.find(batch.number)
    if noted is not None and batch.plan and noted.plan and noted.plan != batch.plan:
        raise CorruptedStateError(
            f"{target.uri} has batch {batch.number} of this stream already, but with other files: "
            "the checkpoint location is older than the table (restored from a backup?), and "
            "skipping the batch would lose rows. See docs/how-to/recover.md."
        )
    is_new = noted is not None and noted.write == write_id(files) and bool(files)
    if is_new:
        _log.info("Batch %s was committed to %s; the response was lost", batch.number, target.uri)
    elif noted is None:
        _log.info("Batch %s is in %s, in a snapshot that expired", batch.number, target.uri)
    else:
        _log.info("Batch %s is in %s; its new files are removed", batch.number, target.uri)
        data_files.remove(table, [file.path for file in files])
    sequence = (noted or found.newest or _NOTHING).sequence
    return CommitResult(sequence, is_new=is_new, table_id=str(table.metadata.table_uuid))


_NOTHING = NotedBatch(-1, "", "", 0, 0)


def _checked(
    target: IcebergLocation, table: Table, columns: pa.Schema, rules: TableRules
) -> TablePlan:
    """Plan what a table must become, and check that it may."""
    check_spec(rules.partition_by, table.spec(), table.schema(), target.uri)
    Partitioner(table.spec(), table.schema(), target.uri)
    plan = plan_of(table.schema(), columns, target.uri)
    plan.check(target.uri, merge_schema=rules.merge_schema, widens=rules.widens)
    return plan


def _change(target: IcebergLocation, table: Table, plan: TablePlan) -> None:
    """Add and widen columns: only if no other writer has changed them meanwhile."""
    names = [".".join(path) for path, _ in plan.missing]
    names += [".".join(each.path) for each in plan.widened]
    _log.info("Adding or widening columns of %s: %s", target.uri, ", ".join(names))
    with (
        target.translate_errors("cannot be given columns"),
        table.update_schema() as update,
    ):
        for each in plan.widened:
            update.update_column(each.path, each.want)
        for path, kind in plan.missing:
            update.add_column(path, kind)
    crash_point("after-sink-columns")


def _create(target: IcebergLocation, columns: pa.Schema, rules: TableRules) -> Table:
    """Create an empty table."""
    schema = new_schema(columns, target.uri)
    spec = new_spec(rules.partition_by, schema, target.uri)
    with target.translate_errors("cannot be created"):
        table = target.open_catalog().create_table(
            target.identifier,
            schema=schema,
            partition_spec=spec,
            properties={"format-version": str(FORMAT_VERSION)},
        )
    return without_retries(table)


def _check_same(
    target: IcebergLocation, table: Table | None, files: Sequence[IcebergDataFile]
) -> None:
    """Refuse files of another table, or of another partitioning than the table has now."""
    if not files:
        return
    now = None if table is None else (str(table.metadata.table_uuid), table.spec().spec_id)
    if any((file.table_id, file.spec_id) != now for file in files):
        raise TargetChangedError(
            f"{target.uri} was dropped, replaced or partitioned otherwise while a batch was "
            "written. Nothing was committed. Run again."
        )


def _rolled_back(target: str, batch: BatchId, found: SnapshotLineage) -> LostBatchesError:
    newest = found.newest or _NOTHING
    return LostBatchesError(
        f"{target} had batch {batch.number} of this stream, and was rolled back to a snapshot "
        f"before it (the newest batch was {newest.batch}, in snapshot {newest.snapshot}). Nothing "
        "is written on top of the gap. See docs/how-to/iceberg.md."
    )


def _retried(target: IcebergLocation, attempt: Callable[[], _T]) -> _T:
    """Try to commit until no other writer is first."""
    for number in range(COMMIT_TRIES):
        try:
            return attempt()
        except (CommitFailedException, TableAlreadyExistsError) as failure:
            _log.info("Another writer committed first to %s (%s)", target.uri, failure)
        # Let the other writer finish: two that try in step would meet at every try.
        time.sleep(random.uniform(0, _PAUSE_SECONDS * (number + 1)))  # noqa: S311 - no secret
    raise SinkError(
        f"{target.uri} could not be committed to: other writers committed first, {COMMIT_TRIES} "
        "times. Run again when there are fewer writers."
    )
