"""Replace data files of a table by others.

1. A file is read batch by batch, as a reader of the table reads it: as the columns the table has by
   now, by physical names or by ids. Columns of partitions are in the log, and are not read.
2. What becomes of the rows is written to new files, which no reader sees yet.
3. One commit removes the old files and adds the new ones, unless another writer has removed one of
   the old, or changed the columns: then the commit fails, and the rewriter reads the table again.

The commit is our own (`log_commit`), which removes a file under the path that the log has, whatever
characters are in it. `deltalake` (1.6), asked to remove `a%20b`, removes `a%2520b`; and left to try
again by itself, it removes a file that was compacted meanwhile, and so doubles its rows.

Memory holds a batch, and in a cloud the file that is being written, never a table. Killed at
any point, this leaves the table as it was, or as it was to be; files of no version go with
the table's vacuum.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import StructType  # noqa: TC002 - read when the module is

from airflow_cloudfiles.engine.tables.delta import data_files
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.actions import AddFile, DeletionVector
from airflow_cloudfiles.engine.tables.delta.read.columns import physical_name
from airflow_cloudfiles.engine.tables.delta.read.log import decoded
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.tables.delta.read.table_state import (
    VECTORS,
    TableColumns,
    TableState,
    require_library,
    require_rewritable,
)
from airflow_cloudfiles.engine.tables.delta.write.log_commit import add_actions, commit_version
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from numpy.typing import NDArray

    from airflow_cloudfiles.engine.tables.delta.read.files import DataFileReader

REPLACE_TRIES = 20
"""How often a commit is tried at the newest version while others append."""
_NULLS = "null_count."
_ROWS = "num_records"


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file that a version of a table has.

    Attributes:
        name: Its path, as the table's log has it.
        size: Its bytes.
        partition_values: Of all its rows, by physical name of the column.
        vector: Which of its rows are deleted.
    """

    name: str
    size: int
    partition_values: tuple[tuple[str, str | None], ...] = ()
    vector: DeletionVector | None = None


