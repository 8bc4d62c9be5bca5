"""A stream and its table without Spark: what its processes do, one after the other, here."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from airflow_cloudfiles.engine.batches.file_source import FileBatches, split_up
from airflow_cloudfiles.engine.batches.run import PlannedBatch
from airflow_cloudfiles.engine.extensions.replay import replay
from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.opening import locate, own_locations
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.job.target import target_table
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import Position, position
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.stream import definition


class Ingested:
    """A stream of JSON files; its values are the names of its files.

    Attributes:
        source: Where the files land.
        state: The checkpoint location.
        target: The table.
        sink: More options of the sink.
        iceberg: URI of an Iceberg table to write to instead; empty for none.
        format: Of the files.
    """

    format = "json"

    def __init__(self, folder: Path, **options: str) -> None:
        self.source, self.state = folder / "in", folder / "state"
        self.target = folder / "table"
        self.source.mkdir(exist_ok=True)
        self.sink: dict[str, str] = {}
        self.iceberg = ""
        self.given = {"cloudFiles.maxFilesPerTrigger": "1", **options}

    def add(self, *names: str, **fields: Any) -> None:
        for name in names:
            content = json.dumps({"a": name, **fields})
            (self.source / f"{name}.json").write_text(content + "\n")

    def spec(self, kind: str = "ingest", **more: Any) -> JobSpec:
        given: dict[str, Any] = {
            "kind": kind,
            "source": str(self.source),
            "format": self.format,
            "checkpoint_location": str(self.state),
            "target": self._target,
            "options": self.given,
            "run_id": uuid.uuid4().hex,
        }
        return JobSpec(**given, **more)

    def run(self, batches: int | None = None) -> None:
        """As a run does: check, then one batch after the other, until nothing is left."""
        state = open_store(str(self.state))
        target_table(self._target).check_before_run(state, locate(str(self.source), state).name)
        options = self._options()
        with closing(self._batches(options, self.discover())) as source:
            source.open()
            number = 0
            while (batches is None or number < batches) and (planned := source.plan()) is not None:
                self.write(source, planned)
                number += 1

    def infer(self) -> None:
        """Write the first version of the schema."""
        definition.resolve_schema(self._options())

    def plan(self) -> int:
        """Plan the next batch, and stop before it is read; its number."""
        options = self._options()
        with closing(self._batches(options, self.discover())) as source:
            source.open()
            planned = source.plan()
        assert planned is not None
        return planned.number

    def batch_again(self, batch: int) -> None:
        """Run a planned batch, whatever is committed."""
        plan = PlanLog(open_store(str(self.state))).at(batch)
        options = self._options()
        resolved = definition.resolve_schema(options)
        with closing(self._opened(options)) as intake:
            context = definition.batch_context(
                options,
                resolved,
                intake,
                start=plan.start,
                end=plan.end,
            )
            placed = list(intake.files.placed(plan.start, plan.end))
            splits = split_up(intake.source, placed, context, 1)
        source = self._batches(options, plan.end)
        self.write(source, PlannedBatch(batch, splits, plan.end))

    def _options(self) -> CloudFilesOptions:
        return CloudFilesOptions.parse(self.spec().source_options(), path=str(self.source))

    def discover(self) -> Offset:
        """Discover, once there is a schema; where the file log ends."""
        self.infer()
        with closing(self._opened(self._options())) as intake:
            intake.begin_at(self.position())
            intake.check()
            intake.discover()
            return intake.known_head()

    def _opened(self, options: CloudFilesOptions) -> Intake:
        return Intake.open(
            source=str(self.source),
            format=self.format,
            checkpoint_location=str(self.state),
            exclude=own_locations(options, str(self.state), self._target),
            discovery=options.discovery,
        )

    def _batches(self, options: CloudFilesOptions, up_to: Offset) -> FileBatches:
        return FileBatches(options, str(self.state), up_to=up_to, parallelism=8)

    def write(self, source: FileBatches, planned: PlannedBatch) -> None:
        given = SinkOptions.read({"mergeschema": "true", **self.sink})
        table = target_table(self._target)
        writer = table.writer(given, state=str(self.state), written="files")
        task = source.task(writer)
        writer.commit([task(each) for each in planned.parts], planned.number)
        source.committed(planned)

    @property
    def _target(self) -> str:
        return self.iceberg or str(self.target)

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
