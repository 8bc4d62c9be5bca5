"""Delta's own stream and ours, started in pairs over one table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_cloudfiles.engine.errors import CloudFilesError
from tests.support.delta_spark import DeltaError, DeltaSpark, as_arrow
from tests.support.table_streams import Query

Started = tuple[str, list[str]]
"""The error of a start, or nothing, and its rows as JSON without what is null, in an order."""


def follow(spark: Any, table: str, checkpoint: str, rows: str, options: dict[str, str]) -> None:
    """Run Delta's stream until it has all or fails; the rows of a batch are in a file each."""

    def keep(batch: Any, number: int) -> None:
        named = [name for name, kind in batch.dtypes if kind != "variant"]
        found = as_arrow(batch.select(*(f"`{name.replace('`', '``')}`" for name in named)))
        with pa.OSFile(f"{rows}/{number}", "wb") as file, pa.ipc.new_file(file, found.schema) as to:
            to.write_table(found)

    frame = spark.readStream.format("delta").options(**options).load(table)
    stream = frame.writeStream.option("checkpointLocation", checkpoint).foreachBatch(keep)
    stream.trigger(availableNow=True).start().awaitTermination()


class Streams:
    """Two streams from a table, with a checkpoint each in a folder.

    Args:
        delta: For Delta's own.
        table: What both read.
        folder: For the checkpoints.
        tracks: Whether both track the schema.
    """

    def __init__(
        self, delta: DeltaSpark, table: Path, folder: Path, *, tracks: bool = False
    ) -> None:
        self._delta, self._table, self._folder, self._tracks = delta, table, folder, tracks
        self._ours = Query(table, folder / "ours")
        self._started = 0

    def ours(self, **options: str) -> Started:
        """Start ours."""
        self._ours.options = {key.lower(): each for key, each in self._all("ours", options).items()}
        before, error = len(self._ours.batches), ""
        try:
            self._ours.run()
        except CloudFilesError as raised:
            error = _code(raised.message)
        return error, _in_order(row for batch in self._ours.batches[before:] for row in batch)

    def theirs(self, **options: str) -> Started:
        """Start Delta's."""
        self._started += 1
        rows, error = self._folder / f"rows of {self._started}", ""
        rows.mkdir(parents=True)
        places = {"table": str(self._table), "checkpoint": str(self._folder / "theirs")}
        try:
            every = self._all("theirs", options)
            self._delta.call(follow, **places, rows=str(rows), options=every)
        except DeltaError as raised:
            error = _code(str(raised))
        files = [pa.ipc.open_file(each.read_bytes()).read_all() for each in rows.iterdir()]
        return error, _in_order(row for file in files for row in file.to_pylist())

    def _all(self, whose: str, options: dict[str, str]) -> dict[str, str]:
        schemas = str(self._folder / whose / "schemas")
        return {**({"schemaTrackingLocation": schemas} if self._tracks else {}), **options}


def _in_order(rows: Iterable[dict[str, Any]]) -> list[str]:
    known = ({name: value for name, value in row.items() if value is not None} for row in rows)
    return sorted(json.dumps(each, default=str, sort_keys=True) for each in known)


def _code(message: str) -> str:
    found = re.search(r"\[((?:DIFFERENT_)?DELTA_\w+)", message)
    return found[1] if found else message
