"""A stream that was, for tests of promotion: its state, its schema log, and the table it wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.extensions.promotion.promote import (
    Promotion,
    PromotionResult,
    promote,
)
from airflow_cloudfiles.engine.formats.json.reader import JsonReader, LinePiece
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.state.metadata import open_metadata
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from tests.support.delta_writes import Sink

FILE = "file:///landing/f.json"


def read(records: Iterable[object], schema: StructType, **options: str) -> pa.RecordBatch:
    """Read JSON records as a stream does that rescues what is new."""
    given = {"cloudFiles.format": "json", "cloudFiles.schemaEvolutionMode": "rescue", **options}
    reader = JsonReader(schema, CloudFilesOptions.parse(given, path="landing"))
    lines = [
        each if isinstance(each, bytes) else json.dumps(each, ensure_ascii=False).encode()
        for each in records
    ]
    return reader.read([LinePiece(FILE, b"".join(line + b"\n" for line in lines))])


@dataclass
class Landed:
    """A stream in mode `rescue` and its table."""

    folder: str
    schema: StructType
    batches: int = 0

    @classmethod
    def create(cls, folder: Path | str, schema: str, kind: str = "json") -> Landed:
        """A stream with one schema version, and no table yet."""
        landed = cls(str(folder), parse_schema(schema))
        source = open_store(f"{folder}/landing").uri
        open_metadata(open_store(landed.state), source, kind)
        landed.log.append(
            0,
            data_schema=landed.schema,
            partition_schema=StructType([]),
            reason={"change": "inferred"},
        )
        return landed

    @property
    def state(self) -> str:
        return f"{self.folder}/state"

    @property
    def target(self) -> str:
        return f"{self.folder}/table"

    @property
    def log(self) -> SchemaLog:
        return SchemaLog(open_store(self.state), open_store(f"{self.folder}/landing").uri)

    def land(self, *records: object, schema: StructType | None = None) -> None:
        """Commit a micro-batch with the schema of its run."""
        self.land_batch(read(records, schema or self.schema))

    def land_batch(self, batch: pa.RecordBatch, app: str = "stream") -> None:
        """Commit rows as a micro-batch."""
        sink = Sink(self.target, app=app)
        sink.batch = self.batches
        sink.repeat(pa.Table.from_batches([batch]))
        self.batches += 1

    def promotion(self, fields: Mapping[str, str | None] | list[str], **options: str) -> Promotion:
        """What to promote."""
        return Promotion(
            target=self.target,
            checkpoint_location=self.state,
            fields=fields,
            options={"cloudFiles.schemaEvolutionMode": "rescue", **options},
        )

    def promote(
        self, fields: Mapping[str, str | None] | list[str], **options: str
    ) -> PromotionResult:
        """Promote fields."""
        return promote(self.promotion(fields, **options))

    @property
    def table(self) -> DeltaTable:
        """The table as it is now."""
        location = DeltaLocation.of(self.target)
        return DeltaTable(location.table_uri, storage_options=location.storage_options())

    def rows(self) -> list[dict[str, Any]]:
        """All rows, rescued data as Python values."""
        rows: list[dict[str, Any]] = self.table.to_pyarrow_dataset().to_table().to_pylist()
        for row in rows:
            if row["_rescued_data"] is not None:
                row["_rescued_data"] = json.loads(row["_rescued_data"])
        return sorted(rows, key=lambda row: str(row.get("id")))

    def live(self) -> set[str]:
        """Names of the data files of the newest version."""
        return {uri.rpartition("/")[2] for uri in self.table.file_uris()}
