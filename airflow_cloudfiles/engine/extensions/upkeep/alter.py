"""Rename, drop, add and relax columns of a table, and set its properties.

By a version that changes the metadata only: no file is read or written. Renaming and dropping need
column mapping, by which files keep the names that they were written with. A renamed column keeps
the name under which rows bring its values (`SOURCE_NAME`), in the table itself: every stream that
feeds it, wherever it runs, goes on without a change.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import DataType, StructField, StructType

from airflow_cloudfiles.engine.errors import OptionError, SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, dotted
from airflow_cloudfiles.engine.schema.ddl import ColumnDefinition, parse_columns
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.merge_schema import SOURCE_NAME
from airflow_cloudfiles.engine.tables.delta.opening import open_existing
from airflow_cloudfiles.engine.tables.delta.read.columns import ID, PHYSICAL_NAME, without_internals
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.tables.delta.read.table_state import (
    MAX_ID,
    MODE,
    WIDENING,
    WIDENS,
    TableState,
    features_of_types,
    require_appendable,
    with_features,
)
from airflow_cloudfiles.engine.tables.delta.write.evolve import write_metadata
from airflow_cloudfiles.engine.tables.delta.write.layout import evolved_state
from airflow_cloudfiles.engine.tables.delta.write.log_commit import retried
from airflow_cloudfiles.engine.types import as_nullable, inside_of, simple_ddl, with_inside

if TYPE_CHECKING:
    from deltalake import DeltaTable

PROPERTIES: Final = frozenset(
    {
        MODE,
        WIDENS,
        "delta.appendOnly",
        "delta.checkpointInterval",
        "delta.dataSkippingNumIndexedCols",
        "delta.dataSkippingStatsColumns",
        "delta.deletedFileRetentionDuration",
        "delta.enableExpiredLogCleanup",
        "delta.logRetentionDuration",
        "delta.setTransactionRetentionDuration",
        "delta.targetFileSize",
    }
)
"""Delta's properties that can be set here; those of users, without `delta.`, all can."""
_BOOLEANS: Final = frozenset({WIDENS, "delta.appendOnly", "delta.enableExpiredLogCleanup"})

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a change amounts to.

    Attributes:
        target: The table.
        version: The version that has it; `None` for a dry run, or where nothing is to change.
        before: The columns before, as DDL.
        after: The columns after it.
        features: Table features that it adds; readers and writers must know them from then on.
        properties: Properties that it sets.
    """

    target: str
    version: int | None
    before: str
    after: str
    features: tuple[str, ...] = ()
    properties: Mapping[str, str] | None = None


def rename_column(target: str, column: str, name: str, *, dry_run: bool = False) -> TableChange:
    """Rename a column, or a field inside one, as a change of the metadata.

    Streams that feed the column under its old name keep doing so.

    Args:
        target: Path or URI of the table.
        column: Which, as `a`, `a.b`, or `a.element.b` inside of an array.
        name: Its new name, without the path.
        dry_run: Only find out what would change.

    Raises:
        SchemaMismatchError: There is no such column, or the new name is taken.
        SinkError: The table has no column mapping, or rules that name the column.
    """
    path = _path(column)

    def renamed(state: TableState) -> TableState:
        _require_mapping(state, "renamed")
        old = _spelled(state, path)
        columns = _changed(state.columns, old, lambda each: [_renamed(each, name)])
        found = evolved_state(state, columns)
        if len(old) > 1:
            return found
        partitions = [name if each == old[0] else each for each in state.partition_columns]
        return found.changed(partition_columns=partitions)

    return _alter(target, renamed, "RENAME COLUMN", {"oldColumnPath": column, "newName": name},
                  dry_run=dry_run)  # fmt: skip


def drop_column(target: str, column: str, *, dry_run: bool = False) -> TableChange:
    """Drop a column, or a field inside one, as a change of the metadata; files keep its values.

    A stream that still brings the column adds it again, empty, if it has `mergeSchema`.

    Args:
        target: Path or URI of the table.
        column: As for `rename_column`.
        dry_run: Only find out what would change.

    Raises:
        SchemaMismatchError: There is no such column, or the table is partitioned by it, or has no
            other.
        SinkError: The table has no column mapping, or rules that name the column.
    """
    path = _path(column)

    def dropped(state: TableState) -> TableState:
        _require_mapping(state, "dropped")
        old = _spelled(state, path)
        if old[0] in state.partition_columns:
            raise SchemaMismatchError(
                f"{target} is partitioned by {old[0]}, which cannot be dropped. Write the rows to "
                "another table."
            )
        return evolved_state(state, _changed(state.columns, old, lambda _: []))

    return _alter(target, dropped, "DROP COLUMNS", {"columns": column}, dry_run=dry_run)


def add_column(target: str, column: str, *, dry_run: bool = False) -> TableChange:
    """Add a column, or a field to a struct, at the end; its rows so far have null there.

    Args:
        target: Path or URI of the table.
        column: Its path and type, as in `discount DECIMAL(10,2)` or `address.zip STRING`.
        dry_run: Only find out what would change.

    Raises:
        SchemaMismatchError: The column exists already, or would not be inside a struct.
        SchemaHintError: The text is not a column.
    """
    new = _one_column(column)
    kind = as_nullable(new.data_type)

    def added(state: TableState) -> TableState:
        require_appendable(state)
        field = StructField(new.path[-1], kind)
        if len(new.path) == 1:
            _refuse_taken(state.columns, field.name, ())
            columns = StructType([*state.columns.fields, field])
        else:
            parent = _spelled(state, new.path[:-1])
            columns = _changed(state.columns, parent, lambda each: [_with_field(each, field)])
        missing = features_of_types(kind) - features_of_types(state.columns)
        return evolved_state(with_features(state, *sorted(missing)) if missing else state, columns)

    return _alter(target, added, "ADD COLUMNS", {"columns": column}, dry_run=dry_run)


def drop_not_null(target: str, column: str, *, dry_run: bool = False) -> TableChange:
    """Let a column be null, or a field inside one, as a change of the metadata.

    It repairs a table with an empty text in a partition column that is NOT NULL: to Delta the text
    is null, and `deltalake` (1.6) opens no such table.

    Args:
        target: Path or URI of the table.
        column: Which, as `a`, `a.b`, or `a.element.b` inside of an array.
        dry_run: Only find out what would change.

    Raises:
        SchemaMismatchError: There is no such column.
        SinkError: The table has rules that are not checked here.
    """
    path = _path(column)

    def relaxed(state: TableState) -> TableState:
        require_appendable(state)
        columns = _changed(
            state.columns,
            _spelled(state, path),
            lambda each: [StructField(each.name, each.dataType, True, each.metadata)],
        )
        return state.with_columns(columns)

    def read(location: DeltaLocation) -> tuple[None, TableState]:
        return None, TableState.at(TableLog(location).snapshot())

    return _alter(target, relaxed, "CHANGE COLUMN", {"column": column, "nullable": True},
                  dry_run=dry_run, read=read)  # fmt: skip


def set_properties(
    target: str, properties: Mapping[str, str], *, dry_run: bool = False
) -> TableChange:
    """Set properties of a table, and the table features that they need.

    `delta.columnMapping.mode` may become `name` where it was `none`: columns keep the names that
    files have them under. `delta.enableTypeWidening` may be set and unset.

    Args:
        target: Path or URI of the table.
        properties: By the names that Delta gives them; names without `delta.` are the user's.
        dry_run: Only find out what would change.

    Raises:
        OptionError: A property, or its value, cannot be set here.
        SinkError: The table has features that are not supported.
    """
    _check_properties(properties)

    def changed(state: TableState) -> TableState:
        require_appendable(state)
        found = state.changed(configuration={**state.configuration, **properties})
        if properties.get(WIDENS) == "true":
            found = with_features(found, WIDENING)
        mode = properties.get(MODE, state.mode)
        if mode == state.mode:
            return found
        if (state.mode, mode) != ("none", "name"):
            raise OptionError(
                f"{MODE} of {target} is {state.mode}, and cannot become {mode}: only none can "
                "become name without rewriting the table."
            )
        return _mapped_by_name(with_features(found, "columnMapping"))

    return _alter(target, changed, "SET TBLPROPERTIES", {"properties": dict(properties)},
                  dry_run=dry_run)  # fmt: skip


def _opened(location: DeltaLocation) -> tuple[DeltaTable, TableState]:
    table = open_existing(location.target)
    return table, TableState.of(table, location.target)


def _alter(  # noqa: PLR0913 - what a change is, and what the history says
    target: str,
    change: Callable[[TableState], TableState],
    operation: str,
    parameters: Mapping[str, object],
    *,
    dry_run: bool,
    read: Callable[[DeltaLocation], tuple[DeltaTable | None, TableState]] = _opened,
) -> TableChange:
    """Make a change at the newest version, as often as another writer is faster."""
    location = DeltaLocation.of(target)

    def attempt() -> TableChange:
        table, state = read(location)
        changed = change(state)
        found = _report(state, changed)
        is_same = changed.changed(schema_string="") == state.changed(schema_string="")
        if dry_run or (is_same and changed.columns == state.columns):
            return found
        version = write_metadata(
            table, location, state, changed, operation=operation, parameters=dict(parameters)
        )
        return replace(found, version=version)

    return retried(f"{target} could not be changed", attempt)


def _report(state: TableState, changed: TableState) -> TableChange:
    set_here = {
        key: value
        for key, value in changed.configuration.items()
        if state.configuration.get(key) != value and key != MAX_ID
    }
    return TableChange(
        target=state.target,
        version=None,
        before=_ddl(state),
        after=_ddl(changed),
        features=tuple(sorted(changed.features - state.features)),
        properties=set_here,
    )


def _ddl(state: TableState) -> str:
    return simple_ddl(without_internals(state.columns))


def _path(column: str) -> Path:
    """Parse the parts of a path as users write it."""
    return _one_column(f"{column} STRING").path


def _one_column(text: str) -> ColumnDefinition:
    found = parse_columns(text)
    if len(found) != 1:
        raise OptionError(f"{text!r} names {len(found)} columns. Give one at a time.")
    return found[0]


def _require_mapping(state: TableState, what: str) -> None:
    """Refuse tables whose files have columns under the names of the table."""
    require_appendable(state)
    if state.mode == "none":
        raise SinkError(
            f"Columns of {state.target} cannot be {what}: it has no column mapping, so its files "
            "have columns under the names of the table. Give it column mapping first, which "
            "readers of it must know: cloudfiles table set-property --target "
            f"{state.target} {MODE}=name --apply"
        )


def _spelled(state: TableState, path: Path) -> Path:
    """Spell a path as the table does.

    Raises:
        SchemaMismatchError: There is no such column.
    """
    found: list[str] = []
    kind: DataType = state.columns
    for name in path:
        inner = _inside(kind, name)
        if inner is None:
            raise SchemaMismatchError(
                f"{state.target} has no column {dotted(path)}. Its columns are: {_ddl(state)}"
            )
        spelled, kind = inner
        found.append(spelled)
    return tuple(found)


def _inside(kind: DataType, name: str) -> tuple[str, DataType] | None:
    """Find what a name means inside a type: the table's spelling of it, and its type."""
    if isinstance(kind, StructType):
        field = CASE_INSENSITIVE.find(kind, name)
        return None if field is None else (field.name, field.dataType)
    return next((each for each in inside_of(kind) if each[0] == name), None)


