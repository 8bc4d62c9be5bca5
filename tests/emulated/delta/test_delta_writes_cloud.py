"""Partitioned and mapped tables in a cloud are written as those on a disk."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.extensions.upkeep.alter import drop_column, rename_column
from airflow_cloudfiles.engine.storage.access import to_environment
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from tests.support.delta_tables import read, sorted_rows
from tests.support.delta_writes import ANY_SIZE, Sink

ODD = ["plain", "a/b", "a=b", "100%", "x%20y", "sp ace", "ä€😀", "'\"*?:#[]{}^\\", "+&", "..", None]


@pytest.fixture(params=["aws", "seaweed", "azurite", "gcs_xml"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place for a table in each cloud, the access in the environment."""
    cloud = request.getfixturevalue(request.param)
    for name, value in to_environment(cloud.access).items():
        monkeypatch.setenv(name, value)
    root = cloud.container() if request.param == "azurite" else cloud.bucket()
    return f"{root}/tables/ünï t+1"


def _scanned(target: str) -> pa.Table:
    location = DeltaLocation.of(target)
    table = DeltaTable(location.table_uri, storage_options=location.storage_options())
    return pa.table(table.scan().read_all())


def _values(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    columns = [table[name].to_pylist() for name in names]
    return sorted(zip(*columns, strict=True), key=str)


def test_odd_partitions_are_written_once_and_found(target: str) -> None:
    table = pa.table({"v": range(len(ODD)), "p": ODD})
    sink = Sink(target, partition_by=("p",))
    sink.batch = 0
    files, layout = sink.task(table)
    for _ in range(2):  # the second time as if the answer to the first was lost
        assert sink.commit(files, layout, table.schema).is_new
    assert not sink.repeat(table).is_new
    assert sorted_rows(read(target)) == sorted_rows(table)
    assert _values(_scanned(target), "v", "p") == _values(table, "v", "p")
    left = [each.path for each in DeltaLocation.of(target).store().list("p=")]
    assert len(left) == len(ODD), "files of the repetition are removed"


def test_a_mapped_table_is_changed_by_commits_that_are_there_once(target: str) -> None:
    sink = Sink(
        target,
        widening=ANY_SIZE,
        delta_columnMapping_mode="name",
        delta_enableTypeWidening="true",
    )
    sink.write(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]}))
    rename_column(target, "a", "key")
    drop_column(target, "b")
    sink.write(pa.table({"a": pa.array([2**40], pa.int64()), "new": [True]}))
    assert _values(read(target), "key", "new") == [(1, None), (2**40, True)]
    assert not sink.repeat(pa.table({"a": [0]})).is_new


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_a_damaged_checkpoint_is_put_aside(target: str, content: bytes) -> None:
    sink, location = Sink(target), DeltaLocation.of(target)
    for number in range(3):
        sink.write(pa.table({"a": [number]}))
    table = DeltaTable(location.table_uri, storage_options=location.storage_options())
    table.create_checkpoint()
    [path] = [
        each.path for each in location.store().list("_delta_log/") if each.path.endswith(".parquet")
    ]
    location.store().put(path, content)
    assert _values(read(target), "a") == [(0,), (1,), (2,)]
    sink.write(pa.table({"a": [3]}))
    assert _values(_scanned(target), "a") == _values(read(target), "a") == [(0,), (1,), (2,), (3,)]
