"""How do rows become data files?

A task writes record batches to Parquet files in the table's folder, under names nobody has used.
They are invisible until the driver commits them to the table's log; what a killed task leaves is
never read and is removed by the table's vacuum.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

TARGET_FILE_BYTES = 256 * 2**20
"""A data file is closed when it has grown to about this size."""
STATISTICS_COLUMNS = 32
"""Columns with minimum, maximum and null count in the log, as Delta's default."""
_COMPRESSION = "snappy"  # Delta's and Spark's default: what every reader has
_MAX_TEXT = 32


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

    def __init__(self, folder: str, schema: pa.Schema) -> None:
        self._folder = Path(folder)
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None
        self._path: Path | None = None
        self.files: list[DataFile] = []

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """Write all batches; without a row no file is written."""
        try:
            for batch in batches:
                if batch.num_rows:
                    self._open().write_batch(batch)
                    if self._path is not None and self._path.stat().st_size > TARGET_FILE_BYTES:
                        self._close()
        except BaseException:
            self._discard()
            raise
        self._close()
        return self.files

    def _open(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path = self._folder / f"part-{uuid.uuid4()}.c000.{_COMPRESSION}.parquet"
            self._writer = pq.ParquetWriter(self._path, self._schema, compression=_COMPRESSION)
        return self._writer

    def _close(self) -> None:
        """Finish the open file, make it durable and note it."""
        if self._writer is None or self._path is None:
            return
        self._writer.close()
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
        metadata = pq.read_metadata(self._path)
        status = self._path.stat()
        self.files.append(
            DataFile(
                name=self._path.name,
                size=status.st_size,
                rows=metadata.num_rows,
                modification_time_ms=status.st_mtime_ns // 10**6,
                statistics=json.dumps(statistics(metadata)),
            )
        )
        self._writer = self._path = None

    def _discard(self) -> None:
        """Remove what a failed write has left, as far as the failure allows."""
        if self._writer is not None:
            self._writer.close()
        paths = [self._folder / file.name for file in self.files]
        for path in [*paths, *([self._path] if self._path else [])]:
            path.unlink(missing_ok=True)
        self._writer = self._path = None


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
        if len(bounded) != with_values:
            continue
        if bounded:
            low, high = min(each.min for each in bounded), max(each.max for each in bounded)
            if _bound(low) is not None and _bound(high) is not None:
                lows[name], highs[name] = _bound(low), _bound(high)
    return {**found, "minValues": lows, "maxValues": highs, "nullCount": nulls}


def _bound(value: object) -> object | None:
    """A bound as Delta's JSON holds it; `None` for kinds where a wrong bound would hide rows.

    Long texts, floats (whose bounds leave out NaN), decimals and timestamps are left out: a reader
    then looks into the file, which is slower but never wrong.
    """
    if isinstance(value, bool | bytes | float | Decimal | datetime):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and len(value) <= _MAX_TEXT:
        return value
    return None
