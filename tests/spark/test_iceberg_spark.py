"""The sink `pyiceberg` of plain PySpark: exactly once, with the table's rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_cloudfiles.engine.errors import (
    OptionError,
    SchemaMismatchError,
    UnknownFieldException,
    UnknownOptionError,
)
from airflow_cloudfiles.engine.job.spec import JobSpec
from tests.docs.pages import ROOT, blocks
from tests.support.iceberg_tables import LocalCatalog
from tests.support.landing import drop, stream

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[LocalCatalog]:
    """A catalog that Spark's Python processes find by a file of pyiceberg's."""
    found = LocalCatalog(tmp_path)
    found.for_spark()
    yield found
    found.close()


def _run(frame: DataFrame, state: Path, target: str, **options: str) -> None:
    writer = frame.writeStream.format("pyiceberg").options(**options)
    writer = writer.option("checkpointLocation", str(state)).trigger(availableNow=True)
    writer.start(target).awaitTermination()


def test_a_stream_lands_evolves_and_lands_nothing_twice(
    spark: SparkSession, tmp_path: Path, lake: LocalCatalog
) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    inferred = {"cloudFiles.inferColumnTypes": "true"}
    drop(source, "1.json", [{"id": 1, "at": "2024-02-29", "inner": {"a": 1}}])
    into = {"mergeSchema": "true", "partitionBy": "bucket(2, id)"}

    def run(**options: str) -> None:
        _run(stream(spark, source, state, **inferred), state, lake.uri("t"), **options)

    run(**into)
    run(**into)
    drop(source, "2.json", [{"id": 2, "at": "oops", "inner": {"a": 2, "b": "x"}}])
    with pytest.raises(UnknownFieldException, match="inner"):
        run(**into)
    with pytest.raises(SchemaMismatchError, match=r"lacks .*inner\.b.*Set mergeSchema=true"):
        run()
    run(**into)
    rows = sorted(lake.rows("t"), key=lambda row: row["id"])
    assert [(row["id"], row["inner"]) for row in rows] == [
        (1, {"a": 1, "b": None}),
        (2, {"a": 2, "b": "x"}),
    ]
    assert rows[1]["at"] is None or rows[1]["at"] == "oops"
    assert len(lake.table("t").snapshots()) == 2
    assert str(lake.table("t").spec().fields[0].transform) == "bucket[2]"


def test_the_query_of_the_page_lands(
    spark: SparkSession, tmp_path: Path, lake: LocalCatalog
) -> None:
    names: dict[str, Any] = {}
    for block in blocks(ROOT / "docs" / "how-to" / "iceberg.md"):
        if block.language == "python" and not block.is_dag:
            exec(block.code, names)
    drop(tmp_path / "landing", "1.json", [{"customer": f"c{n}"} for n in range(9)])
    for _ in range(2):
        names["ingest"](spark, str(tmp_path), lake.uri("t"))
    assert sorted(row["customer"] for row in lake.rows("t")) == [f"c{n}" for n in range(9)]
    (snapshot,) = lake.table("t").snapshots()
    names["put_back"](lake.table("t"), snapshot.snapshot_id)


def test_rows_of_a_query_land_too(spark: SparkSession, tmp_path: Path, lake: LocalCatalog) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    drop(source, "1.json", [{"id": str(n)} for n in range(5)])
    frame = stream(spark, source, state, **{"cloudFiles.metadataColumns": "_metadata"})
    frame = frame.selectExpr("cast(id as int) * 2 AS twice", "_metadata")
    _run(frame, state, lake.uri("t"))
    assert sorted(row["twice"] for row in lake.rows("t")) == [0, 2, 4, 6, 8]
    assert {row["_metadata"]["file_name"] for row in lake.rows("t")} == {"1.json"}


def test_what_cannot_be_written_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, lake: LocalCatalog
) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    drop(source, "1.json", [{"id": 1}])
    frame = stream(spark, source, state)
    with pytest.raises(OptionError, match="Write iceberg://catalog/namespace/table"):
        _run(frame, state, str(tmp_path / "t"))
    with pytest.raises(UnknownOptionError, match="Did you mean mergeSchema"):
        _run(frame, state, lake.uri("t"), mergeSchemas="true")
    with pytest.raises(OptionError, match="knows no catalog nowhere"):
        _run(frame, state, "iceberg://nowhere/db/t")


@pytest.mark.parametrize("kind", ["promote", "replay"])
def test_jobs_that_read_the_table_refuse_iceberg_by_name(kind: str) -> None:
    with pytest.raises(OptionError, match="target of an ingest only"):
        JobSpec(
            kind=kind,  # type: ignore[arg-type]
            source="/in",
            format="json",
            checkpoint_location="/state",
            run_id="r",
            target="iceberg://lake/db/t",
        )
