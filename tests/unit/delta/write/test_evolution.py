"""A table gets columns and wider types without losing a row, also beside other writers."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import threading
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.errors import SchemaMismatchError, TargetChangedError
from airflow_cloudfiles.engine.extensions.upkeep.alter import (
    drop_column,
    rename_column,
    set_properties,
)
from airflow_cloudfiles.engine.tables.delta.write.evolve import TYPE_CHANGES
from tests.support.crash_points import METADATA_POINTS
from tests.support.delta_tables import read, sorted_rows
from tests.support.delta_writes import ANY_SIZE, Sink, read_by_all, snapshot_of
from tests.support.laws import some

LOCAL = dt.datetime(2024, 1, 31)  # noqa: DTZ001 - of no zone
WIDENS = {"delta_enableTypeWidening": "true"}


def _column(kind: pa.DataType, *values: Any) -> pa.Table:
    return pa.table({"a": pa.array(values, kind), "n": pa.array(range(len(values)))})


def _fields(target: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(snapshot_of(target).metadata.schema_string)["fields"]
    return found


@pytest.mark.parametrize(
    ("narrow", "wide", "old", "new"),
    [
        (pa.int8(), pa.int16(), -128, 2**15 - 1),
        (pa.int8(), pa.int64(), 127, -(2**63)),
        (pa.int16(), pa.int32(), 1, 2**31 - 1),
        (pa.int32(), pa.int64(), 2**31 - 1, 2**31),
        (pa.int32(), pa.float64(), -(2**31), 0.5),
        (pa.float32(), pa.float64(), 1.5, 1e300),
        (pa.int32(), pa.decimal128(12, 2), 5, Decimal("123.45")),
        (pa.int64(), pa.decimal128(22, 2), 2**63 - 1, Decimal("0.01")),
        (pa.decimal128(5, 2), pa.decimal128(7, 3), Decimal("1.25"), Decimal("1234.125")),
        (pa.date32(), pa.timestamp("us"), dt.date(2024, 1, 31), LOCAL.replace(hour=1)),
    ],
)
def test_types_become_wider_in_the_metadata_and_no_file_is_rewritten(
    tmp_path: Path, narrow: pa.DataType, wide: pa.DataType, old: Any, new: Any
) -> None:
    target = tmp_path / "t"
    sink = Sink(target, widening=0, **WIDENS)
    sink.write(_column(narrow, old, None))
    before = {file.path for file in snapshot_of(target).files}
    sink.write(_column(wide, new))
    sink.write(_column(narrow, old))
    assert before < {file.path for file in snapshot_of(target).files}
    found = read_by_all(target, deltalake=False)
    kept = LOCAL if isinstance(old, dt.date) else old
    assert sorted(map(str, found["a"].to_pylist())) == sorted(
        map(str, _column(wide, kept, kept, None, new)["a"].to_pylist())
    )
    [note] = _fields(target)[0]["metadata"][TYPE_CHANGES]
    assert set(note) == {"fromType", "toType"}
    protocol = snapshot_of(target).protocol
    assert "typeWidening" in (protocol.reader_features or ())
    assert "typeWidening" in (protocol.writer_features or ())


def test_every_change_is_noted_where_it_happened(tmp_path: Path) -> None:
    target = tmp_path / "t"

    def schema(kind: pa.DataType) -> pa.Schema:
        inner = pa.struct([("x", kind)])
        nested = [("l", pa.list_(kind)), ("m", pa.map_(pa.string(), pa.list_(inner)))]
        return pa.schema([("s", inner), *nested, ("k", pa.map_(kind, pa.string()))])

    sink = Sink(target, widening=ANY_SIZE, delta_columnMapping_mode="name", **WIDENS)
    for kind in (pa.int16(), pa.int32(), pa.int64()):
        row = {"s": {"x": 1}, "l": [1], "m": [("a", [{"x": 1}])], "k": [(1, "a")]}
        sink.write([row], schema(kind))
    s, li, m, k = _fields(target)
    steps = [("short", "integer"), ("integer", "long")]
    assert _steps(s["type"]["fields"][0]) == steps
    assert _steps(m["type"]["valueType"]["elementType"]["fields"][0]) == steps
    assert _steps(li) == _steps(k) == steps
    assert {note["fieldPath"] for note in li["metadata"][TYPE_CHANGES]} == {"element"}
    assert {note["fieldPath"] for note in k["metadata"][TYPE_CHANGES]} == {"key"}
    assert TYPE_CHANGES not in s["metadata"]
    assert len(set(sorted_rows(read_by_all(target, deltalake=False)))) == 1


def _steps(field: dict[str, Any]) -> list[tuple[str, str]]:
    return [(note["fromType"], note["toType"]) for note in field["metadata"][TYPE_CHANGES]]


def test_widening_is_refused_unless_asked_for_also_where_it_costs_nothing(tmp_path: Path) -> None:
    target = tmp_path / "t"
    Sink(target, **WIDENS).write(_column(pa.int32(), 1))
    with pytest.raises(SchemaMismatchError, match="typeWidening=true"):
        Sink(target, app="b").write(_column(pa.int64(), 2**40))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"partition_by": ("n",)}, "is partitioned"),
        ({"delta_columnMapping_mode": "name"}, "has column mapping"),
    ],
)
def test_what_is_not_rewritten_says_how_it_becomes_wider(
    tmp_path: Path, given: dict[str, Any], says: str
) -> None:
    target = tmp_path / "t"
    sink = Sink(target, widening=ANY_SIZE, **given)
    sink.write(_column(pa.int32(), 1))
    with pytest.raises(SchemaMismatchError, match=rf"{says}.*delta\.enableTypeWidening=true"):
        sink.write(_column(pa.int64(), 2**40))
    set_properties(str(target), {"delta.enableTypeWidening": "true"})
    sink.repeat(_column(pa.int64(), 2**40))
    assert sorted(read_by_all(target, deltalake=False)["a"].to_pylist()) == [1, 2**40]


def test_a_table_that_widens_is_checkpointed_and_read_from_there(tmp_path: Path) -> None:
    target = tmp_path / "t"
    sink = Sink(target, widening=ANY_SIZE, **WIDENS)
    sink.write(_column(pa.int32(), 1))
    set_properties(str(target), {"delta.checkpointInterval": "3"})
    for number in range(6):
        sink.write(_column(pa.int64(), 2**40 + number))
    assert len(list((target / "_delta_log").glob("*.checkpoint.parquet"))) >= 2
    for log in sorted((target / "_delta_log").glob("*.json"))[:6]:
        log.unlink()
    assert len(read_by_all(target, deltalake=False)) == 7
    assert not sink.repeat(_column(pa.int64(), 0)).is_new, "the batches are in the checkpoint"


def test_a_table_can_be_given_type_widening_later(tmp_path: Path) -> None:
    target = tmp_path / "t"
    sink = Sink(target, widening=0)
    sink.write(_column(pa.int32(), 1))
    with pytest.raises(SchemaMismatchError, match="typeWideningMaxBytes"):
        sink.write(_column(pa.int64(), 2**40))
    set_properties(str(target), {"delta.enableTypeWidening": "true"})
    sink.repeat(_column(pa.int64(), 2**40))
    assert sorted(read_by_all(target, deltalake=False)["a"].to_pylist()) == [1, 2**40]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_streams_that_add_columns_at_once_all_land(tmp_path: Path, mode: str) -> None:
    target = tmp_path / "t"
    Sink(target, delta_columnMapping_mode=mode).write(pa.table({"a": [0]}))
    barrier = threading.Barrier(4)
    failed: list[BaseException] = []

    def stream(name: str) -> None:
        sink = Sink(target, app=name)
        barrier.wait()
        try:
            for number in range(3):
                sink.batch += 1
                _until_committed(sink, pa.table({"a": [number], f"{name}_{number}": [name]}))
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=stream, args=(f"c{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    found = read_by_all(target)
    assert len(found) == 13
    for name in (f"c{i}_{number}" for i in range(4) for number in range(3)):
        assert found[name].drop_null().to_pylist() == [name[:2]], "its own value, and no other"
    assert len(list(target.rglob("*.parquet"))) == 13, "files that were given up are removed"


def _until_committed(sink: Sink, table: pa.Table) -> None:
    """Write a batch as a task that Airflow retries."""
    for _ in range(50):
        with contextlib.suppress(TargetChangedError):
            sink.repeat(table)
            return
    pytest.fail("other writers were faster each time")


def test_a_drop_between_task_and_commit_makes_the_batch_start_anew(tmp_path: Path) -> None:
    target = tmp_path / "t"
    sink = Sink(target, delta_columnMapping_mode="name")
    table = pa.table({"a": [1], "b": [1]})
    sink.write(table)
    sink.batch = 1
    written = sink.task(table)
    drop_column(str(target), "b")
    with pytest.raises(TargetChangedError):
        sink.commit(*written, table.schema)
    sink.repeat(table)
    assert sorted(read_by_all(target)["b"].to_pylist(), key=str) == [1, None]


def _write_second(target: str, widens: bool) -> None:
    """Write a batch with a new column, and with a wider one."""
    sink = Sink(target, widening=ANY_SIZE)
    sink.batch = 1
    kind = pa.int64() if widens else pa.int32()
    sink.repeat(pa.table({"a": pa.array([2], kind), "n": [7], "new": ["x"]}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("widens", "point"),
    some(
        [*product((False, True), (*METADATA_POINTS, "before-sink-commit", "after-sink-commit"))],
        2,
        name="kills of a commit that changes columns",
        always=[(False, "before-sink-commit"), (True, "after-sink-commit")],
    ),
)
def test_killed_between_metadata_and_rows_nothing_is_lost_or_twice(
    tmp_path: Path, point: str, widens: bool
) -> None:
    target = tmp_path / "t"
    given = {"delta_columnMapping_mode": "name", **(WIDENS if widens else {})}
    sink = Sink(target, widening=ANY_SIZE, **given)
    sink.write(_column(pa.int32(), 1))
    rename_column(str(target), "n", "number")
    program = (
        "import sys\n"
        "from tests.unit.delta.write.test_evolution import _write_second\n"
        "_write_second(sys.argv[1], sys.argv[2] == 'True')\n"
    )
    arguments = [sys.executable, "-c", program, str(target), str(widens)]
    killed = subprocess.run(arguments, env={**os.environ, CRASH_AT: point}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(read(target)) == (2 if point == "after-sink-commit" else 1)
    for _ in range(2):
        _write_second(str(target), widens)
    rows = [
        {"a": 1, "number": 0, "new": None},
        {"a": 2, "number": 7, "new": "x"},
    ]
    found = read_by_all(target, deltalake=not widens)
    assert sorted(found.to_pylist(), key=lambda row: row["a"]) == rows


# The examples of the article "Table file formats - Schema evolution: Delta Lake".
INTEGERS = [
    {"name": name, "type": "integer", "nullable": True, "metadata": {}}
    for name in ("id", "multiplication_result")
]


def _metadata(target: Path, version: int) -> list[dict[str, Any]]:
    lines = (target / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    return [each["metaData"] for each in map(json.loads, lines) if "metaData" in each]


def test_the_schema_is_in_the_log_and_a_new_one_whenever_it_changes(tmp_path: Path) -> None:
    target = tmp_path / "t"
    numbers = {
        "id": pa.array([0, 1, 2], pa.int32()),
        "multiplication_result": pa.array([0, 2, 4], pa.int32()),
    }
    Sink(target).write(pa.table(numbers))
    [created] = _metadata(target, 0)
    assert json.loads(created["schemaString"])["fields"] == INTEGERS
    assert (created["partitionColumns"], created["configuration"]) == ([], {})
    now = pa.array([dt.datetime(2023, 4, 4, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC"))
    timed = pa.table({**numbers, "generation_time": now})
    with pytest.raises(SchemaMismatchError, match="A schema mismatch detected when writing"):
        Sink(target, app="strict", merge_schema=False).write(timed)
    Sink(target, app="merging").write(timed)
    [evolved] = _metadata(target, 2)
    assert evolved["id"] == created["id"]
    time = {"name": "generation_time", "type": "timestamp", "nullable": True, "metadata": {}}
    assert json.loads(evolved["schemaString"])["fields"] == [*INTEGERS, time]
    assert len(read_by_all(target)) == 6


def test_an_int_table_takes_no_longs(tmp_path: Path) -> None:  # B128
    target = tmp_path / "t"
    Sink(target).write(pa.table({"id_as_int": pa.array([1], pa.int32())}))
    with pytest.raises(
        SchemaMismatchError,
        match=r"Failed to merge fields 'id_as_int' and 'id_as_int'\. Failed to merge incompatible "
        "data types IntegerType and LongType",
    ):
        Sink(target, app="long").write(pa.table({"id_as_int": [1]}))
    assert len(list(target.rglob("*.parquet"))) == 1
    assert pq.read_schema(next(target.rglob("*.parquet"))).names == ["id_as_int"]
