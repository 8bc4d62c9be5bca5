"""Delta's own stream and ours, started in pairs over one table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airflow_cloudfiles.engine.errors import CloudFilesError
from tests.support.delta_spark import DeltaError, DeltaSpark
from tests.support.table_streams import Query

Started = tuple[str, list[dict[str, Any]]]
"""The error of a start, or nothing, and its rows without what is null, in an order."""


def follow(spark: Any, table: str, checkpoint: str, rows: str, options: dict[str, str]) -> None:
    """Run Delta's stream until it has all or fails; its rows are in a file, a line each."""

    def keep(batch: Any, _: int) -> None:
        with Path(rows).open("a", encoding="utf-8") as file:
            file.writelines(f"{each}\n" for each in batch.toJSON().collect())

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

    def ours(self, **options: str) -> Started:
        """Start ours."""
        self._ours.options = {key.lower(): each for key, each in self._all("ours", options).items()}
        before, error = len(self._ours.batches), ""
        try:
            self._ours.run()
        except CloudFilesError as raised:
            error = _code(raised.message)
        rows = [row for batch in self._ours.batches[before:] for row in batch]
        return error, _in_order({k: v for k, v in row.items() if v is not None} for row in rows)

    def theirs(self, **options: str) -> Started:
        """Start Delta's."""
        rows, error = self._folder / "rows", ""
        rows.parent.mkdir(parents=True, exist_ok=True)
        rows.write_text("")
        places = {"table": str(self._table), "checkpoint": str(self._folder / "theirs")}
        try:
            every = self._all("theirs", options)
            self._delta.call(follow, **places, rows=str(rows), options=every)
        except DeltaError as raised:
            error = _code(str(raised))
        return error, _in_order(map(json.loads, rows.read_text().splitlines()))

    def _all(self, whose: str, options: dict[str, str]) -> dict[str, str]:
        schemas = str(self._folder / whose / "schemas")
        return {**({"schemaTrackingLocation": schemas} if self._tracks else {}), **options}


def _in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)


def _code(message: str) -> str:
    found = re.search(r"\[((?:DIFFERENT_)?DELTA_\w+)", message)
    return found[1] if found else message
