"""How does a micro-batch become one version of a Delta table?

1. The data files are there already, invisible.
2. If the table lacks a batch that it had, this one is refused (`lineage`). If it has seen
   this batch, the files are removed and nothing else happens.
3. Columns the table lacks are added (`mergeSchema`), columns that are too narrow are widened
   (`typeWidening`), or the batch is refused.
4. One commit adds the files, if all are still there, and notes `(application id, batch id)`. Two
   committers of the same batch conflict in Delta's own log; the loser finds the batch there and is
   at step 2.

The answer to a commit may get lost on its way from a cloud. Then step 2 finds the batch, with these
very files: a file that the table has is never removed.

Enforcement and merging follow Delta's rules. No jar and no Spark: this is `deltalake`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import CommitProperties, Transaction

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.delta import data_files
from airflow_cloudfiles.engine.delta.data_files import DataFile
from airflow_cloudfiles.engine.delta.durability import (
    durable_commit,
    make_durable,
)
from airflow_cloudfiles.engine.delta.lineage import COMMIT_NOTE, check_has
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.opening import load_table, open_to_write
from airflow_cloudfiles.engine.delta.rewrite import add_action, names_of
from airflow_cloudfiles.engine.delta.schema import check_columns, delta_fields, new_table, plan_of
from airflow_cloudfiles.engine.delta.widening import WideningRule, widen_table
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    CorruptedStateError,
    LostBatchesError,
    SinkError,
    StateError,
    TargetNotDeltaError,
)
from airflow_cloudfiles.engine.storage.conditional import require_conditional_put
from airflow_cloudfiles.engine.storage.durable import make_folders

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.state.sink_log import SinkRecord

COMMIT_TRIES = 20
"""How often a commit is tried against other writers before giving up."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Expected:
    """What a table must have before a batch is committed to it.

    Attributes:
        record: The batch.
        state: The checkpoint location that has the record, for messages.
    """

    record: SinkRecord
    state: str


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit amounted to: the table and its version, and whether this call made it."""

    version: int
    is_new: bool
    table_id: str = ""


@dataclass(frozen=True, slots=True)
class BatchId:
    """Which micro-batch a commit is.

    Attributes:
        app_id: The stream.
        number: Number of its micro-batch.
        plan: Id of the plan log's entry, if there is one: the same number with another plan is
            another batch, of a state that was restored from an older backup.
        replay: Number of the decision to replay it after a loss. The table may still know its
            number from before; so it has an application id of its own.
    """

    app_id: str
    number: int
    plan: str | None = None
    replay: int | None = None

    @property
    def own_app_id(self) -> str:
        """Under which application id the table knows whether it has this very batch."""
        return self.app_id if self.replay is None else f"{self.app_id}.replay-{self.replay}"

    def transactions(self, seen: int | None) -> list[Transaction]:
        """The transactions of the commit; a replayed batch counts for the stream as well.

        Args:
            seen: The newest batch of the stream that the table knows.
        """
        found = [Transaction(self.own_app_id, self.number)]
        if self.replay is not None and (seen is None or seen < self.number):
            found.append(Transaction(self.app_id, self.number))
        return found

    def note(self) -> dict[str, Any]:
        """What the commit notes for people, and for `lineage`."""
        note = {"app_id": self.app_id, "number": self.number, "plan": self.plan}
        return note if self.replay is None else {**note, "replay": self.replay}


def commit_batch(  # noqa: PLR0913 - what a batch is, and what a table may become
    target: str,
    *,
    batch: BatchId,
    files: Sequence[DataFile],
    schema: pa.Schema,
    merge_schema: bool,
    widening: WideningRule | None = None,
    expected: Expected | None = None,
) -> Committed:
    """Make a micro-batch visible, exactly once however often it is called.

    Files of a batch that is refused, or is in the table already, are removed. They stay where
    it is unknown whether the commit has happened: the next try will find out.

    Args:
        target: Path or URI of the table; created when absent.
        batch: Which micro-batch of which stream; its number grows and never means other files.
        files: Data files in the table's folder; may be empty.
        schema: Schema of the files.
        merge_schema: Whether columns the table lacks are added to it.
        widening: Whether the table may be rewritten for a column that has become wider; `None`:
            it may not.
        expected: The batch that the table must have already; `None` for none.

    Raises:
        LostBatchesError: The table lacks the batch that it must have.
        DataFileLostError: A file vanished since it was written; nothing is visible. Running again
            writes it anew.
        SchemaMismatchError: A column the table lacks (without `merge_schema`), or of another type.
        CorruptedStateError: The table has a batch of this number with other files.
        TargetUnreachableError: Its storage failed; the batch may be in the table or not.
        SinkError: Other writers committed first at every try.
    """
    for _ in range(COMMIT_TRIES):
        try:
            found = open_to_write(target)
            if expected is not None:
                check_has(found, target, batch.app_id, expected.record, expected.state)
            table = found or _create(target, schema)
        except (TargetNotDeltaError, LostBatchesError):
            remove_files(target, files)
            raise
        seen = table.transaction_version(batch.own_app_id)
        if seen is not None and seen >= batch.number:
            return _committed_before(table, target, batch, files)
        try:
            table = _prepared(
                table, target, schema, files, merge_schema=merge_schema, widening=widening
            )
            data_files.require(DeltaLocation.of(target), files)
            crash_point("before-sink-commit")
            location = DeltaLocation.of(target)
            with durable_commit(location, "may not have taken a commit", table) as hooks:
                table.create_write_transaction(
                    actions=[add_action(file) for file in files],
                    mode="append",
                    schema=table.schema(),
                    commit_properties=CommitProperties(
                        app_transactions=batch.transactions(
                            table.transaction_version(batch.app_id)
                        ),
                        custom_metadata={COMMIT_NOTE: batch.note()},
                    ),
                    post_commithook_properties=hooks,
                )
        except CommitFailedError as error:
            _log.info("Another writer committed first (%s); trying again", error)
            continue
        crash_point("after-sink-commit")
        with location.translate_errors("cannot be read after a commit"):
            table.update_incremental()
        return Committed(table.version(), is_new=True, table_id=str(table.metadata().id))
    raise SinkError(
        f"Batch {batch.number} could not be committed to {target}: other writers committed first, "
        f"{COMMIT_TRIES} times. Run again when there are fewer writers."
    )


def _committed_before(
    table: DeltaTable, target: str, batch: BatchId, files: Sequence[DataFile]
) -> Committed:
    """The result for a batch that the table has: an earlier call's, or this one's."""
    _check_same_plan(table, target, batch)
    location = DeltaLocation.of(target)
    with location.translate_errors("may lose a commit"):
        make_durable(location)  # the process that committed it may have been killed before it did
    kept = names_of(table)
    is_new = any(file.name in kept for file in files)
    if is_new:
        _log.info("Batch %s was committed to %s, but the response was lost", batch.number, target)
    else:
        _log.info(
            "Batch %s was committed to %s before; its new files are removed", batch.number, target
        )
    remove_files(target, [file for file in files if file.name not in kept])
    return Committed(table.version(), is_new=is_new, table_id=str(table.metadata().id))


def _prepared(  # noqa: PLR0913 - as `commit_batch`
    table: DeltaTable,
    target: str,
    schema: pa.Schema,
    files: Sequence[DataFile],
    *,
    merge_schema: bool,
    widening: WideningRule | None,
) -> DeltaTable:
    """The table with all columns of the batch; the files of a refused batch are removed."""
    try:
        return _with_columns(table, target, schema, merge_schema=merge_schema, widening=widening)
    except CloudFilesError as error:
        if not error.is_retryable:
            remove_files(target, files)
        raise


def _check_same_plan(table: DeltaTable, target: str, batch: BatchId) -> None:
    """Find out whether the batch that the table has is this one, as far as its history reaches."""
    for entry in table.history():
        note = entry.get(COMMIT_NOTE)
        if isinstance(note, str):
            note = json.loads(note)
        if not isinstance(note, dict) or note.get("app_id") != batch.app_id:
            continue
        if note.get("number") == batch.number:
            if None not in {note.get("plan"), batch.plan} and note["plan"] != batch.plan:
                raise CorruptedStateError(
                    f"{target} has batch {batch.number} of this stream already, but with other "
                    "files: the checkpoint location is older than the table (restored from a "
                    "backup?), and skipping the batch would lose rows. See docs/how-to/recover.md."
                )
            return


def check_expected(target: str, app_id: str, expected: Expected) -> None:
    """Find out before a stream starts whether the table has what was committed to it.

    Raises:
        LostBatchesError: It has not.
        TargetNotDeltaError: There is something else.
    """
    check_has(open_to_write(target), target, app_id, expected.record, expected.state)


def check_target(
    target: str, schema: pa.Schema, *, merge_schema: bool, widening: WideningRule | None = None
) -> None:
    """Find out before the stream starts whether a table can take rows of this schema.

    Args:
        target: Path or URI of the table.
        schema: Schema of the stream.
        merge_schema: As for `commit_batch`.
        widening: As for `commit_batch`.

    Raises:
        TargetNotDeltaError: There is something else.
        SchemaMismatchError: Its columns do not fit.
    """
    table = open_to_write(target)
    if table is not None:
        plan = plan_of(table, target, schema)
        plan.check(target, merge_schema=merge_schema, widens=widening is not None)


def add_columns(target: str, schema: pa.Schema, *, widening: WideningRule | None) -> None:
    """Give a table columns, or wider ones, without rows; twice is harmless.

    Args:
        target: Path or URI of the table, which must be there.
        schema: The columns.
        widening: As for `commit_batch`.

    Raises:
        SchemaMismatchError: A column has another type, or the table is too large to be widened.
        SinkError: Other writers committed first at every try, or the table has rules that are not
            checked here.
        TargetUnreachableError: Its storage failed.
    """
    for _ in range(COMMIT_TRIES):
        table = load_table(DeltaLocation.of(target))
        try:
            _with_columns(table, target, schema, merge_schema=True, widening=widening)
        except CommitFailedError as error:
            _log.info("Another writer committed first (%s); trying again", error)
        else:
            return
    raise SinkError(
        f"{target} could not be given new columns: other writers committed first, {COMMIT_TRIES} "
        "times. Run again when there are fewer writers."
    )


def _create(target: str, schema: pa.Schema) -> DeltaTable:
    """Create an empty table, or open the one that another writer created meanwhile."""
    location = DeltaLocation.of(target)
    check_columns(schema, target)
    if location.folder is None:
        _require_conditional_put(location)
    else:
        with location.translate_store_errors("cannot be created"):
            make_folders(os.fsencode(location.folder))
    try:
        with durable_commit(location, "cannot be created") as hooks:
            DeltaTable.create(
                location.table_uri,
                schema=new_table(schema),
                mode="ignore",
                storage_options=location.storage_options(),
                post_commithook_properties=hooks,
            )
    except CommitFailedError as error:  # version 0 was written by another writer meanwhile
        _log.info("Another writer has created %s (%s)", target, error)
    return load_table(location)


def _require_conditional_put(location: DeltaLocation) -> None:
    """Refuse a store that would let one commit replace another."""
    try:
        with location.translate_store_errors("cannot be created"):
            require_conditional_put(location.store())
    except StateError:
        raise SinkError(
            f"The store of {location.target} ignores If-None-Match: of two commits to one version "
            "of a table, the second would replace the first. Choose a target on S3, Azure Storage, "
            "Cloud Storage or a disk, or upgrade the server to a version with conditional writes."
        ) from None


def _with_columns(
    table: DeltaTable,
    target: str,
    schema: pa.Schema,
    *,
    merge_schema: bool,
    widening: WideningRule | None,
) -> DeltaTable:
    """Widen and add columns; doing either twice is harmless."""
    location = DeltaLocation.of(target)
    plan = plan_of(table, target, schema)
    plan.check(target, merge_schema=merge_schema, widens=widening is not None)
    if plan.widened and widening is not None:
        widen_table(table, location, plan, widening)
        table = load_table(location)
    if plan.missing:
        _log.info("Adding columns to %s: %s", target, ", ".join(each.name for each in plan.missing))
        with durable_commit(location, "cannot be given columns", table) as hooks:
            table.alter.add_columns(delta_fields(plan.missing), post_commithook_properties=hooks)
        crash_point("after-sink-columns")
        table = load_table(location)
    return table


def remove_files(target: str, files: Sequence[DataFile]) -> None:
    """Remove data files that are in no version of the table, nor ever will be."""
    if files:
        data_files.remove(DeltaLocation.of(target), [file.name for file in files])
