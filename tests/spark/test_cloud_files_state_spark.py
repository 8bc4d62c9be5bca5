"""The state as a DataFrame, and what Spark shows of a source while it is at work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_cloudfiles import cloud_files_metrics, cloud_files_state
from airflow_cloudfiles.engine.job.spec import JobSpec
from tests.support.landing import drop, run, stream
from tests.support.shared_runs import run_in

pytestmark = pytest.mark.spark


def test_a_stream_shows_what_is_outstanding_and_its_files_are_a_dataframe(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    for name in ("a", "b", "c d%20é"):
        drop(source, f"{name}.json", [{"id": name}, {"id": "x"}])
    query = run(
        stream(spark, source, state, **{"cloudFiles.maxFilesPerTrigger": "2"}), state, target
    )
    shown = [json.loads(each["sources"][0]["latestOffset"]) for each in query.recentProgress]
    assert [each["numFilesOutstanding"] for each in shown][:2] == ["1", "0"]  # B116
    assert [each["numBytesOutstanding"] for each in shown][-1] == "0"
    assert shown[0]["numBytesOutstanding"] == str((source / "c d%20é.json").stat().st_size)
    assert shown[0]["isBacklogComputationComplete"] == "true"
    drop(source, "late.json", [{"id": "late"}])
    spec = JobSpec(
        kind="ingest",
        source=str(source),
        format="json",
        checkpoint_location=str(state),
        target=str(target),
        run_id="the-run",
    )
    run_in(spark, spec)
    assert cloud_files_metrics(str(state))["numFilesOutstanding"] == "0"

    frame = spark.read.format("cloudFilesState").load(str(state))
    table = cloud_files_state(str(state)).read_all()
    assert frame.toArrow().to_pylist() == table.to_pylist()
    rows = {row.path.rpartition("/")[2]: row for row in frame.collect()}
    assert {name: (row.batch_id, row.run_id) for name, row in rows.items()} == {
        "a.json": (0, None),
        "b.json": (0, None),
        "c d%20é.json": (1, None),
        "late.json": (2, "the-run"),
    }
    assert rows["late.json"].batch_rows == 1
    assert frame.where("ingestion_state = 'INGESTED' AND commit_time IS NOT NULL").count() == 4
    assert frame.where("NOT processed_time BETWEEN discovery_time AND commit_time").count() == 0


def test_what_it_cannot_read_is_named(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.read.format("cloudFilesState")
    with pytest.raises(PySparkException, match="There is no state in"):
        reader.load(str(tmp_path / "none")).collect()
    with pytest.raises(PySparkException, match="needs a checkpoint location"):
        spark.read.format("cloudFilesState").load().collect()
    with pytest.raises(PySparkException, match="has no option 'status'"):
        spark.read.format("cloudFilesState").option("status", "x").load(str(tmp_path)).collect()
