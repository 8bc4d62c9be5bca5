"""A stream and its table without Spark: what its processes do, one after the other, here."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from airflow_cloudfiles.engine.delta import sink_state
from airflow_cloudfiles.engine.files import START, Offset
from airflow_cloudfiles.engine.job.replay import replay
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.spark import split_rows
from airflow_cloudfiles.engine.spark.sink import DeltaStreamWriter
from airflow_cloudfiles.engine.spark.source import CloudFilesDataSource, CloudFilesStreamReader
from airflow_cloudfiles.engine.storage import open_store


class Ingested:
    """A stream of JSON files; its values are the names of its files.

    Attributes:
        source: Where the files land.
        state: The checkpoint location.
        target: The table.
    """

    def __init__(self, folder: Path, **options: str) -> None:
        self.source, self.state = folder / "in", folder / "state"
        self.target = folder / "table"
        self.source.mkdir(exist_ok=True)
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
            "target": str(self.target),
            "options": self.given,
            "run_id": uuid.uuid4().hex,
        }
        return JobSpec(**given, **more)

    def run(self, batches: int | None = None) -> None:
        """As a job does: check, then one batch after the other, until nothing is left."""
        sink_state.check_before_run(open_store(str(self.state)), str(self.target))
        spec = self.spec()
        options = {**spec.source_options(), split_rows.SPLIT_TOKEN: self._token}
        source = CloudFilesDataSource({**options, "path": str(self.source)})
        source.schema()
        reader = source.streamReader(split_rows.SPLIT_SCHEMA)
        try:
            reader.prepareForTriggerAvailableNow()
            while batches is None or batches > 0:
                if not self.batch(reader):
                    return
                batches = None if batches is None else batches - 1
        finally:
            reader.stop()

    def batch(self, reader: CloudFilesStreamReader) -> bool:
        number, start = self.spark()
        end = reader.latestOffset(start.to_json(), reader.getDefaultReadLimit())
        if Offset.from_json(end) == start:
            return False
        self._write("offsets", number, f"v1\n{{}}\n{json.dumps(end)}")
        writer = DeltaStreamWriter(
            str(self.target),
            {
                "checkpointlocation": str(self.state),
                "mergeschema": "true",
                split_rows.SPLIT_TOKEN.lower(): self._token,
            },
            split_rows.SPLIT_SCHEMA,
        )
        written = [
            writer.write(iter(reader.read(each)))  # type: ignore[arg-type]
            for each in reader.partitions(start.to_json(), end)
        ]
        writer.commit(written, number)
        self._write("commits", number, "v1\n{}")
        return True

    def spark(self) -> tuple[int, Offset]:
        """The next batch, and where it begins."""
        folder = self.state / "commits"
        last = max((int(each.name) for each in folder.glob("*")), default=-1)
        if last < 0:
            return 0, START
        line = (self.state / "offsets" / str(last)).read_text().splitlines()[2]
        return last + 1, Offset.from_json(json.loads(line))

    def _write(self, folder: str, number: int, text: str) -> None:
        (self.state / folder).mkdir(exist_ok=True)
        (self.state / folder / str(number)).write_text(text)

    def replay(self, first: int, **more: Any) -> dict[str, Any]:
        return replay(self.spec("replay", replay={"from_batch": first, **more}))

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(str(self.target))

    def rows(self) -> list[str]:
        table: pa.Table = self.table.to_pyarrow_dataset().to_table()
        return sorted(table["a"].to_pylist())
