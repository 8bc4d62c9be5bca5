"""A table in a cloud is read and vacuumed as one on a disk is."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.delta.vacuum import vacuum
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.delta_tables import HandMadeTable, column, features, read, removed

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore


@pytest.fixture(params=["aws", "seaweed", "azurite", "gcs_xml"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """The place of a table in each cloud, the access in the environment."""
    cloud = request.getfixturevalue(request.param)
    for name, value in to_environment(cloud.access).items():
        monkeypatch.setenv(name, value)
    root = cloud.container() if request.param == "azurite" else cloud.bucket()
    return open_store(f"{root}/tables/ünï t+1")


def rows(store: ObjectStore, version: int | None = None) -> list[tuple[int, str]]:
    found = read(store.uri, version).to_pylist()
    return sorted((row["a"], row["p"]) for row in found)


def upload(folder: Path, store: ObjectStore) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put(str(path.relative_to(folder)), path.read_bytes())


def test_a_table_with_vectors_and_mapping_is_read_and_vacuumed(
    store: ObjectStore, tmp_path: Path
) -> None:
    made = HandMadeTable(tmp_path / "t")
    names = {"name": "p=x%20y/ä 1.parquet", "path": "p=x%2520y/%C3%A4%201.parquet"}
    whole = made.file(
        **names,
        rows={"col-1": list(range(70_000))},
        partition={"col-2": "x y"},
        row_group_size=20_000,
    )
    columns = [column("a", "long", 1), column("p", "string", 2)]
    protocol = features("columnMapping", "deletionVectors")
    made.create(
        whole,
        protocol=protocol,
        columns=columns,
        partitions=("p",),
        delta_columnMapping_mode="name",
    )
    vector = made.vector(list(range(10, 70_000)), prefix="dv")
    kept = {"add": {**whole["add"], "deletionVector": vector}}
    made.commit(removed(whole), kept)
    made.file("part-orphan.parquet", {"a": [1]})
    upload(made.folder, store)
    assert len(rows(store, 0)) == 70_000
    assert rows(store) == [(number, "x y") for number in range(10)]
    log = TableLog(DeltaLocation.to_read(store.uri))
    assert vacuum(log).paths == []
    orphan = store.head("part-orphan.parquet")
    assert orphan is not None
    while store.clock_us() <= orphan.modification_time_us:  # some stores count whole seconds
        time.sleep(0.1)
    short = {"retention": timedelta(0), "allow_short_retention": True}
    assert vacuum(log, **short, dry_run=False).paths == ["part-orphan.parquet"]
    assert rows(store) == [(number, "x y") for number in range(10)]
    assert store.head("part-orphan.parquet") is None
