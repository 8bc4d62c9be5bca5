"""What the stream tests share: write records, read tables, run a stream to its end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def drop(folder: Path, name: str, records: Iterable[Mapping[str, Any]]) -> Path:
    """Write records as a JSON Lines file, complete from the first moment it is seen."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft"[-200:])
    draft.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    draft.rename(path)
    return path


def stream(spark: SparkSession, source: Path, state: Path, **options: str) -> DataFrame:
    """Define a JSON stream as the documentation does."""
    return (
        spark.readStream.format("cloudFiles")
        .option("cloudFiles.format", "json")
        .option("cloudFiles.schemaLocation", str(state))
        .options(**options)
        .load(str(source))
    )


def run(frame: DataFrame, state: Path, target: Path, sink: str = "delta") -> StreamingQuery:
    """Run a stream until it has caught up."""
    query = (
        frame.writeStream.format(sink)
        .option("mergeSchema", "true")
        .option("checkpointLocation", str(state))
        .trigger(availableNow=True)
        .start(str(target))
    )
    query.awaitTermination()
    return query


def rows(target: Path) -> list[dict[str, Any]]:
    """Every row of a Delta table, in no order."""
    table = DeltaTable(str(target)).to_pyarrow_dataset().to_table()
    found: list[dict[str, Any]] = table.to_pylist()
    return found
