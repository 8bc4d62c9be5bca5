"""The schema of a stream evolves, widens, goes back and stays, and no row is lost by it."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_cloudfiles import SchemaHistory, UnknownFieldException
from airflow_cloudfiles.engine.schema.differences import paths_of
from tests.stream.landing import drop, rows, run, stream

pytestmark = pytest.mark.spark

WIDENING = {
    "cloudFiles.schemaEvolutionMode": "addNewColumnsWithTypeWidening",
    "cloudFiles.inferColumnTypes": "true",
}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    (tmp_path / "in").mkdir()
    return tmp_path / "in", tmp_path / "state", tmp_path / "table"


def types(state: Path, version: int | None = None) -> dict[str, str]:
    return paths_of(SchemaHistory(str(state)).show(version).data_schema)


def parquet_rows(target: Path) -> list[dict[str, Any]]:
    """Every row of the files of the Parquet sink, which have different types."""
    files = target.glob("*.parquet")
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def by_id(target: Path) -> dict[int, dict[str, object]]:
    return {int(row["id"]): row for row in rows(target)}


def test_types_widen_once_for_the_whole_batch_and_every_value_is_kept(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, target = folders
    hinted = {**WIDENING, "cloudFiles.schemaHints": "kept INT"}
    first = {"id": 0, "long": 1, "nested": {"n": 1}, "list": [1], "kept": 1}
    drop(source, "0.json", [first])
    run(stream(spark, source, state, **hinted), state, target, "parquet")
    drop(source, "1.json", [{"id": 1, "long": 2**70, "kept": 2**40, "new": 1}])
    drop(source, "2.json", [{"id": 2, "long": 0.25, "nested": {"n": 2**64}}, {"id": "three"}])
    drop(source, "3.json", [{"id": 4, "list": [1, 2**65]}])
    with pytest.raises(UnknownFieldException, match="UNKNOWN_FIELD_EXCEPTION") as caught:  # B57
        run(stream(spark, source, state, **hinted), state, target, "parquet")
    assert caught.value.is_retryable
    assert sorted(path.name for path in (state / "_schemas").iterdir()) == ["0", "1"]  # B47
    run(stream(spark, source, state, **hinted), state, target, "parquet")
    assert sorted(path.name for path in (state / "_schemas").iterdir()) == ["0", "1"]
    assert types(state) == {
        "id": "bigint",
        "long": "decimal(24,2)",
        "nested": "struct<n:decimal(20,0)>",
        "nested.n": "decimal(20,0)",
        "list": "array<decimal(20,0)>",
        "kept": "int",
        "new": "bigint",
    }
    version = SchemaHistory(str(state)).show()
    assert version.reason["change"] == "widened"
    assert version.reason["widened"]["long"]["from"] == "bigint"
    assert version.reason["fields"] == ["new"]
    assert version.reason["brought"] == {(source / "1.json").as_uri(): ["new"]}
    found = {row["id"]: row for row in parquet_rows(target)}
    assert found[0]["kept"] == 1
    assert found[1]["long"] == 2**70
    assert json.loads(found[1]["_rescued_data"])["kept"] == 2**40  # hinted: stays, and is rescued
    assert (found[2]["long"], found[2]["nested"]["n"]) == (Decimal("0.25"), 2**64)
    assert found[4]["list"] == [1, 2**65]
    assert json.loads(found[None]["_rescued_data"])["id"] == "three"  # B60
