"""What the processes of a batch write do, one after the other, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from airflow_cloudfiles.engine.errors import (
    OptionError,
    SchemaMismatchError,
    SinkError,
    TargetConflictError,
    UnknownOptionError,
)
from airflow_cloudfiles.engine.spark.tables.sink import DeltaLakeDataSource
from airflow_cloudfiles.engine.tables.delta.read.log import STAGED

SCHEMA = StructType([StructField("id", IntegerType()), StructField("v", StringType())])


def _batch(rows: list[tuple[int, str]]) -> pa.RecordBatch:
    schema = pa.schema([("id", pa.int32()), ("v", pa.string())])
    return pa.RecordBatch.from_pylist([{"id": i, "v": v} for i, v in rows], schema)


def _writer(target: Path, options: dict[str, str], *, overwrite: bool = False) -> Any:
    source = DeltaLakeDataSource({"path": str(target), **options})
    return source.writer(SCHEMA, overwrite)


def _write(target: Path, rows: list[tuple[int, str]], mode: str = "append", **options: str) -> None:
    writer = _writer(target, options, overwrite=mode == "overwrite")
    halves = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    messages = [writer.write(iter([_batch(half)])) for half in halves if half]
    writer.commit(messages)


def _rows(target: Path) -> list[tuple[int, str]]:
    table = DeltaTable(target).to_pyarrow_dataset().to_table()
    return sorted((row["id"], row["v"]) for row in table.to_pylist())


def _left(target: Path) -> list[Path]:
    return list((target / STAGED).glob("*"))


def test_rows_are_appended_and_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _write(target, [(1, "a"), (2, "a")])
    _write(target, [(3, "b")])
    assert _rows(target) == [(1, "a"), (2, "a"), (3, "b")]
    _write(target, [(4, "c"), (5, "c")], "overwrite")
    assert _rows(target) == [(4, "c"), (5, "c")]
    _write(target, [], "overwrite")
    assert _rows(target) == []


def test_a_part_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "t"
    write_deltalake(
        target, pa.table({"id": pa.array([1, 2, None], pa.int32()), "v": ["a", "a", "null"]})
    )
    with pytest.raises(SinkError, match="1 row of the DataFrame does not match replaceWhere"):
        _write(target, [(1, "b"), (2, "b")], "overwrite", replaceWhere="id > 1")
    _write(target, [(2, "b"), (3, "b")], "overwrite", replaceWhere="id > 1")
    table = DeltaTable(target).to_pyarrow_dataset().to_table()
    found = {(row["id"], row["v"]) for row in table.to_pylist()}
    assert found == {(1, "a"), (2, "b"), (3, "b"), (None, "null")}
    assert not _left(target)


def test_other_columns_need_an_option(tmp_path: Path) -> None:
    target = tmp_path / "t"
    write_deltalake(target, pa.table({"old": [1]}))
    for mode in ("append", "overwrite"):
        with pytest.raises(SchemaMismatchError, match="mergeSchema"):
            _write(target, [(1, "a")], mode)
    _write(target, [(1, "a")], "overwrite", overwriteSchema="true")
    assert _rows(target) == [(1, "a")]
    assert [each.name for each in DeltaTable(target).schema().fields] == ["id", "v"]


def test_rows_are_merged_and_transactions_remembered(tmp_path: Path) -> None:
    target = tmp_path / "t"
    for number in (1, 1, 0):
        _write(target, [(1, f"{number}")], txnAppId="app", txnVersion=f"{number}")
    _write(target, [(1, "over")], "overwrite", txnAppId="app", txnVersion="2")
    _write(target, [(1, "again")], "overwrite", txnAppId="app", txnVersion="2")
    _write(target, [(1, "merged"), (2, "new")], mergeKeys="id", txnAppId="app", txnVersion="3")
    _write(target, [(1, "again"), (3, "again")], mergeKeys="id", txnAppId="app", txnVersion="3")
    assert _rows(target) == [(1, "merged"), (2, "new")]
    _write(target, [(2, "newer")], mergeKeys="id")
    assert _rows(target) == [(1, "merged"), (2, "newer")]
    assert not _left(target)


@pytest.mark.parametrize("options", [{}, {"replaceWhere": "id > 0"}, {"overwriteSchema": "true"}])
def test_an_append_beside_an_overwrite_is_not_kept_by_chance(
    tmp_path: Path, options: dict[str, str]
) -> None:
    target = tmp_path / "t"
    _write(target, [(1, "a")])
    writer = _writer(target, options, overwrite=True)
    message = writer.write(iter([_batch([(2, "b")])]))
    _write(target, [(9, "beside")])
    with pytest.raises(TargetConflictError, match="nothing was overwritten"):
        writer.commit([message])
    assert _rows(target) == [(1, "a"), (9, "beside")]
    assert not _left(target)
    assert len(list(target.glob("*.parquet"))) == 2


def test_a_write_of_which_a_task_failed_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "t"
    writer = _writer(target, {})
    message = writer.write(iter([_batch([(2, "b")])]))
    writer.abort([message, None])
    assert not list(target.glob("*.parquet"))


@pytest.mark.parametrize(
    ("overwrite", "options", "error", "message"),
    [
        (False, {"overwriteSchema": "true"}, OptionError, "needs mode"),
        (False, {"replaceWhere": "id = 1"}, OptionError, "needs mode"),
        (True, {"mergeKeys": "id"}, OptionError, "needs mode"),
        (True, {"replaceWhere": "x", "overwriteSchema": "true"}, OptionError, "Give one"),
        (True, {"partitionOverwriteMode": "dynamic"}, OptionError, "replaceWhere"),
        (False, {"txnAppId": "a"}, OptionError, "go together"),
        (False, {"mergeDeleteWhen": "id = 1"}, OptionError, "needs mergeKeys"),
        (True, {"overwriteShcema": "true"}, UnknownOptionError, "overwriteSchema"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path,
    overwrite: bool,
    options: dict[str, str],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        _writer(tmp_path / "t", options, overwrite=overwrite)


def test_a_new_table_is_partitioned_whatever_becomes_of_columns(tmp_path: Path) -> None:
    target = tmp_path / "t"
    options = {"overwriteSchema": "true", "partitionBy": "v"}
    _write(target, [(1, "a")], "overwrite", **options)
    assert DeltaTable(target).metadata().partition_columns == ["v"]
    assert _rows(target) == [(1, "a")]
    with pytest.raises(SinkError, match=r"cannot replace the columns of .* partition columns"):
        _write(target, [(2, "b")], "overwrite", **options)


def test_the_partitioning_of_a_table_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _write(target, [(1, "a")], "append")
    for options in ({"partitionBy": "v"}, {"delta.columnMapping.mode": "name"}):
        with pytest.raises(SchemaMismatchError, match=r"choose another target|set-property"):
            _write(target, [(2, "b")], "overwrite", overwriteSchema="true", **options)
    assert _rows(target) == [(1, "a")]
