"""Parquet files that land in a folder of a table, and the table that a run makes of them."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cloudfiles.engine.errors import UnknownFieldException
from airflow_cloudfiles.engine.job.ingest import ingest
from airflow_cloudfiles.engine.job.session import NoSpark
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.files import DataFileReader
from airflow_cloudfiles.engine.tables.delta.read.snapshot import Snapshot, TableLog
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableColumns

REFERENCE = {"cloudFiles.loadMode": "reference"}
LANDING = "_landing"
_MOST_RUNS = 10


class Landing:
    """A stream whose source is a folder of its table; its runs are carried by this process.

    Attributes:
        target: The table.
        source: Where the files land.
        state: The checkpoint location.
        options: Of the stream.
    """

    def __init__(self, folder: Path, options: Mapping[str, str] = REFERENCE) -> None:
        self.target, self.state = folder / "table", folder / "state"
        self.source = self.target / LANDING
        self.source.mkdir(parents=True)
        self.options = dict(options)

    def add(self, name: str, table: pa.Table, **how: Any) -> Path:
        """Let a file land."""
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, **how)
        return path

    def spec(self, kind: Any = "ingest", **more: Any) -> JobSpec:
        """What a run is told."""
        given: dict[str, Any] = {
            "kind": kind,
            "source": str(self.source),
            "format": "parquet",
            "checkpoint_location": str(self.state),
            "target": str(self.target),
            "options": self.options,
            "run_id": uuid.uuid4().hex,
        }
        return JobSpec(**(given | more))

    def run(self, **more: Any) -> dict[str, Any]:
        """Ingest what is there; new fields take another run, as a task's retry does."""
        for left in reversed(range(_MOST_RUNS)):
            report: dict[str, Any] = {"warnings": []}
            spec = self.spec(**more)
            try:
                ingested(spec, report)
            except UnknownFieldException:
                if not left:
                    raise
            else:
                break
        return report

    def snapshot(self) -> Snapshot:
        """The newest version of the table."""
        return TableLog(DeltaLocation.of(str(self.target))).snapshot()

    def registered(self) -> list[str]:
        """The files of the source that the newest version has, relative to the source."""
        paths = (each.path for each in self.snapshot().files)
        return sorted(each.removeprefix(f"{LANDING}/") for each in paths if LANDING in each)

    def statistics(self) -> dict[str, dict[str, Any]]:
        """What the log says of the columns of each file it adds."""
        logs = sorted((self.target / "_delta_log").glob("*.json"))
        lines = (json.loads(line) for log in logs for line in log.read_text().splitlines())
        adds = (line["add"] for line in lines if "add" in line)
        return {each["path"]: json.loads(each["stats"]) for each in adds}

    def rows(self) -> pa.Table:
        """All rows, in no order."""
        snapshot = self.snapshot()
        reader = DataFileReader(TableColumns.of(snapshot))
        batches = [batch for file in snapshot.files for batch in reader.read(file)]
        return pa.Table.from_batches(batches, reader.schema)


class _OneProcess(NoSpark):
    """Carries the tasks of a run in this process, where a test can see what they do."""

    def parallelism(self) -> int:
        """Give all files to one task."""
        return 1


def ingested(spec: JobSpec, report: dict[str, Any] | None = None) -> None:
    """Carry out a run in this process, which then handles signals as before."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ingest(spec, _OneProcess(spec), {"warnings": []} if report is None else report, {})
    finally:
        signal.signal(signal.SIGTERM, handler)


def multiset(rows: pa.Table, root: Path | None = None) -> list[str]:
    """Rows as texts that are equal where the rows are, sorted; rescued paths without a root."""
    names = sorted(rows.column_names)
    away = "" if root is None else str(root)
    columns = [[repr(value) for value in _values(rows[name])] for name in names]
    texts = (" ".join(row) for row in zip(*columns, strict=True))
    return sorted(text.replace(away, "") if away else text for text in texts)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Values that Python has; timestamps as numbers, which it has of other years."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    return column.to_pylist(maps_as_pydicts=None)  # type: ignore[no-any-return]
