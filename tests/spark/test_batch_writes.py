"""`df.write.format("delta")` without jars: the modes, and what each refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from airflow_cloudfiles import merge_into
from airflow_cloudfiles.engine.errors import (
    OptionError,
    SchemaMismatchError,
    SinkError,
    TargetConflictError,
    UnknownOptionError,
)
from airflow_cloudfiles.engine.extensions.merge.batch_write import BatchWrite
from airflow_cloudfiles.engine.tables.delta.read.log import STAGED
from tests.support.delta_tables import read_by_duckdb, sorted_rows

pytestmark = pytest.mark.spark


def _frame(spark: SparkSession, *rows: tuple[Any, ...], schema: str = "id INT, v STRING") -> Any:
    return spark.createDataFrame(list(rows), schema)


def _rows(target: Path) -> list[tuple[Any, ...]]:
    table = DeltaTable(target).to_pyarrow_dataset().to_table()
    assert sorted_rows(read_by_duckdb(target)) == sorted_rows(table)
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.mark.parametrize("way", ["method", "before", "list", "argument", "place"])
def test_partition_by_reaches_the_table(spark: SparkSession, tmp_path: Path, way: str) -> None:
    target = str(tmp_path / "t")
    writer = _frame(spark, (1, "a"), (2, "b")).write
    if way == "before":
        writer.partitionBy("v").format("delta").save(target)
    elif way == "argument":
        writer.save(target, format="delta", partitionBy=["v"])
    elif way == "place":
        writer.save(target, "deltalake", "append", "v")
    else:
        writer = writer.format("delta").partitionBy(["v"] if way == "list" else "v")
        writer.mode("append").save(target)
        writer.save(target)
        with pytest.raises(SchemaMismatchError, match="partitioned by v, and partitionBy asks for"):
            writer.partitionBy("id").save(target)
    assert DeltaTable(target).metadata().partition_columns == ["v"]
    assert {row.v for row in spark.read.format("delta").load(target).collect()} == {"a", "b"}
    writer.partitionBy("id").format("parquet").mode("overwrite").save(str(tmp_path / "p"))
    assert {path.name for path in (tmp_path / "p").glob("id=*")} == {"id=1", "id=2"}


def test_columns_without_a_type_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    target = str(tmp_path / "t")
    frame = _frame(spark, (1, "a")).withColumn("n", lit(None))
    frame.write.format("delta").save(target)
    frame.select("id", lit(None).alias("v")).write.format("delta").mode("append").save(target)
    found = spark.read.format("delta").load(target).collect()
    assert sorted(map(tuple, found), key=str) == [(1, "a", None), (1, None, None)]


def test_the_modes_of_a_write(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "t"
    _frame(spark, (1, "a")).write.format("delta").save(str(target))
    with pytest.raises(SinkError, match=r"There is a Delta table at .* already"):
        _frame(spark, (2, "b")).write.format("delta").save(str(target))
    _frame(spark, (2, "b")).write.format("delta").mode("ignore").save(str(target))
    assert _rows(target) == [(1, "a")]
    _frame(spark, (2, "b")).write.mode("append").format("deltalake").option(
        "path", str(target)
    ).save()
    assert _rows(target) == [(1, "a"), (2, "b")]
    _frame(spark, (3, "c")).write.save(str(target), format="delta", mode="overwrite")
    assert _rows(target) == [(3, "c")]
    assert DeltaTable(target).version() == 3
    writer = _frame(spark, (4, "d")).write.format("delta")
    writer.save(str(tmp_path / "new"))
    with pytest.raises(SinkError, match="already"):
        writer.save(str(tmp_path / "new"))
    with pytest.raises(AnalysisException, match="upsert"):  # Spark's own
        writer.mode("upsert").save(str(target))
    parquet = _frame(spark, (1, "a")).write.mode("ignore")
    parquet.parquet(str(tmp_path / "p"))
    assert spark.read.parquet(str(tmp_path / "p")).count() == 1


def test_columns_are_enforced_merged_or_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    target = str(tmp_path / "t")
    _frame(spark, (1, "a")).write.format("delta").save(target)
    wide = _frame(spark, (2, "b", 0.5), schema="id INT, v STRING, x DOUBLE")
    for mode in ("append", "overwrite"):
        with pytest.raises(SchemaMismatchError, match="mergeSchema"):
            wide.write.format("delta").mode(mode).save(target)
    wide.write.format("delta").mode("append").option("mergeSchema", "true").save(target)
    assert _rows(tmp_path / "t") == [(1, "a", None), (2, "b", 0.5)]
    other = _frame(spark, ("x",), schema="v STRING")
    other = other.selectExpr("v", "array(1L) AS id")
    with pytest.raises(SchemaMismatchError, match="Failed to merge fields"):
        other.write.format("delta").mode("overwrite").save(target)
    other.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(target)
    assert _rows(tmp_path / "t") == [("x", [1])]
    assert [path.name for path in (tmp_path / "t").glob("*.parquet")], "old versions stay readable"
    assert spark.read.format("delta").option("versionAsOf", 1).load(target).count() == 1


def test_a_part_of_the_rows_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    target = str(tmp_path / "t")
    schema = "id INT, day DATE, v STRING"
    days = ["2024-01-01", "2024-01-02", None]
    spark.sql(
        "SELECT * FROM VALUES (1, DATE'2024-01-01', 'a'), (2, DATE'2024-01-02', 'a'), "
        "(3, NULL, 'a') AS t(id, day, v)"
    ).coalesce(1).write.format("delta").save(target)
    del schema, days
    new = spark.sql("SELECT 4 AS id, DATE'2024-01-02' AS day, 'b' AS v")
    writer = new.write.format("delta").mode("overwrite")
    with pytest.raises(SinkError, match="1 row of the DataFrame does not match replaceWhere"):
        writer.option("replaceWhere", "day = '2024-01-01'").save(target)
    assert DeltaTable(target).version() == 1
    assert not list((tmp_path / "t" / STAGED).glob("*"))
    writer.option("replaceWhere", "day >= '2024-01-02'").save(target)
    found = [(row[0], str(row[1]), row[2]) for row in _rows(tmp_path / "t")]
    assert found == [(1, "2024-01-01", "a"), (3, "None", "a"), (4, "2024-01-02", "b")]
    assert not list((tmp_path / "t" / STAGED).glob("*"))
    none = new.where("false").write.format("delta").mode("overwrite")
    # Its columns are NOT NULL, being literals; those of the table are not.
    none.option("replaceWhere", "id = 1 OR day IS NULL").save(target)
    assert [row[0] for row in _rows(tmp_path / "t")] == [4]


@pytest.mark.parametrize(
    ("mode", "options", "error", "message"),
    [
        ("append", {"overwriteSchema": "true"}, OptionError, 'needs mode\\("overwrite"\\)'),
        ("append", {"replaceWhere": "id = 1"}, OptionError, 'needs mode\\("overwrite"\\)'),
        ("overwrite", {"mergeKeys": "id"}, OptionError, 'mergeKeys needs mode\\("append"\\)'),
        ("overwrite", {"replaceWhere": "id = 1; --"}, OptionError, "cannot be used"),
        (
            "overwrite",
            {"replaceWhere": "id = 1", "overwriteSchema": "true"},
            OptionError,
            "Give one",
        ),
        ("overwrite", {"partitionOverwriteMode": "dynamic"}, OptionError, "use replaceWhere|Name"),
        ("append", {"txnAppId": "a"}, OptionError, "go together"),
        ("append", {"mergeDeleteWhen": "id = 1"}, OptionError, "needs mergeKeys"),
        ("overwrite", {"overwriteShcema": "true"}, UnknownOptionError, "overwriteSchema"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    spark: SparkSession,
    tmp_path: Path,
    mode: str,
    options: dict[str, str],
    error: type[Exception],
    message: str,
) -> None:
    writer = _frame(spark, (1, "a")).write.format("delta").mode(mode).options(**options)
    with pytest.raises(error, match=message):
        writer.save(str(tmp_path / "t"))
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_a_write_with_a_transaction_is_done_once(spark: SparkSession, tmp_path: Path) -> None:
    target = str(tmp_path / "t")

    def write(value: str, mode: str, version: int, **more: str) -> None:
        writer = _frame(spark, (1, value)).write.format("delta").mode(mode).options(**more)
        writer.option("txnAppId", "app").option("txnVersion", version).save(target)

    for mode, version in (("append", 1), ("overwrite", 2), ("append", 3)):
        write(mode, mode, version)
        write("again", mode, version)
        write("older", mode, 0)
    assert _rows(tmp_path / "t") == [(1, "append"), (1, "overwrite")]
    write("merged", "append", 4, mergeKeys="id", mergeWhenMatched="delete")
    write("merged", "append", 4, mergeKeys="id")
    assert _rows(tmp_path / "t") == []
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 3, "files of skipped writes are removed"


def test_an_append_beside_an_overwrite_is_not_kept_by_chance(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(tmp_path / "t")
    _frame(spark, (1, "a")).write.format("delta").save(target)
    append = _frame(spark, (2, "b")).write.format("delta").mode("append")
    slow = spark.range(1).selectExpr("CAST(id AS INT) AS id", "'c' AS v")

    def pause(batches: Any) -> Any:
        import subprocess
        import sys

        code = (
            "import sys, pyarrow as pa; from deltalake import write_deltalake; "
            "write_deltalake(sys.argv[1], pa.table({'id': pa.array([9], pa.int32()), "
            "'v': ['x']}), mode='append')"
        )
        for batch in batches:
            subprocess.run([sys.executable, "-c", code, target], check=True)
            yield batch

    beside = slow.mapInArrow(pause, "id INT, v STRING")
    for option in ({}, {"replaceWhere": "id >= 0"}, {"overwriteSchema": "true"}):
        writer = beside.write.format("delta").mode("overwrite").options(**option)
        with pytest.raises(TargetConflictError, match="nothing was overwritten"):
            writer.save(target)
    assert _rows(tmp_path / "t") == [(1, "a"), (9, "x"), (9, "x"), (9, "x")]
    append.save(target)
    assert len(_rows(tmp_path / "t")) == 5
    assert BatchWrite.__doc__


def test_batches_of_any_query_are_merged_once(spark: SparkSession, tmp_path: Path) -> None:
    source, target = str(tmp_path / "in"), str(tmp_path / "t")
    merge = merge_into(target, keys=["id"], order_by="at", delete_when="op = 'D'")
    calls: list[int] = []

    def twice(frame: Any, batch: int) -> None:
        calls.append(batch)
        merge(frame, batch)
        merge(frame, batch)

    def run() -> None:
        stream = spark.readStream.schema("id INT, at INT, op STRING").parquet(source)
        query = stream.writeStream.foreachBatch(twice).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "state")).start().awaitTermination()

    schema = "id INT, at INT, op STRING"
    _frame(spark, (1, 1, "U"), (1, 2, "U"), (2, 1, "U"), schema=schema).write.parquet(source)
    run()
    _frame(spark, (1, 1, "late"), (2, 2, "D"), (3, 1, "U"), schema=schema).write.mode(
        "append"
    ).parquet(source)
    run()
    assert calls == [0, 1]
    assert _rows(tmp_path / "t") == [(1, 2, "U"), (3, 1, "U")]
    assert DeltaTable(target).version() == 2
    with pytest.raises(OptionError, match="Give app_id"):
        merge(_frame(spark, (1, 1, "U"), schema=schema), 7)
    with pytest.raises(OptionError, match="keys must be a list"):
        merge_into(target, keys="id")


def test_a_streaming_query_merges(spark: SparkSession, tmp_path: Path) -> None:
    source, target = str(tmp_path / "in"), tmp_path / "t"
    for wave in range(3):
        _frame(spark, (1, f"{wave}"), (10 + wave, "x")).coalesce(1).write.mode("append").parquet(
            source
        )
        stream = spark.readStream.schema("id INT, v STRING").parquet(source)
        query = stream.writeStream.format("delta").option("mergeKeys", "id")
        query = query.option("checkpointLocation", str(tmp_path / "state"))
        query.trigger(availableNow=True).start(str(target)).awaitTermination()
    assert _rows(target) == [(1, "2"), (10, "x"), (11, "x"), (12, "x")]
