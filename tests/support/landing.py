"""What the stream tests share: write records, read tables, run a stream to its end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from airflow_cloudfiles.engine.intake.ledger.opening import cache_folder
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import open_store


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
    try:
        query.awaitTermination()
    except StreamingQueryException as failure:
        # What Spark's own text lacks: where in the JVM, or between it and Python, it went wrong.
        failure.add_note(str(getattr(failure, "_stackTrace", None) or ""))
        raise
    return query


def rows(target: Path) -> list[dict[str, Any]]:
    """Every row of a Delta table, in no order."""
    table = DeltaTable(str(target)).to_pyarrow_dataset().to_table()
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def forget_index(state: Path) -> None:
    """Delete the index of seen files, as whoever puts an older state back on purpose does."""
    metadata = read_metadata(open_store(str(state)))
    assert metadata is not None
    shutil.rmtree(cache_folder() / metadata.stream_id)
