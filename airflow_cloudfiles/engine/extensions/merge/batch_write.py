"""Make a DataFrame that is written once one version of a Delta table.

Its tasks write data files that nobody sees; one process commits them. An append goes beside
whatever others commit. An overwrite replaces what the table had when the write began: if another
writer has committed since, it fails and nothing is replaced. (`deltalake` (1.6), left to try again
by itself, would keep rows of both.) With `txnAppId` and `txnVersion`, a write that the table has is
skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import CloudFilesError, SinkError, TargetConflictError
from airflow_cloudfiles.engine.extensions.merge.commit import (
    merge_batch,
    names_in,
    refuse_change,
    refuse_misread,
    writer_properties,
)
from airflow_cloudfiles.engine.extensions.merge.source_rows import MergeRule, read_rows
from airflow_cloudfiles.engine.state.sink_log import BatchId, CommitResult
from airflow_cloudfiles.engine.tables.delta import data_files
from airflow_cloudfiles.engine.tables.delta.commit import (
    WrittenFiles,
    change_properties,
    check_target,
    commit_batch,
    committed_to,
    prepared_table,
    remove_files,
    table_state,
)
from airflow_cloudfiles.engine.tables.delta.lineage import sync_data_files, transaction_version
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import durable_commit, open_to_write
from airflow_cloudfiles.engine.tables.delta.predicates import parse_predicate
from airflow_cloudfiles.engine.tables.delta.read.columns import (
    check_columns,
    delta_schema,
    rows_columns,
    schema_of,
)
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableState, require_library
from airflow_cloudfiles.engine.tables.delta.write.evolve import (
    WriteRules,
    create_table,
    layout_for,
)
from airflow_cloudfiles.engine.tables.delta.write.layout import FileLayout
from airflow_cloudfiles.engine.tables.delta.write.log_commit import refreshed, write_unescaped
from airflow_cloudfiles.engine.tables.delta.write.rows import TableWrite, require_values
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from airflow_cloudfiles.engine.options.sink import BatchWriteOptions
    from airflow_cloudfiles.engine.tables.delta.data_files import DataFile

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchWrite:
    """One write of a DataFrame.

    Attributes:
        target: Path or URI of the table.
        options: Of the write.
        overwrites: Whether the mode is `overwrite`.
        version: Version of the table when the write began; -1 when there was none.
        table: The table then.
    """

    target: str
    options: BatchWriteOptions
    overwrites: bool
    version: int
    table: TableState | None = None

    @classmethod
    def begin(
        cls, target: str, options: BatchWriteOptions, schema: pa.Schema, *, overwrites: bool
    ) -> BatchWrite:
        """Note which version of the table a write begins with; one with properties is created.

        Raises:
            SchemaMismatchError: The table does not take the columns.
            SinkError: It has rules for its rows that are not checked here.
        """
        rules = WriteRules.of(options)
        state = table_state(target) if overwrites and options.overwrite_schema else None
        if state is None:
            # A table that is not there yet has no columns to be overwritten.
            options = replace(options, overwrite_schema=False)
            state = check_target(target, schema, rules)
        else:
            rules.check(state)
        if state is not None and options.merge_keys:
            refuse_change(state, "merged into")
        if state is not None and overwrites:
            _refuse_overwrite(state, options)
        return cls(target, options, overwrites, -1 if state is None else state.version, state)

    @property
    def how(self) -> TableWrite:
        """How the tasks write."""
        replaces = self.overwrites and self.options.overwrite_schema
        return TableWrite(
            None if replaces else self.table,
            self.rules,
            target_bytes=self.options.target_file_size,
            is_staged=self.stages,
        )

    @property
    def rules(self) -> WriteRules:
        """How the table may change."""
        return WriteRules.of(self.options)

    @property
    def stages(self) -> bool:
        """Whether the rows are read again to be committed, and their files are in no version."""
        return bool(self.options.merge_keys or self.options.replace_where)

    @property
    def batch(self) -> BatchId | None:
        """Which write it is, if it has a transaction."""
        app_id, number = self.options.txn_app_id, self.options.txn_version
        return None if app_id is None or number is None else BatchId(app_id, number)

    def commit(
        self, files: Sequence[DataFile], schema: pa.Schema, layout: FileLayout | None
    ) -> CommitResult:
        """Make the rows visible.

        Args:
            files: Files with the rows; those that do not become the table's are removed.
            schema: Of the rows.
            layout: How they became columns of the files.

        Raises:
            TargetConflictError: Another writer has committed since an overwrite began.
            CloudFilesError: The table does not take the rows.
        """
        try:
            found = self._skipped(files) or self._committed(files, schema, layout)
        except CloudFilesError as error:
            if self.stages or not error.is_retryable or isinstance(error, TargetConflictError):
                remove_files(self.target, files)
            raise
        if self.stages:
            remove_files(self.target, files)
        return found

    def _skipped(self, files: Sequence[DataFile]) -> CommitResult | None:
        """Return the result of an overwrite that the table already has; `None` for a new one."""
        batch, table = self.batch, open_to_write(self.target)
        if not self.overwrites or table is None or batch is None:
            return None  # appends and merges find out themselves
        seen = transaction_version(table, self.target, batch.app_id)
        if seen is None or seen < batch.number:
            return None
        _log.info("%s has the write %s of %s already", self.target, batch.number, batch.app_id)
        remove_files(self.target, files)
        return committed_to(table, is_new=False)

    def _committed(
        self, files: Sequence[DataFile], schema: pa.Schema, layout: FileLayout | None
    ) -> CommitResult:
        if self.overwrites:
            return self._overwritten(WrittenFiles(self.target, files, schema, layout))
        rule = MergeRule.of(self.options)
        how: dict[str, Any] = {
            "batch": self.batch,
            "files": files,
            "schema": schema,
            "rules": self.rules,
        }
        if rule is not None:
            return merge_batch(self.target, rule=rule, **how)
        return commit_batch(self.target, layout=layout, **how)

    def _prepared(self, written: WrittenFiles) -> DeltaTable:
        """Open the table and give it all columns of the rows; create it when it is absent."""
        if self.stages:
            return prepared_table(self.target, written.schema, self.rules)
        table = open_to_write(self.target) or create_table(self.target, written.schema, self.rules)
        return written.prepare(table, self.rules)

    def _overwritten(self, written: WrittenFiles) -> CommitResult:
        """Replace all rows, or those that `replaceWhere` names."""
        table = open_to_write(self.target)
        if (-1 if table is None else table.version()) != self.version:
            raise self._conflict()
        try:
            if self.options.overwrite_schema and table is not None:
                check_columns(written.schema, self.target, takes_void=True)
                columns = delta_schema(rows_columns(written.schema))
                return self._with_files(table, written.files, schema=columns)
            table = self._prepared(written)
            if self.options.replace_where is not None:
                return self._replaced(table, written, self.options.replace_where)
            return self._with_files(table, written.files)
        except CommitFailedError as error:
            raise self._conflict() from error

    def _replaced(self, table: DeltaTable, written: WrittenFiles, where: str) -> CommitResult:
        files = written.files
        location = DeltaLocation.of(self.target)
        columns = to_arrow(schema_of(table))
        predicate = parse_predicate("replaceWhere", where, columns)
        state = TableState.of(table, self.target)
        names = names_in(state, written.schema)
        data_files.require(location, files)
        self._require_texts(state, written)
        refuse_misread(table, location, files, names, "overwritten with replaceWhere")
        write_unescaped(table, location)
        crash_point("before-sink-commit")
        with durable_commit(location, "may not have taken a commit", table) as hooks:
            write_deltalake(
                table,
                read_rows(location, files, written.schema, names, columns),
                mode="overwrite",
                predicate=predicate.to_sql(),
                writer_properties=writer_properties(table, files),
                commit_properties=change_properties(table, self.target, self.batch),
                post_commithook_properties=hooks,
            )
            crash_point("after-sink-commit")
            table.update_incremental()
            sync_data_files(location, table.version())
        return committed_to(table)

    def _require_texts(self, state: TableState, written: WrittenFiles) -> None:
        """Refuse texts that the table does not take, which the library does not look for."""
        layout = layout_for(state, written.schema, self.rules)
        if layout.checks_texts:
            location, schema = DeltaLocation.of(self.target), written.schema
            own = {name: name for name in schema.names}
            for batch in read_rows(location, written.files, schema, own, schema):
                require_values(batch, layout, self.target, checks_nulls=False)

    def _with_files(
        self, table: DeltaTable, files: Sequence[DataFile], *, schema: Any = None
    ) -> CommitResult:
        location = DeltaLocation.of(self.target)
        data_files.require(location, files)
        crash_point("before-sink-commit")
        with durable_commit(location, "may not have taken a commit", table) as hooks:
            table.create_write_transaction(
                actions=[add_action(file) for file in files],
                mode="overwrite",
                schema=schema or table.schema(),
                partition_by=table.metadata().partition_columns or None,
                commit_properties=change_properties(table, self.target, self.batch),
                post_commithook_properties=hooks,
            )
        crash_point("after-sink-commit")
        return committed_to(refreshed(table, location))

    def _conflict(self) -> TargetConflictError:
        return TargetConflictError(
            f"Another writer has committed to {self.target} since this overwrite began, which "
            "would have removed or kept its rows by chance: nothing was overwritten. Run again."
        )


def add_action(file: DataFile) -> AddAction:
    """Build the action by which `deltalake` adds a data file."""
    return AddAction(
        path=file.name,
        size=file.size,
        partition_values=dict(file.partition_values),
        modification_time=file.modification_time_ms,
        data_change=True,
        stats=file.statistics,
    )


def _refuse_overwrite(state: TableState, options: BatchWriteOptions) -> None:
    """Refuse tables whose rows must stay, or whose files this package does not replace."""
    if options.replace_where is not None:
        refuse_change(state, "overwritten with replaceWhere")
    require_library(state, "overwritten")
    if options.overwrite_schema and (state.partition_columns or state.mode != "none"):
        what = "partition columns" if state.partition_columns else f"column mapping {state.mode}"
        raise SinkError(
            f"overwriteSchema=true cannot replace the columns of {state.target}, which has {what}, "
            "in this version. Overwrite its rows without it, or choose another target."
        )
    if state.is_append_only:
        raise SinkError(
            f"{state.target} has delta.appendOnly=true: its rows must not be overwritten. "
            "Set it to false, append, or choose another target."
        )
