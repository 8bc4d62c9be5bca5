"""How do the rows of a task become data files of a table?

Their columns become the table's (`conform`). Without partition columns they go to one file after
another. With them, rows are kept in memory by partition, up to `BUFFER_BYTES` in all; then the
largest partition is written to a file of its own, and so on. One file is open at a time, however
many partitions a task meets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_cloudfiles.engine.delta import data_files
from airflow_cloudfiles.engine.delta.data_files import DataFile, DataFileWriter, FileSettings
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.staged import STAGED
from airflow_cloudfiles.engine.delta.write.conform import conformed
from airflow_cloudfiles.engine.delta.write.evolve import Evolution, layout_for
from airflow_cloudfiles.engine.delta.write.layout import FileLayout, physical_path
from airflow_cloudfiles.engine.delta.write.partition_values import folder_name, value_text
from airflow_cloudfiles.engine.delta.write.table_state import TableState

BUFFER_BYTES = 128 * 2**20
"""Rows that a task keeps in memory before it writes those of the largest partition."""

Values = tuple[str | None, ...]
_USUAL: Final = FileSettings()


@dataclass(frozen=True, slots=True)
class TableWrite:
    """How the tasks of a batch write its rows to files in the folder of a table.

    Attributes:
        table: The table as it is; `None` where there is none yet.
        evolution: How it may change.
        target_bytes: Size of a file that goes before that of the table's properties.
        is_staged: Whether the rows are read again to be committed: their files are in no version
            of the table, and have the columns of the rows.
    """

    table: TableState | None
    evolution: Evolution
    target_bytes: int | None = None
    is_staged: bool = False

    def layout(self, rows: pa.Schema) -> FileLayout | None:
        """How rows become data files; `None` where they are written as they are.

        Raises:
            SchemaMismatchError: The columns do not fit the table.
        """
        if self.table is None or self.is_staged:
            return None
        return layout_for(self.table, rows, self.evolution)

    @property
    def settings(self) -> FileSettings:
        """What the files are to be like."""
        if self.is_staged:
            return FileSettings(self.target_bytes, folder=STAGED)
        if self.table is None:
            return FileSettings(self.target_bytes)
        found = FileSettings.of(self.table.configuration, self.target_bytes)
        indexed = found.indexed.renamed(partial(physical_path, self.table.columns, self.table.mode))
        return replace(found, indexed=indexed)


def write_rows(
    target: str,
    rows: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    layout: FileLayout | None,
    settings: FileSettings = _USUAL,
) -> list[DataFile]:
    """Write rows to data files nobody sees yet; a failure removes them, as far as it allows.

    Args:
        target: Path or URI of the table.
        rows: Columns of the rows.
        batches: The rows.
        layout: Of the table's files; `None` writes the rows as they are.
        settings: What the files are to be like.

    Raises:
        SchemaMismatchError: A value is null in a column that is NOT NULL.
        TargetUnreachableError: The place of the table does not answer for the moment.
        TargetAccessError: It refused us.
    """
    if layout is None or layout.is_plain(rows):
        return DataFileWriter(target, rows, settings).write(batches)
    if not layout.partitions:
        found = (
            pa.RecordBatch.from_arrays(conformed(batch, layout, target), schema=layout.schema)
            for batch in batches
        )
        return DataFileWriter(target, layout.schema, settings).write(found)
    return _PartitionedWriter(target, layout, settings).write(batches)


@dataclass(slots=True)
class _Buffer:
    """Rows of one partition that are in memory."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0


class _PartitionedWriter:
    """Writes rows to the files of their partitions."""

    def __init__(self, target: str, layout: FileLayout, settings: FileSettings) -> None:
        self._target = target
        self._layout = layout
        self._settings = settings
        self._buffers: dict[Values, _Buffer] = {}
        self._bytes = 0
        self._files: list[DataFile] = []

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """Write all rows; see `write_rows`."""
        try:
            for batch in batches:
                if batch.num_rows:
                    self._add(batch)
                while self._bytes > BUFFER_BYTES:
                    self._flush(max(self._buffers, key=lambda each: self._buffers[each].bytes))
            for values in list(self._buffers):
                self._flush(values)
        except BaseException:
            location = DeltaLocation.of(self._target)
            data_files.remove(location, [file.name for file in self._files])
            raise
        return self._files

    def _add(self, batch: pa.RecordBatch) -> None:
        arrays = conformed(batch, self._layout, self._target)
        kept = pa.RecordBatch.from_arrays(
            [arrays[place] for place in self._layout.places], schema=self._layout.schema
        )
        for values, rows in self._split(arrays, kept):
            buffer = self._buffers.setdefault(values, _Buffer())
            size = max(1, rows.nbytes)
            buffer.batches.append(rows)
            buffer.bytes += size
            self._bytes += size

    def _split(
        self, arrays: list[pa.Array], kept: pa.RecordBatch
    ) -> Iterator[tuple[Values, pa.RecordBatch]]:
        """The rows of each partition; those of one partition keep their order."""
        names = self._layout.partitions
        coded = [None if place is None else _codes(arrays[place]) for _, place in names]
        code = np.zeros(len(kept), np.int64)
        for each in coded:
            if each is not None:
                # Numbered anew each time: products of many columns would not fit.
                code = np.unique(code * (len(each[1]) + 1) + each[0], return_inverse=True)[1]
        order = np.argsort(code, kind="stable")
        starts = np.flatnonzero(np.diff(code[order], prepend=-1))
        ends = [*starts[1:], len(order)]
        for start, end in zip(starts, ends, strict=True):
            rows = order[start:end]
            values = tuple(
                None if each is None else self._text(each[1], int(each[0][rows[0]]), name)
                for each, (name, _) in zip(coded, names, strict=True)
            )
            yield values, kept if len(starts) == 1 else kept.take(pa.array(rows))

    def _text(self, values: pa.Array, code: int, name: str) -> str | None:
        return None if code == len(values) else value_text(values[code], name, self._target)

    def _flush(self, values: Values) -> None:
        buffer = self._buffers.pop(values)
        self._bytes -= buffer.bytes
        names = [name for name, _ in self._layout.partitions]
        settings = replace(
            self._settings,
            folder=folder_name(names, values),
            partition_values=tuple(zip(names, values, strict=True)),
        )
        writer = DataFileWriter(self._target, self._layout.schema, settings)
        table = pa.Table.from_batches(buffer.batches).combine_chunks()
        self._files += writer.write(table.to_batches())


def _codes(array: pa.Array) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], pa.Array]:
    """For each row the number of its value, and the values; null has the number behind them."""
    coded = pc.dictionary_encode(array)
    numbers = coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64), coded.dictionary
