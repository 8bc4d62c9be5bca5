"""How does a split become rows?

Runs in a task: fetches the blocks of a split, packs the lines of small files together, parses
them, adds the partition columns, and hands out Arrow record batches with exactly the stream's
schema. A field that the schema does not have ends the task (see `schema_change`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.formats.json_reader import JsonReader, Piece, UnknownFields
from airflow_cloudfiles.engine.schema.partitions import misfits, partition_arrays
from airflow_cloudfiles.engine.schema.schema_log import full_schema
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.stream import schema_change
from airflow_cloudfiles.engine.stream.ahead import fetched_ahead
from airflow_cloudfiles.engine.stream.fetch import BLOCK_BYTES, Block, FetchCounts, fetch
from airflow_cloudfiles.engine.stream.splits import Split
from airflow_cloudfiles.engine.types import to_arrow


@dataclass(slots=True)
class SplitCounts:
    """What reading a split amounted to."""

    fetched: FetchCounts = field(default_factory=FetchCounts)
    rows: int = 0
    rescued_rows: int = 0
    corrupt_records: int = 0
    dropped_records: int = 0


class SplitReader:
    """Reads one split; use once."""

    def __init__(self, split: Split) -> None:
        context = split.context
        self._split = split
        self._store: ObjectStore = open_store(context.source_uri)
        self._options = context.options
        self._partitions = StructType.fromJson(_json(context.partition_schema))
        data_schema = StructType.fromJson(_json(context.data_schema))
        self._reader = JsonReader(data_schema, context.options)
        self._data_columns = len(data_schema.fields)
        self.arrow_schema: pa.Schema = to_arrow(
            full_schema(data_schema, self._partitions, context.options.rescued_data_column)
        )
        self.counts = SplitCounts()

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the split.

        Raises:
            UnknownFieldException: A record has a new field, in the modes that fail on it. In
                `addNewColumns` the schema log holds the evolved schema by then.
            ReadError: A file cannot be read (see `fetch`), or a record is not valid (`FAILFAST`).
        """
        for blocks in self._packed():
            pieces = [Piece(self._store.child_uri(block.file.path), block.data) for block in blocks]
            try:
                batch = self._reader.read(pieces)
            except UnknownFields as found:
                raise schema_change.react(
                    self._split.context, found.fields, found.file_uri
                ) from None
            if batch.num_rows:
                yield self._with_partitions(batch, blocks)
        counted = self._reader.counts
        self.counts.rows = counted.rows
        self.counts.rescued_rows = counted.rescued_rows
        self.counts.corrupt_records = counted.corrupt_records
        self.counts.dropped_records = counted.dropped_records

    def _packed(self) -> Iterator[list[Block]]:
        """Blocks in groups of about `BLOCK_BYTES`; with partition columns, one file a group."""
        group: list[Block] = []
        size = 0
        for part, first in fetched_ahead(self._store, self._split.ranges):
            blocks = fetch(
                self._store,
                part,
                self.counts.fetched,
                ignore_missing=self._options.ignore_missing_files,
                first=first,
            )
            for block in blocks:
                apart = self._partitions.fields and group and group[-1].file != block.file
                if group and (size + len(block.data) > BLOCK_BYTES or apart):
                    yield group
                    group, size = [], 0
                group.append(block)
                size += len(block.data)
        if group:
            yield group

    def _with_partitions(self, batch: pa.RecordBatch, blocks: list[Block]) -> pa.RecordBatch:
        """Put the partition columns between the data and the rescued data."""
        if not self._partitions.fields:
            return batch
        path = blocks[0].file.path
        constant = partition_arrays(path, self._partitions, batch.num_rows)
        columns = list(batch.columns)
        lost = misfits(path, self._partitions)
        if lost and self._options.rescued_data_column is not None:
            columns[-1] = _rescued(columns[-1], lost, self._store.child_uri(path))
        arrays = [*columns[: self._data_columns], *constant, *columns[self._data_columns :]]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)


def _rescued(column: pa.Array, lost: dict[str, str], file_uri: str) -> pa.Array:
    """Add partition values that do not fit their type to the rescued data of every row."""
    inner = json.dumps(lost)[1:-1]
    alone = f"{{{inner}, {json.dumps({'_file_path': file_uri})[1:]}"
    texts = [
        alone if text is None else f"{{{inner}, {text.removeprefix('{')}"
        for text in column.to_pylist()
    ]
    return pa.array(texts, type=column.type)


def _json(text: str) -> dict[str, object]:
    loaded: dict[str, object] = json.loads(text)
    return loaded
