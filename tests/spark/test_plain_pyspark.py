"""The documented snippets run on open-source Spark, and heal over a new column."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from airflow_cloudfiles import UnknownFieldException, register
from airflow_cloudfiles.engine.errors import (
    IncompatibleSchemaError,
    OptionError,
    SchemaInferenceError,
    SchemaMismatchError,
    TargetNotDeltaError,
    UnknownOptionError,
)
from tests.support.landing import drop, rows, run, stream

pytestmark = pytest.mark.spark


def test_the_first_documented_snippet_lands_every_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "1.json", [{"a": 1, "b": {"c": 2.5}}, {"a": 2}])
    for _ in range(2):
        spark.readStream.format("cloudFiles").option("cloudFiles.format", "json").option(
            "cloudFiles.schemaLocation", str(state)
        ).load(str(source)).writeStream.format("delta").option("mergeSchema", "true").option(
            "checkpointLocation", str(state)
        ).trigger(availableNow=True).start(str(target)).awaitTermination()
    assert sorted(rows(target), key=lambda r: r["a"]) == [
        {"a": "1", "b": {"c": "2.5"}, "_rescued_data": None},  # B5, B17, B70
        {"a": "2", "b": None, "_rescued_data": None},
    ]


@pytest.mark.parametrize("sink", ["delta", "deltalake", "parquet"])
def test_a_new_column_fails_the_query_and_a_restart_continues_with_it(
    spark: SparkSession, tmp_path: Path, sink: str
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "1.json", [{"a": 1}])
    run(stream(spark, source, state), state, target, sink)
    drop(source, "2.json", [{"a": 2, "currency": "USD"}])
    drop(source, "3.json", [{"a": 3, "country": "CH"}])
    with pytest.raises(UnknownFieldException, match="UNKNOWN_FIELD_EXCEPTION") as caught:  # B66
        run(stream(spark, source, state), state, target, sink)
    assert isinstance(caught.value, StreamingQueryException)
    assert caught.value.is_retryable
    assert sorted(path.name for path in (state / "_schemas").iterdir()) == ["0", "1"]  # B45, B47
    found = spark.read.format("parquet").load(str(target)).count() if sink == "parquet" else None
    assert found in {None, 1}
    run(stream(spark, source, state), state, target, sink)  # B46
    if sink == "parquet":
        frame = spark.read.option("mergeSchema", "true").parquet(str(target))
        got = {r["a"]: (r["currency"], r["country"]) for r in frame.collect()}
        assert frame.count() == 3
    else:
        table = rows(target)
        assert len(table) == 3
        got = {r["a"]: (r["currency"], r["country"]) for r in table}
    assert got == {"1": (None, None), "2": ("USD", None), "3": (None, "CH")}


def test_the_second_documented_snippet_rescues_beside_a_given_schema(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    file = drop(source, "1.json", [{"a": 1, "b": "x"}, {"a": "no number", "new": [1, {"d": 2}]}])
    expected_schema = StructType([StructField("a", LongType()), StructField("b", StringType())])
    spark.readStream.format("cloudFiles").schema(expected_schema).option(
        "cloudFiles.format", "json"
    ).option("cloudFiles.schemaEvolutionMode", "rescue").load(str(source)).writeStream.format(
        "delta"
    ).option("checkpointLocation", str(state)).trigger(availableNow=True).start(
        str(target)
    ).awaitTermination()
    found = sorted(rows(target), key=lambda r: r["b"] or "")
    assert found[1] == {"a": 1, "b": "x", "_rescued_data": None}
    assert (found[0]["a"], found[0]["b"]) == (None, None)
    rescued = json.loads(found[0]["_rescued_data"])  # B54, B80
    assert rescued == {"a": "no number", "new": [1, {"d": 2}], "_file_path": file.as_uri()}
    assert list(rescued)[-1] == "_file_path"


def test_the_third_documented_snippet_needs_no_schema_location_and_evolves(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"

    def once() -> None:
        spark.readStream.format("cloudFiles").option("cloudFiles.format", "json").option(
            "cloudFiles.schemaHints", "headers map<string,string>, statusCode SHORT"
        ).load(str(source)).writeStream.format("delta").option("mergeSchema", "true").option(
            "checkpointLocation", str(state)
        ).trigger(availableNow=True).start(str(target)).awaitTermination()

    drop(source, "1.json", [{"headers": {"x": "1"}, "statusCode": 200}])
    once()
    drop(source, "0.json", [{"headers": {}, "statusCode": 404, "agent": "curl"}])
    with pytest.raises(UnknownFieldException):
        once()
    once()
    found = sorted(rows(target), key=lambda r: r["statusCode"])
    assert [r["statusCode"] for r in found] == [200, 404]
    assert [r["agent"] for r in found] == [None, "curl"]
    assert dict(found[0]["headers"]) == {"x": "1"}


def test_fail_on_new_columns_keeps_failing_and_leaves_the_log_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    mode = {"cloudFiles.schemaEvolutionMode": "failOnNewColumns"}
    drop(source, "1.json", [{"a": 1}])
    run(stream(spark, source, state, **mode), state, target)
    bad = drop(source, "2.json", [{"a": 2, "new": 1}])
    for _ in range(2):  # B52
        with pytest.raises(UnknownFieldException) as caught:
            run(stream(spark, source, state, **mode), state, target)
        assert not caught.value.is_retryable
    assert [path.name for path in (state / "_schemas").iterdir()] == ["0"]
    bad.unlink()
    drop(source, "3.json", [{"a": 3}])
    run(stream(spark, source, state, **mode), state, target)
    assert sorted(r["a"] for r in rows(target)) == ["1", "3"]
    drop(source, "4.json", [{"a": 4, "new": 1}])
    with pytest.raises(UnknownFieldException, match="schemaHints"):
        run(stream(spark, source, state, **mode), state, target)
    hinted = mode | {"cloudFiles.schemaHints": "new INT"}
    run(stream(spark, source, state, **hinted), state, target)
    assert sorted((r["a"], r["new"]) for r in rows(target) if r["new"]) == [("4", 1)]


def test_fail_on_new_columns_beside_a_given_schema_rescues_and_heals(
    spark: SparkSession, tmp_path: Path
) -> None:  # B52, B53
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"

    def once(schema: str) -> None:
        reader = spark.readStream.format("cloudFiles").schema(schema)
        reader = reader.option("cloudFiles.format", "json")
        reader = reader.option("cloudFiles.schemaEvolutionMode", "failOnNewColumns")
        run(reader.load(str(source)), state, target)

    drop(source, "1.json", [{"a": 1}, {"a": "$2"}])
    once("a LONG")
    drop(source, "2.json", [{"a": 3, "new": "n"}])
    with pytest.raises(UnknownFieldException, match=r"\.schema\(\.\.\.\)"):
        once("a LONG")
    once("a LONG, new STRING")
    found = rows(target)
    assert sorted(r["a"] for r in found if r["a"]) == [1, 3]
    assert [json.loads(r["_rescued_data"])["a"] for r in found if r["a"] is None] == ["$2"]
    assert [r["new"] for r in found if r["a"] == 3] == ["n"]


def test_mode_none_drops_new_columns_silently_because_it_was_asked_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "1.json", [{"a": 1, "new": 2}])
    frame = (
        spark.readStream.format("cloudFiles")
        .schema("a long")
        .option("cloudFiles.format", "json")
        .load(str(source))
    )
    run(frame, state, target)  # B55, B56
    assert rows(target) == [{"a": 1}]


def test_a_definition_older_than_the_schema_log_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "1.json", [{"a": 1}])
    old = stream(spark, source, state)
    drop(source, "2.json", [{"a": 2, "b": 1}])
    with pytest.raises(UnknownFieldException):
        run(old, state, target)
    with pytest.raises(IncompatibleSchemaError, match="load"):
        run(old, state, target)


def test_one_frame_started_twice_keeps_two_states(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    drop(source, "1.json", [{"a": 1}, {"a": 2}])
    frame = stream(spark, source, tmp_path / "schema")
    queries = [
        frame.where("a = '1'" if name == "x" else "a = '2'")
        .writeStream.format("delta")
        .option("checkpointLocation", str(tmp_path / f"state-{name}"))
        .trigger(availableNow=True)
        .start(str(tmp_path / name))
        for name in ("x", "y")
    ]
    for query in queries:
        query.awaitTermination()
    assert [rows(tmp_path / name)[0]["a"] for name in ("x", "y")] == ["1", "2"]


def test_without_merge_schema_a_new_column_is_refused_by_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "1.json", [{"a": 1}])
    run(stream(spark, source, state), state, target)
    drop(source, "2.json", [{"a": 2, "b": 1}])
    with pytest.raises(UnknownFieldException):
        run(stream(spark, source, state), state, target)
    query = (
        stream(spark, source, state)
        .writeStream.format("delta")
        .option("checkpointLocation", str(state))
        .trigger(availableNow=True)
        .start(str(target))
    )
    with pytest.raises(SchemaMismatchError, match="mergeSchema"):  # B68
        query.awaitTermination()
    assert len(rows(target)) == 1
    run(stream(spark, source, state), state, target)
    assert len(rows(target)) == 2


def test_max_files_per_trigger_cuts_the_backlog_into_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    for number in range(25):
        drop(source, f"{number:02}.json", [{"a": number}])
    limit = {"cloudFiles.maxFilesPerTrigger": "10"}
    query = run(stream(spark, source, state, **limit), state, target)
    batches = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
    assert batches == [10, 10, 5]  # B109
    assert sorted(int(r["a"]) for r in rows(target)) == list(range(25))
    run(stream(spark, source, state, **limit), state, target)  # B114
    assert len(rows(target)) == 25


def test_errors_of_a_definition_are_ours_and_say_what_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    reader = spark.readStream.format("cloudFiles").option("cloudFiles.format", "json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SchemaInferenceError, match="schema"):  # B4
        stream(spark, tmp_path / "empty", tmp_path / "state")
    with pytest.raises(UnknownOptionError, match=r"cloudFiles\.maxFilesPerTrigger"):  # B101
        reader.option("cloudFiles.maxFilePerTrigger", "1").load(str(tmp_path))
    drop(tmp_path / "in", "1.json", [{"a": 1}])
    with pytest.raises(OptionError, match="checkpointLocation"):
        stream(spark, tmp_path / "in", tmp_path / "s").writeStream.format("delta").start("x")
    clustered = stream(spark, tmp_path / "in", tmp_path / "s").writeStream.format("delta")
    with pytest.raises(OptionError, match="clusterBy"):
        clustered.clusterBy("a").option("checkpointLocation", "c").start("x")
    with pytest.raises(OptionError, match="addNewColumns"):  # B51
        spark.readStream.format("cloudFiles").schema("a long").options(
            **{"cloudFiles.format": "json", "cloudFiles.schemaEvolutionMode": "addNewColumns"}
        ).load(str(tmp_path / "in"))


def test_a_schema_may_promise_what_records_do_not_keep(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)  # as with Spark's file sources; Spark itself would fail: "Value is null"
    drop(tmp_path / "in", "1.json", [{"a": 1, "s": {"x": 1}}, {"s": {}}, {"a": None, "s": None}])
    query = (
        spark.readStream.format("cloudFiles")
        .option("cloudFiles.format", "json")
        .schema("a LONG NOT NULL, s STRUCT<x: INT NOT NULL> NOT NULL")
        .load(str(tmp_path / "in"))
        .selectExpr("coalesce(a, -1) AS a", "s.x IS NULL AS no_x")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(map(tuple, found)) == [(-1, True), (-1, True), (1, False)]


def test_other_formats_are_untouched_by_registration(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    drop(tmp_path / "in", "1.json", [{"a": 1}])
    frame = spark.readStream.schema("a long").json(str(tmp_path / "in"))
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).collect()[0]["a"] == 1


def test_partition_columns_come_from_the_path_and_what_does_not_fit_is_rescued(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    typed = {"cloudFiles.inferColumnTypes": "true"}
    drop(source, "event=click/date=2021-04-01/f0.json", [{"a": 1}])
    run(stream(spark, source, state, **typed), state, target)  # B36, B37
    odd = drop(source, "event=view/date=someday/f1.json", [{"a": 2}, {"a": "x"}])
    drop(source, "event=view/date=2021-04-02/hour=01/f2.json", [{"a": 4}])  # B41
    run(stream(spark, source, state, **typed), state, target)
    found = sorted(rows(target), key=lambda r: (r["event"], str(r["date"]), r["a"] or 9))
    assert [(r["a"], r["event"], str(r["date"])) for r in found] == [
        (1, "click", "2021-04-01"),
        (4, "view", "2021-04-02"),
        (2, "view", "None"),
        (None, "view", "None"),
    ]
    rescued = [json.loads(r["_rescued_data"] or "null") for r in found]
    lost = {"date": "someday", "_file_path": f"file://{odd}"}
    assert rescued == [None, None, lost, {**lost, "a": "x"}]


def test_a_clash_of_types_beside_a_new_nested_field_heals_with_one_retry(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "1.json", [{"a": {"b": 1}}])
    run(stream(spark, source, state), state, target)
    drop(source, "2.json", [{"a": "text"}, {"a": {"b": 1, "new": 2}}])
    with pytest.raises(UnknownFieldException):
        run(stream(spark, source, state), state, target)
    run(stream(spark, source, state), state, target)
    assert sorted(str(r["a"]) for r in rows(target)) == [
        "None",
        "{'b': '1', 'new': '2'}",
        "{'b': '1', 'new': None}",
    ]


def test_a_table_is_read_back_without_jars_over_an_evolution(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, state, target = tmp_path / "in", tmp_path / "state", tmp_path / "table"
    drop(source, "1.json", [{"a": 1}])
    run(stream(spark, source, state), state, target)
    drop(source, "2.json", [{"a": 2, "b": {"c": [1, 2]}}])
    with pytest.raises(UnknownFieldException):
        run(stream(spark, source, state), state, target)
    run(stream(spark, source, state), state, target)
    frame = spark.read.format("delta").load(str(target))
    assert frame.columns == ["a", "_rescued_data", "b"]
    found = [(r["a"], r["b"] and r["b"]["c"]) for r in frame.orderBy("a").collect()]
    assert found == [("1", None), ("2", ["1", "2"])]
    assert frame.where("b.c[0] = '1'").count() == 1
    with pytest.raises(TargetNotDeltaError, match=r"^There is no Delta table"):
        spark.read.format("deltalake").load(str(tmp_path / "nowhere"))


def test_state_and_target_below_the_source_are_never_ingested(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    drop(source, "1.json", [{"a": 1}])
    for _ in range(3):  # B91
        run(stream(spark, source, source / "state"), source / "state", source / "table")
    drop(source, "2.json", [{"a": 2}])
    run(stream(spark, source, source / "state"), source / "state", source / "table")
    assert sorted(r["a"] for r in rows(source / "table")) == ["1", "2"]
