"""A function over micro-batches: what it makes of their rows is in the table, exactly once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cloudfiles.engine.errors import (
    ExpectationError,
    OptionError,
    TransformError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.job.launch import LocalSpark, launch
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.job.transform.function import BatchFunction

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TYPED = {"cloudFiles.inferColumnTypes": "true"}


class Stream:
    """One stream whose runs are real drivers with a function."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.source, self.state, self.target = (str(folder / n) for n in ("in", "state", "table"))
        Path(self.source).mkdir()
        self.options = {**TYPED, **options}
        self.runs = 0
        self.lines: list[str] = []

    def lands(self, name: str, *records: dict[str, Any]) -> None:
        text = "".join(f"{json.dumps(each)}\n" for each in records)
        Path(self.source, name).write_text(text)

    def run(self, function: Any, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
        self.runs += 1
        self.lines.clear()
        spec = JobSpec(
            kind="ingest",
            source=self.source,
            format="json",
            checkpoint_location=self.state,
            target=self.target,
            run_id=f"run-{self.runs}",
            options=self.options,
            transform=BatchFunction.of(function, arguments).to_json(),
            **more,
        )
        return launch(spec, LocalSpark(master="local[2]"), on_log=self.lines.append).wait()

    def rows(self, spark: SparkSession) -> list[dict[str, Any]]:
        found = spark.read.format("deltalake").load(self.target)
        return sorted((row.asDict() for row in found.collect()), key=lambda row: row["id"])


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def dear(batch, least=2):
    from pyspark.sql import functions as F

    @F.udf("string")
    def shout(text):
        return text.upper()

    kept = batch.where(F.col("price") >= least)
    return kept.withColumn("loud", shout("name")).drop("_rescued_data")


def test_rows_are_those_that_the_function_returns_each_once(stream: Stream, spark: SparkSession):
    stream.lands("1.json", {"id": 1, "name": "a", "price": 1}, {"id": 2, "name": "b", "price": 2})
    report = stream.run(dear)
    stream.lands("2.json", {"id": 3, "name": "c", "price": 9})
    second = stream.run(dear, {"least": 5})
    third = stream.run(dear)

    assert stream.rows(spark) == [
        {"id": 2, "name": "b", "price": 2, "loud": "B"},
        {"id": 3, "name": "c", "price": 9, "loud": "C"},
    ]
    assert (report["files"], report["rows"], report["batches"]) == (1, 1, 1)
    assert report["transform"] == "dear"
    assert report["schema"] == "id BIGINT, name STRING, price BIGINT, loud STRING"
    assert report["schema_version"] == 0
    assert (second["files"], second["rows"], second["batches"]) == (1, 1, 1)
    assert (third["files"], third["batches"]) == (0, 0)