class TableFiles:
    """The data files of one version of a table, which can be read and replaced.

    Args:
        table: The table, loaded.
        location: Where it is.
        what: What is to be done to the table, for errors, as `optimized`.
        takes_all: Whether tables with partitions or column mapping are taken.

    Attributes:
        state: What the version says of itself.
        files: Its data files by name.
        columns: Its columns.
        schema: Those that are in its files, in Arrow.

    Raises:
        SinkError: The table has rules or features with which a file cannot be replaced here.
    """

    def __init__(
        self,
        table: DeltaTable,
        location: DeltaLocation,
        what: str,
        *,
        takes_all: bool = False,
    ) -> None:
        self.table = table
        self.location = location
        self._what = what
        self._takes_all = takes_all
        self.state = self._replaceable()
        self.columns: StructType = self.state.columns
        in_log = self.state.partition_columns
        fields = [each for each in to_arrow(self.columns) if each.name not in in_log]
        self.schema: pa.Schema = pa.schema(fields)
        by_name = {each.name: each for each in self.columns.fields}
        names = [physical_name(by_name[each], self.state.mode) for each in in_log]
        snapshot = TableLog(location).snapshot(self.state.version)
        self.files = {each.path: table_file(each, names) for each in snapshot.files}

    def has_only_nulls(self, file: TableFile, column: str) -> bool:
        """Tell whether, by the log, a column has no value in a file."""
        counts = self._counts.get(decoded(file.name), {})
        rows = counts.get(_ROWS)
        return rows is not None and counts.get(f"{_NULLS}{column}") == rows

    @cached_property
    def _counts(self) -> dict[str, dict[str, Any]]:
        """Rows and nulls by file; not the bounds, as Python cannot hold all of their dates."""
        with self.location.translate_errors("cannot be read"):
            actions = pa.table(self.table.get_add_actions(flatten=True))
        names = enumerate(actions.column_names)  # two columns may have one name
        wanted = [i for i, name in names if name in {"path", _ROWS} or name.startswith(_NULLS)]
        return {decoded(each["path"]): each for each in actions.select(wanted).to_pylist()}

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
        reader = self._reader(state, wanted.names)
        for batch in reader.read(AddFile(file.name, file.size, deletion_vector=file.vector)):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=wanted)

    def deleted(self, file: TableFile) -> NDArray[np.int64]:
        """Read the numbers of the rows that are deleted from a file by its vector, in order.

        Raises:
            SinkError: The vector is damaged, or gone.
            TargetUnreachableError: Its storage failed.
        """
        if file.vector is None:
            return np.empty(0, np.int64)
        with self.location.translate_store_errors(
            f"has a vector that cannot be read ({file.name})"
        ):
            return self._reader(self.state, []).deleted(file.vector)

    def _reader(self, state: TableState, wanted: Sequence[str]) -> DataFileReader:
        from airflow_cloudfiles.engine.tables.delta.read.files import (  # noqa: PLC0415 - runs rewrite none
            DataFileReader,
        )

        return DataFileReader(TableColumns.of(state), wanted, self.location.store())

    def replace(
        self,
        removed: Iterable[TableFile],
        added: Iterable[DataFile],
        note: Mapping[str, Any],
        *,
        operation: str,
        data_change: bool = True,
    ) -> None:
        """Commit new files in the place of old ones; the columns stay.

        The version that is written is the one behind the version whose files were looked at: if
        another writer creates it first, its files are looked at, too.

        Args:
            removed: The old files.
            added: The new files.
            note: Goes into the commit's own metadata; under keys of this package.
            operation: What `DESCRIBE HISTORY` calls it.
            data_change: Whether rows change; otherwise streams that read the table skip the commit.

        Raises:
            CommitFailedError: Another writer has removed an old file, or deleted rows of one, or
                changed the columns, or was first each time.
            DataFileLostError: A new file vanished meanwhile; nothing was committed.
            TargetUnreachableError: The storage failed; the commit may be there or not.
        """
        old, new = list(removed), list(added)
        data_files.require(self.location, new)
        actions = replacement(old, new, data_change=data_change)
        for left in reversed(range(REPLACE_TRIES)):
            with self.location.translate_errors("cannot be read before a commit"):
                self._require_unchanged(old)
            try:
                commit_version(self.table, self.location, actions, operation=operation, note=note)
            except CommitFailedError:
                if not left:
                    raise
            else:
                return

    def replace_all(
        self, changed: TableState, added: Iterable[DataFile], note: Mapping[str, Any]
    ) -> None:
        """Commit new files, with other columns, in the place of all old ones.

        Nothing else may have been committed since the version that was read.

        Raises:
            CommitFailedError: Another writer was first. As for `replace`.
            DataFileLostError: As for `replace`.
            TargetUnreachableError: As for `replace`.
        """
        new = list(added)
        data_files.require(self.location, new)
        commit_version(
            self.table,
            self.location,
            [*changed.actions_after(self.state), *replacement(self.files.values(), new)],
            operation="WRITE",
            parameters={"mode": "Overwrite"},
            note=note,
        )

    def _replaceable(self) -> TableState:
        """Return the table's state; refuse it where its files are not replaced here."""
        state = TableState.of(self.table, self.location.target)
        require_rewritable(state, takes_all=self._takes_all)
        require_library(state, self._what)
        return state

    def _require_unchanged(self, files: Iterable[TableFile]) -> None:
        """Look at the newest version: files can be replaced only while it has them.

        Raises:
            CommitFailedError: Another writer has removed one, or deleted rows of one, or changed
                the columns.
            SinkError: The table has rules by now with which they cannot be replaced.
        """
        self.table.update_incremental()
        state = self._replaceable()
        if VECTORS in state.features:  # a row that was deleted meanwhile would come back
            newest = TableLog(self.location).snapshot(self.table.version())
            there = {(decoded(each.path), each.deletion_vector) for each in newest.files}
        else:
            there = {(name, None) for name in names_of(self.table)}
        is_there = all((decoded(each.name), each.vector) in there for each in files)
        if state.columns != self.columns or not is_there:
            raise CommitFailedError("another writer has changed a file, or the columns")


def replacement(
    removed: Iterable[TableFile], added: Iterable[DataFile], *, data_change: bool = True
) -> list[dict[str, Any]]:
    """Build the actions that put files in the place of others.

    Args:
        removed: The old files.
        added: The new files.
        data_change: Whether rows change, rather than being in other files.
    """
    now_ms = time.time_ns() // 10**6
    removes = (
        {
            "path": each.name,
            "deletionTimestamp": now_ms,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": dict(each.partition_values),
            "size": each.size,
            **({} if each.vector is None else {"deletionVector": _vector_of(each.vector)}),
        }
        for each in removed
    )
    adds = add_actions(added)
    return [
        *({"remove": each} for each in removes),
        *({"add": {**each["add"], "dataChange": data_change}} for each in adds),
    ]


def names_of(table: DeltaTable) -> set[str]:
    """Return the names of a version's data files, both as in the log and as on the storage."""
    paths = pa.table(table.get_add_actions())["path"].to_pylist()
    return {*paths, *map(decoded, paths)}


def _vector_of(vector: DeletionVector) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(vector)
    return {name: value for name, value in fields.items() if value is not None}


def table_file(file: AddFile, names: Sequence[str]) -> TableFile:
    """Convert a file as the log has it to a `TableFile`.

    Args:
        file: The file.
        names: Of its partition values, in the order of the table's partition columns.
    """
    # The protocol has two ways to say null: an empty text is one, too.
    values = tuple((name, file.partition_value(name) or None) for name in names)
    return TableFile(file.path, file.size, values, file.deletion_vector)
