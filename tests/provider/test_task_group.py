"""A task group is a whole stream: its tasks, their order, and what may be said of each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, TaskGroup

from airflow_cloudfiles import CloudFilesTaskGroup
from airflow_cloudfiles.engine.errors import UnknownOptionError

pytestmark = pytest.mark.airflow


def _group(**more: Any) -> CloudFilesTaskGroup:
    given = {
        "source": "s3://lake/orders",
        "format": "json",
        "checkpoint_location": "s3://lake/_state/orders",
        "target": "s3://lake/tables/orders",
        "conn_id": "lake",
    }
    with DAG("d", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None):
        return CloudFilesTaskGroup("orders", **{**given, **more})


def test_it_is_a_sensor_and_an_ingestion_of_the_same_stream() -> None:
    group = _group(options={"cloudFiles.maxFilesPerTrigger": 10})
    assert sorted(group.children) == ["orders.arrived", "orders.ingest"]
    assert group.arrived.downstream_task_ids == {"orders.ingest"}
    assert group.arrived.stream_arguments() == group.ingest.stream_arguments()
    assert group.ingest.batch == group.arrived.output
    assert (group.arrived.mode, group.arrived.soft_fail) == ("reschedule", True)
    assert group.output == group.ingest.output
    assert group.infer_schema is None


def test_what_one_task_is_told_goes_to_that_task() -> None:
    group = _group(
        sensor={"timeout": 60, "soft_fail": False},
        ingest={"write": "merge", "keys": ["id"], "driver_memory": "2g"},
        infer_schema=True,
        tooltip="orders of the shop",
    )
    assert (group.arrived.timeout, group.arrived.soft_fail) == (60, False)
    assert group.ingest.keys == ["id"]
    assert group.infer_schema is not None
    assert group.infer_schema.upstream_task_ids == {"orders.arrived"}
    assert group.infer_schema.downstream_task_ids == {"orders.ingest"}
    assert group.infer_schema.spark == group.ingest.spark
    assert group.ingest.spark.driver_memory == "2g"
    assert group.tooltip == "orders of the shop"


def test_groups_are_chained_and_nested_as_others() -> None:
    with DAG("d", start_date=datetime(2026, 1, 1, tzinfo=UTC), schedule=None):
        with TaskGroup("shop"):
            first, second = (
                CloudFilesTaskGroup(
                    name,
                    source=f"/lake/{name}",
                    format="json",
                    checkpoint_location=f"/lake/_state/{name}",
                    target=Asset(f"file:///lake/tables/{name}"),
                )
                for name in ("orders", "customers")
            )
        first >> second
    assert first.ingest.task_id == "shop.orders.ingest"
    assert first.ingest.downstream_task_ids == {"shop.customers.arrived"}
    assert [each.uri for each in first.ingest.outlets] == ["file:///lake/tables/orders"]


@pytest.mark.parametrize(
    ("more", "error", "what"),
    [
        (
            {"options": {"cloudFiles.maxFilePerTrigger": 1}},
            UnknownOptionError,
            "maxFilesPerTrigger",
        ),
        ({"sensor": {"poke_intervall": 1}}, TypeError, "poke_intervall"),
        ({"ingest": {"kees": ["id"]}}, TypeError, "kees"),
    ],
)
def test_a_mistake_fails_when_the_dag_is_parsed(
    more: dict[str, Any], error: type[Exception], what: str
) -> None:
    with pytest.raises(error, match=what):
        _group(**more)
