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

`deltalake` (1.6) is kept from misreading rows that it changes, and from writing others:

* Files that were there before the table (CONVERT TO DELTA) may spell columns in another case: it
  reads these as null, and would write the nulls.
* Partition values: it writes the decimal -0.01 as `0.0-1`, which nobody can read, and bytes as
  escapes.

It also writes bounds that hide rows, or that it cannot read itself: of floats without
regard to NaN, of decimals as doubles, of dates beyond the year 9999. So a file that it writes gets
bounds of such a column only where all rows that may get into it come from files that have bounds of
it: the writer of this package leaves them out exactly where they would be wrong (`statistics`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import ColumnProperties, WriterProperties
from pyspark.sql.types import ArrayType, BinaryType, DataType, DecimalType, MapType, StructType

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import CloudFilesError, SinkError, UnsupportedTableError
from airflow_cloudfiles.engine.extensions.merge.source_rows import (
    BoundRule,
    MergeRule,
    SourceRows,
    shapes_of,
)
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.reading.opened import StoreFile
from airflow_cloudfiles.engine.state.sink_log import BatchId, CommitResult, ExpectedBatch
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once
from airflow_cloudfiles.engine.tables.delta import data_files
from airflow_cloudfiles.engine.tables.delta.commit import (
    change_properties,
    check_same_plan,
    commit_batch,
    committed_to,
    has_batch,
    prepared_table,
    remove_files,
    table_state,
)
from airflow_cloudfiles.engine.tables.delta.lineage import (
    SUPERSEDED,
    check_has,
    counts_of,
    find_again,
    sync_data_files,
)
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.merge_schema import partners
from airflow_cloudfiles.engine.tables.delta.opening import durable_commit, open_to_write
from airflow_cloudfiles.engine.tables.delta.predicates import sql_literal, sql_name
from airflow_cloudfiles.engine.tables.delta.read.columns import physical_name, rows_columns
from airflow_cloudfiles.engine.tables.delta.read.log import locate
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableState, require_library
from airflow_cloudfiles.engine.tables.delta.statistics import BoundedLeaf, leaves_of
from airflow_cloudfiles.engine.tables.delta.write.evolve import (
    WriteRules,
    layout_for,
)
from airflow_cloudfiles.engine.tables.delta.write.log_commit import retried, write_unescaped

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from airflow_cloudfiles.engine.tables.delta.data_files import DataFile
    from airflow_cloudfiles.engine.tables.delta.read.actions import AddFile


_LAST: Final = "\U0010ffff"
_log = logging.getLogger(__name__)


def merge_batch(  # noqa: PLR0913 - as `commit_batch`
    target: str,
    *,
    rule: MergeRule,
    batch: BatchId | None,
    files: Sequence[DataFile],
    schema: pa.Schema,
    rules: WriteRules,
    expected: ExpectedBatch | None = None,
) -> CommitResult:
    """Merge a micro-batch into a table, exactly once however often it is called.

    Args:
        target: Path or URI of the table; created when absent.
        rule: How.
        batch: Which micro-batch of which stream; `None` merges without a memory of it.
        files: Files with the rows, in the table's folder but in none of its versions; removed
            unless it is unknown whether the commit has happened.
        schema: Schema of the files.
        rules: As for `commit_batch`.
        expected: As for `commit_batch`.

    Returns:
        The version with the batch, and how many rows were inserted, updated and deleted.

    Raises:
        OptionError: The rule does not fit the rows.
        SinkError: Rows of one key, or without a key; or other writers were first at every try.
        CloudFilesError: What else `commit_batch` raises.
    """
    merge = _Merge(DeltaLocation.of(target), rule, batch, files, schema)

    def attempt() -> CommitResult:
        before = None if batch is None else merge.found_before(batch, expected)
        if before is not None:
            return before
        if batch is not None and not files:
            return commit_batch(target, batch=batch, files=files, schema=schema, rules=rules)
        rows = merge.checked(rules)
        return merge.committed(prepared_table(target, schema, rules), rows)

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

    def found_before(self, batch: BatchId, expected: ExpectedBatch | None) -> CommitResult | None:
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
        return CommitResult(version, is_new=False, table_id=str(table.metadata().id), counts=counts)

    def checked(self, rules: WriteRules) -> SourceRows | None:
        """Check the rows of the batch before the table is created or gets a column.

        Args:
            rules: How the table may change for them.

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
            self.rows.require_values(layout_for(state, self.schema, rules))
        return self.rows

    def committed(self, table: DeltaTable, rows: SourceRows | None) -> CommitResult:
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


_OLDEST: Final = 16
"""So many files are looked at, whenever they were written."""
_MOST: Final = 512
"""So many are looked at of the files that are older than the table."""
_UNREADABLE: Final = (
    pa.ArrowException,
    FileNotFoundError,
    ObjectNotFoundError,
    UnsupportedTableError,
)


def refuse_misread(
    table: DeltaTable,
    location: DeltaLocation,
    rows: Sequence[DataFile],
    names: Mapping[str, str],
    what: str,
) -> None:
    """Look at the rows and at the table, as far as a change of it may go wrong.

    Args:
        table: The table.
        location: Where it is.
        rows: The files with the rows.
        names: The table's name of each column of the rows.
        what: What is to be done to it, as `merged into`.

    Raises:
        SinkError: The library would misread or damage it.
        TargetUnreachableError: The storage failed.
    """
    state, log = TableState.of(table, location.target), TableLog(location)
    files = log.snapshot().files  # of a newer version the merge notices, and is computed anew
    for name in state.partition_columns:
        _refuse_partitions(state, name, files, _least(rows, names, name), what)
    if state.mode != "id":
        created_ms = state.metadata.created_time or 0
        ordered = sorted(files, key=lambda each: each.modification_time)
        before = sum(each.modification_time < created_ms for each in ordered)
        _refuse_spellings(state, log, ordered[: min(max(before, _OLDEST), _MOST)], what)


def _least(rows: Sequence[DataFile], names: Mapping[str, str], name: str) -> list[Any]:
    """Find the least value of a column of the table in each file of the rows."""
    bounds = (json.loads(file.statistics)["minValues"] for file in rows)
    own = [each for each, in_table in names.items() if in_table == name]
    return [least[each] for least in bounds for each in own if each in least]


def _refuse_partitions(
    state: TableState, name: str, files: Iterable[AddFile], least: Iterable[Any], what: str
) -> None:
    column = state.columns[name]
    values = (each.partition_value(physical_name(column, state.mode)) for each in files)
    wrong = None
    if isinstance(column.dataType, BinaryType):
        wrong = "binary values"
    elif isinstance(column.dataType, DecimalType) and column.dataType.scale:
        is_negative = any((each or "").startswith("-") for each in values)
        wrong = "negative decimals" if is_negative or any(each < 0 for each in least) else None
    if wrong is not None:
        raise SinkError(
            f"{state.target} cannot be {what}: it is partitioned by {name}, and the deltalake "
            f"library writes {wrong} as partition values that cannot be read. Append to it, or "
            "choose a table that is partitioned otherwise."
        )


def _refuse_spellings(
    state: TableState, log: TableLog, files: Sequence[AddFile], what: str
) -> None:
    """Look at the columns of files."""
    location = log.location

    def look(file: AddFile) -> tuple[str, str, str] | None:
        try:
            store, key = locate(log.store, file.path, location.target)
            with StoreFile(store, FileEntry(key, file.size, 0)).random_access() as content:
                found = pq.read_schema(content)
        except _UNREADABLE:  # who reads its rows says so
            return None
        pair = next(_misspelt(state.columns, list(found), state.mode), None)
        return None if pair is None else (file.path, *pair)

    with location.translate_errors("has a file that cannot be read"):
        looks = at_once(log.store, [partial(look, file) for file in files])
        found = next(filter(None, looks), None)
    if found is not None:
        path, name, spelled = found
        raise SinkError(
            f"{location.target} cannot be {what}: its data file {path} has {spelled} where the "
            f"table has {name}, which the deltalake library reads as null. Write its files anew "
            f"first: cloudfiles table optimize --target {location.target} --all"
        )


def _misspelt(
    columns: StructType, fields: Sequence[pa.Field], mode: str
) -> Iterator[tuple[str, str]]:
    """Pair the table's names with those of a file that differ only in case, at any depth."""
    by_name = {each.name: each for each in fields}
    for column in columns.fields:
        name = physical_name(column, mode)
        if name in by_name:
            yield from _inside(column.dataType, by_name[name].type, mode)
        else:
            yield from ((name, each) for each in by_name if CASE_INSENSITIVE.same(name, each))


def _inside(kind: DataType, found: pa.DataType, mode: str) -> Iterator[tuple[str, str]]:
    if isinstance(kind, StructType) and pa.types.is_struct(found):
        yield from _misspelt(kind, list(found), mode)
    elif isinstance(kind, ArrayType) and pa.types.is_list(found):
        yield from _inside(kind.elementType, found.value_type, mode)
    elif isinstance(kind, MapType) and pa.types.is_map(found):
        yield from _inside(kind.keyType, found.key_type, mode)
        yield from _inside(kind.valueType, found.item_type, mode)


_EXACT_DIGITS: Final = 15
"""Decimal digits that a double has."""
_MAY_BE_WRONG: Final = (pa.types.is_floating, pa.types.is_date, pa.types.is_timestamp)


def writer_properties(table: DeltaTable, files: Sequence[DataFile] = ()) -> WriterProperties:
    """Choose how `deltalake` writes data files made of a table's files and of more rows.

    Args:
        table: The table.
        files: The files with the rows.
    """
    leaves = leaves_of(pa.schema(table.schema().to_arrow()))
    there = pa.table(table.get_add_actions(flatten=True))
    statistics = [json.loads(file.statistics) for file in files]
    without = []
    for leaf in leaves:
        is_inexact = pa.types.is_decimal(leaf.kind) and leaf.kind.precision > _EXACT_DIGITS
        may_be_wrong = any(is_kind(leaf.kind) for is_kind in _MAY_BE_WRONG)
        if is_inexact or (may_be_wrong and not (_has(there, leaf) and _have(statistics, leaf))):
            without.append(leaf)
    none = ColumnProperties(statistics_enabled="NONE")
    if any(len(leaf.path) > 1 for leaf in without):  # it can name whole columns only
        return WriterProperties(compression="SNAPPY", default_column_properties=none)
    return WriterProperties(
        compression="SNAPPY",
        column_properties={leaf.path[0]: none for leaf in without} or None,
    )


def _has(actions: pa.Table, leaf: BoundedLeaf) -> bool:
    """Tell whether each file of a table has bounds of a column, or only nulls in it."""
    if not actions.num_rows:
        return True
    path = ".".join(leaf.path)
    least, nulls = f"min.{path}", f"null_count.{path}"
    if not {least, nulls} <= set(actions.column_names):
        return False
    is_empty = pc.fill_null(pc.equal(actions[nulls], actions["num_records"]), False)
    return bool(pc.all(pc.or_(actions[least].is_valid(), is_empty)).as_py())


def _have(statistics: Iterable[dict[str, Any]], leaf: BoundedLeaf) -> bool:
    """Tell the same of files that are not in any version."""
    return all(
        _value(each["minValues"], leaf.path) is not None
        or _value(each["nullCount"], leaf.path) == each["numRecords"]
        for each in statistics
    )


def _value(found: Any, path: Sequence[str]) -> Any:
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def refuse_change(state: TableState, what: str) -> None:
    """Refuse tables of which `deltalake` (1.6) changes no rows, or whose rows it misreads.

    Args:
        state: The table.
        what: What is to be done to it, as `merged into`.

    Raises:
        SinkError: The table is such a one.
    """
    require_library(state, what)
    rules = []
    if state.mode != "none" and state.protocol.reader_features is None:
        rules.append("deltalake misreads column mapping of the legacy protocol")
    if state.is_append_only:
        rules.append("it has delta.appendOnly=true")
    if rules:
        raise SinkError(
            f"{state.target} cannot be {what} in this version, because {'; '.join(rules)}. Append "
            "to it, choose another target, or use Delta's own jars."
        )


def names_in(state: TableState, rows: pa.Schema) -> dict[str, str]:
    """Map each column of rows to its name in the table: ignoring case, and through renames.

    A column that the table lacks has its own.
    """
    columns = state.columns
    found = partners(columns, rows_columns(rows))
    return {
        name: name if place is None else columns.fields[place].name
        for name, place in zip(rows.names, found, strict=True)
    }
