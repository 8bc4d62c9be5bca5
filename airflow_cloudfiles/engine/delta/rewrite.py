"""Replace data files of a table by others.

1. A file is read batch by batch, as the columns the table has by now.
2. What becomes of the rows is written to new files, which no reader sees yet.
3. One commit removes the old files and adds the new ones, unless another writer has removed one of
   the old, or changed the columns: then the commit fails, and the rewriter reads the table again.

Memory holds a batch, and in a cloud the file that is being written, never a table. Killed at
any point, this leaves the table as it was, or as it was to be; files of no version go with
the table's vacuum.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction
from pyspark.sql.types import StructType  # noqa: TC002 - read when the module is

from airflow_cloudfiles.engine.delta import data_files
from airflow_cloudfiles.engine.delta.data_files import (
    DataFile,
    DataFileWriter,
    FileSettings,
    add_action,
)
from airflow_cloudfiles.engine.delta.durability import durable_commit
from airflow_cloudfiles.engine.delta.lineage import BLIND_APPEND
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.read.actions import AddFile
from airflow_cloudfiles.engine.delta.read.log import decoded
from airflow_cloudfiles.engine.delta.read.table_state import (
    TableColumns,
    TableState,
    require_rewritable,
)
from airflow_cloudfiles.engine.errors import SinkError
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

BATCH_ROWS = 64 * 1024
"""Rows that are in memory at once."""
REPLACE_TRIES = 20
"""How often a commit is tried at the newest version while others append."""
_NULLS = "null_count."
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._/=-]+")


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file that a version of a table has.

    Attributes:
        name: Its path in the table's folder, as the table's log has it.
        size: Its bytes.
        nulls: How many nulls each column has, as far as the log has it.
        rows: How many rows, if the log has it.
        partition_values: Of all its rows, as the log has them.
    """

    name: str
    size: int
    rows: int | None
    nulls: dict[str, int]
    partition_values: tuple[tuple[str, str | None], ...] = ()

    def has_only_nulls(self, column: str) -> bool:
        """Tell whether, by the log, a column has no value in this file."""
        return self.rows is not None and self.nulls.get(column) == self.rows


