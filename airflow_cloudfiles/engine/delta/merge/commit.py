"""Change the rows of a Delta table by a micro-batch.

1. The rows are in files already that no version of the table has (`source_rows`).
2. If the table lacks a batch that it had, this one is refused. If it has seen this batch, the files
   are removed and nothing else happens: `deltalake` (1.6) never compares the number of a
   transaction, so this is checked first.
3. Columns the table lacks are added, as for an append (`delta.commit`).
4. One commit of `deltalake` replaces the data files with rows that change, adds those that are
   inserted, and notes `(application id, batch id)`. It is tried at the next version only: if
   another writer is first, the merge is computed anew, from the table as it is then.
5. The new data files are put on the disk, then the log, then the rows of step 1 are removed.

Killed before 4 is done, nothing has happened. Killed after it, the batch is found at step 2.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.delta import data_files
from airflow_cloudfiles.engine.delta.batch_history import (
    COUNTS,
    counts_of,
    find_again,
    sync_data_files,
)
from airflow_cloudfiles.engine.delta.commit import (
    change_properties,
    check_same_plan,
    commit_batch,
    committed_to,
    has_batch,
    prepared_table,
    remove_files,
    table_state,
)
from airflow_cloudfiles.engine.delta.durability import durable_commit
from airflow_cloudfiles.engine.delta.lineage import check_has
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.merge.misread import (
    names_in,
    refuse_change,
    refuse_misread,
    writer_properties,
)
from airflow_cloudfiles.engine.delta.merge.rule import BoundRule, MergeRule
from airflow_cloudfiles.engine.delta.merge.source_rows import SourceRows, shapes_of
from airflow_cloudfiles.engine.delta.opening import open_to_write
from airflow_cloudfiles.engine.delta.predicates import sql_literal, sql_name
from airflow_cloudfiles.engine.delta.read.table_state import TableState
from airflow_cloudfiles.engine.delta.write.creation import PLAIN_TABLE, NewTable
from airflow_cloudfiles.engine.delta.write.evolve import Evolution, layout_for
from airflow_cloudfiles.engine.delta.write.log_commit import retried, write_unescaped
from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.state.sink_log import BatchId, Committed, Expected

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from airflow_cloudfiles.engine.delta.data_files import DataFile
    from airflow_cloudfiles.engine.delta.write.evolve import WideningRule

SUPERSEDED: Final = "superseded_rows"
MERGED: Final = (*COUNTS, SUPERSEDED)
"""What the result of a merge counts."""
_LAST: Final = "\U0010ffff"
_log = logging.getLogger(__name__)


def merge_batch(  # noqa: PLR0913 - as `commit_batch`
    target: str,
    *,
    rule: MergeRule,
    batch: BatchId | None,
    files: Sequence[DataFile],
    schema: pa.Schema,
    merge_schema: bool,
    widening: WideningRule | None = None,
    expected: Expected | None = None,
    new: NewTable = PLAIN_TABLE,
) -> Committed:
    """Merge a micro-batch into a table, exactly once however often it is called.

    Args:
        target: Path or URI of the table; created when absent.
        rule: How.
        batch: Which micro-batch of which stream; `None` merges without a memory of it.
        files: Files with the rows, in the table's folder but in none of its versions; removed
            unless it is unknown whether the commit has happened.
        schema: Schema of the files.
        merge_schema: As for `commit_batch`.
        widening: As for `commit_batch`.
        expected: As for `commit_batch`.
        new: As for `commit_batch`.

    Returns:
        The version with the batch, and how many rows were inserted, updated and deleted.

    Raises:
        OptionError: The rule does not fit the rows.
        SinkError: Rows of one key, or without a key; or other writers were first at every try.
        CloudFilesError: What else `commit_batch` raises.
    """
    merge = _Merge(DeltaLocation.of(target), rule, batch, files, schema)
    evolution = Evolution(merge_schema=merge_schema, widening=widening, takes_void=new.takes_void)

    def attempt() -> Committed:
        before = None if batch is None else merge.found_before(batch, expected)
        if before is not None:
            return before
        if batch is not None and not files:
            return commit_batch(
                target,
                batch=batch,
                files=files,
                schema=schema,
                merge_schema=merge_schema,
                new=new,
            )
        rows = merge.checked(evolution)
        return merge.committed(prepared_table(target, schema, evolution, new), rows)

    try:
        return retried(f"A batch could not be merged into {target}", attempt)
    except CloudFilesError as error:
        if not error.is_retryable:
            merge.remove_files()
        raise


@dataclass(slots=True)
class _Merge:
    """One batch that is to be merged."""

    location: DeltaLocation
    rule: MergeRule
    batch: BatchId | None
    files: Sequence[DataFile]
    schema: pa.Schema
    rows: SourceRows | None = None

    def remove_files(self) -> None:
        """Remove the rows that were to be merged."""
        remove_files(self.location.target, self.files)

    def found_before(self, batch: BatchId, expected: Expected | None) -> Committed | None:
        """Return the result for a batch that the table has; `None` if it does not have it.

        Raises:
            LostBatchesError: The table lacks the batch that it must have.
        """
        table = open_to_write(self.location.target)
        if expected is not None:
            table = check_has(table, self.location.target, batch.app_id, expected)
        if table is None or not has_batch(table, self.location.target, batch, expected):
            return None
        check_same_plan(table, self.location.target, batch)
        noted = find_again(table, self.location, batch)
        _log.info("Batch %s was merged into %s before", batch.number, self.location.target)
        self.remove_files()
        counts = {} if noted is None else dict(noted.counts)
        version = table.version() if noted is None else noted.version
        return Committed(version, is_new=False, table_id=str(table.metadata().id), counts=counts)

    def checked(self, evolution: Evolution) -> SourceRows | None:
        """Check the rows of the batch before the table is created or gets a column.

        Args:
            evolution: How the table may change for them.

        Returns:
            `None` where there are none.

        Raises:
            OptionError: The rule does not fit the rows.
            SinkError: Rows of one key, or without a key; or the table is not merged into.
            SchemaMismatchError: The columns do not fit, or a value is null where the table has NOT
                NULL.
        """
        if not self.files:
            return None
        state = table_state(self.location.target)
        if state is not None:
            refuse_change(state, "merged into")
        if self.rows is None:  # they are the same at each try
            bound = self.rule.bound_to(self.schema, self.location.target)
            data_files.require(self.location, self.files)
            self.rows = SourceRows(self.location, self.files, self.schema, bound)
        if state is not None and self.rule.writes_some:
            self.rows.require_values(layout_for(state, self.schema, evolution))
        return self.rows

    def committed(self, table: DeltaTable, rows: SourceRows | None) -> Committed:
        """Merge into the table as it is.

        Raises:
            CommitFailedError: Another writer was first.
        """
        if rows is None:
            return committed_to(table, is_new=False)
        state = TableState.of(table, self.location.target)
        refuse_change(state, "merged into")
        data_files.require(self.location, self.files)
        names = names_in(state, self.schema)
        refuse_misread(table, self.location, self.files, names, "merged into")
        write_unescaped(table, self.location)
        crash_point("before-sink-commit")
        with durable_commit(self.location, "may not have taken a merge", table) as hooks:
            metrics = self._merger(table, state, rows, hooks).execute()
            crash_point("after-sink-commit")
            table.update_incremental()
            sync_data_files(self.location, table.version())
        self.remove_files()
        counts = {**counts_of(metrics), SUPERSEDED: rows.superseded}
        return committed_to(table, counts=counts)

    def _merger(
        self,
        table: DeltaTable,
        state: TableState,
        rows: SourceRows,
        hooks: Any,
    ) -> Any:
        bound, rule = rows.rule, rows.rule.rule
        names = names_in(state, self.schema)
        merger = table.merge(
            rows.reader(shapes_of(self.schema, state.columns)),
            " AND ".join(_matching(rows, bound, names)),
            source_alias="s",
            target_alias="t",
            writer_properties=writer_properties(table, self.files),
            commit_properties=change_properties(table, self.location.target, self.batch),
            post_commithook_properties=hooks,
        )
        deletes, newer = sql_name(rows.deletes, "s"), _is_newer(bound, names)
        merger = merger.when_matched_delete(f"{deletes} AND {newer}")
        if rule.when_matched == "delete":
            merger = merger.when_matched_delete(newer)
        values = {sql_name(names[each]): sql_name(each, "s") for each in self.schema.names}
        if rule.when_matched == "update":
            merger = merger.when_matched_update(values, f"NOT {deletes} AND {newer}")
        if rule.when_not_matched == "insert":
            merger = merger.when_not_matched_insert(values, f"NOT {deletes}")
        return merger


def _matching(rows: SourceRows, bound: BoundRule, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the conditions under which a row of the table is the same as one of the batch.

    The bounds of the keys, which follow from the rest, let `deltalake` skip files. It (1.6) skips
    too many where a bound consists of the last character of Unicode; such a bound is left out.
    """
    for name in bound.keys:
        key = sql_name(names[name], "t")
        yield f"{key} = {sql_name(name, 's')}"
        bounds = rows.bounds[name]
        if bounds is not None and not any(_LAST in str(each) for each in bounds):
            yield f"{key} >= {sql_literal(bounds[0])} AND {key} <= {sql_literal(bounds[1])}"


def _is_newer(bound: BoundRule, names: Mapping[str, str]) -> str:
    """Build the condition that a row of the batch is not older than the one in the table."""
    if bound.order_by is None:
        return "true"
    ours, theirs = sql_name(bound.order_by, "s"), sql_name(names[bound.order_by], "t")
    return f"({theirs} IS NULL OR {ours} >= {theirs})"
