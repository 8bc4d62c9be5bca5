"""How are data files of a partitioned table replaced by others?

As in `rewrite`, but by our own reader of the log and our own commit (`write.log_commit`): a file is
removed under the path that the log has, whatever characters are in the values of its partition.
(`deltalake` (1.6), asked to remove `a%20b`, removes `a%2520b`.) Only columns that are in the files
are read and written; those of the partition are in the log.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from airflow_cloudfiles.engine.delta import data_files
from airflow_cloudfiles.engine.delta.read.actions import AddFile
from airflow_cloudfiles.engine.delta.read.paths import locate
from airflow_cloudfiles.engine.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.delta.rewrite import REPLACE_TRIES, TableFile, TableSnapshot
from airflow_cloudfiles.engine.delta.write.features import require_library
from airflow_cloudfiles.engine.delta.write.log_commit import (
    add_actions,
    checkpoint_when_due,
    write_version,
)
from airflow_cloudfiles.engine.delta.write.table_state import TableState
from airflow_cloudfiles.engine.errors import TargetCorruptedError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.reading.opened import StoreFile
from airflow_cloudfiles.engine.storage import ObjectNotFoundError

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.delta.data_files import DataFile

_OPERATION: Final = "OPTIMIZE"


class PartitionedSnapshot(TableSnapshot):
    """One version of a partitioned table, whose files can be read and replaced.

    Its files have the paths of the log as names. See `TableSnapshot`.
    """

    takes_partitions: ClassVar[bool] = True

    def _read_files(self) -> dict[str, TableFile]:
        names = self.partition_columns
        self.schema = pa.schema([each for each in self.schema if each.name not in names])
        snapshot = TableLog(self.location).snapshot(self.table.version())
        return {each.path: table_file(each, names) for each in snapshot.files}

    @property
    def partition_columns(self) -> Sequence[str]:
        """Names of the columns whose values are in the log."""
        return self.table.metadata().partition_columns

    @contextmanager
    def _opened(self, file: TableFile) -> Iterator[IO[bytes] | pa.NativeFile]:
        store, key = locate(self.location.store(), file.name, self.location.target)
        entry = FileEntry(key, file.size, 0)
        try:
            with StoreFile(store, entry).random_access() as content:
                yield content
        except (ObjectNotFoundError, FileNotFoundError) as error:
            raise TargetCorruptedError(
                f"The file {file.name} of the Delta table {self.location.target} is gone, perhaps "
                "vacuumed. Restore it, or the table to an earlier version."
            ) from error

    def refuse_rules(self) -> None:
        """Refuse tables with rules or features that are not known here.

        Raises:
            SinkError: The table has such ones by now.
        """
        super().refuse_rules()
        require_library(TableState.of(self.table, self.location.target), "optimized")


def replace_partitioned(
    snapshot: PartitionedSnapshot,
    removed: Iterable[TableFile],
    added: Iterable[DataFile],
    note: dict[str, Any],
) -> None:
    """Commit new files in the place of old ones, whose rows they have; see `rewrite.replace`.

    The version that is written is the one behind the version whose files were looked at: if another
    writer creates it first, its files are looked at, too.

    Args:
        snapshot: The version that the old files were read in.
        removed: The old files.
        added: The new files.
        note: Goes into the commit's own metadata; under keys of this package.

    Raises:
        CommitFailedError: Another writer has removed an old file, or changed the columns, or was
            first each time.
        DataFileLostError: A new file vanished meanwhile; nothing was committed.
        TargetUnreachableError: The storage failed; the commit may be there or not.
    """
    table, location = snapshot.table, snapshot.location
    old, new = list(removed), list(added)
    data_files.require(location, new)
    now_ms = time.time_ns() // 10**6
    actions = [
        *(remove_action(each, now_ms, data_change=False) for each in old),
        *({"add": {**each["add"], "dataChange": False}} for each in add_actions(new)),
    ]
    for left in reversed(range(REPLACE_TRIES)):
        with location.translate_errors("cannot be read before a commit"):
            snapshot.require_unchanged(old)
        version = table.version() + 1
        try:
            write_version(location, version, actions, operation=_OPERATION, note=note, table=table)
        except CommitFailedError:
            if not left:
                raise
        else:
            with location.translate_errors("cannot be read after a commit"):
                table.update_incremental()
            if table.version() == version:  # a later version is for its writer to checkpoint
                checkpoint_when_due(table)
            return


def remove_action(file: TableFile, now_ms: int, *, data_change: bool) -> dict[str, Any]:
    """That a file is no part of the table any more.

    Args:
        file: The file.
        now_ms: The time, in milliseconds since 1970.
        data_change: Whether its rows are gone, rather than in other files.
    """
    return {
        "remove": {
            "path": file.name,
            "deletionTimestamp": now_ms,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": dict(file.partition_values),
            "size": file.size,
        }
    }


def table_file(file: AddFile, names: Sequence[str]) -> TableFile:
    """A file as the log has it.

    Args:
        file: The file.
        names: Of its partition values, in the order of the table's partition columns.
    """
    # The protocol has two ways to say null: an empty text is one, too.
    values = tuple((name, file.partition_values.get(name) or None) for name in names)
    return TableFile(file.path, file.size, None, {}, values)
