"""Spark reads Delta tables that others wrote, rightly or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_cloudfiles.engine.errors import UnsupportedTableError
from tests.support.delta_tables import HandMadeTable, column, features, removed

pytestmark = pytest.mark.spark


def made_by_others(folder: Path) -> HandMadeTable:
    """A column-mapped, partitioned table with a deletion vector in its second version."""
    made = HandMadeTable(folder)
    rows = {"col-1": list(range(10)), "col-3": [{"col-4": str(each)} for each in range(10)]}
    inner = {"type": "struct", "fields": [column("x", "string", 4)]}
    columns = [column("p", "date", 2), column("a", "long", 1), column("n", inner, 3)]
    whole = made.file("part-0.parquet", rows, partition={"col-2": "2024-02-29"})
    made.create(
        whole,
        protocol=features("columnMapping", "deletionVectors"),
        columns=columns,
        partitions=("p",),
        delta_columnMapping_mode="name",
    )
    vector = made.vector([0, 2, 3, 4, 5, 6, 7, 8])
    made.commit(removed(whole), {"add": {**whole["add"], "deletionVector": vector}})
    return made


def test_spark_reads_mapped_columns_vectors_and_earlier_versions(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = made_by_others(tmp_path / "t")
    for name in ("delta", "deltalake"):
        frame = spark.read.format(name).load(str(made.folder))
        assert frame.schema.simpleString() == "struct<p:date,a:bigint,n:struct<x:string>>"
        found = [(str(row.p), row.a, row.n.x) for row in frame.orderBy("a").collect()]
        assert found == [("2024-02-29", 1, "1"), ("2024-02-29", 9, "9")]
    earlier = spark.read.format("delta").option("versionAsOf", 0).load(str(made.folder))
    assert earlier.count() == 10
    assert earlier.where("a > 7 and p = DATE'2024-02-29'").select("n.x").count() == 2


def test_a_table_that_cannot_be_read_rightly_is_refused_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = made_by_others(tmp_path / "t")
    made.commit({"protocol": features("columnMapping", "deletionVectors", "somethingNew")})
    with pytest.raises(UnsupportedTableError, match=r"table feature somethingNew, which"):
        spark.read.format("delta").load(str(made.folder))


def test_a_frame_of_a_table_that_changed_since_says_so(  # B139
    spark: SparkSession, tmp_path: Path
) -> None:
    made = made_by_others(tmp_path / "t")
    frame = spark.read.format("delta").load(str(made.folder))
    columns = [column("a", "string", 1)]
    mapping = {"delta.columnMapping.mode": "name"}
    made.commit(made.metadata(columns, (), mapping))
    with pytest.raises(PySparkException, match=r"changed in an incompatible way"):
        frame.collect()
