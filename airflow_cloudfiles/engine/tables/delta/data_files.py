"""Write rows to data files.

A task writes record batches to Parquet files in the table's folder, under names that are not used
yet; in a cloud, a file grows in memory and is uploaded whole. They are invisible until the driver
commits them to the table's log; what a killed task leaves is never read and is removed by the
table's vacuum.
"""

from __future__ import annotations

import io
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cloudfiles.engine.errors import DataFileLostError, TargetNotDeltaError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.options.values import parse_size
from airflow_cloudfiles.engine.storage.base import key_bytes, key_text
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once
from airflow_cloudfiles.engine.storage.local import make_folders, sync_file, sync_folder
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.columns import as_written
from airflow_cloudfiles.engine.tables.delta.statistics import (
    FileStatistics,
    IndexedColumns,
    dictionary_columns,
)

TARGET_FILE_BYTES = 256 * 2**20
"""A data file on a disk is closed when it has grown to about this size."""
CLOUD_FILE_BYTES = 64 * 2**20
"""One in a cloud, which grows in the memory of its task (decision 27)."""
ROW_GROUP_BYTES = 12 * 2**20
"""A row group is written when its rows take about so many bytes in memory."""
SIZE_PROPERTY = "delta.targetFileSize"
_COMPRESSION = "snappy"  # Delta's and Spark's default: what every reader has
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that waits to be committed.

    Attributes:
        name: Its key in the table's folder.
        size: Its bytes.
        rows: How many it has.
        modification_time_ms: When it was finished.
        statistics: What the log says of its columns, as JSON.
        partition_values: By physical name of the partition column; `None` is null.
        source: The file of the source that it is, where that was registered and not copied: it is
            never removed. `None` for a file that was written for the table.
    """

    name: str
    size: int
    rows: int
    modification_time_ms: int
    statistics: str
    partition_values: tuple[tuple[str, str | None], ...] = ()
    source: FileEntry | None = None

    def is_as_written(self, there: FileEntry | None) -> bool:
        """Tell whether it is as it was, by what a store says of it now."""
        if there is None or there.size != self.size:
            return False
        return self.source is None or there.version == self.source.version


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What the data files of a table are to be like.

    Attributes:
        target_bytes: A file is closed when it has grown to about this size; `None` for
            `TARGET_FILE_BYTES` or `CLOUD_FILE_BYTES`. In a cloud, so much is in the memory of a
            task.
        indexed: Which columns have statistics.
        folder: Where in the table they are, with a slash at its end; empty for the table's own.
        partition_values: Of all rows.
    """

    target_bytes: int | None = None
    indexed: IndexedColumns = field(default_factory=IndexedColumns)
    folder: str = ""
    partition_values: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def of(cls, configuration: Mapping[str, str], target_bytes: int | None = None) -> FileSettings:
        """Read the settings from the properties of a table.

        Args:
            configuration: The properties.
            target_bytes: A size that goes before that of the table.
        """
        size = target_bytes or parse_size(configuration.get(SIZE_PROPERTY, ""))
        return cls(size or None, IndexedColumns.of(configuration))


class DataFileWriter:
    """Writes batches of one schema to as many files as their size asks for.

    Args:
        target: Path or URI of the table.
        schema: Of the rows.
        settings: What the files are to be like.
    """

    def __init__(
        self, target: str, schema: pa.Schema, settings: FileSettings | None = None
    ) -> None:
        self._location = DeltaLocation.of(target)
        self._schema = schema
        self._settings = settings or FileSettings()
        self._statistics = FileStatistics(schema, self._settings.indexed)
        self._writer: pq.ParquetWriter | None = None
        self._file: _LocalFile | _CloudFile | None = None
        self.files: list[DataFile] = []

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """Write all batches; without a row no file is written.

        A failure removes what was written, as far as it allows.

        Raises:
            TargetUnreachableError: The place of the table does not answer for the moment.
            TargetAccessError: It refused us.
        """
        try:
            written = (as_written(batch) for batch in batches if batch.num_rows)
            most = min(ROW_GROUP_BYTES, self._target_bytes)
            # Without copying them, so that row groups are large.
            for group in grouped(written, lambda batch: int(batch.nbytes), most):
                with self._location.translate_store_errors("cannot take a data file"):
                    self._open(group[0]).write_table(pa.Table.from_batches(group))
                    for rows in group:
                        self._statistics.add(rows)
                    if self._file is not None and self._file.size() > self._target_bytes:
                        self._close()
                group.clear()  # the next one is made meanwhile
            with self._location.translate_store_errors("cannot take a data file"):
                self._close()
        except BaseException:
            self._discard()
            raise
        return self.files

    def _open(self, rows: pa.RecordBatch) -> pq.ParquetWriter:
        """Return the writer of the current file; open a new file for its first rows."""
        if self._writer is None:
            name = f"{self._settings.folder}part-{uuid.uuid4()}.c000.{_COMPRESSION}.parquet"
            folder = self._location.folder
            self._file = (
                _CloudFile(self._location, name)
                if folder is None
                else _LocalFile(Path(folder), name)
            )
            self._writer = pq.ParquetWriter(
                self._file.sink,
                self._schema,
                compression=_COMPRESSION,
                use_dictionary=dictionary_columns(rows),
            )
        return self._writer

    def _close(self) -> None:
        """Finish the open file, make it durable and note it."""
        if self._writer is None or self._file is None:
            return
        self._writer.close()
        metadata = pq.read_metadata(self._file.sink)
        size = self._file.finish()
        self.files.append(
            DataFile(
                name=self._file.name,
                size=size,
                rows=metadata.num_rows,
                modification_time_ms=time.time_ns() // 10**6,
                statistics=self._statistics.to_json(metadata),
                partition_values=self._settings.partition_values,
            )
        )
        self._writer = self._file = None
        self._statistics = FileStatistics(self._schema, self._settings.indexed)

    @property
    def _target_bytes(self) -> int:
        """The size at which a file is closed."""
        usual = TARGET_FILE_BYTES if self._location.folder is not None else CLOUD_FILE_BYTES
        return self._settings.target_bytes or usual

    def _discard(self) -> None:
        """Remove what a failed write has left; what cannot be removed stays until vacuum."""
        if self._writer is not None:
            self._writer.close()
        names = [file.name for file in self.files]
        remove(self._location, [*names, *([self._file.name] if self._file else [])])
        self._writer = self._file = None


