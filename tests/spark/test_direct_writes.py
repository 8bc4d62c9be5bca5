"""The rows of a query that only moves files into a table do not pass Spark; those of others do."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from airflow_cloudfiles import UnknownFieldException, cloud_files_state
from airflow_cloudfiles.engine.errors import ReadError
from airflow_cloudfiles.engine.spark.source import CloudFilesDataSource
from airflow_cloudfiles.engine.state.sink_log import SinkLog
from airflow_cloudfiles.engine.storage import open_store
from tests.support.landing import drop, rows, run, stream

pytestmark = pytest.mark.spark

COLUMNS = (
    "b BOOLEAN, i INT, l BIGINT, d DOUBLE, m DECIMAL(12, 2), s STRING, day DATE, t TIMESTAMP, "
    "n TIMESTAMP_NTZ, x BINARY, a ARRAY<STRUCT<k: STRING, v: INT>>, st STRUCT<y: TIMESTAMP>"
)
RECORD = {
    "b": True,
    "i": 1,
    "l": 2**60,
    "d": 0.1,
    "m": "12.34",
    "s": "\U00020bb7",
    "day": "0001-01-01",
    "t": "2024-02-29T12:00:00.123456+05:30",
    "n": "2024-02-29T12:00:00",
    "x": "AAEC",
    "a": [{"k": "z", "v": 1}, {"k": None}],
    "st": {"y": "9999-12-31T23:59:59Z"},
}


def is_direct(query: StreamingQuery) -> bool:
    """Whether the plan of the query's last micro-batch has what tasks have written, and no rows."""
    plan = query._jsq.explainInternal(False)
    assert "MicroBatchScan" in plan
    return "written_by_task" in plan


def files(state: Path) -> list[dict[str, Any]]:
    """What the state shows of its files."""
    found: list[dict[str, Any]] = cloud_files_state(str(state)).read_all().to_pylist()
    return found


def through_spark(frame: DataFrame) -> DataFrame:
    """The same rows, which pass Spark."""
    return frame.where("true OR rand() > 2")


@pytest.mark.parametrize("given", [False, True], ids=["inferred", "given"])
def test_both_ways_give_the_same_table(spark: SparkSession, tmp_path: Path, given: bool) -> None:
    source = tmp_path / "in"
    drop(source, "1.json", [RECORD, dict.fromkeys(RECORD)])
    drop(source, "2.json", [{**RECORD, "i": "no number"}])
    tables = {}
    for way in (lambda frame: frame, through_spark):
        place = tmp_path / str(len(tables))
        reader = spark.readStream.format("cloudFiles").option("cloudFiles.format", "json")
        reader = reader.option("cloudFiles.schemaLocation", str(place / "state"))
        reader = reader.option("rescuedDataColumn", "_rescued_data")
        if given:
            reader = reader.schema(COLUMNS)
        else:
            reader = reader.option("cloudFiles.schemaHints", COLUMNS)
        query = run(way(reader.load(str(source))), place / "state", place / "table")
        assert query.lastProgress["numInputRows"] == 3
        table = DeltaTable(str(place / "table"))
        tables[is_direct(query)] = table.to_pyarrow_table().sort_by("i"), table.schema().to_json()
    assert tables[True][0].equals(tables[False][0])
    assert json.loads(tables[True][1]) == json.loads(tables[False][1])


@pytest.mark.parametrize(
    ("change", "direct"),
    [
        (lambda frame: frame.select("c", "a"), True),
        (lambda frame: frame.drop("b", "_rescued_data"), True),
        (lambda frame: frame.withColumnRenamed("b", "B2").alias("q"), True),
        (lambda frame: frame.select(f.col("a").cast("string").alias("z"), "a"), True),
        (lambda frame: frame.select(f.col("a").cast("long")), False),
        (lambda frame: frame.withColumn("a", f.upper("a")), False),
        (lambda frame: frame.where("a > 0"), False),
        (lambda frame: frame.dropDuplicates(["a"]), False),
        (lambda frame: frame.union(frame), False),
        (lambda frame: frame.select("*", f.lit(1).alias("one")), False),
    ],
    ids=range(10),
)
def test_what_needs_the_rows_gets_them(
    spark: SparkSession, tmp_path: Path, change: Callable[[DataFrame], DataFrame], direct: bool
) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    drop(source, "1.json", [{"a": 1, "b": "x", "c": "1"}, {"a": 2, "b": "y", "c": "2"}])
    frame = change(stream(spark, source, state, checkpointLocation=str(state)))
    expected = frame.schema.names
    query = run(frame, state, tmp_path / "table")
    assert is_direct(query) is direct
    batch = spark.read.format("cloudFiles").option("cloudFiles.format", "json").load(str(source))
    wanted = [row.asDict() for row in change(batch).collect()]
    found = rows(tmp_path / "table")
    assert sorted(map(str, found)) == sorted(map(str, wanted))
    assert list(found[0]) == expected


