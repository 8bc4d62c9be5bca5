"""How are data files of a table with column mapping replaced by others?

As in `partitioned`. Its files are read as a reader of the table reads them, by physical names or by
ids, and written as its sink writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from deltalake.exceptions import CommitFailedError

from airflow_cloudfiles.engine.delta.data_files import FileSettings
from airflow_cloudfiles.engine.delta.read.columns import physical_name
from airflow_cloudfiles.engine.delta.read.files import DataFileReader, TableColumns
from airflow_cloudfiles.engine.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.delta.rewrite import TableFile
from airflow_cloudfiles.engine.delta.write.evolve import Evolution, layout_for
from airflow_cloudfiles.engine.delta.write.layout import physical_path
from airflow_cloudfiles.engine.delta.write.partitioned import PartitionedSnapshot, table_file
from airflow_cloudfiles.engine.delta.write.rows import write_rows
from airflow_cloudfiles.engine.delta.write.table_state import TableState

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.delta.data_files import DataFile


class MappedSnapshot(PartitionedSnapshot):
    """One version of a table with column mapping, whose files can be read and replaced.

    Its partition values have the physical names of the columns. See `TableSnapshot`.
    """

    takes_mapping: ClassVar[bool] = True

    def _read_files(self) -> dict[str, TableFile]:
        self._state = TableState.of(self.table, self.location.target)
        snapshot = TableLog(self.location).snapshot(self.table.version())
        self._columns = TableColumns.of(snapshot)
        by_name = {each.name: each for each in self._columns.schema.fields}
        partitions = self.partition_columns
        self.schema = self._reader([each for each in by_name if each not in partitions]).schema
        names = [physical_name(by_name[each], self._columns.mode) for each in partitions]
        self._added = {each.path: each for each in snapshot.files}
        return {each.path: table_file(each, names) for each in snapshot.files}

    def _reader(self, names: list[str]) -> DataFileReader:
        return DataFileReader(self._columns, names, self.location.store())

    def _read(self, file: TableFile, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        return self._reader(wanted.names).read(self._added[file.name])

    def write(self, rows: Iterable[pa.RecordBatch], settings: FileSettings) -> list[DataFile]:
        """Write rows to files under physical names; see `TableSnapshot.write`."""
        layout = layout_for(self._state, self.schema, Evolution(merge_schema=False))
        physical = partial(physical_path, self._state.columns, self._state.mode)
        settings = replace(settings, indexed=settings.indexed.renamed(physical))
        # All rows are of one partition, which the settings have.
        layout = replace(layout, partitions=())
        return write_rows(self.location.target, self.schema, rows, layout, settings)

    def require_unchanged(self, files: Iterable[TableFile]) -> None:
        """Look at the newest version; see `TableSnapshot.require_unchanged`."""
        super().require_unchanged(files)
        # A column that was dropped and added again has the same name, and another physical one.
        if TableState.of(self.table, self.location.target).columns != self._state.columns:
            raise CommitFailedError("another writer has changed the columns")
