"""How do rows become data files?

A task writes record batches to Parquet files in the table's folder, under names that are not used
yet; in a cloud, a file grows in memory and is uploaded whole. They are invisible until the driver
commits them to the table's log; what a killed task leaves is never read and is removed by the
table's vacuum.
"""

from __future__ import annotations

import io
import json
import logging
import os
import time
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.variant import as_written
from airflow_cloudfiles.engine.errors import DataFileLostError, TargetNotDeltaError

TARGET_FILE_BYTES = 256 * 2**20
"""A data file on a disk is closed when it has grown to about this size."""
CLOUD_FILE_BYTES = 64 * 2**20
"""One in a cloud, which grows in the memory of its task (decision 27)."""
PARALLEL_CHECKS = 16
"""Data files whose existence is checked at once before a commit."""
STATISTICS_COLUMNS = 32
"""Columns with minimum, maximum and null count in the log, as Delta's default."""
_COMPRESSION = "snappy"  # Delta's and Spark's default: what every reader has
_MAX_TEXT = 32
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
"""As Parquet counts days."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that waits to be committed."""

    name: str
    size: int
    rows: int
    modification_time_ms: int
    statistics: str


class DataFileWriter:
    """Writes batches of one schema to as many files as their size asks for."""

    def __init__(self, target: str, schema: pa.Schema) -> None:
        self._location = DeltaLocation.of(target)
        self._schema = schema
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
            for batch in batches:
                if batch.num_rows:
                    with self._location.translate_store_errors("cannot take a data file"):
                        self._open().write_batch(as_written(batch))
                        if self._file is not None and self._file.is_full():
                            self._close()
            with self._location.translate_store_errors("cannot take a data file"):
                self._close()
        except BaseException:
            self._discard()
            raise
        return self.files

    def _open(self) -> pq.ParquetWriter:
        if self._writer is None:
            name = f"part-{uuid.uuid4()}.c000.{_COMPRESSION}.parquet"
            folder = self._location.folder
            self._file = (
                _CloudFile(self._location, name)
                if folder is None
                else _LocalFile(Path(folder), name)
            )
            self._writer = pq.ParquetWriter(
                self._file.where, self._schema, compression=_COMPRESSION
            )
        return self._writer

    def _close(self) -> None:
        """Finish the open file, make it durable and note it."""
        if self._writer is None or self._file is None:
            return
        self._writer.close()
        metadata = pq.read_metadata(self._file.where)
        size = self._file.finish()
        self.files.append(
            DataFile(
                name=self._file.name,
                size=size,
                rows=metadata.num_rows,
                modification_time_ms=time.time_ns() // 10**6,
                statistics=json.dumps(statistics(metadata)),
            )
        )
        self._writer = self._file = None

    def _discard(self) -> None:
        """Remove what a failed write has left; what cannot be removed stays until vacuum."""
        if self._writer is not None:
            self._writer.close()
        names = [file.name for file in self.files]
        remove(self._location, [*names, *([self._file.name] if self._file else [])])
        self._writer = self._file = None


class _LocalFile:
    """A data file that grows in the table's folder."""

    def __init__(self, folder: Path, name: str) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as failure:
            raise TargetNotDeltaError(
                f"The target {folder} is a file, not a folder. Choose another target."
            ) from failure
        self.name = name
        self.where = folder / name

    def is_full(self) -> bool:
        return self.where.stat().st_size > TARGET_FILE_BYTES

    def finish(self) -> int:
        """Make it durable; its size."""
        with self.where.open("rb") as file:
            os.fsync(file.fileno())
        return self.where.stat().st_size


class _CloudFile:
    """A data file that grows in memory, and is uploaded with one request."""

    def __init__(self, location: DeltaLocation, name: str) -> None:
        self.name = name
        self.where = io.BytesIO()
        self._location = location

    def is_full(self) -> bool:
        return self.where.tell() > CLOUD_FILE_BYTES

    def finish(self) -> int:
        """Upload it; its size. Until then, and if that fails, it is nowhere."""
        content = self.where.getvalue()
        self._location.store().put(self.name, content)
        return len(content)


def require(location: DeltaLocation, files: Sequence[DataFile]) -> None:
    """Refuse to commit data files that are gone, or are not what was written.

    A vacuum without retention, a rule of the bucket or a person may have removed them, and a
    commit that names a file that is not there breaks the table for all its readers. Costs a HEAD a
    file, `PARALLEL_CHECKS` at a time.

    Raises:
        DataFileLostError: One is not as it was written.
        TargetUnreachableError: The place does not answer.
    """
    store = location.store()
    with (
        location.translate_errors("cannot be checked"),
        ThreadPoolExecutor(PARALLEL_CHECKS, thread_name_prefix="cloudfiles-data") as pool,
    ):
        found = list(pool.map(lambda file: store.head(file.name), files))
    for file, there in zip(files, found, strict=True):
        if there is None or there.size != file.size:
            now = "is gone" if there is None else f"has {there.size}"
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


def statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Delta's file statistics from a Parquet footer: row count, and bounds of flat columns."""
    found: dict[str, Any] = {"numRecords": metadata.num_rows}
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    flat = [
        index
        for index in range(metadata.num_columns)
        if metadata.schema.column(index).path == metadata.schema.column(index).name
    ]
    for index in flat[:STATISTICS_COLUMNS]:
        name = metadata.schema.column(index).name
        groups = [metadata.row_group(g).column(index) for g in range(metadata.num_row_groups)]
        known = [group.statistics for group in groups if group.is_stats_set]
        if len(known) != len(groups) or not all(each.has_null_count for each in known):
            continue
        nulls[name] = sum(each.null_count for each in known)
        bounded = [each for each in known if each.has_min_max]
        with_values = sum(
            each.null_count < group.num_values for each, group in zip(known, groups, strict=True)
        )
        if len(bounded) != with_values or not bounded:
            continue
        low = _bound(bounded[0], min(each.min_raw for each in bounded))
        high = _bound(bounded[0], max(each.max_raw for each in bounded))
        if low is not None and high is not None:
            lows[name], highs[name] = low, high
    return {**found, "minValues": lows, "maxValues": highs, "nullCount": nulls}


def _bound(like: pq.Statistics, raw: Any) -> object | None:
    """A bound as Delta's JSON holds it; `None` for kinds where a wrong bound would hide rows.

    Long strings, floats (whose bounds leave out NaN), decimals and timestamps are left out, and
    dates that ISO 8601 has no four-digit year for: a reader then opens the file, which is slower
    but never wrong.

    Args:
        like: Of the column, for their type.
        raw: The value as Parquet stores it: for one of its types no Python value is made, since
            Python has no dates beyond the years 1 to 9999.
    """
    kind = like.logical_type.type
    if kind == "DATE":
        is_plain = _FIRST_DAY <= raw <= _LAST_DAY
        return date.fromordinal(_EPOCH + raw).isoformat() if is_plain else None
    if kind == "STRING":
        text = raw.decode(errors="replace")
        return text if len(text) <= _MAX_TEXT and "\ufffd" not in text else None
    is_whole = like.physical_type in {"INT32", "INT64"} and kind in {"INT", "NONE"}
    return raw if is_whole else None
