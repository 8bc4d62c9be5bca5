"""How does a column of a Delta table get a wider type?

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
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import TableFeatures
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import TimestampNTZType

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.delta import data_files
from airflow_cloudfiles.engine.delta.data_files import DataFile, DataFileWriter
from airflow_cloudfiles.engine.delta.durability import durable_commit
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.merge_schema import MergedSchema
from airflow_cloudfiles.engine.delta.rewrite import TableSnapshot, names_of, replace_all
from airflow_cloudfiles.engine.delta.schema import delta_schema
from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.messages import counted, few
from airflow_cloudfiles.engine.names import dotted
from airflow_cloudfiles.engine.options.sink import TableOptions
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from deltalake import DeltaTable

WIDENING_NOTE = "cloudfilesTypeWidening"
"""Key of what was widened in the commit's own metadata."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WideningRule:
    """Whether and how far a sink may rewrite its table for a wider type.

    Attributes:
        max_bytes: Size of the largest table that is rewritten, in bytes of its data files.
    """

    max_bytes: int = TableOptions().type_widening_max_bytes


def widening_rule(options: TableOptions, *, default: bool) -> WideningRule | None:
    """Whether and how far the options of a sink let it rewrite its table.

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
    snapshot = TableSnapshot(table, location)
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
    snapshot = _with_local_times(snapshot, plan)
    added = _rewritten(snapshot, plan)
    crash_point("before-sink-widening")
    note = {WIDENING_NOTE: {path: f"{old} -> {new}" for path, old, new in changes}}
    try:
        replace_all(snapshot, delta_schema(plan.schema), added, note)
    except CommitFailedError:
        _remove_unless_committed(snapshot, added)
        raise
    crash_point("after-sink-widening")
    _log.warning("%s has the wider types; %s", location.target, counted(len(added), "new file"))


def _with_local_times(snapshot: TableSnapshot, plan: MergedSchema) -> TableSnapshot:
    """The table with the feature that timestamps without a zone need; twice is harmless.

    Giving it is a commit of its own, so other writers' files may be there besides by then.
    """
    table = snapshot.table
    has_it = "timestampNtz" in (table.protocol().writer_features or [])
    if has_it or all(each.want != TimestampNTZType() for each in plan.widened):
        return snapshot
    what = "cannot be given the feature timestampNtz"
    with durable_commit(snapshot.location, what, table) as hooks:
        table.alter.add_feature(
            TableFeatures.TimestampWithoutTimezone,
            allow_protocol_versions_increase=True,
            post_commithook_properties=hooks,
        )
        table.update_incremental()
    newer = TableSnapshot(table, snapshot.location)
    if newer.columns != snapshot.columns:
        raise CommitFailedError("another writer has changed the columns")
    return newer


def _rewritten(snapshot: TableSnapshot, plan: MergedSchema) -> list[DataFile]:
    """All rows of a table in new files, with the wider types."""
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


def _remove_unless_committed(snapshot: TableSnapshot, added: list[DataFile]) -> None:
    """Remove files of a commit that another one came before; its answer may merely be lost."""
    with snapshot.location.translate_errors("cannot be read after a commit"):
        snapshot.table.update_incremental()
        there = names_of(snapshot.table)
    data_files.remove(snapshot.location, [file.name for file in added if file.name not in there])
