"""Rows say what file they came from, in the words of Spark's own file source."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.landing import drop, run, stream

pytestmark = pytest.mark.spark

NAMES = (
    "day=0/plain.json",
    "day=0/a b+c%20d.json",
    "day=1/ü日本\U0001f600.json",
    "day=2/~*'(!)&,;@$[{<|>}]^`\".json",
    "day=3/#?.json",
    "day=4/\u00a0\u3000x.json",
)


def _landed(source: Path) -> None:
    """Files whose times have whole milliseconds, which is all that Spark keeps of them."""
    for number, name in enumerate(NAMES):
        path = drop(source, name, [{"id": f"{number}-{row}"} for row in range(2)])
        moment = (1_700_000_000_000 + number * 1001) * 10**6
        os.utime(path, ns=(moment, moment))


def _by_id(frame: DataFrame) -> dict[str, Any]:
    return {row.id: row._metadata.asDict() for row in frame.select("id", "_metadata").collect()}


def test_the_values_are_those_of_sparks_own_file_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in x", tmp_path / "state", tmp_path / "table"
    _landed(source)
    spark_says = _by_id(spark.read.schema("id STRING").json(str(source)))
    assert len(spark_says) == 2 * len(NAMES)

    frame = stream(
        spark,
        source,
        state,
        **{"cloudFiles.metadataColumns": "_metadata", "cloudFiles.inProgressNames": ""},
    )
    theirs = spark.read.schema("id STRING").json(str(source)).select("_metadata").schema
    assert frame.schema["_metadata"].dataType.simpleString() == (
        theirs["_metadata"].dataType.simpleString()
    )
    run(frame, state, target)
    assert _by_id(spark.read.format("delta").load(str(target))) == spark_says


def test_a_query_selects_fields_and_a_function_of_its_own_writes_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    path = drop(source, "a b.json", [{"id": "1", "source": "mine"}])
    os.utime(path, ns=(1_700_000_000_123_456_000,) * 2)
    reader = spark.readStream.format("cloudFiles").schema("id STRING, _rescued_data STRING")
    frame = (
        reader.option("cloudFiles.format", "json")
        .option("cloudFiles.metadataColumns", "_metadata, file_name AS source")
        .option("rescuedDataColumn", "_rescued_data")
        .load(str(source))
    )
    assert frame.columns == ["id", "_rescued_data", "_metadata", "source"]
    written: list[dict[str, Any]] = []

    def write(batch: DataFrame, _: int) -> None:
        written.extend(row.asDict() for row in batch.collect())

    selected = frame.selectExpr(
        "*", "unix_micros(_metadata.file_modification_time) AS at", "_metadata.file_block_length"
    ).drop("_metadata")
    writer = selected.writeStream.foreachBatch(write).option("checkpointLocation", str(state))
    writer.trigger(availableNow=True).start().awaitTermination()
    [row] = written
    rescued = json.loads(row.pop("_rescued_data"))
    assert rescued["source"] == "mine"
    assert row == {
        "id": "1",
        "source": "a%20b.json",
        "at": 1_700_000_000_123_456,
        "file_block_length": path.stat().st_size,
    }