def test_a_query_goes_on_in_the_other_way(spark: SparkSession, tmp_path: Path) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    ways: list[Callable[[DataFrame], DataFrame]] = [lambda frame: frame, through_spark]
    for number in range(1, 7):
        drop(source, f"{number}.json", [{"a": str(number)}] * number)
        query = run(ways[number % 2](stream(spark, source, state)), state, target)
        assert is_direct(query) is (number % 2 == 0)
        assert query.lastProgress["batchId"] == number - 1
        assert query.lastProgress["numInputRows"] == number
        metrics = query.lastProgress["sources"][0]["metrics"]
        assert metrics["numFilesOutstanding"] == "0"  # B116
    assert sorted(row["a"] for row in rows(target)) == sorted(
        str(n) for n in range(1, 7) for _ in range(n)
    )
    record = SinkLog(open_store(str(state))).must_have()
    assert record is not None
    assert (record.batch, record.read_by) == (5, "query")
    shown = [(row["path"], row["rows"], row["batch_rows"]) for row in files(state)]
    assert [(rows, of_batch) for _, rows, of_batch in sorted(shown)] == [
        (None, None) if number % 2 else (number, number) for number in range(1, 7)
    ]


def test_each_file_says_what_became_of_it(spark: SparkSession, tmp_path: Path) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "clean.json", [{"a": 1}, {"a": 2}])
    drop(source, "rescued.json", [{"a": 1}, {"a": "x"}])
    (source / "corrupt.json").write_text('{"a": 1}\n{"a"\n')
    reader = spark.readStream.format("cloudFiles").option("cloudFiles.format", "json")
    reader = reader.option("rescuedDataColumn", "_rescued_data").schema("a INT")
    assert is_direct(run(reader.load(str(source)), state, target))
    found = {
        row["path"].rpartition("/")[2]: (
            *(row[name] for name in ("rows", "rescued_rows", "corrupt_records", "run_id")),
            row["first_error_line"],
        )
        for row in files(state)
    }
    assert found == {
        "clean.json": (2, 0, 0, None, None),
        "rescued.json": (2, 1, 0, None, 2),
        "corrupt.json": (2, 1, 1, None, 2),
    }
    assert len(rows(target)) == 6


def test_of_a_batch_with_a_task_without_rows_nothing_is_said(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "rows.json", [{"a": "x" * 100}] * 60_000)
    (source / "empty.json").write_text("\n" * 6_000_000)
    query = run(stream(spark, source, state), state, target)
    assert is_direct(query)
    assert query.lastProgress["numInputRows"] == 60_000
    said = {(row["rows"], row["batch_rows"], row["batch_corrupt_records"]) for row in files(state)}
    assert said == {(None, None, None)}
    drop(source, "more.json", [{"a": "y"}])
    run(stream(spark, source, state), state, target)
    assert [row["rows"] for row in files(state) if row["batch_id"] == 1] == [1]


def test_a_new_column_fails_one_try_and_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "1.json", [{"a": "1"}])
    run(stream(spark, source, state), state, target)
    # Three splits: the tasks of two write their rows, that of the other finds the new column.
    drop(source, "2.json", [{"a": "x" * 100}] * 60_000)
    drop(source, "3.json", [{"a": "y" * 100}] * 60_000 + [{"a": "3", "b": "new"}])
    drop(source, "4.json", [{"a": "z" * 100}] * 60_000)
    with pytest.raises(UnknownFieldException, match=r"3\.json"):
        run(stream(spark, source, state), state, target)
    names = {Path(uri).name for uri in DeltaTable(str(target)).file_uris()}
    assert {each.name for each in target.rglob("*.parquet")} == names
    query = run(stream(spark, source, state), state, target)
    assert is_direct(query)
    assert len(rows(target)) == 180_002
    assert {row["b"] for row in rows(target)} == {None, "new"}


def test_errors_of_files_come_as_themselves(spark: SparkSession, tmp_path: Path) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    drop(source, "1.json", [{"a": "1"}])
    frame = stream(spark, source, state, mode="FAILFAST")
    (source / "2.json").write_text("{torn\n")
    with pytest.raises(ReadError, match=r"2\.json"):
        run(frame, state, tmp_path / "table")


