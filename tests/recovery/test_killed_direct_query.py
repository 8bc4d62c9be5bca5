"""A query whose tasks write what they read, killed at every step, gives each row once.

Every other query has rows that pass Spark, so each way goes on where a kill has left the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from airflow_cloudfiles import cloud_files_state
from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from tests.support import laws
from tests.support.landing import drop, rows
from tests.support.shared_spark import FAST_START

pytestmark = [pytest.mark.slow, pytest.mark.spark]

TOUR = (
    "after-file-log-append",
    "after-plan-append",
    "after-spark-offset",
    "before-read",
    "after-data-files",
    "after-file-results",
    "before-sink-commit",
    "after-sink-commit",
    "after-sink-record",
    "after-spark-commit",
    "after-schema-append",
)
SCRIPT = """
import sys
from pyspark.sql import SparkSession
from airflow_cloudfiles import register

source, state, target, way = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
frame = (
    spark.readStream.format("cloudFiles")
    .option("cloudFiles.format", "json")
    .option("cloudFiles.maxFilesPerTrigger", "1")
    .option("cloudFiles.schemaLocation", state)
    .load(source)
)
frame = frame if way == "direct" else frame.where("true OR rand() > 2")
writer = frame.writeStream.format("deltalake").option("mergeSchema", "true")
writer = writer.option("checkpointLocation", state).trigger(availableNow=True)
writer.start(target).awaitTermination()
"""


def test_each_row_comes_once_whatever_is_killed(tmp_path: Path) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    expected: dict[str, int] = {}

    def land() -> None:
        """Write two files, each with a row more than the one before."""
        for _ in range(2):
            value, count = str(len(expected)), len(expected) + 1
            new = {"b": "new"} if len(expected) > 2 else {}
            drop(source, f"{value}.json", [{"a": value, **new}] * count)
            expected[value] = count

    def kept() -> dict[str, int]:
        return dict(Counter(row["a"] for row in rows(target)))

    def query(way: str, point: str = "") -> str | None:
        """Run a query; what it has printed if it failed, or was killed."""
        environment = os.environ | ({CRASH_AT: point} if point else {})
        environment["PYSPARK_SUBMIT_ARGS"] = f"--driver-java-options '{FAST_START}' pyspark-shell"
        command = [sys.executable, "-c", SCRIPT, *map(str, (source, state, target)), way]
        ended = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True, timeout=300
        )
        return ended.stderr if ended.returncode else None

    always = ("before-sink-commit", "after-sink-commit")
    points = laws.some(TOUR, 1, name="direct query killed", always=always)
    for turn, point in enumerate(points):
        land()
        query("direct" if turn % 2 == 0 else "rows", point)
        found = kept() if (target / "_delta_log").exists() else {}
        assert found.items() <= expected.items(), point
    land()
    tries = 0
    while (printed := query("direct")) is not None:
        tries += 1
        assert tries <= len(expected), "each try that fails has written a new column"
        assert "UnknownFieldException" in printed
        assert "\tat org.apache.spark" not in printed, "no stack of Java"
    assert kept() == expected
    # What a file says is its own, or nothing; after the query that nobody killed, all say it.
    shown = cloud_files_state(str(state)).read_all().to_pylist()
    said = {Path(row["path"]).stem: (row["rows"], row["batch_rows"]) for row in shown}
    assert said.keys() == expected.keys()
    for value, count in expected.items():
        assert said[value] in {(None, None), (count, count)}
    assert all(said[value][0] for value in [*expected][-2:])
