"""A stream and its table without Spark: what its processes do, one after the other, here."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from airflow_cloudfiles.engine.job.replay import replay
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.job.target import check_before_run
from airflow_cloudfiles.engine.spark import split_rows
from airflow_cloudfiles.engine.spark.source import (
    AFTER_BATCH,
    CloudFilesDataSource,
    CloudFilesStreamReader,
)
from airflow_cloudfiles.engine.spark.tables.delta_writer import DeltaStreamWriter
from airflow_cloudfiles.engine.spark.tables.iceberg_sink import IcebergStreamWriter
from airflow_cloudfiles.engine.spark.tables.stream_writer import FIRST_BATCH, STATE
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.position import Position, position
from airflow_cloudfiles.engine.storage import open_store


class Ingested:
    """A stream of JSON files; its values are the names of its files.

    Attributes:
        source: Where the files land.
        state: The checkpoint location.
        target: The table.
        sink: More options of the sink.
        iceberg: URI of an Iceberg table to write to instead; empty for none.
    """

    def __init__(self, folder: Path, **options: str) -> None:
        self.source, self.state = folder / "in", folder / "state"
        self.target = folder / "table"
        self.source.mkdir(exist_ok=True)
        self.sink: dict[str, str] = {}
        self.iceberg = ""
        self._token = split_rows.new_token()
        self.given = {"cloudFiles.maxFilesPerTrigger": "1", **options}

    def add(self, *names: str, **fields: Any) -> None:
        for name in names:
            content = json.dumps({"a": name, **fields})
            (self.source / f"{name}.json").write_text(content + "\n")

    def spec(self, kind: str = "ingest", **more: Any) -> JobSpec:
        given: dict[str, Any] = {
            "kind": kind,
            "source": str(self.source),
            "format": "json",
            "checkpoint_location": str(self.state),
            "target": self.iceberg or str(self.target),
            "options": self.given,
            "run_id": uuid.uuid4().hex,
        }
        return JobSpec(**given, **more)

    def run(self, batches: int | None = None) -> None:
        """As a job does: check, then one batch after the other, until nothing is left."""
        check_before_run(open_store(str(self.state)), self.iceberg or str(self.target))
        last = self.position().batch
        reader, number = self._reader(**{AFTER_BATCH: str(last)}), 0
        try:
            reader.prepareForTriggerAvailableNow()
            start = reader.initialOffset()
            while batches is None or number < batches:
                end = reader.latestOffset(start, reader.getDefaultReadLimit())
                if end == start:
                    return
                # Spark begins to count in each run.
                self._batch(reader, number, start, end, **{FIRST_BATCH.lower(): str(last + 1)})
                number, start = number + 1, end
        finally:
            reader.stop()

    def batch_again(self, batch: int) -> None:
        """Run a planned batch, whatever is committed."""
        plan = PlanLog(open_store(str(self.state))).at(batch)
        reader = self._reader()
        try:
            self._batch(reader, batch, plan.start.to_json(), plan.end.to_json())
        finally:
            reader.stop()

    def _reader(self, **more: str) -> CloudFilesStreamReader:
        options = {**self.spec().source_options(), split_rows.SPLIT_TOKEN: self._token, **more}
        source = CloudFilesDataSource({**options, "path": str(self.source)})
        source.schema()
        return source.streamReader(split_rows.SPLIT_SCHEMA)

    def _batch(
        self,
        reader: CloudFilesStreamReader,
        number: int,
        start: dict[str, int],
        end: dict[str, int],
        **more: str,
    ) -> None:
        given = {STATE.lower(): str(self.state), "mergeschema": "true", **self.sink, **more}
        kind = IcebergStreamWriter if self.iceberg else DeltaStreamWriter
        writer = kind(
            self.iceberg or str(self.target),
            {**given, split_rows.SPLIT_TOKEN.lower(): self._token},
            split_rows.SPLIT_SCHEMA,
        )
        written = [
            writer.write(iter(reader.read(each)))  # type: ignore[arg-type]
            for each in reader.partitions(start, end)
        ]
        writer.commit(written, number)
        reader.commit(end)

    def position(self) -> Position:
        """How far the stream is committed."""
        return position(open_store(str(self.state)))

    def forget(self, batch: int) -> None:
        """Remove the record of a batch, as a kill right after the table's commit leaves it."""
        (self.state / "_source" / "sink" / "0" / f"{batch:020}").unlink()

    def replay(self, first: int, **more: Any) -> dict[str, Any]:
        return replay(self.spec("replay", replay={"from_batch": first, **more}))

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(str(self.target))

    def rows(self) -> list[str]:
        table: pa.Table = self.table.to_pyarrow_dataset().to_table()
        return sorted(table["a"].to_pylist())
