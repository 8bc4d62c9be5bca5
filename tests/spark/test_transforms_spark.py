"""A function over micro-batches: what it makes of their rows is in the table, exactly once."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cloudfiles import operate_on_files
from airflow_cloudfiles.engine.errors import (
    ExpectationError,
    OptionError,
    RunError,
    TransformError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.job.batch_function import BatchFunction
from airflow_cloudfiles.engine.job.launch import LocalPython, LocalSpark, launch
from airflow_cloudfiles.engine.job.spec import JobSpec
from tests.support.iceberg_tables import LocalCatalog
from tests.support.landing import rows
from tests.support.shared_runs import run_in

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TYPED = {"cloudFiles.inferColumnTypes": "true"}


class Stream:
    """One stream, whose runs have a function."""

    def __init__(self, spark: SparkSession, folder: Path, **options: str) -> None:
        self.spark = spark
        self.source, self.state, self.target = (str(folder / n) for n in ("in", "state", "table"))
        Path(self.source).mkdir()
        self.options = {**TYPED, **options}
        self.format = "json"
        self.runs = 0

    def lands(self, name: str, *records: dict[str, Any]) -> None:
        text = "".join(f"{json.dumps(each)}\n" for each in records)
        Path(self.source, name).write_text(text)

    def spec(self) -> JobSpec:
        return JobSpec(
            kind="ingest",
            source=self.source,
            format=self.format,
            checkpoint_location=self.state,
            target=self.target,
            run_id=f"run-{self.runs}",
            options=self.options,
        )

    def run(self, function: Any, arguments: dict[str, Any] | None = None) -> Any:
        return run_in(self.spark, self.with_function(function, arguments))

    def launched(self, function: Any, arguments: dict[str, Any] | None = None) -> Any:
        """Run in a driver of its own, which the function has to reach."""
        how, spec = LocalSpark(master="local[2]"), self.with_function(function, arguments)
        return launch(spec, how, on_log=print).wait()

    def with_function(self, function: Any, arguments: dict[str, Any] | None) -> JobSpec:
        self.runs += 1
        return replace(self.spec(), transform=BatchFunction.of(function, arguments).to_json())

    def rows(self) -> list[dict[str, Any]]:
        return sorted(rows(Path(self.target)), key=lambda row: row["id"])


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


def dear(batch, least=2):
    from pyspark.sql import functions as fn

    @fn.udf("string")
    def shout(text):
        return text.upper()

    kept = batch.where(fn.col("price") >= least)
    return kept.withColumn("loud", shout("name")).drop("_rescued_data")


def test_rows_are_those_that_the_function_returns_each_once(stream: Stream):
    stream.lands("1.json", {"id": 1, "name": "a", "price": 1}, {"id": 2, "name": "b", "price": 2})
    report = stream.launched(dear)
    stream.lands("2.json", {"id": 3, "name": "c", "price": 9})
    second = stream.run(dear, {"least": 5})
    third = stream.run(dear)

    assert stream.rows() == [
        {"id": 2, "name": "b", "price": 2, "loud": "B"},
        {"id": 3, "name": "c", "price": 9, "loud": "C"},
    ]
    assert (report["files"], report["rows"], report["batches"]) == (1, 1, 1)
    assert report["transform"] == "dear"
    assert report["schema"] == "id BIGINT, name STRING, price BIGINT, loud STRING"
    assert report["schema_version"] == 0
    assert (second["files"], second["rows"], second["batches"]) == (1, 1, 1)
    assert (third["files"], third["batches"]) == (0, 0)


def test_errors_name_the_function_and_commit_nothing(stream: Stream):
    stream.lands("1.json", {"id": 1, "name": "a", "price": 1})

    def nothing(batch):
        batch.count()

    def number(batch):
        return batch.count()

    def broken(batch):
        raise ValueError("no such day")

    def late(batch):
        from pyspark.sql import functions as fn

        @fn.udf("long")
        def half(price):
            raise ArithmeticError(f"{price} is odd")

        return batch.withColumn("half", half("price"))

    def misspelt(batch):
        return batch.select("prise")

    for function, says, retries in (
        (nothing, "nothing returned None: it must return a DataFrame", False),
        (number, "number returned int", False),
        (broken, "broken failed on a micro-batch, .* it raised: ValueError: no such day", True),
        (late, "late failed on a micro-batch, .* 1 is odd", True),
        (misspelt, "misspelt failed on a micro-batch, .*`prise`", False),
        ("no_such_module_here:clean", "no_such_module_here:clean cannot be loaded", False),
    ):
        run = stream.launched if function is late else stream.run
        with pytest.raises(TransformError, match=f"(?s)function {says}") as failure:
            run(function)
        assert failure.value.is_retryable is retries
    assert not Path(stream.target).exists()

    assert stream.run(keep)["rows"] == 1
    assert [row["id"] for row in stream.rows()] == [1]


def test_without_pandas_a_run_says_what_to_install(stream: Stream, monkeypatch: pytest.MonkeyPatch):
    stream.lands("1.json", {"id": 1, "name": "a", "price": 1})
    monkeypatch.setitem(sys.modules, "pandas", None)  # as where it is not installed
    with pytest.raises(RunError, match=r"(?s)Pandas.*It needs pandas for that \(below 3\)"):
        stream.run(keep)
    assert not Path(stream.target).exists()


def keep(batch):
    return batch


def none_of_them(batch):
    return batch.limit(0)


def without_duplicates(batch):
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    newest = Window.partitionBy("id").orderBy(fn.desc("price"))
    numbered = batch.withColumn("n", fn.row_number().over(newest))
    return numbered.where("n = 1").drop("n", "_rescued_data")


def test_the_schema_of_the_stream_evolves_and_the_table_follows_the_function(stream: Stream):
    stream.lands("1.json", {"id": 1, "name": "a", "price": 1}, {"id": 1, "name": "b", "price": 2})
    assert stream.run(without_duplicates)["rows"] == 1
    stream.lands("2.json", {"id": 2, "name": "c", "price": 3, "paid": True})
    with pytest.raises(UnknownFieldException) as failure:
        stream.run(without_duplicates)
    assert failure.value.is_retryable
    report = stream.run(without_duplicates)

    assert report["schema_version"] == 1
    assert stream.rows() == [
        {"id": 1, "name": "b", "price": 2, "paid": None},
        {"id": 2, "name": "c", "price": 3, "paid": True},
    ]
    stream.lands("3.json", {"id": 4, "name": "d", "price": 3, "paid": False})
    empty = stream.run(none_of_them)
    assert (empty["files"], empty["rows"], empty["batches"]) == (1, 0, 1)
    assert len(stream.rows()) == 2
    assert stream.run(without_duplicates)["batches"] == 0, "a committed batch is read again"


def test_expectations_are_of_what_the_function_returns(tmp_path: Path, spark: SparkSession):
    stream = Stream(spark, tmp_path, **{"expect.requiredColumns": "price", "expect.minRows": "1"})
    stream.lands("1.json", {"id": 1, "name": "a", "price": 1})
    with pytest.raises(ExpectationError, match=r"expect.minRows=1, but it has 0 rows"):
        stream.run(none_of_them)

    def forgets(batch):
        from pyspark.sql import functions as fn

        return batch.withColumn("price", fn.lit(None).cast("long"))

    with pytest.raises(ExpectationError, match="no row has a value in price"):
        stream.run(forgets)
    assert stream.run(keep)["rows"] == 1
    stream.options |= {"expect.maxCorruptShare": "0.1"}
    with pytest.raises(OptionError, match=r"expect.maxCorruptShare"):
        stream.run(keep)


def test_rows_are_merged(tmp_path: Path, spark: SparkSession):
    stream = Stream(spark, tmp_path, mergeKeys="id")
    stream.lands("1.json", {"id": 1, "name": "a", "price": 1}, {"id": 2, "name": "b", "price": 2})
    stream.run(without_duplicates)
    stream.lands("2.json", {"id": 2, "name": "B", "price": 3})
    report = stream.run(without_duplicates)

    assert report["updated_rows"] == 1
    assert [row["name"] for row in stream.rows()] == ["a", "B"]


def in_big_letters(batch):
    from pyspark.sql import functions as fn

    return batch.withColumn("name", fn.upper("name"))


def test_a_file_that_is_replayed_replaces_what_the_function_made_of_it(
    tmp_path: Path, spark: SparkSession
):
    stream = Stream(spark, tmp_path, **{"cloudFiles.metadataColumns": "file_path"})
    stream.lands("1.json", {"id": 1, "name": "a", "price": 1})
    stream.lands("2.json", {"id": 2, "name": "b", "price": 1})
    stream.run(in_big_letters)
    stream.lands("1.json", {"id": 1, "name": "other", "price": 1})
    operate_on_files(stream.state, "replay", ["1.json"], target=stream.target)
    stream.run(in_big_letters)

    assert [row["name"] for row in stream.rows()] == ["OTHER", "B"]
    Path(stream.target, "_delta_log").rename(tmp_path / "gone")
    spec = replace(
        stream.spec(), kind="replay", replay={"from_batch": 0}, transform=None, run_id="replay"
    )
    with pytest.raises(OptionError, match="or by a run with a function over micro-batches"):
        launch(spec, LocalPython(), on_log=print).wait()


def test_an_iceberg_table_is_written(spark: SparkSession, tmp_path: Path):
    catalog = LocalCatalog(tmp_path)
    catalog.for_spark()
    try:
        stream = Stream(spark, tmp_path)
        stream.target = catalog.uri("loud")
        stream.lands("1.json", {"id": 1, "name": "a", "price": 1})
        report = stream.run(in_big_letters)
        stream.run(in_big_letters)
        assert (report["rows"], report["batches"]) == (1, 1)
        assert [row["name"] for row in catalog.rows("loud")] == ["A"]
    finally:
        catalog.close()


def test_the_rows_of_a_delta_table_are_transformed(tmp_path: Path, spark: SparkSession):
    bronze = Stream(spark, tmp_path)
    bronze.lands("1.json", {"id": 1, "name": "a", "price": 1}, {"id": 1, "name": "b", "price": 2})
    bronze.run(keep)
    (tmp_path / "silver").mkdir()
    silver = Stream(spark, tmp_path / "silver")
    silver.source, silver.format, silver.options = bronze.target, "delta", {}
    first = silver.run(without_duplicates)
    bronze.lands("2.json", {"id": 2, "name": "c", "price": 3})
    bronze.run(keep)
    silver.run(without_duplicates)
    silver.run(without_duplicates)

    assert first["rows"] == 1
    assert [row["name"] for row in silver.rows()] == ["b", "c"]
