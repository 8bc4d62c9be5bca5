"""Replace data files of a table with partitions or column mapping by others.

As in `rewrite`, but by our own reader of the log and our own commit (`write.log_commit`): a file is
removed under the path that the log has, whatever characters are in the values of its partition.
(`deltalake` (1.6), asked to remove `a%20b`, removes `a%2520b`.) Only columns that are in the files
are read and written; those of the partition are in the log. Files are read as a reader of the table
reads them, by physical names or by ids, and written as its sink writes them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from deltalake.exceptions import CommitFailedError

from airflow_cloudfiles.engine.delta import data_files
from airflow_cloudfiles.engine.delta.data_files import FileSettings
from airflow_cloudfiles.engine.delta.read.actions import AddFile
from airflow_cloudfiles.engine.delta.read.columns import physical_name
from airflow_cloudfiles.engine.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.delta.read.table_state import TableState, require_library
from airflow_cloudfiles.engine.delta.rewrite import REPLACE_TRIES, TableFile, TableSnapshot
from airflow_cloudfiles.engine.delta.write.evolve import Evolution, layout_for
from airflow_cloudfiles.engine.delta.write.layout import physical_path
from airflow_cloudfiles.engine.delta.write.log_commit import add_actions, commit_version
from airflow_cloudfiles.engine.delta.write.rows import write_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.delta.data_files import DataFile

_OPERATION: Final = "OPTIMIZE"


class PartitionedSnapshot(TableSnapshot):
    """One version of any table, whose files can be read and replaced.

    Its files have the paths of the log as names, and its partition values have the physical names
    of the columns. See `TableSnapshot`.
    """

    takes_all: ClassVar[bool] = True

    def _read_files(self) -> dict[str, TableFile]:
        mode = self.state.mode
        by_name = {each.name: each for each in self.columns.fields}
        names = [physical_name(by_name[each], mode) for each in self.state.partition_columns]
        snapshot = TableLog(self.location).snapshot(self.table.version())
        return {each.path: table_file(each, names) for each in snapshot.files}

    def write(self, rows: Iterable[pa.RecordBatch], settings: FileSettings) -> list[DataFile]:
        """Write rows to files under physical names; see `TableSnapshot.write`."""
        layout = layout_for(self.state, self.schema, Evolution(merge_schema=False))
        physical = partial(physical_path, self.columns, self.state.mode)
        settings = replace(settings, indexed=settings.indexed.renamed(physical))
        # All rows are of one partition, which the settings have.
        layout = replace(layout, partitions=())
        return write_rows(self.location.target, self.schema, rows, layout, settings)

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
        try:
            commit_version(table, location, actions, operation=_OPERATION, note=note)
        except CommitFailedError:
            if not left:
                raise
        else:
            return


def remove_action(file: TableFile, now_ms: int, *, data_change: bool) -> dict[str, Any]:
    """Build the action that removes a file from the table.

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
    """Convert a file as the log has it to a `TableFile`.

    Args:
        file: The file.
        names: Of its partition values, in the order of the table's partition columns.
    """
    # The protocol has two ways to say null: an empty text is one, too.
    values = tuple((name, file.partition_value(name) or None) for name in names)
    return TableFile(file.path, file.size, None, {}, values)
