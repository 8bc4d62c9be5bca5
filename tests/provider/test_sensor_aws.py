"""The sensor with a real queue: what it takes from it is recorded first, in every mode."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_cloudfiles.engine.errors import StateError
from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.operators.cloud_files import CloudFilesReconcileOperator
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor
from tests.support.aws_landing import bucket_with_queue, connection, put, queue_size
from tests.support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.emulators.aws import Aws

pytestmark = pytest.mark.airflow

SECRET = "hush-77d0c1"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aws: Aws) -> None:
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("AIRFLOW_CONN_LANDING", json.dumps(connection(aws, SECRET)))


def _stream(source: str, queue: str, state: Path) -> dict[str, Any]:
    return {
        "source": source,
        "format": "json",
        "checkpoint_location": str(state),
        "options": {"cloudFiles.useNotifications": True, "cloudFiles.queueUrl": queue},
        "conn_id": "landing",
    }


async def _fired(left: TaskDeferred) -> Any:
    """What the trigger of a deferred task says first, in a triggerer's place."""
    path, arguments = left.trigger.serialize()
    assert SECRET not in f"{path} {arguments} {left.trigger!r}"
    trigger = type(left.trigger)(**arguments)
    trigger.task_instance = SimpleNamespace(task_id="t")
    async with aclosing(trigger.run()) as events:
        return await asyncio.wait_for(anext(events), PATIENCE_SECONDS)


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_message_is_deleted_when_the_file_log_has_its_file(
    aws: Aws, tmp_path: Path, deferrable: bool, caplog: pytest.LogCaptureFixture
) -> None:  # B142, B147
    source, queue = bucket_with_queue(aws)
    state = tmp_path / "state"
    sensor = CloudFilesSensor(
        task_id="arrived",
        **_stream(source, queue, state),
        deferrable=deferrable,
        poke_interval=0.1,
        timeout=0 if not deferrable else 600,
        soft_fail=True,
    )
    if deferrable:
        with pytest.raises(TaskDeferred) as left:
            sensor.execute({})  # type: ignore[typeddict-item]
        put(aws, source, "a b.json")
        assert asyncio.run(_fired(left.value)).payload["arrived"]
        assert queue_size(aws, queue) == 1  # the trigger takes nothing
    else:
        assert not sensor.poke({}).is_done  # type: ignore[typeddict-item]
        put(aws, source, "a b.json")

    # the file log cannot be written: the message has to stay
    files = state / "_source" / "files"
    aside = files.with_name("aside")
    if files.exists():
        files.rename(aside)
    files.write_text("in the way")
    with pytest.raises((StateError, OSError)):
        sensor.poke({})  # type: ignore[typeddict-item]
    assert queue_size(aws, queue) == 1
    files.unlink()
    if aside.exists():
        aside.rename(files)

    batch = sensor.execute_complete({}) if deferrable else sensor.execute({})  # type: ignore[typeddict-item]
    assert batch == {
        "version": 1,
        "checkpoint_location": str(state),
        "first_entry": batch["first_entry"],
        "last_entry": batch["first_entry"],
        "files": 1,
        "bytes": 9,
        "sample": ["a b.json"],
    }
    assert queue_size(aws, queue) == 0
    assert SECRET not in caplog.text


def test_a_reconciliation_finds_what_notifications_lost(aws: Aws, tmp_path: Path) -> None:  # B97
    source, queue = bucket_with_queue(aws)
    stream = _stream(source, queue, tmp_path / "state")
    hook = CloudFilesHook("landing")
    arguments = StreamArguments(**{name: v for name, v in stream.items() if name != "conn_id"})
    hook.discover(arguments)
    put(aws, source, "lost.json")
    aws.client("sqs").purge_queue(QueueUrl=queue)
    assert not hook.has_arrivals(arguments)
    put(aws, source, "on its way.json")

    task = CloudFilesReconcileOperator(task_id="reconcile", **stream)
    assert task.retries == 3
    report = task.execute({})  # type: ignore[typeddict-item]
    assert report == {
        "checkpoint_location": str(tmp_path / "state"),
        "listed": 2,
        "files": 1,
        "bytes": 9,
        "sample": ["lost.json"],
        "outstanding_files": 2,
    }
    assert task.execute({})["files"] == 0  # type: ignore[typeddict-item]
    assert hook.has_arrivals(arguments)
