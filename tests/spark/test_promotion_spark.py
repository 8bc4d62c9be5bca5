"""What was rescued becomes a column, wide columns reach the table, and bad records are apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from airflow_cloudfiles import UnknownFieldException
from airflow_cloudfiles.engine.errors import SchemaMismatchError
from airflow_cloudfiles.engine.extensions.promotion.promote import Promotion, promote
from tests.support.landing import drop, rows, stream

pytestmark = pytest.mark.spark
RESCUE = {"cloudFiles.schemaEvolutionMode": "rescue", "cloudFiles.inferColumnTypes": "true"}
WIDENING = {**RESCUE, "cloudFiles.schemaEvolutionMode": "addNewColumnsWithTypeWidening"}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    (tmp_path / "in").mkdir()
    return tmp_path / "in", tmp_path / "state", tmp_path / "table"


def _run(frame: DataFrame, state: Path, target: Path, **options: str) -> None:
    writer = frame.writeStream.format("delta").options(**{"mergeSchema": "true", **options})
    query = writer.option("checkpointLocation", str(state)).trigger(availableNow=True)
    query.start(str(target)).awaitTermination()


def _by_id(target: Path) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in rows(target)}


def test_a_promoted_field_is_filled_back_and_by_the_next_run(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, target = folders
    options = {**RESCUE, "badRecordsPath": str(source / "bad")}
    drop(source, "1.json", [{"id": 1, "user": {"name": "a"}}])
    _run(stream(spark, source, state, **options), state, target)
    drop(source, "2.json", [{"id": 2, "user": {"name": "b", "zip": 7}, "price": "$2"}])
    (source / "broken.json").write_text('{"id": 3, "price": 1}\n{"id": broken\n')
    _run(stream(spark, source, state, **options), state, target)
    fields = {"user.zip": None, "price": "DOUBLE"}
    told = promote(
        Promotion(
            target=str(target), checkpoint_location=str(state), fields=fields, options=options
        )
    )
    assert told.columns == {"user.zip": "bigint", "price": "double"}
    assert {name: each["promoted"] for name, each in told.values.items()} == {
        "user.zip": 1,
        "price": 1,
    }
    drop(source, "4.json", [{"id": 4, "user": {"zip": 8}, "price": 2.5}])
    _run(stream(spark, source, state, **options), state, target)
    found = _by_id(target)
    assert len(rows(target)) == 4, "what is bad is in no row, and no bad record is input"
    assert found[2]["user"] == {"name": "b", "zip": 7}
    assert json.loads(found[2]["_rescued_data"])["price"] == "$2"
    assert (found[3]["price"], found[3]["_rescued_data"]) == (1.0, None)
    assert (found[4]["user"]["zip"], found[4]["price"]) == (8, 2.5)
    [bad] = (source / "bad").rglob("*.json")
    assert bad.parent.name == "bad_records"
    [record] = map(json.loads, bad.read_text().splitlines())  # B76: the mismatch is not there
    assert (record["record"].strip(), record["path"]) == (
        '{"id": broken',
        (source / "broken.json").as_uri(),
    )


def test_a_wider_column_reaches_the_table_when_that_is_asked_for(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, target = folders
    drop(source, "1.json", [{"id": 1, "n": 5}])
    _run(stream(spark, source, state, **WIDENING), state, target)
    drop(source, "2.json", [{"id": 2, "n": 2**70}])
    with pytest.raises(UnknownFieldException):  # B57
        _run(stream(spark, source, state, **WIDENING), state, target, typeWidening="true")
    with pytest.raises(SchemaMismatchError, match=r"n is bigint but .*typeWidening=true"):  # B68
        _run(stream(spark, source, state, **WIDENING), state, target)
    assert [row["n"] for row in rows(target)] == [5]
    _run(stream(spark, source, state, **WIDENING), state, target, typeWidening="true")
    assert {number: int(row["n"]) for number, row in _by_id(target).items()} == {1: 5, 2: 2**70}
    assert DeltaTable(str(target)).schema().fields[1].type.type.startswith("decimal(")
