"""Keep `deltalake` (1.6) from misreading rows that it changes, and from writing others.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import ColumnProperties, WriterProperties
from pyspark.sql.types import ArrayType, BinaryType, DataType, DecimalType, MapType, StructType

from airflow_cloudfiles.engine.errors import SinkError, UnsupportedTableError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.reading.opened import StoreFile
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.tables.delta.merge_schema import partners
from airflow_cloudfiles.engine.tables.delta.read.columns import physical_name, rows_columns
from airflow_cloudfiles.engine.tables.delta.read.log import locate
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableState, require_library
from airflow_cloudfiles.engine.tables.delta.statistics import BoundedLeaf, leaves_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from airflow_cloudfiles.engine.tables.delta.data_files import DataFile
    from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
    from airflow_cloudfiles.engine.tables.delta.read.actions import AddFile

_OLDEST: Final = 16
"""So many files are looked at, whenever they were written."""
_MOST: Final = 512
"""So many are looked at of the files that are older than the table."""
_AT_ONCE: Final = 16
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

    with (
        location.translate_errors("has a file that cannot be read"),
        ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="cloudfiles-delta") as pool,
    ):
        found = next(filter(None, pool.map(look, files)), None)
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
