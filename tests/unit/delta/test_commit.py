"""A batch is in the table once, and only where the table's own rules allow it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.errors import CorruptedStateError, SchemaMismatchError
from airflow_cloudfiles.engine.state.sink_log import BatchId
from airflow_cloudfiles.engine.tables.delta import commit as delta_commit
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile, DataFileWriter
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules

A = pa.schema([("a", pa.int64())])
AB = pa.schema([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
ABCD = pa.schema(
    [("a", pa.int64()), ("b", pa.struct([("c", pa.string()), ("d", pa.list_(pa.int32()))]))]
)


def _files(target: Path, schema: pa.Schema, values: list[dict[str, Any]]) -> list[DataFile]:
    return DataFileWriter(str(target), schema).write([pa.RecordBatch.from_pylist(values, schema)])


def _commit(
    target: Path, batch_id: int, schema: pa.Schema, *values: dict[str, Any], plan: str | None = None
) -> Any:
    return delta_commit.commit_batch(
        str(target),
        batch=BatchId("stream", batch_id, plan),
        files=_files(target, schema, list(values)),
        schema=schema,
        rules=WriteRules(merge_schema=True),
    )


def _rows(target: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        DeltaTable(str(target)).to_pyarrow_dataset().to_table().to_pylist()
    )
    return found


def test_a_batch_committed_twice_is_in_the_table_once(tmp_path: Path) -> None:  # B140
    target = tmp_path / "t"
    assert _commit(target, 0, A, {"a": 1}).is_new
    again = _commit(target, 0, A, {"a": 1})
    assert (again.is_new, again.version) == (False, 1)
    assert _rows(target) == [{"a": 1}]
    assert len(list(target.glob("*.parquet"))) == 1, "the second try's file is removed"


def test_a_batch_number_with_another_plan_is_refused_not_skipped(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _commit(target, 0, A, {"a": 1}, plan="p0")
    _commit(target, 1, A, {"a": 2}, plan="p1")
    assert not _commit(target, 0, A, {"a": 1}, plan="p0").is_new
    with pytest.raises(CorruptedStateError, match="older than the table"):
        _commit(target, 1, A, {"a": 3}, plan="other")
    assert len(_rows(target)) == 2


def test_committers_of_one_batch_at_once_commit_it_once(tmp_path: Path) -> None:
    target = tmp_path / "t"
    _commit(target, 0, A, {"a": 0})
    barrier = threading.Barrier(6)
    outcomes: list[bool] = []

    def commit() -> None:
        barrier.wait()
        outcomes.append(_commit(target, 1, A, {"a": 1}).is_new)

    threads = [threading.Thread(target=commit) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False] * 5 + [True]
    assert sorted(row["a"] for row in _rows(target)) == [0, 1]


def test_streams_writing_one_table_at_once_all_land_and_add_their_columns(tmp_path: Path) -> None:
    target = tmp_path / "t"
    barrier = threading.Barrier(4)

    def write(name: str) -> None:
        schema = pa.schema([("a", pa.int64()), (name, pa.string())])
        barrier.wait()
        for batch in range(3):
            delta_commit.commit_batch(
                str(target),
                batch=BatchId(name, batch),
                files=_files(target, schema, [{"a": batch, name: name}]),
                schema=schema,
                rules=WriteRules(merge_schema=True),
            )

    threads = [threading.Thread(target=write, args=(f"c{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = _rows(target)
    assert len(found) == 12
    assert sorted(found[0]) == ["a", "c0", "c1", "c2", "c3"]


def test_a_batch_without_rows_is_remembered(tmp_path: Path) -> None:
    target = tmp_path / "t"
    assert _commit(target, 0, A).is_new
    assert DeltaTable(str(target)).transaction_version("stream") == 0
    assert _rows(target) == []


def test_new_columns_and_nested_fields_are_added_at_the_end(tmp_path: Path) -> None:  # B48, B125
    target = tmp_path / "t"
    _commit(target, 0, A, {"a": 1})
    _commit(target, 1, AB, {"a": 2, "b": {"c": "x"}})
    _commit(target, 2, ABCD, {"a": 3, "b": {"c": "y", "d": [1]}})
    _commit(target, 3, A, {"a": 4})  # B126
    assert sorted(_rows(target), key=lambda row: row["a"]) == [
        {"a": 1, "b": None},
        {"a": 2, "b": {"c": "x", "d": None}},
        {"a": 3, "b": {"c": "y", "d": [1]}},
        {"a": 4, "b": None},
    ]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (pa.schema([("a", pa.string())]), "Failed to merge fields"),  # B128
        (pa.schema([("a", pa.struct([("x", pa.string())]))]), "Failed to merge fields"),
    ],
)
def test_what_does_not_fit_the_table_is_refused(
    tmp_path: Path, schema: pa.Schema, says: str
) -> None:
    target = tmp_path / "t"
    _commit(target, 0, A, {"a": 1})
    with pytest.raises(SchemaMismatchError, match=says):
        delta_commit.commit_batch(
            str(target),
            batch=BatchId("s", 0),
            files=[],
            schema=schema,
            rules=WriteRules(merge_schema=True),
        )


def test_statistics_never_hide_a_row(tmp_path: Path) -> None:
    schema = pa.schema(
        [("i", pa.int64()), ("f", pa.float64()), ("s", pa.string()), ("d", pa.date32())]
    )
    rows = [
        {"i": 5, "f": float("nan"), "s": "x" * 40, "d": None},
        {"i": None, "f": 1.0, "s": "a", "d": None},
    ]
    [file] = _files(tmp_path / "t", schema, rows)
    assert file.rows == 2
    assert file.statistics == (
        '{"numRecords": 2, "minValues": {"i": 5, "s": "a"}, '
        f'"maxValues": {{"i": 5, "s": "{"x" * 32}{chr(0x10FFFF)}"}}, '
        '"nullCount": {"i": 1, "f": 0, "s": 0, "d": 2}}'
    )
