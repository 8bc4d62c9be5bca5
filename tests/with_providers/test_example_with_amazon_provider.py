"""The example with the sensors of the Amazon provider: one connection, which assumes a role."""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessors

from tests.support.aws_landing import objects, put

if TYPE_CHECKING:
    from tests.support.emulators.aws import Aws

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "dags_examples/example_with_amazon_provider.py"
HUSH = "hush-3b81d7"


def _tasks() -> Any:
    """The example's tasks, as Airflow imports them."""
    spec = spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sensors_of_the_provider_and_our_tasks_share_a_connection(
    aws: Aws,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    landing, lake, queue = aws.bucket(), aws.bucket(), aws.queue()
    connection = {
        "conn_type": "aws",
        "login": "test",
        "password": HUSH,
        "extra": {
            "role_arn": "arn:aws:iam::000000000000:role/loader",
            "assume_role_kwargs": {"DurationSeconds": 900},  # so it is renewed at every use
            "region_name": "us-east-1",
            "endpoint_url": aws.endpoint,
            "service_config": {"sts": {"endpoint_url": aws.endpoint}},
            "config_kwargs": {"s3": {"addressing_style": "path"}},
        },
    }
    monkeypatch.setenv("AIRFLOW_CONN_LANDING", json.dumps(connection))
    monkeypatch.setenv("LANDING", landing)
    monkeypatch.setenv("LANDING_QUEUE", queue)
    monkeypatch.setenv("LAKE", lake)
    example = _tasks()
    context: Any = {"ti": SimpleNamespace(xcom_push=lambda **_: None)}
    assert not example.complete.poke(context)
    assert not example.word.poke(context)
    assert not example.arrived.poke({}).is_done
    put(aws, landing, "orders/1.json", '{"id": 1}\n{"id": 2}')
    put(aws, landing, "done/_COMPLETE")
    aws.client("sqs").send_message(QueueUrl=queue, MessageBody="done")
    assert example.complete.poke(context)
    assert example.word.poke(context)
    told = example.arrived.poke({})
    assert told.is_done
    ti = SimpleNamespace(
        id="0198c1a4-0000-7000-8000-000000000000",
        dag_id="example_with_amazon_provider",
        run_id="r1",
        task_id="ingest",
        map_index=-1,
        try_number=1,
    )
    example.ingest.batch = told.xcom_value
    report = example.ingest.execute({"ti": ti, "outlet_events": OutletEventAccessors()})
    assert (report["files"], report["rows"]) == (1, 2)
    kept = objects(aws, lake)
    assert any(key.startswith("orders/_delta_log/") for key in kept)
    shown = json.dumps([report, told.xcom_value]).encode() + b"".join(kept.values())
    assert HUSH.encode() not in shown
    assert b"ASIA" not in shown
    assert HUSH not in "".join(capfd.readouterr())
