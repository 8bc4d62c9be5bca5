"""Create a table for rows, and give it the columns and the wider types that a batch brings.

By the outcome of `merge_schema`, in commits of their own before that of the batch; doing it twice
is harmless. Types become wider in the metadata where the table has `delta.enableTypeWidening`, and
otherwise by rewriting the table. What is left, columns and types of the same storage, changes the
metadata only.

The version is written here (`log_commit`): `deltalake` adds columns to plain tables only.

A table remembers that a type has become wider in the metadata of the column, or of the field of a
struct, nearest to it: Delta's feature `typeWidening`. Readers then cast what older files have.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#type-widening

A table is rewritten in one commit: the new schema, all rows in new files, none of the old ones. One
with Delta's feature `typeWidening` needs no rewriting; but `deltalake`
(1.6) then reads its rows no more, so the user chooses (decisions 40 and 86).

A reader sees the table before or after. Killed before the commit, nothing has happened; repeated
after it, there is nothing left to do. Another writer that commits meanwhile makes it start anew.

A plain table is created with its first batch. One with partition columns or properties is created
before any task writes: its files depend on what it is. Version 0 is written here: `deltalake` (1.6)
gives tables with column mapping a protocol that its own readers misread, and refuses type widening.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructField, StructType

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError, StateError
from airflow_cloudfiles.engine.messages import counted, few
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, dotted
from airflow_cloudfiles.engine.options.sink import BatchWriteOptions, TableOptions
from airflow_cloudfiles.engine.storage.local import make_folders
from airflow_cloudfiles.engine.storage.small_objects import require_conditional_put
from airflow_cloudfiles.engine.tables.delta import data_files
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile, DataFileWriter
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.merge_schema import (
    SOURCE_NAME,
    MergedSchema,
    MergeRules,
    TypeChange,
    merge_schemas,
)
from airflow_cloudfiles.engine.tables.delta.opening import load_table
from airflow_cloudfiles.engine.tables.delta.read.actions import Metadata, Protocol
from airflow_cloudfiles.engine.tables.delta.read.columns import (
    check_columns,
    rows_columns,
)
from airflow_cloudfiles.engine.tables.delta.read.table_state import (
    MODE,
    WIDENING,
    WIDENS,
    TableState,
    features_of_types,
    require_appendable,
    with_features,
)
from airflow_cloudfiles.engine.tables.delta.write.layout import FileLayout, evolved_state, layout_of
from airflow_cloudfiles.engine.tables.delta.write.log_commit import write_version
from airflow_cloudfiles.engine.tables.delta.write.rewrite import TableFiles, names_of
from airflow_cloudfiles.engine.types import VariantType, inside_of, to_arrow, with_inside

if TYPE_CHECKING:
    from deltalake import DeltaTable


WIDENING_NOTE = "cloudfilesTypeWidening"
"""Key of what was widened in the commit's own metadata."""