class TableSnapshot:
    """One version of a table, whose files can be read and replaced.

    Args:
        table: The table, loaded.
        location: Where it is.

    Attributes:
        state: What the version says of itself.
        files: Its data files by name.
        columns: Its columns.
        schema: Those that are in its files, in Arrow.
        takes_all: Whether tables with partitions or column mapping are taken.

    Raises:
        SinkError: The table has rules or features with which a file cannot be replaced here.
    """

    takes_all: ClassVar[bool] = False

    def __init__(self, table: DeltaTable, location: DeltaLocation) -> None:
        self.table = table
        self.location = location
        self.refuse_rules()
        self.state = TableState.of(table, location.target)
        self.columns: StructType = self.state.columns
        in_log = self.state.partition_columns
        fields = [each for each in to_arrow(self.columns) if each.name not in in_log]
        self.schema: pa.Schema = pa.schema(fields)
        self.files: dict[str, TableFile] = self._read_files()

    def _read_files(self) -> dict[str, TableFile]:
        with self.location.translate_errors("cannot be read"):
            listed = _listed(self.table)
        found = {each["path"]: _table_file(each) for each in listed}
        self._refuse_names(found)
        return found

    def batches(
        self,
        file: TableFile,
        columns: Sequence[str] | None = None,
        table: StructType | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read a file; columns that it lacks, also inside structs, are null.

        Args:
            file: One of this version's files.
            columns: Only these, in the table's order; `None` for all.
            table: Read it as a table with these columns would; `None` for the table's own.

        Raises:
            SinkError: The file is damaged, or gone.
            TargetUnreachableError: Its storage failed.
        """
        schema = self.schema if table is None else to_arrow(table)
        wanted = pa.schema([each for each in schema if columns is None or each.name in columns])
        state = self.state if table is None else self.state.with_columns(table)
        from airflow_cloudfiles.engine.delta.read.files import (  # noqa: PLC0415 - runs rewrite none
            DataFileReader,
        )

        reader = DataFileReader(TableColumns.of(state), wanted.names, self.location.store())
        for batch in reader.read(AddFile(file.name, file.size)):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=wanted)

    def write(self, rows: Iterable[pa.RecordBatch], settings: FileSettings) -> list[DataFile]:
        """Write rows of these columns to data files that no reader sees yet.

        Args:
            rows: The rows.
            settings: What the files are to be like; with the partition that all rows are of.

        Raises:
            TargetUnreachableError: The storage failed.
        """
        return DataFileWriter(self.location.target, self.schema, settings).write(rows)

    def refuse_rules(self) -> None:
        """Refuse tables whose files must stay, or whose files hold rows that are deleted.

        Raises:
            SinkError: The table is such a one by now.
        """
        target = self.location.target
        state = TableState.of(self.table, target)
        require_rewritable(state, takes_all=self.takes_all)
        if state.is_append_only:
            raise SinkError(
                f"{target} has delta.appendOnly=true: its rows must not change. Set it to false, "
                "or choose another target."
            )
        if "deletionVectors" in (state.protocol.reader_features or []):
            raise SinkError(
                f"{target} has deletion vectors, which are not read here. Remove them with "
                "REORG TABLE ... APPLY (PURGE) and ALTER TABLE ... DROP FEATURE deletionVectors."
            )

    def _refuse_names(self, names: Iterable[str]) -> None:
        """Refuse names that are not what the log writes.

        `deltalake` (1.6), asked to remove `a%20b`, removes `a%2520b`, and its rows are there twice.
        """
        odd = next((name for name in names if not _PLAIN_NAME.fullmatch(name)), None)
        if odd is not None:
            raise SinkError(
                f"{self.location.target} has a data file whose name is not of the form "
                f"part-....parquet ({odd}), so its files are not replaced here. Rewrite the table "
                "once, for instance with OPTIMIZE."
            )

    def require_unchanged(self, files: Iterable[TableFile]) -> None:
        """Look at the newest version: files can be replaced only while it has them.

        Raises:
            CommitFailedError: Another writer has removed one, or changed the columns.
            SinkError: The table has rules by now with which they cannot be replaced.
        """
        self.table.update_incremental()
        self.refuse_rules()  # a deleted row of an old file would come back
        there = names_of(self.table)
        is_gone = any(decoded(each.name) not in there for each in files)
        if is_gone or TableState.of(self.table, self.location.target).columns != self.columns:
            raise CommitFailedError("another writer has removed a file, or changed the columns")


def replace(
    snapshot: TableSnapshot,
    removed: Iterable[TableFile],
    added: Iterable[DataFile],
    note: dict[str, Any],
    *,
    data_change: bool = True,
) -> None:
    """Commit new files in the place of old ones; the columns stay.

    The commit is tried at the newest version only, after a look at its files: `deltalake` (1.6),
    left to try again by itself, removes a file a second time that was compacted meanwhile, and so
    doubles its rows.

    Args:
        snapshot: The version that the old files were read in.
        removed: The old files.
        added: The new files.
        note: Goes into the commit's own metadata; under keys of this package.
        data_change: Whether rows change; otherwise streams that read the table skip the commit.

    Raises:
        CommitFailedError: Another writer has removed an old file, or changed the columns, or was
            first each time. The commit may be there nevertheless, when its answer was lost: look
            at the files.
        DataFileLostError: A new file vanished meanwhile; nothing was committed.
        TargetUnreachableError: The storage failed; the commit may be there or not.
    """
    table = snapshot.table
    old, new = list(removed), list(added)
    data_files.require(snapshot.location, new)
    now_ms = time.time_ns() // 10**6
    actions: list[AddAction | RemoveAction] = [
        *(RemoveAction(each.name, data_change, now_ms, each.size, {}) for each in old),
        *(add_action(each, data_change=data_change) for each in new),
    ]
    for left in reversed(range(REPLACE_TRIES)):
        with durable_commit(snapshot.location, "may not have taken a commit", table) as hooks:
            snapshot.require_unchanged(old)
            try:
                table.create_write_transaction(
                    actions=actions,
                    mode="append",
                    schema=table.schema(),
                    commit_properties=_properties(note),
                    post_commithook_properties=hooks,
                )
            except CommitFailedError:
                if not left:
                    raise
            else:
                return


def replace_all(
    snapshot: TableSnapshot, schema: Schema, added: Iterable[DataFile], note: dict[str, Any]
) -> None:
    """Commit new files, with other columns, in the place of all old ones.

    Nothing else may have been committed since the version that was read: `deltalake` (1.6) would
    let rows of the old columns stay beside the new ones, if it were to try again by itself.

    Raises:
        CommitFailedError: Another writer was first. As for `replace`.
        DataFileLostError: As for `replace`.
        TargetUnreachableError: As for `replace`.
    """
    new = list(added)
    data_files.require(snapshot.location, new)
    table, location = snapshot.table, snapshot.location
    data_files.commit_files(
        table, location, new, _properties(note), mode="overwrite", schema=schema
    )


def _properties(note: Mapping[str, Any]) -> CommitProperties:
    return CommitProperties(custom_metadata={**note, BLIND_APPEND: False}, max_commit_retries=0)


def names_of(table: DeltaTable) -> set[str]:
    """Return the names of a version's data files, both as in the log and as on the storage."""
    paths = pa.table(table.get_add_actions())["path"].to_pylist()
    return {*paths, *map(decoded, paths)}


def _listed(table: DeltaTable) -> list[dict[str, Any]]:
    """List the data files from the log, without bounds: Python cannot hold all of their dates."""
    actions = pa.table(table.get_add_actions(flatten=True))
    wanted = ("path", "size_bytes", "num_records")
    names = enumerate(actions.column_names)  # two columns may have one name
    places = [place for place, each in names if each in wanted or each.startswith(_NULLS)]
    return actions.select(places).to_pylist()  # type: ignore[no-any-return]


def _table_file(action: dict[str, Any]) -> TableFile:
    nulls = {
        key.removeprefix(_NULLS): value
        for key, value in action.items()
        if key.startswith(_NULLS) and value is not None
    }
    return TableFile(action["path"], action["size_bytes"], action["num_records"], nulls)