def _walk(
    kind: DataType, path: Path, change: Callable[[StructField], list[StructField]], at: Path
) -> DataType:
    name, rest = path[0], path[1:]
    if isinstance(kind, StructType):
        return _changed(kind, path, change, at)
    inside = _inside(kind, name)
    assert inside is not None  # noqa: S101 - the path was found in this type
    if rest:
        inner = _walk(inside[1], rest, change, (*at, name))
    else:
        # Elements, keys and values are no fields: they only lead to them.
        changed = change(StructField(name, inside[1]))
        if [each.name for each in changed] != [name]:
            raise SchemaMismatchError(
                f"{dotted((*at, name))} is not a column of its own. Name a column, or a field of a "
                "struct."
            )
        inner = changed[0].dataType
    return with_inside(kind, lambda step, each: inner if step == name else each)


def _changed(
    kind: StructType, path: Path, change: Callable[[StructField], list[StructField]], at: Path = ()
) -> StructType:
    """Replace one of the columns by others."""
    name, rest = path[0], path[1:]
    fields: list[StructField] = []
    for each in kind.fields:
        if each.name != name:
            fields.append(each)
        elif rest:
            inner = _walk(each.dataType, rest, change, (*at, name))
            fields.append(StructField(each.name, inner, each.nullable, each.metadata))
        else:
            others = StructType([other for other in kind.fields if other is not each])
            for new in change(each):
                _refuse_taken(others, new.name, at)
                fields.append(new)
    if not fields:
        raise SchemaMismatchError(
            f"Column {dotted((*at, name))} is the only one there, and cannot be dropped."
        )
    return StructType(fields)


