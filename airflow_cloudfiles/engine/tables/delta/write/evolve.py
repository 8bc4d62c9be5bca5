"""Give a table the columns and the wider types that a batch brings.

By the outcome of `merge_schema`, in commits of their own before that of the batch; doing it twice
is harmless. Types become wider in the metadata where the table has `delta.enableTypeWidening`, and
otherwise by rewriting the table (`widening`). What is left, columns and types
of the same storage, changes the metadata only.

The version is written here (`log_commit`): `deltalake` adds columns to plain tables only.

A table remembers that a type has become wider.

In the metadata of the column, or of the field of a struct, nearest to it: Delta's feature
`typeWidening`. Readers then cast what older files have.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#type-widening

By rewriting the table, in one commit: the new schema, all rows in new files, none of the old ones.
A table with Delta's feature `typeWidening` needs no rewriting (`write.evolve`); but `deltalake`
(1.6) then reads its rows no more, so the user chooses (decisions 40 and 86).

A reader sees the table before or after. Killed before the commit, nothing has happened; repeated
after it, there is nothing left to do. Another writer that commits meanwhile makes it start anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import DataType, StructField, StructType

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.messages import counted, few
from airflow_cloudfiles.engine.names import dotted
from airflow_cloudfiles.engine.options.sink import TableOptions
from airflow_cloudfiles.engine.tables.delta import data_files
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile, DataFileWriter
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.merge_schema import (
    MergedSchema,
    MergeRules,
    TypeChange,
    merge_schemas,
)
from airflow_cloudfiles.engine.tables.delta.opening import load_table
from airflow_cloudfiles.engine.tables.delta.read.columns import (
    check_columns,
    rows_columns,
)
from airflow_cloudfiles.engine.tables.delta.read.table_state import (
    WIDENS,
    TableState,
    features_of_types,
    require_appendable,
    with_features,
)
from airflow_cloudfiles.engine.tables.delta.write.layout import FileLayout, evolved_state, layout_of
from airflow_cloudfiles.engine.tables.delta.write.log_commit import write_version
from airflow_cloudfiles.engine.tables.delta.write.rewrite import TableFiles, names_of
from airflow_cloudfiles.engine.types import inside_of, to_arrow, with_inside

if TYPE_CHECKING:
    from deltalake import DeltaTable


WIDENING_NOTE = "cloudfilesTypeWidening"
"""Key of what was widened in the commit's own metadata."""


@dataclass(frozen=True, slots=True)
class WideningRule:
    """Whether and how far a sink may rewrite its table for a wider type.

    Attributes:
        max_bytes: Size of the largest table that is rewritten, in bytes of its data files.
    """

    max_bytes: int = TableOptions().type_widening_max_bytes


def widening_rule(options: TableOptions, *, default: bool) -> WideningRule | None:
    """Decide whether and how far the options of a sink let it rewrite its table.

    Args:
        options: Of the sink.
        default: Whether tables are rewritten when the options do not say.
    """
    widens = default if options.type_widening is None else options.type_widening
    return WideningRule(options.type_widening_max_bytes) if widens else None


def widen_table(
    table: DeltaTable, location: DeltaLocation, plan: MergedSchema, rule: WideningRule
) -> None:
    """Rewrite a table with the wider types of a plan, in one commit.

    Raises:
        SchemaMismatchError: The table is larger than the rule allows.
        CommitFailedError: Another writer was first: try again.
        SinkError: The table has rules or features with which it cannot be rewritten here.
        TargetUnreachableError: Its storage failed; the commit may be there or not.
    """
    snapshot = TableFiles(table, location, "given wider types")
    size = sum(file.size for file in snapshot.files.values())
    changes = [
        (dotted(each.path), each.have.simpleString(), each.want.simpleString())
        for each in (*plan.widened, *plan.retyped)
    ]
    widened = few([f"{path} from {old} to {new}" for path, old, new in changes], characters=200)
    if size > rule.max_bytes:
        raise SchemaMismatchError(
            f"{location.target} must be rewritten to widen {widened}, but has {size:,} bytes, more "
            f"than typeWideningMaxBytes={rule.max_bytes:,}. Set typeWideningMaxBytes higher to "
            "have it rewritten all the same (by one process, in one commit), or give the column "
            "the table's type with a schema hint (cloudFiles.schemaHints)."
        )
    _log.warning(
        "Rewriting %s to widen %s: %s, %s",
        location.target,
        widened,
        counted(len(snapshot.files), "file"),
        counted(size, "byte"),
    )
    added = _rewritten(snapshot, plan)
    crash_point("before-sink-widening")
    note = {WIDENING_NOTE: {path: f"{old} -> {new}" for path, old, new in changes}}
    try:
        snapshot.replace_all(_evolved(snapshot.state, plan.schema), added, note)
    except CommitFailedError:
        with location.translate_errors("cannot be read after a commit"):
            table.update_incremental()
            there = names_of(table)
        # The answer to this commit may merely be lost.
        data_files.remove(location, [file.name for file in added if file.name not in there])
        raise
    crash_point("after-sink-widening")
    _log.warning("%s has the wider types; %s", location.target, counted(len(added), "new file"))


