"""Create a table for the rows of a stream.

A plain table is created with its first batch. One with partition columns or properties is created
before any task writes: its files depend on what it is. Version 0 is written here: `deltalake` (1.6)
gives tables with column mapping a protocol that its own readers misread, and refuses type widening.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from deltalake.exceptions import CommitFailedError

from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.merge_schema import SOURCE_NAME
from airflow_cloudfiles.engine.delta.opening import load_table
from airflow_cloudfiles.engine.delta.read.actions import Metadata, Protocol
from airflow_cloudfiles.engine.delta.read.columns import check_columns, rows_columns
from airflow_cloudfiles.engine.delta.read.table_state import (
    MODE,
    WIDENING,
    WIDENS,
    TableState,
    features_of_types,
    with_features,
)
from airflow_cloudfiles.engine.delta.write.layout import evolved_state
from airflow_cloudfiles.engine.delta.write.log_commit import write_version
from airflow_cloudfiles.engine.delta.write.rows import can_partition
from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError, StateError
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE
from airflow_cloudfiles.engine.options.sink import BatchWriteOptions, TableOptions
from airflow_cloudfiles.engine.storage.local import make_folders
from airflow_cloudfiles.engine.storage.small_objects import require_conditional_put

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

_NEW = Protocol(1, 2)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """What a table is created with, if there is none.

    Attributes:
        partition_by: Its partition columns, in their order.
        properties: Its properties, as Delta names them.
        takes_void: Whether rows may have columns without a type.
    """

    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    takes_void: bool = False

    @classmethod
    def of(cls, options: TableOptions) -> NewTable:
        """Read what the options of a sink ask for."""
        return cls(
            partition_by=options.partition_by,
            properties=options.properties,
            takes_void=isinstance(options, BatchWriteOptions),
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


PLAIN_TABLE: Final = NewTable()
"""No partition columns, and no properties."""


def create_table(target: str, schema: pa.Schema, new: NewTable) -> DeltaTable:
    """Create an empty table, or open the one that another writer created meanwhile.

    Args:
        target: Path or URI of the table.
        schema: Its columns.
        new: What else it has.

    Raises:
        SchemaMismatchError: No Delta table can have these columns, or be partitioned by these.
        SinkError: Its store has no conditional writes.
        TargetUnreachableError: Its storage failed.
    """
    location = DeltaLocation.of(target)
    check_columns(schema, target, takes_void=new.takes_void)
    columns = rows_columns(schema)
    partition_by = _partition_columns(columns, new, target)
    if location.folder is None:
        _require_conditional_put(location)
    else:
        with location.translate_store_errors("cannot be created"):
            make_folders(os.fsencode(location.folder))
    try:
        _write_first_version(location, columns, partition_by, new)
    except CommitFailedError as error:  # version 0 was written by another writer meanwhile
        _log.info("Another writer has created %s (%s)", target, error)
    table = load_table(location)
    new.check(TableState.of(table, target))
    return table


def _write_first_version(
    location: DeltaLocation, columns: StructType, partition_by: list[str], new: NewTable
) -> None:
    empty = TableState(
        location.target,
        -1,
        Metadata(
            id=str(uuid.uuid4()),
            partition_columns=partition_by,
            configuration=dict(new.properties),
            created_time=time.time_ns() // 10**6,
        ),
        _NEW,
    )
    features = set(features_of_types(columns))
    if new.properties.get(MODE, "none") != "none":
        features.add("columnMapping")
    if new.properties.get(WIDENS) == "true":
        features.add(WIDENING)
    state = evolved_state(with_features(empty, *sorted(features)), columns)
    write_version(
        location,
        0,
        [state.protocol_action(), state.metadata_action()],
        operation="CREATE TABLE",
        parameters={"partitionBy": partition_by, "properties": dict(new.properties)},
    )


def _partition_columns(columns: StructType, new: NewTable, target: str) -> list[str]:
    """Return the partition columns, spelled as the rows have them."""
    found = []
    for name in new.partition_by:
        column = CASE_INSENSITIVE.find(columns, name)
        if column is None or not can_partition(column.dataType):
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
    if found and len(set(found)) != len(new.partition_by):
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