def _renamed(field: StructField, name: str) -> StructField:
    metadata = {SOURCE_NAME: field.name, **(field.metadata or {})}
    return StructField(name, field.dataType, field.nullable, metadata)


def _with_field(parent: StructField, field: StructField) -> StructField:
    if not isinstance(parent.dataType, StructType):
        raise SchemaMismatchError(
            f"{parent.name} is {parent.dataType.simpleString()}, so {field.name} cannot be added "
            "inside of it. Name a struct (a.element for the elements of an array)."
        )
    _refuse_taken(parent.dataType, field.name, (parent.name,))
    kind = StructType([*parent.dataType.fields, field])
    return StructField(parent.name, kind, parent.nullable, parent.metadata)


def _refuse_taken(columns: StructType, name: str, at: Path) -> None:
    if not name or CASE_INSENSITIVE.find(columns, name) is not None:
        raise SchemaMismatchError(
            f"There is a column {dotted((*at, name))} already. Choose another name."
        )


def _mapped_by_name(state: TableState) -> TableState:
    """Give the table column mapping; its files have columns under their present names."""
    numbers = itertools.count(1)

    def mapped(_: str, kind: DataType) -> DataType:
        if not isinstance(kind, StructType):
            return with_inside(kind, mapped)
        return StructType([field(each) for each in kind.fields])

    def field(each: StructField) -> StructField:
        metadata = {**(each.metadata or {}), ID: next(numbers), PHYSICAL_NAME: each.name}
        return StructField(each.name, mapped("", each.dataType), each.nullable, metadata)

    columns = StructType([field(each) for each in state.columns.fields])
    return state.with_columns(columns, **{MAX_ID: str(next(numbers) - 1)})


def _check_properties(properties: Mapping[str, str]) -> None:
    if not properties:
        raise OptionError("No property is given. Write them as delta.appendOnly=true.")
    for key, value in properties.items():
        if key.startswith("delta.") and key not in PROPERTIES:
            raise OptionError(
                f"The table property {key} cannot be set here. Those that can are: "
                f"{', '.join(sorted(PROPERTIES))}, and any without delta. at its beginning."
            )
        if key in _BOOLEANS and value not in {"true", "false"}:
            raise OptionError(f"{key} must be true or false, got {value!r}.")
        if key == MODE and value not in {"none", "name", "id"}:
            raise OptionError(f"{key} must be none, name or id, got {value!r}.")
