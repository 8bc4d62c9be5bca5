"""Make a micro-batch one version of a Delta table.

1. The data files are there already, invisible.
2. If the table lacks a batch that it had, this one is refused (`lineage`). If it has seen
   this batch, the files are removed and nothing else happens.
3. Columns the table lacks are added (`mergeSchema`), columns that are too narrow are widened
   (`typeWidening`), or the batch is refused. A batch whose files were written for other columns
   than the table has by now is given up, and written anew (`TargetChangedError`).
4. One commit adds the files, if all are still there, and notes `(application id, batch id)`. Two
   committers of the same batch conflict in Delta's own log; the loser finds the batch there and is
   at step 2.

The answer to a commit may get lost on its way from a cloud. Then step 2 finds the batch, with these
very files: a file that the table has is never removed.

Enforcement and merging follow Delta's rules. No jar and no Spark: this is `deltalake`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import CommitFailedError
from deltalake.transaction import CommitProperties, Transaction

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    CorruptedStateError,
    LostBatchesError,
    SchemaMismatchError,
    TargetChangedError,
    TargetNotDeltaError,
)
from airflow_cloudfiles.engine.state.sink_log import BatchId, CommitResult, ExpectedBatch
from airflow_cloudfiles.engine.tables.delta import data_files
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile
from airflow_cloudfiles.engine.tables.delta.lineage import (
    BLIND_APPEND,
    COMMIT_NOTE,
    NOTE_VERSION,
    batch_note,
    check_has,
    newest_known,
    transaction_version,
)
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import load_table, make_durable, open_to_write
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableState
from airflow_cloudfiles.engine.tables.delta.write.evolve import (
    WriteRules,
    create_table,
    evolve,
    layout_for,
)
from airflow_cloudfiles.engine.tables.delta.write.layout import FileLayout, plain_layout
from airflow_cloudfiles.engine.tables.delta.write.log_commit import (
    COMMIT_TRIES,
    add_actions,
    commit_version,
    refreshed,
    retried,
)
from airflow_cloudfiles.engine.tables.delta.write.rewrite import names_of
from airflow_cloudfiles.engine.versions import FIELD

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

_log = logging.getLogger(__name__)


Appender = Callable[..., dict[str, int] | None]
"""Commits files, with the arguments of `append_files`; may say what it has counted."""


def note_of(batch: BatchId) -> dict[str, Any]:
    """Build the note of a commit: for people, for `lineage`, and for a run after a killed one."""
    more = {
        "replay": batch.replay,
        "schema_version": batch.schema_version,
        "counts": dict(batch.counts) or None,
        "origin": batch.origin or None,
    }
    return {
        FIELD: NOTE_VERSION,
        "app_id": batch.app_id,
        "number": batch.number,
        "plan": batch.plan,
        **{name: value for name, value in more.items() if value is not None},
    }


def _noted(batch: BatchId | None) -> dict[str, Any]:
    return {} if batch is None else {COMMIT_NOTE: note_of(batch)}


def _transactions(table: DeltaTable, target: str, batch: BatchId | None) -> list[Transaction]:
    """Build the transactions of a commit; a replayed batch counts for its stream as well."""
    if batch is None:
        return []
    found = [Transaction(batch.own_app_id, batch.number)]
    seen = transaction_version(table, target, batch.app_id)
    if batch.replay is not None and (seen is None or seen < batch.number):
        found.append(Transaction(batch.app_id, batch.number))
    return found


def committed_to(
    table: DeltaTable, *, is_new: bool = True, counts: dict[str, int] | None = None
) -> CommitResult:
    """Describe the commit that the version of the table has."""
    return CommitResult(table.version(), is_new, str(table.metadata().id), counts or {})


def commit_batch(  # noqa: PLR0913 - what a batch is, and what a table may become
    target: str,
    *,
    batch: BatchId | None,
    files: Sequence[DataFile],
    schema: pa.Schema,
    rules: WriteRules,
    expected: ExpectedBatch | None = None,
    layout: FileLayout | None = None,
    append: Appender | None = None,
) -> CommitResult:
    """Make a micro-batch visible, exactly once however often it is called.

    Files of a batch that is refused, or is in the table already, are removed. They stay where
    it is unknown whether the commit has happened: the next try will find out.

    Args:
        target: Path or URI of the table; created when absent.
        batch: Which micro-batch of which stream; its number grows and never means other files.
            `None` commits without a memory of it.
        files: Data files in the table's folder; may be empty.
        schema: Schema of the rows.
        rules: How the table may change, and what it is created with when absent.
        expected: The batch that the table must have already; `None` for none.
        layout: How the rows became columns of the files; `None`: they were written as they are.
        append: How the files are committed; `None`: they are only added (`append_files`).

    Raises:
        LostBatchesError: The table lacks the batch that it must have.
        DataFileLostError: A file vanished since it was written; nothing is visible. Running again
            writes it anew.
        TargetChangedError: The files were written for other columns than the table has by now.
            Running again writes them anew.
        SchemaMismatchError: A column the table lacks (without `mergeSchema`), or of another type.
        CorruptedStateError: The table has a batch of this number with other files.
        TargetUnreachableError: Its storage failed; the batch may be in the table or not.
        SinkError: Other writers committed first at every try.
    """
    written = WrittenFiles(target, files, schema, layout)
    location = DeltaLocation.of(target)

    def attempt() -> CommitResult:
        try:
            found = open_to_write(target)
            if batch is not None and expected is not None:
                found = check_has(found, target, batch.app_id, expected)
            table = found or create_table(target, schema, rules)
        except (TargetNotDeltaError, LostBatchesError, SchemaMismatchError):
            remove_files(target, files)
            raise
        if batch is not None and has_batch(table, target, batch, expected):
            return _committed_before(table, target, batch, files)
        table = written.prepare(table, rules)
        data_files.require(location, files)
        if append is None:
            crash_point("before-sink-commit")
        counts = (append or append_files)(
            table,
            target,
            files,
            transactions=_transactions(table, target, batch),
            note=_noted(batch),
        )
        crash_point("after-sink-commit")
        return committed_to(table, counts=counts)

    what = "The rows" if batch is None else f"Batch {batch.number}"
    return retried(f"{what} could not be committed to {target}", attempt)


def _committed_before(
    table: DeltaTable, target: str, batch: BatchId, files: Sequence[DataFile]
) -> CommitResult:
    """Build the result for a batch that the table has, from an earlier call or from this one."""
    check_same_plan(table, target, batch)
    location = DeltaLocation.of(target)
    with location.translate_errors("may lose a commit"):
        make_durable(location)  # the process that committed it may have been killed before it did
    kept = names_of(table)
    # A file of the source has the same name whoever has registered it.
    is_new = any(file.name in kept for file in files if file.source is None)
    if is_new:
        _log.info("Batch %s was committed to %s, but the response was lost", batch.number, target)
    else:
        _log.info(
            "Batch %s was committed to %s before; its new files are removed", batch.number, target
        )
    remove_files(target, [file for file in files if file.name not in kept])
    return committed_to(table, is_new=is_new)


def append_files(
    table: DeltaTable,
    target: str,
    files: Sequence[DataFile],
    *,
    transactions: Sequence[Transaction],
    note: Mapping[str, Any],
) -> dict[str, int] | None:
    """Commit files to the version of the table that is open, or a later one; it is loaded then.

    Raises:
        CommitFailedError: Another writer was first with a change that does not go with it.
        TargetUnreachableError: Its storage failed; the files may be in the table or not.
    """
    location = DeltaLocation.of(target)
    before = TableState.of(table, target)
    for left in reversed(range(COMMIT_TRIES)):
        try:
            commit_version(
                table,
                location,
                add_actions(files),
                transactions=transactions,
                operation="WRITE",
                parameters={"mode": "Append"},
                note=note,
            )
        except CommitFailedError:
            state = TableState.of(refreshed(table, location), target)
            is_same = (state.metadata, state.protocol) == (before.metadata, before.protocol)
            seen = [
                (transaction_version(table, target, each.app_id), each.version)
                for each in transactions
            ]
            is_there = any(there is not None and there >= own for there, own in seen)
            if is_there or not (left and is_same):
                raise
        else:
            break
    return None


def change_properties(table: DeltaTable, target: str, batch: BatchId | None) -> CommitProperties:
    """Build the properties of the commit of a change, beside which nothing may be committed."""
    return CommitProperties(
        app_transactions=_transactions(table, target, batch) or None,
        custom_metadata={**_noted(batch), BLIND_APPEND: False},
        max_commit_retries=0,
    )


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """What the tasks of a batch have written.

    Attributes:
        target: Path or URI of the table.
        files: The files.
        schema: Schema of the rows.
        layout: How the rows became columns of the files; `None`: they were written as they are.
    """

    target: str
    files: Sequence[DataFile]
    schema: pa.Schema
    layout: FileLayout | None

    def prepare(self, table: DeltaTable, rules: WriteRules) -> DeltaTable:
        """Give the table all columns of the batch; remove the files of a refused batch.

        Raises:
            TargetChangedError: The files were written for other columns.
            SchemaMismatchError: The table does not take the columns.
            CommitFailedError: Another writer was first: try again.
        """
        try:
            wanted = layout_for(TableState.of(table, self.target), self.schema, rules)
            if self.files and not (self.layout or plain_layout(self.schema)).serves(wanted):
                remove_files(self.target, self.files)
                raise TargetChangedError(
                    f"The columns of {self.target} changed while a batch was written: its files "
                    "were written for other names, types or partitions. Nothing was committed: "
                    "run again."
                )
            return evolve(table, DeltaLocation.of(self.target), self.schema, rules)
        except CloudFilesError as error:
            if not error.is_retryable:
                remove_files(self.target, self.files)
            raise


def check_same_plan(table: DeltaTable, target: str, batch: BatchId) -> None:
    """Find out whether the batch that the table has is this one, as far as its history reaches.

    Raises:
        CorruptedStateError: It is another one, of another life of the state.
    """
    for entry in table.history():
        note = batch_note(entry, target, batch.app_id)
        if note.get("number") == batch.number:
            if None not in {note.get("plan"), batch.plan} and note["plan"] != batch.plan:
                raise CorruptedStateError(
                    f"{target} has batch {batch.number} of this stream already, but with other "
                    "files: the checkpoint location is older than the table (restored from a "
                    "backup?), and skipping the batch would lose rows. See docs/how-to/recover.md."
                )
            return


def has_batch(
    table: DeltaTable | None, target: str, batch: BatchId, expected: ExpectedBatch | None = None
) -> bool:
    """Tell whether a table already has a batch with this number.

    Args:
        table: The table; `None` where there is none.
        target: Path or URI of the table, for messages.
        batch: The batch.
        expected: The batch that the table has for certain: history before it need not be read.
    """
    if table is None:
        return False
    if batch.replay is not None:
        seen = transaction_version(table, target, batch.own_app_id)
    else:
        since = 0 if expected is None else max(0, expected.record.version)
        seen = newest_known(table, target, batch.app_id, since=since)
    return seen is not None and seen >= batch.number


def check_target(target: str, schema: pa.Schema, rules: WriteRules) -> TableState | None:
    """Find out before the stream starts whether a table can take rows of this schema.

    A table that is to have partition columns or properties is created: its files depend on them.

    Args:
        target: Path or URI of the table.
        schema: Schema of the stream.
        rules: As for `commit_batch`.

    Returns:
        The table; `None` where there is none yet.

    Raises:
        TargetNotDeltaError: There is something else.
        SchemaMismatchError: Its columns do not fit, or its partitioning.
        SinkError: The table has rules for its rows that are not checked here.
    """
    table = open_to_write(target)
    if table is None:
        if not rules.comes_first:
            return None
        table = create_table(target, schema, rules)
    state = TableState.of(table, target)
    rules.check(state)
    layout_for(state, schema, rules)
    return state


def table_state(target: str) -> TableState | None:
    """Return the newest version of a table, as writers need it; `None` where there is no table.

    Raises:
        TargetNotDeltaError: There is something else.
    """
    table = open_to_write(target)
    return None if table is None else TableState.of(table, target)


def add_columns(target: str, schema: pa.Schema, *, widened_bytes: int | None) -> None:
    """Give a table columns, or wider ones, without rows; twice is harmless.

    Args:
        target: Path or URI of the table, which must be there.
        schema: The columns.
        widened_bytes: See `WriteRules`.

    Raises:
        SchemaMismatchError: A column has another type, or the table is too large to be widened.
        SinkError: Other writers committed first at every try, or the table has rules that are not
            checked here.
        TargetUnreachableError: Its storage failed.
    """
    location = DeltaLocation.of(target)
    rules = WriteRules(merge_schema=True, widened_bytes=widened_bytes)
    retried(
        f"{target} could not be given new columns",
        lambda: evolve(load_table(location), location, schema, rules),
    )


def prepared_table(target: str, schema: pa.Schema, rules: WriteRules) -> DeltaTable:
    """Open a table that has, or gets, all columns of a batch; it is created when absent.

    Args:
        target: Path or URI of the table.
        schema: The columns.
        rules: As for `commit_batch`.

    Raises:
        CommitFailedError: Another writer was first: try again.
        SchemaMismatchError: The table does not take the columns.
        SinkError: What else `commit_batch` raises.
    """
    table = open_to_write(target) or create_table(target, schema, rules)
    return evolve(table, DeltaLocation.of(target), schema, rules)


def remove_files(target: str, files: Sequence[DataFile]) -> None:
    """Remove data files that are in no version of the table, nor ever will be.

    Files of the source stay, which were to be registered.
    """
    written = [file.name for file in files if file.source is None]
    if written:
        data_files.remove(DeltaLocation.of(target), written)
