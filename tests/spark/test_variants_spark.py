"""VARIANTs go through Spark into a Delta table and come back as they were, rows and splits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import airflow_cloudfiles
from airflow_cloudfiles.engine.job.spec import JobSpec
from tests.support.shared_runs import run_in

pytestmark = pytest.mark.spark

EMITS = ["rows", "splits"]
"""Through the JVM, and as a job has it."""
SHREDDED = {
    "spark.sql.variant.writeShredding.enabled": "true",
    "spark.sql.variant.forceShreddingSchemaForTest": "a BIGINT, b STRING",
}
TEXTS = ['{"a":1,"b":"x"}', '{"a":"one","c":[1.5,null]}', "7", "null", '["\u00e9"]', None]


@contextmanager
def _set(spark: SparkSession, names: dict[str, str]) -> Iterator[None]:
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in names:
            spark.conf.unset(name)


def _ingest(
    spark: SparkSession, folder: Path, emit: str, name: str, **options: str
) -> tuple[DataFrame, int]:
    """What a table has after a run over `folder/landing`, and how many rows the run has added."""
    state, target = folder / "state", folder / "table"
    given = {"cloudFiles.format": name, "cloudFiles.schemaLocation": str(state)}
    airflow_cloudfiles.register(spark)
    before = _rows(target)
    if emit == "splits":
        run_in(
            spark,
            JobSpec(
                kind="ingest",
                source=str(folder / "landing"),
                format=name,
                checkpoint_location=str(state),
                target=str(target),
                options=options,
                run_id="run",
            ),
        )
    else:
        frame = spark.readStream.format("cloudFiles").options(**given, **options)
        writer = frame.load(str(folder / "landing")).writeStream.format("deltalake")
        writer = writer.option("checkpointLocation", str(state)).option("mergeSchema", "true")
        writer.trigger(availableNow=True).start(str(target)).awaitTermination()
    found = spark.read.format("deltalake").load(str(target))
    return found, _rows(target) - before


def _rows(target: Path) -> int:
    if not (target / "_delta_log").exists():
        return 0
    return int(DeltaTable(str(target)).to_pyarrow_table().num_rows)


@pytest.mark.parametrize("emit", EMITS)
def test_variants_of_parquet_land_at_any_depth(
    spark: SparkSession, tmp_path: Path, emit: str
) -> None:
    columns = "id", "v", "struct(v) s", "array(v, NULL) l", "map('k', v) m"
    schema = "id INT, t STRING"
    plain, more = (
        spark.createDataFrame([(first + place, text) for place, text in enumerate(TEXTS)], schema)
        .coalesce(1)
        .selectExpr("id", "parse_json(t) v")
        .selectExpr(*columns)
        for first in (0, 100)
    )
    # A column of NULLs, and one that an older file lacks.
    empty = spark.range(200, 202).selectExpr("CAST(id AS INT) id", "CAST(NULL AS VARIANT) v")
    landing = str(tmp_path / "landing")
    plain.write.parquet(landing)
    empty.coalesce(1).write.mode("append").parquet(landing)
    assert _ingest(spark, tmp_path, emit, "parquet")[1] == len(TEXTS) + 2
    with _set(spark, SHREDDED):
        more.select("id", "v").write.mode("append").parquet(landing)
    found, added = _ingest(spark, tmp_path, emit, "parquet")
    assert added == len(TEXTS)
    assert _ingest(spark, tmp_path, emit, "parquet")[1] == 0
    kinds = dict(found.dtypes)
    assert [kinds[each] for each in "vslm"] == [
        "variant", "struct<v:variant>", "array<variant>", "map<string,variant>",
    ]  # fmt: skip
    places = "v", "s.v", "l[0]", "m['k']"
    chosen = [f"to_json({each})" for each in places]
    for row in found.where("id < 200").selectExpr("id", "l[1] IS NULL", *chosen).collect():
        text = TEXTS[row[0] % 100]
        values = [each and json.loads(each) for each in row[2:]]
        inner = text if row[0] < 100 else None  # the shredded file has `v` only
        assert values == [text and json.loads(text), *[inner and json.loads(inner)] * 3]
        assert row[1]
    nulls = found.where("id >= 200").selectExpr("v IS NULL", "s IS NULL", "m IS NULL").collect()
    assert [tuple(row) for row in nulls] == [(True, True, True)] * 2
    numbers = found.selectExpr("try_variant_get(v, '$.a', 'int') a").where("a IS NOT NULL")
    assert [row.a for row in numbers.collect()] == [1, 1]
    assert found.where("is_variant_null(v)").count() == 2, "a null of JSON is no NULL"


@pytest.mark.parametrize("emit", EMITS)
def test_whole_records_land_as_variants(spark: SparkSession, tmp_path: Path, emit: str) -> None:
    (tmp_path / "json" / "landing").mkdir(parents=True)
    (tmp_path / "json" / "landing" / "f.json").write_text('{"a":1.5}\nbroken\n[1]\nnull')
    found, _ = _ingest(spark, tmp_path / "json", emit, "json", singleVariantColumn="v")
    texts = found.selectExpr("to_json(v) v", "_rescued_data IS NOT NULL r").collect()
    assert {(row.v, row.r) for row in texts} == {
        ('{"a":1.5}', False), ("[1]", False), ("null", False), (None, True),
    }  # fmt: skip
    (tmp_path / "xml" / "landing").mkdir(parents=True)
    (tmp_path / "xml" / "landing" / "f.xml").write_text("<r><row><a>1</a></row><row b='x'/></r>")
    options = {"singleVariantColumn": "v", "rowTag": "row"}
    found, _ = _ingest(spark, tmp_path / "xml", emit, "xml", **options)
    assert sorted(row.v for row in found.selectExpr("to_json(v) v").collect()) == [
        '{"_b":"x"}',
        '{"a":1}',
    ]
