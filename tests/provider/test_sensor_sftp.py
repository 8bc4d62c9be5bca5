"""Connections to SFTP servers serve sensors, tests and hooks; nothing says a password."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_cloudfiles.engine.errors import OptionError, SourceAccessError, UnsupportedOptionError
from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.clouds import CloudFilesSftpHook
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor
from tests.support.sftp_servers import PASSWORD, USER, FaultyServer, faulty, public
from tests.support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.airflow


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    with faulty(tmp_path / "server") as found:
        (found.folder / "inbox").mkdir()
        _connect(found, monkeypatch)
        yield found


def _connect(server: FaultyServer, monkeypatch: pytest.MonkeyPatch, **extra: object) -> None:
    connection = {
        "conn_type": "sftp",
        "host": "127.0.0.1",
        "port": server.port,
        "login": USER,
        "password": PASSWORD,
        "extra": {"host_key": public(server.key), **extra},
    }
    monkeypatch.setenv("AIRFLOW_CONN_PARTNER", json.dumps(connection))


def _stream(server: FaultyServer, tmp_path: Path) -> dict[str, Any]:
    return {  # without a port: that is the connection's
        "source": "sftp://127.0.0.1/inbox",
        "format": "csv",
        "checkpoint_location": str(tmp_path / "state"),
        "conn_id": "partner",
    }


async def _fired(left: TaskDeferred) -> Any:
    """What the trigger of a deferred task says first, in a triggerer's place."""
    path, arguments = left.trigger.serialize()
    assert PASSWORD not in f"{path} {arguments} {left.trigger!r}"
    trigger = type(left.trigger)(**arguments)
    trigger._task_instance = object()
    async with aclosing(trigger.run()) as events:
        return await asyncio.wait_for(anext(events), PATIENCE_SECONDS)


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_sensor_finds_what_has_landed_in_an_inbox(
    server: FaultyServer, tmp_path: Path, deferrable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    given = _stream(server, tmp_path)
    sensor = CloudFilesSensor(task_id="wait", deferrable=deferrable, poke_interval=1, **given)
    if deferrable:
        with pytest.raises(TaskDeferred) as left:
            sensor.execute({})
        (server.folder / "inbox/a.csv").write_text("a\n1\n")
        event = asyncio.run(_fired(left.value))
        batch = sensor.execute_complete({}, event.payload)
    else:
        assert not sensor.poke({})
        (server.folder / "inbox/a.csv").write_text("a\n1\n")
        batch = sensor.poke({}).xcom_value
    assert batch["files"] == 1
    assert batch["sample"] == ["a.csv"]
    state = b"".join(
        path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()
    )
    assert PASSWORD not in caplog.text + repr(batch)
    assert PASSWORD.encode() not in state


def test_a_connection_is_tested_where_it_says(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _connect(server, monkeypatch, test_location=f"sftp://127.0.0.1:{server.port}/inbox")
    assert CloudFilesSftpHook("partner").test_connection()[0]
    _connect(server, monkeypatch, test_location="sftp://127.0.0.1/none")
    works, why = CloudFilesSftpHook("partner").test_connection()
    assert (works, "is no folder" in why) == (False, True)
    _connect(
        server,
        monkeypatch,
        test_location="sftp://127.0.0.1/inbox",
        host_key="",
        known_hosts="/dev/null",
    )
    works, why = CloudFilesSftpHook("partner").test_connection()
    assert (works, server.key.get_fingerprint() in why) == (False, True)


def test_a_sensor_tells_what_is_wrong(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook, given = CloudFilesHook("partner"), _stream(server, tmp_path)
    given.pop("conn_id")
    with pytest.raises(OptionError, match=r"for the host 127\.0\.0\.1"):
        hook.check(StreamArguments(**{**given, "source": "sftp://elsewhere.example/inbox"}))
    with pytest.raises(UnsupportedOptionError, match="source only"):
        hook.check(StreamArguments(**{**given, "checkpoint_location": "sftp://127.0.0.1/state"}))
    _connect(server, monkeypatch, host_key="", known_hosts="/dev/null")
    with pytest.raises(SourceAccessError, match="is not known here"):
        CloudFilesHook("partner").check(StreamArguments(**given))
