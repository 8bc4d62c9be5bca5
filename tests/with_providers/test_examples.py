"""The examples with sensors and triggers of providers: one connection of each cloud."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessors

from tests.support.aws_landing import objects, put, queue_size

if TYPE_CHECKING:
    from tests.support.emulators.aws import Aws
    from tests.support.emulators.gcp import Gcs

EXAMPLES = Path(__file__).parents[2] / "dags_examples"
HUSH = "hush-3b81d7"


def _tasks(name: str) -> Any:
    """An example's tasks, as Airflow imports them."""
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _connection(aws: Aws) -> str:
    """One that assumes a role."""
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
    return json.dumps(connection)


def _ingested(task: Any) -> tuple[int, int]:
    """Run a task; gives how many files and rows it has ingested."""
    report = _report(task)
    return report["files"], report["rows"]


def _report(task: Any) -> dict[str, Any]:
    ti = SimpleNamespace(
        id="0198c1a4-0000-7000-8000-000000000000",
        dag_id=task.dag_id,
        run_id="r1",
        task_id=task.task_id,
        map_index=-1,
        try_number=1,
    )
    found: dict[str, Any] = task.execute({"ti": ti, "outlet_events": OutletEventAccessors()})
    return found


@pytest.mark.spark
@pytest.mark.slow
def test_sensors_of_the_provider_and_our_tasks_share_a_connection(
    aws: Aws,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    landing, lake, queue = aws.bucket(), aws.bucket(), aws.queue()
    monkeypatch.setenv("AIRFLOW_CONN_LANDING", _connection(aws))
    monkeypatch.setenv("LANDING", landing)
    monkeypatch.setenv("LANDING_QUEUE", queue)
    monkeypatch.setenv("LAKE", lake)
    example = _tasks("example_with_amazon_provider")
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
    example.ingest.batch = told.xcom_value
    report = _report(example.ingest)
    assert (report["files"], report["rows"]) == (1, 2)
    kept = objects(aws, lake)
    assert any(key.startswith("orders/_delta_log/") for key in kept)
    shown = json.dumps([report, told.xcom_value]).encode() + b"".join(kept.values())
    assert HUSH.encode() not in shown
    assert b"ASIA" not in shown
    assert HUSH not in "".join(capfd.readouterr())


def test_a_message_starts_a_run_that_waits_for_two_clouds_and_ingests_from_both(
    aws: Aws, gcs_xml: Gcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing, lake, queue, partner = aws.bucket(), aws.bucket(), aws.queue(), gcs_xml.bucket()
    of_google = {"is_anonymous": True, "project": gcs_xml.access.project}
    monkeypatch.setenv("AIRFLOW_CONN_LANDING", _connection(aws))
    monkeypatch.setenv(
        "AIRFLOW_CONN_PARTNER",
        json.dumps({"conn_type": "google_cloud_platform", "extra": of_google}),
    )
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_xml.endpoint)
    monkeypatch.setenv("LANDING", landing)
    monkeypatch.setenv("LANDING_QUEUE", queue)
    monkeypatch.setenv("LAKE", lake)
    monkeypatch.setenv("PARTNER", partner)
    example = _tasks("example_with_providers")
    context: Any = {"ti": SimpleNamespace(xcom_push=lambda **_: None)}
    assert not example.orders.poke(context)
    assert not example.returns.poke(context)

    put(aws, landing, "orders/1.json", '{"id": 1}\n{"id": 2}')
    put(aws, landing, "done/_COMPLETE")
    bucket = gcs_xml.client().bucket(partner.removeprefix("gs://"))
    for key, text in (("returns/1.json", '{"id": 3}\n'), ("done/_COMPLETE", "")):
        bucket.blob(key).upload_from_string(text)
    aws.client("sqs").send_message(QueueUrl=queue, MessageBody="orders are there")

    async def fired() -> Any:
        return await anext(aiter(example.message.run()))

    [found] = asyncio.run(fired()).payload["message_batch"]
    assert found["Body"] == "orders are there"
    assert queue_size(aws, queue) == 0
    assert example.orders.poke(context)
    assert example.returns.poke(context)
    assert _ingested(example.ingest_orders) == (1, 2)
    assert _ingested(example.ingest_returns) == (1, 1)


def test_a_command_logs_in_by_the_hook_and_so_does_the_driver_that_it_starts(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing, lake = aws.bucket(), aws.bucket()
    monkeypatch.setenv("AIRFLOW_CONN_LANDING", _connection(aws))
    put(aws, landing, "orders/1.json", '{"id": 1}\n{"id": 2}')
    command = [sys.executable, "-m", "airflow_cloudfiles.cli", "ingest", "--conn-id", "landing"]
    command += ["--engine", "local", "--source", f"{landing}/orders", "--format", "json"]
    command += ["--checkpoint-location", f"{lake}/state", "--target", f"{lake}/orders", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["files"], report["rows"]) == (1, 2)
    kept = objects(aws, lake)
    assert any(key.startswith("orders/_delta_log/") for key in kept)
    shown = done.stdout + done.stderr
    assert HUSH not in shown
    assert HUSH.encode() not in b"".join(kept.values())