def grouped(items: Iterable[_T], size_of: Callable[[_T], int], most: int) -> Iterator[list[_T]]:
    """Put items together, in groups of at most a size; one that is larger is a group."""
    group: list[_T] = []
    size = 0
    for item in items:
        if group and size + size_of(item) > most:
            yield group
            group, size = [], 0
        group.append(item)
        size += size_of(item)
        if size >= most:
            yield group
            group, size = [], 0
    if group:
        yield group


class _LocalFile:
    """A data file that grows in the table's folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.where = folder / os.fsdecode(key_bytes(name))
        self.sink = key_text(os.fsencode(self.where))  # to Arrow, names are UTF-8
        try:
            self.where.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as failure:
            raise TargetNotDeltaError(
                f"The target {folder} is a file, not a folder. Choose another target."
            ) from failure
        self.name = name
        if self.where.parent != folder:
            make_folders(os.fsencode(self.where.parent))

    def size(self) -> int:
        return self.where.stat().st_size

    def finish(self) -> int:
        """Make it durable; its size."""
        sync_file(os.fsencode(self.where))
        if "/" in self.name:  # the commit puts only the names in the table's folder on the disk
            sync_folder(os.fsencode(self.where.parent))
        return self.where.stat().st_size


class _CloudFile:
    """A data file that grows in memory, and is uploaded with one request."""

    def __init__(self, location: DeltaLocation, name: str) -> None:
        self.name = name
        self.sink = self.where = io.BytesIO()
        self._location = location

    def size(self) -> int:
        return self.where.tell()

    def finish(self) -> int:
        """Upload the file and return its size; it is stored nowhere before, or if that fails."""
        content = self.where.getvalue()
        self._location.store().put(self.name, content)
        return len(content)


def require(location: DeltaLocation, files: Sequence[DataFile]) -> None:
    """Refuse to commit data files that are gone, or are not what was written.

    A vacuum without retention, a rule of the bucket or a person may have removed them, and a
    commit that names a file that is not there breaks the table for all its readers. Costs a HEAD a
    file, several at a time.

    Raises:
        DataFileLostError: One is not as it was written.
        TargetUnreachableError: The place does not answer.
    """
    store = location.store()
    with location.translate_errors("cannot be checked"):
        found = at_once(store, [partial(store.head, file.name) for file in files])
    for file, there in zip(files, found, strict=True):
        if file.is_as_written(there):
            continue
        now = "is gone" if there is None else f"has {there.size}"
        if file.source is not None:
            raise DataFileLostError(
                f"The file {file.name} was to be registered in {location.target} with {file.size} "
                f"bytes and {now} before its commit, or was overwritten. Nothing was committed: "
                "run again. Files of the source must not change once they are there."
            )
        raise DataFileLostError(
            f"The data file {file.name} was written to {location.target} with {file.size} "
            f"bytes and {now} before its commit. Nothing was committed: run again. Find out "
            "what removes files there, such as a vacuum with no retention or a lifecycle rule."
        )


def remove(location: DeltaLocation, names: Iterable[str]) -> None:
    """Remove data files that are in no version of the table.

    One that cannot be removed stays, is never read, and goes with the table's vacuum.
    """
    store = location.store()
    for name in names:
        try:
            store.delete(name)
        except OSError as error:
            _log.warning("%s stays in %s until vacuum: %s", name, location.target, error)


@contextmanager
def opened(location: DeltaLocation, name: str) -> Iterator[pq.ParquetFile]:
    """Open a data file that no version has; in a cloud, it is fetched whole."""
    with location.translate_store_errors(f"has rows that cannot be read ({name})"):
        if location.folder is None:
            source: Any = io.BytesIO(location.store().get(name))
        else:
            source = Path(location.folder, name)
        with pq.ParquetFile(source) as parquet:
            yield parquet


def is_compacted(configuration: Mapping[str, str]) -> bool:
    """Tell whether the properties of a table ask for compacting it after writes."""
    return configuration.get("delta.autoOptimize.autoCompact", "").lower() not in {"", "false"}
