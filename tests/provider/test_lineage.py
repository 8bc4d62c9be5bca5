"""What a task reads and writes, and how much of it, under the names that OpenLineage gives."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.hooks.observability.lineage import (
    Lineage,
    LineageDataset,
    dataset_name,
    inferred,
    ingested,
)

pytestmark = pytest.mark.airflow

AZURE = "abfss://lake@acme.dfs.core.windows.net"


def _stream(**changes: Any) -> StreamArguments:
    given = {
        "source": "s3://landing/orders",
        "format": "json",
        "checkpoint_location": "s3://lake/_state",
        "target": "s3://lake/orders",
        **changes,
    }
    return StreamArguments(**given)


def _only(lineage: Lineage) -> tuple[LineageDataset, LineageDataset]:
    """The only input and the only output."""
    (source,), (target,) = lineage.inputs, lineage.outputs
    return source, target


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        ("s3://landing/orders/eu/", "s3://landing", "orders/eu"),
        ("s3a://landing/orders", "s3://landing", "orders"),
        ("s3://landing", "s3://landing", "/"),
        ("gs://landing/orders", "gs://landing", "orders"),
        (f"{AZURE}/orders", AZURE, "orders"),
        ("wasbs://lake@acme.blob.core.windows.net/orders", AZURE, "orders"),
        ("/data//orders/", "file", "/data/orders"),
        ("file:///data/orders", "file", "/data/orders"),
        ("iceberg://prod/sales.eu/orders", "iceberg://prod", "sales.eu.orders"),
    ],
)
def test_a_dataset_is_named_by_where_it_is(location: str, namespace: str, name: str) -> None:
    assert dataset_name(location) == (namespace, name)


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("s3://landing/orders/*/in", "orders"),
        ("s3://landing/2026-{01,02}/x", "/"),
        ("s3://landing/orders/day=[0-9]*", "orders"),
        ("/data/orders/*.json", "/data/orders"),
    ],
)
def test_a_source_with_a_pattern_is_the_folder_above_it(location: str, name: str) -> None:
    assert dataset_name(location, is_source=True) in {("s3://landing", name), ("file", name)}


@pytest.mark.parametrize("is_source", [True, False])
@pytest.mark.parametrize(
    "location",
    [
        f"{AZURE}/orders?sv=2026&sig=hush",
        "s3://landing/orders?X-Amz-Signature=hush",
        "s3://key:hush@landing/orders",
        "abfss://lake:hush@acme.dfs.core.windows.net/orders",
        "https://acme.blob.core.windows.net/lake?sig=hush",
        "iceberg://prod/sales/orders?token=hush",
    ],
)
def test_a_credential_in_a_location_is_in_no_name(location: str, is_source: bool) -> None:
    assert "hush" not in str(dataset_name(location, is_source=is_source))


@pytest.mark.parametrize("location", ["", "orders", "s3://land*/x", "hdfs://node/x", "iceberg://x"])
def test_what_cannot_be_named_is_no_dataset(location: str) -> None:
    assert dataset_name(location, is_source=True) is None
    assert ingested(_stream(source=location, target=location), {"rows": 1}) == Lineage()


def test_before_a_run_only_the_names_are_known() -> None:
    found = ingested(_stream(), None)
    assert found.inputs == [LineageDataset(namespace="s3://landing", name="orders")]
    assert found.outputs == [LineageDataset(namespace="s3://lake", name="orders", layer="delta")]


def test_the_report_of_a_run_has_counts_versions_and_columns() -> None:
    schema = "id BIGINT NOT NULL, `a,b` STRUCT<x: DECIMAL(5,2), y: ARRAY<INT>>, all VARIANT"
    report = {"files": 2, "bytes": 300, "rows": 7, "target_version": 0, "schema": schema}
    source, target = _only(ingested(_stream(), report))
    assert (source.files, source.bytes, source.rows, source.version) == (2, 300, None, None)
    assert (target.rows, target.version) == (7, "0")
    assert target.columns == (
        ("id", "BIGINT"),
        ("a,b", "STRUCT<x: DECIMAL(5,2), y: ARRAY<INT>>"),
        ("all", "VARIANT"),
    )
    assert not source.columns


def test_of_a_merge_the_rows_that_it_changed_were_written() -> None:
    report = {"rows": 9, "inserted_rows": 4, "updated_rows": 2, "deleted_rows": 1}
    assert ingested(_stream(), report).outputs[0].rows == 7


def test_a_run_without_anything_new_has_counts_of_nothing() -> None:
    found = ingested(_stream(), {"files": 0, "bytes": 0, "rows": 0, "target_version": None})
    assert (found.inputs[0].files, found.outputs[0].rows, found.outputs[0].version) == (0, 0, None)


def test_a_table_as_the_source_has_rows_and_a_version() -> None:
    report = {"rows": 5, "files": 1, "bytes": 80, "last_version": 3, "target_version": 8}
    found = ingested(_stream(format="delta", source="/bronze/or*ders"), report).inputs[0]
    assert (found.namespace, found.name, found.layer) == ("file", "/bronze/or*ders", "delta")
    assert (found.rows, found.version) == (5, "3")


def test_an_iceberg_table_is_told_from_a_delta_table() -> None:
    found = ingested(_stream(target="iceberg://prod/sales/orders"), {"target_version": 4}).outputs
    assert [(each.layer, each.version) for each in found] == [("iceberg", "4")]


def test_an_inference_knows_the_schema_of_the_source_and_writes_no_table() -> None:
    report = {"schema": "id STRING", "sampled_files": 3, "sampled_bytes": 99}
    found = inferred(_stream(), report)
    assert (found.inputs[0].columns, found.outputs) == ((("id", "STRING"),), [])
    assert (found.inputs[0].files, found.inputs[0].bytes) == (3, 99)