def _rewritten(snapshot: TableFiles, plan: MergedSchema) -> list[DataFile]:
    """Write all rows of a table to new files, with the wider types."""
    schema = to_arrow(plan.schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for file in snapshot.files.values():
            for batch in snapshot.batches(file):
                yield batch.cast(schema)

    try:
        return DataFileWriter(snapshot.location.target, schema).write(batches())
    except pa.ArrowException as error:
        raise SinkError(
            f"A value of {snapshot.location.target} does not fit the wider type: {error}. Nothing "
            "has changed. Give the column the table's type with a schema hint "
            "(cloudFiles.schemaHints)."
        ) from error


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """How a table may change for the rows of a stream.

    Attributes:
        merge_schema: Whether columns it lacks are added to it.
        widening: Whether it may be rewritten for a column that has become wider; `None`: no type
            of it becomes wider.
        takes_void: Whether rows may have columns without a type, as those of a batch write may.
    """

    merge_schema: bool
    widening: WideningRule | None = None
    takes_void: bool = False


def merged_with(state: TableState, rows: pa.Schema, evolution: Evolution) -> MergedSchema:
    """Merge the columns of the rows with those of a table.

    Raises:
        SchemaMismatchError: The columns do not fit.
        SinkError: The table has rules for its rows that are not checked here.
    """
    require_appendable(state)
    check_columns(rows, state.target, takes_void=evolution.takes_void)
    rules = MergeRules(
        target=state.target,
        table_id=state.metadata.id,
        merge_schema=evolution.merge_schema,
        widens=evolution.widening is not None,
        adds_void=evolution.takes_void,
    )
    merged = merge_schemas(state.columns, rows_columns(rows), rules)
    if merged.widened and not state.widens_in_metadata:
        _require_rewritable(state, merged)
    return merged


def _require_rewritable(state: TableState, merged: MergedSchema) -> None:
    """Refuse to rewrite tables whose files are not replaced here."""
    why = "is partitioned" if state.partition_columns else "has column mapping"
    if state.partition_columns or state.mode != "none":
        raise SchemaMismatchError(
            f"{state.target} {why}, so it is not rewritten for a wider type: {_named(merged)} in "
            "the stream. Let its types become wider in its metadata (cloudfiles table set-property "
            f"--target {state.target} {WIDENS}=true --apply), or give the column the table's type "
            "with a schema hint (cloudFiles.schemaHints) and `cloudfiles infer --again`."
        )


def layout_for(state: TableState, rows: pa.Schema, evolution: Evolution) -> FileLayout:
    """Plan how rows become data files of a table, as it will be after its evolution.

    Raises:
        SchemaMismatchError: The columns do not fit.
        SinkError: The table has rules for its rows that are not checked here.
    """
    merged = merged_with(state, rows, evolution)
    columns = evolved_state(state, merged.schema).columns
    return layout_of(state, columns, rows, rows_columns(rows))


def evolve(
    table: DeltaTable, location: DeltaLocation, rows: pa.Schema, evolution: Evolution
) -> DeltaTable:
    """Give a table the columns and types that rows need; a table that has them stays.

    Raises:
        SchemaMismatchError: The columns do not fit, or the table is too large to be rewritten.
        CommitFailedError: Another writer was first: try again with the newest version.
        SinkError: The table has rules for its rows that are not checked here.
        TargetUnreachableError: Its storage failed; a commit may be there or not.
    """
    state = TableState.of(table, location.target)
    merged = merged_with(state, rows, evolution)
    if not merged.changes_table:
        return table
    if merged.widened and evolution.widening is not None and not state.widens_in_metadata:
        widen_table(table, location, without_added(merged), evolution.widening)
    else:
        _change_metadata(table, location, state, merged)
    crash_point("after-sink-columns")
    return evolve(load_table(location), location, rows, evolution)


def without_added(merged: MergedSchema) -> MergedSchema:
    """Drop the columns that the table lacks: it is rewritten before it has them."""
    schema = _pruned(merged.schema, set(merged.added), ())
    assert isinstance(schema, StructType)  # noqa: S101 - a struct stays one
    return MergedSchema(schema, [], merged.widened, merged.retyped, merged.cast)


def _pruned(kind: DataType, added: set[tuple[str, ...]], at: tuple[str, ...]) -> DataType:
    found = with_inside(kind, lambda name, each: _pruned(each, added, (*at, name)))
    if isinstance(found, StructType):
        return StructType([each for each in found.fields if (*at, each.name) not in added])
    return found


def _change_metadata(
    table: DeltaTable, location: DeltaLocation, state: TableState, merged: MergedSchema
) -> None:
    """Write a version with other columns and the same files."""
    _log.info("Changing columns of %s: %s", location.target, _named(merged))
    columns = merged.schema
    for change in (*merged.widened, *merged.retyped) if state.widens_in_metadata else ():
        columns, _ = _noted(columns, change.path, change)
    changed = _evolved(state, columns)
    is_more = not (merged.widened or merged.retyped)
    operation = "ADD COLUMNS" if is_more else "CHANGE COLUMNS"
    write_metadata(table, location, state, changed, operation=operation)


def _evolved(state: TableState, columns: StructType) -> TableState:
    """Return the table with other columns, and with the features that their types need."""
    needed = features_of_types(columns) - features_of_types(state.columns)
    changed = evolved_state(state, columns)
    return with_features(changed, *sorted(needed)) if needed else changed


def write_metadata(  # noqa: PLR0913 - both states, and what the history says
    table: DeltaTable | None,
    location: DeltaLocation,
    state: TableState,
    changed: TableState,
    *,
    operation: str,
    parameters: dict[str, Any] | None = None,
) -> int:
    """Write a version with other metadata, and with the protocol where that is another.

    Returns:
        The version.

    Raises:
        CommitFailedError: Another writer was first.
    """
    crash_point("before-sink-metadata")
    write_version(
        location,
        state.version + 1,
        changed.actions_after(state),
        operation=operation,
        parameters=parameters,
        table=table,
    )
    return state.version + 1


def _named(merged: MergedSchema) -> str:
    changes = [str(each) for each in (*merged.widened, *merged.retyped)]
    return ", ".join([*map(dotted, merged.added), *changes])


TYPE_CHANGES: Final = "delta.typeChanges"
"""Key in the metadata of a column: which types it has had."""


def _noted(kind: Any, path: tuple[str, ...], change: TypeChange) -> tuple[Any, bool]:
    """Add the note to a type; also tell whether a field of a struct in it has taken the note."""
    if not path or not inside_of(kind):
        return kind, False
    if isinstance(kind, StructType):
        fields = [
            _noted_field(each, path[1:], change) if each.name == path[0] else each
            for each in kind.fields
        ]
        return StructType(fields), True
    inside, is_taken = _noted(dict(inside_of(kind))[path[0]], path[1:], change)
    return with_inside(kind, lambda name, each: inside if name == path[0] else each), is_taken


def _noted_field(field: StructField, path: tuple[str, ...], change: TypeChange) -> StructField:
    """Add the note to a field, unless a field inside it has taken the note."""
    kind, is_taken = _noted(field.dataType, path, change)
    metadata = dict(field.metadata or {})
    if not is_taken:
        note = {"fromType": change.have.jsonValue(), "toType": change.want.jsonValue()}
        if path:
            note["fieldPath"] = ".".join(path)
        metadata[TYPE_CHANGES] = [*metadata.get(TYPE_CHANGES, []), note]
    return StructField(field.name, kind, field.nullable, metadata)
