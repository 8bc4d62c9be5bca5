"""`spark.read.format("cloudFiles")`, and views of it in SQL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_cloudfiles.engine.errors import OptionError, SchemaInferenceError
from tests.support.landing import drop, run, stream

pytestmark = pytest.mark.spark


def test_a_source_is_tried_out_before_it_is_streamed(spark: SparkSession, tmp_path: Path) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "day=1/a b.json", [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}])
    drop(source, "day=2/c.json", [{"id": "three", "new": True}])
    options = {
        "cloudFiles.format": "json",
        "cloudFiles.schemaLocation": str(state),
        "cloudFiles.schemaHints": "id INT",
        "cloudFiles.metadataColumns": "_metadata",
    }
    frame = spark.read.format("cloudFiles").options(**options).load(str(source))
    assert not state.exists()
    assert set(frame.columns[:3]) == {"id", "name", "new"}
    assert frame.columns[3:] == ["day", "_rescued_data", "_metadata"]
    assert frame.where("day = '1'").count() == 2
    [row] = frame.where("id IS NULL").selectExpr("*", "_metadata.file_name").collect()
    assert json.loads(row._rescued_data)["id"] == "three"
    assert row.file_name == "c.json"
    assert not state.exists()

    run(stream(spark, source, state, **options), state, target)
    landed = spark.read.format("delta").load(str(target))
    assert landed.exceptAll(frame.select(landed.columns)).count() == 0
    assert landed.count() == frame.count() == 3

    drop(source, "day=2/d.json", [{"id": 4, "newer": 1}])
    again = spark.read.load(str(source), format="cloudFiles", schema="id INT", **options)
    assert sorted(row.id for row in again.where("id IS NOT NULL").collect()) == [1, 2, 4]
    assert again.columns == ["id", "_metadata"]


def test_sql_reads_a_source_through_a_view(spark: SparkSession, tmp_path: Path) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    drop(source, "a.json", [{"id": 1}, {"id": 2}])
    create = f"""CREATE OR REPLACE TEMPORARY VIEW landed USING cloudFiles OPTIONS (
            path '{source}',
            'cloudFiles.format' 'json',
            'cloudFiles.inferColumnTypes' 'true',
            'cloudFiles.schemaLocation' '{state}',
            'cloudFiles.metadataColumns' 'file_name AS source'
        )"""
    spark.sql(create)
    try:
        found = spark.sql("SELECT sum(id) AS total, max(source) AS source FROM landed").collect()
        assert [tuple(row) for row in found] == [(3, "a.json")]
        drop(source, "b.json", [{"id": 3}])
        spark.sql(create)
        assert spark.sql("SELECT * FROM landed").count() == 3
        assert not state.exists()
    finally:
        spark.catalog.dropTempView("landed")


def test_errors_of_a_batch_are_our_own(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    reader = spark.read.format("cloudFiles").option("cloudFiles.format", "json")
    with pytest.raises(SchemaInferenceError, match="There is no file"):
        reader.load(str(tmp_path / "in"))
    with pytest.raises(OptionError, match="reads one path"):
        reader.load([str(tmp_path / "in"), str(tmp_path)])
    with pytest.raises(OptionError, match="badRecordsPath is for streams"):
        reader.option("badRecordsPath", str(tmp_path)).load(str(tmp_path / "in"))
    empty = spark.read.format("cloudFiles").option("cloudFiles.format", "json").schema("a INT")
    assert empty.load(str(tmp_path / "in")).collect() == []
    with pytest.raises(PySparkException, match="none"):
        empty.load(str(tmp_path / "none")).collect()
