"""Replace the rows that a file had by those that it has now.

In the commit that adds the new rows, where the table has a column with the URI of the file that a
row came from (`cloudFiles.metadataColumns`):

1. Data files with such rows are found, first by their bounds, then by the column itself.
2. Their other rows are written to new files, which no reader sees yet. Or, if the table is to have
   deletion vectors, the numbers of such rows are, and the data files stay.
3. One commit removes the old files, adds the new ones and those of the batch, and notes the batch.
   It is the version behind the one that was read: if another writer was first, all begins anew.

Of a replayed file that gives the batch no row the former rows stay: it may be missing, damaged, or
another version by now, as the options ignore it. Of a stream that follows its files
(`cloudFiles.onOverwrite=replace`, `cloudFiles.onDelete=delete`), they stay only where a task has
left out the newer version: it is gone, or has been overwritten in turn.

Killed before the commit, nothing has happened; files of no version go with the table's vacuum.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import StringType, StructType

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import SinkError
from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.intake.opening import root_of
from airflow_cloudfiles.engine.messages import counted, few
from airflow_cloudfiles.engine.names import dotted
from airflow_cloudfiles.engine.reading.file_columns import file_path
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.state.plan_log import PREFIX as PLANS
from airflow_cloudfiles.engine.tables.delta import data_files
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile, FileSettings
from airflow_cloudfiles.engine.tables.delta.lineage import REPLACED
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.log import decoded
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableState
from airflow_cloudfiles.engine.tables.delta.write import deletion_vectors
from airflow_cloudfiles.engine.tables.delta.write.layout import physical_path
from airflow_cloudfiles.engine.tables.delta.write.log_commit import commit_version
from airflow_cloudfiles.engine.tables.delta.write.rewrite import TableFile, TableFiles, replacement
from airflow_cloudfiles.engine.tables.delta.write.rows import write_again

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import Transaction

    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.tables.delta.read.deletion_vectors import Rows

_BATCH_ROWS: Final = 64 * 1024
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FormerRows:
    """The rows that the files of a micro-batch had.

    Attributes:
        column: Where a row has the URI of its file: a path of names.
        files: The URIs, as that column has them.
        need_rows: Whether rows stay whose file gives the batch none.
    """

    column: tuple[str, ...]
    files: frozenset[str]
    need_rows: bool = True


def replaced_by(
    state: ObjectStore,
    source: str,
    batch: int,
    left_out: Collection[tuple[int, int]],
) -> tuple[FormerRows, ...]:
    """Find which rows the commit of a micro-batch replaces.

    Args:
        state: The checkpoint location, of a stream with operations on files.
        source: The source, as the state names it.
        batch: Number of the batch, which is that of its plan.
        left_out: Files that its tasks have left out, each by its entry and its index there.
    """
    plan = NumberedLog(state, PLANS, is_packed=True).find(batch)
    if plan is None:
        return ()
    start, end = Offset.from_json(plan.header["start"]), Offset.from_json(plan.header["end"])
    log, root = FileLog(state), root_of(source)
    excluded = log.operations.excluded(start.entry)
    found: dict[tuple[tuple[str, ...], bool], set[str]] = {}
    for each in log.operations.after(start.entry - 1):
        if each.number > end.entry or not each.path_column:
            continue
        first = start.index if each.number == start.entry else 0
        last = end.index if each.number == end.entry else None
        out = excluded.get(each.number, ())
        files = log.read(each.number).files[first:last]
        stay = left_out if each.action == "replace" else ()
        names = {
            file_path(root, file.path)
            for index, file in enumerate(files, first)
            if index not in out and (each.number, index) not in stay
        }
        found.setdefault((each.path_column, each.action == "replay"), set()).update(names)
    return tuple(
        FormerRows(column, frozenset(files), need_rows)
        for (column, need_rows), files in found.items()
        if files
    )


def is_path_column(columns: StructType, column: Sequence[str]) -> bool:
    """Tell whether a table has a column that can hold the URI of a file."""
    kind: Any = columns
    for name in column:
        if not isinstance(kind, StructType) or name not in kind.names:
            return False
        kind = kind[name].dataType
    return isinstance(kind, StringType)


def require_rows(table: DeltaTable, target: str, former: FormerRows) -> None:
    """Refuse a table in which the rows of files cannot be found and replaced.

    Args:
        table: The table.
        target: Its path or URI.
        former: The rows.

    Raises:
        SinkError: Its rows must not change, or are not changed here; or a file has no row in it.
    """
    snapshot = _snapshot(table, target, former)
    there: set[str] = set()
    for file in _suspects(snapshot, former):
        for values in _values(snapshot, file, former):
            there |= former.files & set(pc.unique(values).to_pylist())
    missing = sorted(former.files - there)
    if missing:
        raise SinkError(
            f"{target} has no row of which column {dotted(former.column)} says that it came from "
            f"{few(missing)}: the file was ingested before the table had that column, or it has no "
            "rows there. So its former rows cannot be replaced. Delete them yourself if there are "
            "any, and then replay the file with append (--append), which replaces none."
        )


def refuse_former(former: Sequence[FormerRows], target: str, why: str) -> NoReturn:
    """Refuse to commit a batch whose rows would have to replace others.

    Raises:
        SinkError: Always.
    """
    files = sorted(name for each in former for name in each.files)
    raise SinkError(
        f"The former rows of {few(files)} cannot be replaced in {target}, because {why}. Leave "
        "these files out with `cloudfiles file skip`, and replay them with --append."
    )


def replace_former(  # noqa: PLR0913 - as `append_files`
    table: DeltaTable,
    target: str,
    files: Sequence[DataFile],
    *,
    former: Sequence[FormerRows],
    transactions: Sequence[Transaction],
    note: Mapping[str, Any],
) -> dict[str, int]:
    """Commit files, and remove the rows that they replace, in one version.

    Args:
        table: The version of the table that is read.
        target: Its path or URI.
        files: The new files.
        former: The rows that are removed.
        transactions: Of the commit.
        note: For the commit's own metadata.

    Returns:
        How many rows were removed.

    Raises:
        CommitFailedError: Another writer was first.
        SinkError: The table keeps no path of the files any more, or its rows must not change.
        TargetUnreachableError: Its storage failed; the commit may be there or not.
    """
    location = DeltaLocation.of(target)
    former = _with_new_rows(TableState.of(table, target), location, files, former)
    found = _without(table, target, former)
    crash_point("after-kept-rows")
    data_files.require(location, found.kept)
    crash_point("before-sink-commit")
    try:
        commit_version(
            table,
            location,
            [*replacement(found.removed, [*found.kept, *files]), *found.marked],
            transactions=transactions,
            operation="WRITE",
            parameters={"mode": "Overwrite", "predicate": _predicate(former)},
            note=note,
            reads_rows=True,
        )
    except CommitFailedError:
        data_files.remove(location, [*(each.name for each in found.kept), *found.vectors])
        raise
    _log.info(
        "Replaced %s of %s of %s",
        counted(found.rows, "row"),
        counted(len(found.removed), "data file"),
        target,
    )
    return {REPLACED: found.rows}


def _with_new_rows(
    state: TableState,
    location: DeltaLocation,
    files: Sequence[DataFile],
    former: Sequence[FormerRows],
) -> list[FormerRows]:
    """Leave out the replayed files of which a batch has no row."""
    found = []
    for each in former:
        if not each.need_rows:
            found.append(each)
            continue
        column = physical_path(state.columns, state.mode, each.column)
        there: set[str] = set()
        for file in files:
            with data_files.opened(location, file.name) as parquet:
                if column[0] in parquet.schema_arrow.names:
                    for batch in parquet.iter_batches(_BATCH_ROWS, columns=[column[0]]):
                        there.update(pc.unique(_at(batch, column)).to_pylist())
        if missing := sorted(each.files - there):
            _log.warning(
                "%s gave no rows, so their former rows in %s stay", few(missing), location.target
            )
        found.append(replace(each, files=each.files & there))
    return [each for each in found if each.files]


@dataclass(slots=True)
class _RowRemoval:
    """What a commit has in the place of data files with former rows.

    Attributes:
        removed: The old files.
        kept: New ones with their other rows.
        marked: Actions that add old files again, with vectors of their former rows.
        vectors: Names of the files that these are in.
        rows: How many rows are not there any more.
    """

    removed: list[TableFile]
    kept: list[DataFile] = field(default_factory=list)
    marked: list[dict[str, Any]] = field(default_factory=list)
    vectors: list[str] = field(default_factory=list)
    rows: int = 0


def _without(table: DeltaTable, target: str, former: Sequence[FormerRows]) -> _RowRemoval:
    """Write the other rows of the files that have such rows, or vectors of such rows."""
    files: dict[str, TableFile] = {}
    counts: dict[str, int] = {}
    gone: dict[str, Rows] = {}
    snapshot: TableFiles | None = None
    for each in former:
        snapshot = _snapshot(table, target, each)
        for file in _suspects(snapshot, each):
            numbers, count = _numbers_of(snapshot, file, each)
            if len(numbers):
                files[file.name], counts[file.name] = file, count
                gone[file.name] = np.union1d(gone.get(file.name, numbers), numbers)
    found = _RowRemoval([*files.values()], rows=sum(map(len, gone.values())))
    parts = [file for name, file in files.items() if len(gone[name]) < counts[name]]
    if snapshot is None or not parts:
        return found
    if deletion_vectors.takes_vectors(snapshot.state):
        parts = _mark(snapshot, parts, gone, counts, found)
    settings = FileSettings.of(table.metadata().configuration)
    for file in parts:
        others = _other_rows(snapshot, file, gone[file.name])
        found.kept += write_again(snapshot, others, settings, file.partition_values)
    return found


def _mark(
    snapshot: TableFiles,
    files: Sequence[TableFile],
    gone: Mapping[str, Rows],
    counts: Mapping[str, int],
    found: _RowRemoval,
) -> list[TableFile]:
    """Write vectors of the former rows of files; gives the files for which that is not possible."""
    location, version = snapshot.location, snapshot.state.version
    adds = deletion_vectors.adds_of(location, version, {each.name for each in files})
    deleted = {}
    for file in files:
        if file.name in adds:
            before = snapshot.deleted(file)
            count = counts[file.name] + len(before)
            there = np.delete(np.arange(count), before)
            deleted[file.name] = np.union1d(before, there[gone[file.name]]), count
    if deleted:
        with location.translate_store_errors("cannot be written (deletion vectors)"):
            vectors, found.marked = deletion_vectors.marked(location, adds, deleted)
        found.vectors.append(vectors)
    return [file for file in files if file.name not in deleted]


def _numbers_of(snapshot: TableFiles, file: TableFile, former: FormerRows) -> tuple[Rows, int]:
    """Give the numbers of the rows of a data file that are removed, and how many rows it has.

    Raises:
        SinkError: It is not known of a row from which file it came.
    """
    found, count = [np.empty(0, np.int64)], 0
    for values in _values(snapshot, file, former):
        is_former = _is_in(values, former).to_numpy(zero_copy_only=False)
        found.append(np.flatnonzero(is_former) + count)
        count += len(values)
        if values.null_count and not former.need_rows:
            _refuse_unknown(snapshot.location.target, file, former)
    return np.concatenate(found), count


def _refuse_unknown(target: str, file: TableFile, former: FormerRows) -> NoReturn:
    """Refuse a table with rows of which nothing says from which file they came.

    Raises:
        SinkError: Always.
    """
    raise SinkError(
        f"{target} has rows, such as those in {file.name}, whose column {dotted(former.column)} is "
        "null, so it is not known from which files they came, and whether rows of "
        f"{few(sorted(former.files))} are among them. A table that follows its files needs the "
        "column from its first row on: fill it, or start the stream over into a new table."
    )


def _other_rows(snapshot: TableFiles, file: TableFile, gone: Rows) -> Iterator[pa.RecordBatch]:
    """Read a data file without some rows, by their numbers."""
    begin = 0
    for batch in snapshot.batches(file):
        stays = np.isin(np.arange(begin, begin + batch.num_rows), gone, invert=True)
        begin += batch.num_rows
        if stays.any():
            yield batch.filter(pa.array(stays))


def _snapshot(table: DeltaTable, target: str, former: FormerRows) -> TableFiles:
    """Open a version of a table, whose rows are found by a column.

    Raises:
        SinkError: Its rows are not changed here, or it has no such column.
    """
    what = "changed by a replay of files"
    snapshot = TableFiles(table, DeltaLocation.of(target), what, takes_all=True)
    is_in_files = former.column[0] in snapshot.schema.names
    if not is_in_files or not is_path_column(snapshot.columns, former.column):
        raise SinkError(
            f"{target} has no text column {dotted(former.column)} in its data files, by which the "
            "former rows of files that are replayed are found. Put the column back; or leave these "
            "files out with `cloudfiles file skip`, and replay them with --append once their "
            "former rows are deleted."
        )
    return snapshot


def _suspects(snapshot: TableFiles, former: FormerRows) -> list[TableFile]:
    """Find the data files that may have rows of the former files, by their bounds.

    A file with a null, and one whose nulls are not counted, is among them.
    """
    bounds = {} if snapshot.state.mode != "none" else _bounds(snapshot.table, former.column)
    names = sorted(former.files)

    def may_have(file: TableFile) -> bool:
        found = bounds.get(decoded(file.name))
        place = 0 if found is None else bisect_left(names, found[0])
        return found is None or (place < len(names) and names[place] <= found[1])

    return [file for file in snapshot.files.values() if may_have(file)]


def _bounds(table: DeltaTable, column: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Read the least and the greatest value of a column without nulls, by data file."""
    actions = pa.table(table.get_add_actions(flatten=True))
    path = ".".join(column)
    names = ("path", f"min.{path}", f"max.{path}", f"null_count.{path}")
    if any(actions.column_names.count(name) != 1 for name in names):
        return {}
    values = zip(*(actions[name].to_pylist() for name in names), strict=True)
    return {
        decoded(name): (least, most)
        for name, least, most, nulls in values
        if least is not None and most is not None and nulls == 0
    }


def _values(snapshot: TableFiles, file: TableFile, former: FormerRows) -> Iterable[pa.Array]:
    for batch in snapshot.batches(file, [former.column[0]]):
        yield _at(batch, former.column)


def _at(batch: pa.RecordBatch, column: Sequence[str]) -> pa.Array:
    found = batch.column(column[0])
    return pc.struct_field(found, column[1:]) if column[1:] else found


def _is_in(values: pa.Array, former: FormerRows) -> pa.Array:
    return pc.is_in(values, value_set=pa.array(sorted(former.files), values.type))


def _predicate(former: Sequence[FormerRows]) -> str:
    """Describe the removed rows for the table's history."""
    return " OR ".join(
        f"{dotted(each.column)} IN ({few([repr(name) for name in sorted(each.files)])})"
        for each in former
    )