def widen_table(
    table: DeltaTable, location: DeltaLocation, plan: MergedSchema, most_bytes: int
) -> None:
    """Rewrite a table with the wider types of a plan, in one commit.

    Raises:
        SchemaMismatchError: It is larger than what may be rewritten.
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
    if size > most_bytes:
        raise SchemaMismatchError(
            f"{location.target} must be rewritten to widen {widened}, but has {size:,} bytes, more "
            f"than typeWideningMaxBytes={most_bytes:,}. Set typeWideningMaxBytes higher to "
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


def merged_with(state: TableState, rows: pa.Schema, rules: WriteRules) -> MergedSchema:
    """Merge the columns of the rows with those of a table.

    Raises:
        SchemaMismatchError: The columns do not fit.
        SinkError: The table has rules for its rows that are not checked here.
    """
    require_appendable(state)
    check_columns(rows, state.target, takes_void=rules.takes_void)
    merging = MergeRules(
        target=state.target,
        table_id=state.metadata.id,
        merge_schema=rules.merge_schema,
        widens=rules.widened_bytes is not None,
        adds_void=rules.takes_void,
    )
    merged = merge_schemas(state.columns, rows_columns(rows), merging)
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


def layout_for(state: TableState, rows: pa.Schema, rules: WriteRules) -> FileLayout:
    """Plan how rows become data files of a table, as it will be after its evolution.

    Raises:
        SchemaMismatchError: The columns do not fit.
        SinkError: The table has rules for its rows that are not checked here.
    """
    merged = merged_with(state, rows, rules)
    columns = evolved_state(state, merged.schema).columns
    return layout_of(state, columns, rows, rows_columns(rows))


def evolve(
    table: DeltaTable, location: DeltaLocation, rows: pa.Schema, rules: WriteRules
) -> DeltaTable:
    """Give a table the columns and types that rows need; a table that has them stays.

    Raises:
        SchemaMismatchError: The columns do not fit, or the table is too large to be rewritten.
        CommitFailedError: Another writer was first: try again with the newest version.
        SinkError: The table has rules for its rows that are not checked here.
        TargetUnreachableError: Its storage failed; a commit may be there or not.
    """
    state = TableState.of(table, location.target)
    merged = merged_with(state, rows, rules)
    if not merged.changes_table:
        return table
    if merged.widened and rules.widened_bytes is not None and not state.widens_in_metadata:
        widen_table(table, location, without_added(merged), rules.widened_bytes)
    else:
        _change_metadata(table, location, state, merged)
    crash_point("after-sink-columns")
    return evolve(load_table(location), location, rows, rules)


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


_NEW = Protocol(1, 2)
_NOT_PARTITIONS: Final = (ArrayType, MapType, StructType, VariantType, NullType)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRules:
    """How a table may change for the rows that are written, and is created for them.

    Attributes:
        merge_schema: Whether columns it lacks are added to it.
        widened_bytes: Size of the largest table, in bytes of its data files, that is rewritten for
            a column that has become wider; `None`: no type of a table becomes wider.
        takes_void: Whether rows may have columns without a type, as those of a batch write may.
        partition_by: The partition columns of a new table, in their order.
        properties: Its properties, as Delta names them.
    """

    merge_schema: bool = False
    widened_bytes: int | None = None
    takes_void: bool = False
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, options: TableOptions) -> WriteRules:
        """Read the rules from the options of a sink."""
        return cls(
            merge_schema=options.merge_schema is True,
            widened_bytes=options.type_widening_max_bytes if options.type_widening else None,
            takes_void=isinstance(options, BatchWriteOptions),
            partition_by=options.partition_by,
            properties=options.properties,
        )

    @property
    def comes_first(self) -> bool:
        """Whether the table must be there before its first data file is written."""
        return bool(self.partition_by or self.properties)

    def check(self, state: TableState) -> None:
        """Refuse a table that is partitioned or mapped otherwise.

        Raises:
            SchemaMismatchError: It is.
        """
        key = CASE_INSENSITIVE.key
        asked = list(map(key, self.partition_by))
        by_name = {each.name: each.metadata or {} for each in state.columns.fields}
        fed = [str(by_name[name].get(SOURCE_NAME, name)) for name in state.partition_columns]
        if asked and asked not in (list(map(key, state.partition_columns)), list(map(key, fed))):
            have = ", ".join(state.partition_columns) or "no column"
            raise SchemaMismatchError(
                f"{state.target} is partitioned by {have}, and partitionBy asks for "
                f"{', '.join(self.partition_by)}. The partitioning of a table does not change when "
                "rows are written: leave partitionBy out, or choose another target."
            )
        mode = self.properties.get(MODE, state.mode)
        if mode != state.mode:
            raise SchemaMismatchError(
                f"{state.target} has the column mapping {state.mode}, and {MODE} asks for {mode}. "
                f"Leave the option out, or change the table with: cloudfiles table set-property "
                f"--target {state.target} {MODE}={mode}"
            )


def create_table(target: str, schema: pa.Schema, rules: WriteRules) -> DeltaTable:
    """Create an empty table, or open the one that another writer created meanwhile.

    Args:
        target: Path or URI of the table.
        schema: Its columns.
        rules: What else it has.

    Raises:
        SchemaMismatchError: No Delta table can have these columns, or be partitioned by these.
        SinkError: Its store has no conditional writes.
        TargetUnreachableError: Its storage failed.
    """
    location = DeltaLocation.of(target)
    check_columns(schema, target, takes_void=rules.takes_void)
    columns = rows_columns(schema)
    partition_by = _partition_columns(columns, rules.partition_by, target)
    if location.folder is None:
        _require_conditional_put(location)
    else:
        with location.translate_store_errors("cannot be created"):
            make_folders(os.fsencode(location.folder))
    try:
        _write_first_version(location, columns, partition_by, rules.properties)
    except CommitFailedError as error:  # version 0 was written by another writer meanwhile
        _log.info("Another writer has created %s (%s)", target, error)
    table = load_table(location)
    rules.check(TableState.of(table, target))
    return table


def _write_first_version(
    location: DeltaLocation,
    columns: StructType,
    partition_by: list[str],
    properties: Mapping[str, str],
) -> None:
    empty = TableState(
        location.target,
        -1,
        Metadata(
            id=str(uuid.uuid4()),
            partition_columns=partition_by,
            configuration=dict(properties),
            created_time=time.time_ns() // 10**6,
        ),
        _NEW,
    )
    features = set(features_of_types(columns))
    if properties.get(MODE, "none") != "none":
        features.add("columnMapping")
    if properties.get(WIDENS) == "true":
        features.add(WIDENING)
    state = evolved_state(with_features(empty, *sorted(features)), columns)
    write_version(
        location,
        0,
        [state.protocol_action(), state.metadata_action()],
        operation="CREATE TABLE",
        parameters={"partitionBy": partition_by, "properties": dict(properties)},
    )


def _partition_columns(columns: StructType, wanted: Sequence[str], target: str) -> list[str]:
    """Return the partition columns, spelled as the rows have them."""
    found = []
    for name in wanted:
        column = CASE_INSENSITIVE.find(columns, name)
        if column is None or isinstance(column.dataType, _NOT_PARTITIONS):
            why = (
                f"the stream has no column {name}"
                if column is None
                else f"column {name} is {column.dataType.simpleString()}"
            )
            raise SchemaMismatchError(
                f"{target} cannot be partitioned by {name}: {why}. Give partitionBy columns of the "
                "stream that are neither nested nor VARIANT (cloudFiles.partitionColumns makes "
                "columns of folders)."
            )
        found.append(column.name)
    if found and len(set(found)) != len(wanted):
        raise SchemaMismatchError(f"partitionBy names a column twice: {', '.join(found)}.")
    if found and len(found) == len(columns.fields):
        raise SchemaMismatchError(
            f"{target} cannot be partitioned by all of its columns. Leave one out of partitionBy."
        )
    return found


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