def test_no_rows_are_a_batch_nevertheless(spark: SparkSession, tmp_path: Path) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "1.json", [])
    frame = stream(spark, source, state, **{"cloudFiles.schemaHints": "a STRING"})
    query = run(frame, state, target)
    assert query.lastProgress["numInputRows"] == 0
    assert DeltaTable(str(target)).to_pyarrow_table().schema.names == ["a", "_rescued_data"]
    assert rows(target) == []


def test_partitions_merges_and_names_of_queries_are_heeded(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "1.json", [{"k": "1", "p": "a", "v": "old"}, {"k": "2", "p": "b", "v": "old"}])

    def go() -> StreamingQuery:
        query = (
            stream(spark, source, state)
            .writeStream.format("delta")
            .outputMode("append")
            .partitionBy("p")
            .trigger(availableNow=True)
            .start(
                str(target),
                queryName="direct",
                checkpointLocation=str(state),
                mergeKeys="k",
                partitionBy="p",
            )
        )
        query.awaitTermination()
        return query

    assert go().name == "direct"
    drop(source, "2.json", [{"k": "2", "p": "b", "v": "new"}])
    assert is_direct(go())
    assert DeltaTable(str(target)).metadata().partition_columns == ["p"]
    assert {(row["k"], row["v"]) for row in rows(target)} == {("1", "old"), ("2", "new")}


def test_a_query_says_which_way_it_takes(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    drop(source, "1.json", [{"a": "1"}])
    with caplog.at_level(logging.INFO, logger="airflow_cloudfiles"):
        run(stream(spark, source, state), state, tmp_path / "table")
        run(stream(spark, source, state).where("a > 0"), state, tmp_path / "table")
    said = [
        each.getMessage() for each in caplog.records if each.name.endswith("spark.direct_write")
    ]
    assert said == [
        f"Tasks write to {tmp_path / 'table'} what they read; no row passes Spark.",
        "The rows pass Spark, since the query has Filter.",
    ]


def test_what_a_query_would_do_silently_is_warned_of(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    drop(source, "1.json", [{"a": "1"}])
    frame = stream(spark, source, state).withColumn("name", f.input_file_name())
    writer = frame.writeStream.option("mergeSchema", "true").trigger(availableNow=True)
    writer.option("checkpointLocation", str(state)).start(str(tmp_path / "out")).awaitTermination()
    said = "\n".join(each.getMessage() for each in caplog.records)
    assert 'add .format("deltalake") to writeStream' in said
    assert '.option("cloudFiles.metadataColumns", "file_path")' in said
    assert spark.read.parquet(str(tmp_path / "out")).first()["name"] == ""


def test_an_endless_trigger_is_silent_while_idle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, state = tmp_path / "in", str(tmp_path / "state")
    drop(source, "1.json", [{"a": "1"}])
    options = {"cloudFiles.format": "json", "path": str(source), "checkpointLocation": state}
    defined = CloudFilesDataSource(options)
    reader = defined.streamReader(defined.schema())
    offset = reader.initialOffset()
    said = []
    for look in range(6):
        if look == 4:
            drop(source, "2.json", [{"a": "2"}])
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="airflow_cloudfiles"):
            offset = reader.latestOffset(offset, reader.getDefaultReadLimit())
        said.append(len(caplog.records))
    reader.stop()
    # The first finds a file, the second that there is no other; the sixth looks after a finding.
    assert said[2:5] == [0, 0, 1]
    assert min(said[0], said[1], said[5]) > 0


def test_a_foreach_batch_beside_it_has_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    drop(source, "1.json", [{"a": "1"}])
    seen: list[Any] = []
    frame = stream(spark, source, state)
    writer = frame.writeStream.foreachBatch(lambda batch, _: seen.extend(batch.collect()))
    writer = writer.option("checkpointLocation", str(state)).trigger(availableNow=True)
    writer.start().awaitTermination()
    assert [row["a"] for row in seen] == ["1"]


def test_a_query_without_a_schema_location_infers_once(spark: SparkSession, tmp_path: Path) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    drop(source, "1.json", [{"a": 1}])
    reader = spark.readStream.format("cloudFiles").option("cloudFiles.format", "json")
    frame = reader.option("cloudFiles.inferColumnTypes", "true").load(str(source))
    # What has come since it was defined is not what it was defined with.
    drop(source, "2.json", [{"a": 2, "b": 1}])
    with pytest.raises(UnknownFieldException, match="b"):
        run(frame, state, tmp_path / "table")
    versions = sorted((state / "_schemas").glob("[0-9]*"))
    assert len(versions) == 2
    query = run(reader.load(str(source)), state, tmp_path / "table")
    assert is_direct(query)
    assert sorted((row["a"], row["b"]) for row in rows(tmp_path / "table")) == [(1, None), (2, 1)]
