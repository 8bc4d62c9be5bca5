"""The schema of a stream evolves, widens, goes back and stays, and no row is lost by it."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from airflow_cloudfiles import SchemaHistory, SchemaProposals, UnknownFieldException
from airflow_cloudfiles.engine.errors import (
    IncompatibleSchemaError,
    SchemaProposedError,
    SchemaRefusedError,
)
from airflow_cloudfiles.engine.schema.diff import paths_of
from tests.support.landing import drop, rows, run, stream

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
    stream(spark, source, state, **hinted)  # version 0
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


def test_many_new_columns_over_many_files_evolve_ahead_without_a_failed_run(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, target = folders
    ahead = {**WIDENING, "cloudFiles.evolveAhead": "true", "cloudFiles.maxFilesPerTrigger": "20"}
    drop(source, "first.json", [{"id": 0, "n": 1}])
    run(stream(spark, source, state, **ahead), state, target, "parquet")
    for number in range(1, 60):
        record = {"id": number, "n": number * 2**58, f"new{number % 7}": number, "user": {"a": 1}}
        drop(source, f"{number:02}.json", [record, {"user": {f"zip{number % 3}": "x"}}])
    run(stream(spark, source, state, **ahead), state, target, "parquet")
    assert sorted(path.name for path in (state / "_schemas").iterdir()) == ["0", "1"]
    version = SchemaHistory(str(state)).show()
    assert version.reason["ahead"] is True
    assert version.reason["fields"] == [*(f"new{number}" for number in range(7)), "user"]
    assert version.reason["widened"]["n"]["to"] == "decimal(20,0)"
    assert paths_of(version.data_schema)["user.zip2"] == "string"
    found = parquet_rows(target)
    assert len(found) == 1 + 2 * 59
    assert not [row for row in found if row["_rescued_data"]]
    assert sum(row["id"] or 0 for row in found) == sum(range(60))
    assert [row["n"] for row in found if row["id"] == 59] == [59 * 2**58]


def test_evolving_ahead_says_when_it_does_not_know_the_state(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, target = folders
    apart = state.with_name("schemas")
    ahead = {"cloudFiles.evolveAhead": "true"}
    drop(source, "1.json", [{"id": 1}])
    run(stream(spark, source, apart, **ahead), state, target)
    drop(source, "2.json", [{"id": 2, "new": 1}])
    frame = stream(spark, source, apart, **ahead)
    assert SchemaHistory(str(apart)).show().version == 0
    assert frame.columns == ["id", "_rescued_data"]
    told = {**ahead, "checkpointLocation": str(state)}
    run(stream(spark, source, apart, **told), state, target)
    assert {number: row["new"] for number, row in by_id(target).items()} == {1: None, 2: "1"}
    assert SchemaHistory(str(apart)).show().version == 1


def test_a_schema_wrecked_by_a_bad_file_is_rolled_back_and_pinned(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, target = folders
    drop(source, "1.json", [{"id": 1, "name": "a"}])
    stream(spark, source, state)  # version 0
    wrong = drop(source, "wrong.json", [{"id": 2, **{f"junk{n}": n for n in range(50)}}])
    with pytest.raises(UnknownFieldException):
        run(stream(spark, source, state), state, target)
    history = SchemaHistory(str(state))
    assert len(types(state)) == 52
    assert {each.file for each in history.blame() if each.version == 1} == {wrong.as_uri()}

    stale = stream(spark, source, state)
    history.rollback(0, pin="rescue", note="junk in wrong.json")
    with pytest.raises(IncompatibleSchemaError, match="another schema"):
        run(stale, state, target)
    run(stream(spark, source, state), state, target)
    assert set(types(state)) == {"id", "name"}
    found = by_id(target)
    assert set(found[1]) == {"id", "name", "_rescued_data"}
    assert json.loads(str(found[2]["_rescued_data"]))["junk49"] == 49


def test_a_case_sensitive_session_has_three_columns(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:  # B16
    source, state, target = folders
    drop(source, "1.json", [{"foo": 1, "Foo": 2}])
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        stream(spark, source, state)  # version 0
        drop(source, "2.json", [{"foo": 3, "FOO": 4}])
        with pytest.raises(UnknownFieldException):
            run(stream(spark, source, state), state, target, "parquet")
        frame = stream(spark, source, state)
        assert frame.columns == ["foo", "Foo", "FOO", "_rescued_data"]
        run(frame, state, target, "parquet")
        found = [(row["foo"], row.get("Foo"), row.get("FOO")) for row in parquet_rows(target)]
        assert sorted(found) == [("1", "2", None), ("3", None, "4")]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_change_waits_is_decided_and_every_row_is_there_once(
    spark: SparkSession, folders: tuple[Path, Path, Path]
) -> None:
    source, state, target = folders
    asks = {"cloudFiles.requireApproval": "true"}

    def ingest() -> None:
        run(stream(spark, source, state, **asks), state, target)

    drop(source, "1.json", [{"id": 1}])
    ingest()
    drop(source, "2.json", [{"id": 2, "accepted": "x"}])
    with pytest.raises(SchemaProposedError):
        ingest()
    with pytest.raises(SchemaProposedError):  # where the stream is defined
        stream(spark, source, state, **asks)
    drop(source, "3.json", [{"id": 3}])
    assert len(rows(target)) == 1
    SchemaProposals(str(state)).accept()
    ingest()
    drop(source, "4.json", [{"id": 4, "rescued": "y"}])
    with pytest.raises(SchemaProposedError):
        ingest()
    SchemaProposals(str(state)).rescue()
    ingest()
    bad = drop(source, "6.json", [{"id": 6, "refused": "z"}])
    with pytest.raises(SchemaProposedError):
        ingest()
    SchemaProposals(str(state)).refuse(by="ann")
    with pytest.raises(SchemaRefusedError, match="ann has refused"):
        ingest()
    bad.unlink()
    drop(source, "5.json", [{"id": 5, "rescued": "again"}, {"id": 7}])
    ingest()
    found = by_id(target)
    assert sorted(found) == [1, 2, 3, 4, 5, 7]
    assert len(rows(target)) == 6
    assert found[2]["accepted"] == "x"
    assert json.loads(str(found[4]["_rescued_data"]))["rescued"] == "y"
    assert json.loads(str(found[5]["_rescued_data"]))["rescued"] == "again"
    assert types(state) == {"id": "string", "accepted": "string"}
