"""Spark writes partitioned and mapped tables, and refuses rows before any is visible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from airflow_cloudfiles import register
from airflow_cloudfiles.engine.errors import OptionError, SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.extensions.upkeep.alter import rename_column, set_properties
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.tables.delta.commit import check_target
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from tests.support.delta_writes import read_by_all, snapshot_of
from tests.support.landing import drop, stream
from tests.support.shared_runs import run_in

pytestmark = pytest.mark.spark

GIVEN = "id LONG, day DATE, who STRING"
RECORDS = [
    {"id": 1, "day": "2024-01-31", "who": "a/b c%"},
    {"id": 2, "day": "2024-02-01", "who": None},
    {"id": 3, "day": "2024-01-31", "who": ""},
]


def _given(spark: SparkSession, source: Path) -> DataFrame:
    register(spark)
    reader = spark.readStream.format("cloudFiles").option("cloudFiles.format", "json")
    return reader.schema(GIVEN).load(str(source))


def _sorted(target: Path, key: str = "id") -> list[dict[str, Any]]:
    return sorted(read_by_all(target).to_pylist(), key=lambda row: row[key])


@pytest.mark.parametrize("way", ["method", "list", "argument", "option"])
def test_partition_by_reaches_the_sink(spark: SparkSession, tmp_path: Path, way: str) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "t"
    drop(source, "1.json", RECORDS)
    writer = _given(spark, source).writeStream.format("delta").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(state))
    arguments: dict[str, Any] = {}
    if way == "method":
        writer = writer.partitionBy("day", "who")
    elif way == "list":
        writer = writer.partitionBy(["day", "who"])
    elif way == "option":
        writer = writer.option("partitionBy", "day, who")
    else:
        arguments = {"partitionBy": ["day", "who"]}
    writer.start(str(target), **arguments).awaitTermination()
    assert snapshot_of(target).metadata.partition_columns == ["day", "who"]
    assert [(row["id"], row["who"]) for row in _sorted(target)] == [
        (1, "a/b c%"),
        (2, None),
        (3, None),
    ]
    frame = spark.read.format("delta").load(str(target))
    assert frame.where("who IS NULL and day = DATE'2024-02-01'").count() == 1


def test_clusters_and_names_of_tables_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    drop(tmp_path / "in", "1.json", RECORDS)
    writer = _given(spark, tmp_path / "in").writeStream.format("delta")
    writer = writer.option("checkpointLocation", str(tmp_path / "s"))
    with pytest.raises(OptionError, match=r"knows no table by name.*path"):
        writer.toTable("main.sales.orders")
    with pytest.raises(OptionError, match="clustered"):
        writer.clusterBy("id").start(str(tmp_path / "t"))


def test_a_running_query_goes_on_when_a_column_is_renamed(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, target = tmp_path / "in", tmp_path / "t"
    drop(source, "1.json", RECORDS[:1])
    query = (
        _given(spark, source)
        .writeStream.format("delta")
        .option("checkpointLocation", str(tmp_path / "state"))
        .option("delta.columnMapping.mode", "name")
        .start(str(target))
    )
    try:
        query.processAllAvailable()
        rename_column(str(target), "who", "customer")
        drop(source, "2.json", RECORDS[1:2])
        query.processAllAvailable()
    finally:
        query.stop()
    assert [row["customer"] for row in _sorted(target)] == ["a/b c%", None]


def test_a_null_where_none_may_be_fails_before_anything_is_visible(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, target = tmp_path / "in", tmp_path / "t"
    drop(source, "1.json", RECORDS)
    strict = pa.schema([("id", pa.int64()), pa.field("who", pa.string(), nullable=False)])
    DeltaTable.create(str(target), strict)
    query = (
        _given(spark, source)
        .writeStream.format("delta")
        .option("mergeSchema", "true")
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start(str(target))
    )
    with pytest.raises(StreamingQueryException, match="NOT NULL constraint violated") as told:
        query.awaitTermination()
    assert isinstance(told.value, SchemaMismatchError)
    assert "column: who" in str(told.value)
    assert DeltaTable(str(target)).version() == 0
    assert not list(target.rglob("*.parquet"))


def test_a_column_without_merge_schema_fails_before_any_task(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, target = tmp_path / "in", tmp_path / "t"
    drop(source, "1.json", RECORDS)
    DeltaTable.create(str(target), pa.schema([("id", pa.int64())]))
    query = (
        _given(spark, source)
        .writeStream.format("delta")
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start(str(target))
    )
    with pytest.raises(SinkError, match="A schema mismatch detected when writing"):
        query.awaitTermination()
    assert not list(target.rglob("*.parquet"))


def test_a_job_writes_by_the_layout_of_its_table(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "t"
    drop(source, "1.json", RECORDS)
    spec = JobSpec(
        kind="ingest",
        source=str(source),
        format="json",
        checkpoint_location=str(state),
        target=str(target),
        options={
            "partitionBy": "who",
            "delta.columnMapping.mode": "name",
            "cloudFiles.schemaHints": "id LONG",
        },
        run_id="run",
    )
    rules = WriteRules.of(spec.table_options)
    assert rules.partition_by == ("who",)
    strings = [(name, pa.string()) for name in ("day", "who", "_rescued_data")]
    schema = pa.schema([("id", pa.int64()), *strings])
    check_target(str(target), schema, replace(rules, merge_schema=True))
    stream(spark, source, state, **{"cloudFiles.schemaHints": "id LONG"})  # infers the schema
    run_in(spark, spec)
    rename_column(str(target), "id", "key")
    set_properties(str(target), {"delta.enableTypeWidening": "true"})
    drop(source, "2.json", [{"id": 4, "day": "x", "who": "a/b c%"}])
    run_in(spark, spec)
    frame = spark.read.format("delta").load(str(target)).orderBy("key")
    assert [(row["key"], row["who"]) for row in frame.collect()] == [
        (1, "a/b c%"),
        (2, None),
        (3, None),
        (4, "a/b c%"),
    ]
    assert len({str(file.partition_values) for file in snapshot_of(target).files}) == 2
