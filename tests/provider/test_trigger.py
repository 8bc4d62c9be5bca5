"""The trigger fires when files arrive, never says which, and takes nothing with it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import aclosing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.triggers.base import BaseEventTrigger

from airflow_cloudfiles.engine.discovery.settling import WaitingReport
from airflow_cloudfiles.engine.errors import UnknownOptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.files import START
from airflow_cloudfiles.engine.intake.results import Arrivals
from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.triggers.cloud_files import CloudFilesTrigger, _pause
from tests.support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

pytestmark = pytest.mark.airflow


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDFILES_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "in").mkdir()


def _stream(root: Path) -> dict[str, Any]:
    return {
        "source": str(root / "in"),
        "format": "json",
        "checkpoint_location": str(root / "state"),
    }


def _trigger(root: Path, **changes: Any) -> CloudFilesTrigger:
    return CloudFilesTrigger(**{**_stream(root), "poke_interval": 0.01, **changes})


def _drop(root: Path, name: str) -> None:
    (root / "in" / name).write_text('{"a": 1}\n')


def _discover(root: Path) -> None:
    assert CloudFilesHook().discover(StreamArguments(**_stream(root)))


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run to the end, or fail: a trigger waits for ever."""
    return asyncio.run(asyncio.wait_for(work, PATIENCE_SECONDS))


async def _first(events: AsyncIterator[Any]) -> Any:
    async with aclosing(events) as open_events:  # type: ignore[type-var]
        return await anext(open_events)


class Looks:
    """Counts what the hook is asked, and lets a test wait for further looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        look = CloudFilesHook.check

        def counted(hook: CloudFilesHook, stream: StreamArguments) -> Any:
            try:
                return look(hook, stream)
            finally:
                self.count += 1

        monkeypatch.setattr(CloudFilesHook, "check", counted)

    async def further(self, count: int) -> None:
        """Wait until so many further looks have ended."""
        end = self.count + count
        while self.count < end:  # noqa: ASYNC110 - counted in threads
            await asyncio.sleep(0.01)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


class Store:
    """The part of an asset's state store that a watcher uses; it outlives the watcher."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    async def aget(self, key: str, default: Any = None) -> Any:
        return json.loads(self.values[key]) if key in self.values else default

    async def aset(self, key: str, value: Any) -> None:
        self.values[key] = json.dumps(value)


def test_it_survives_the_way_through_the_database(tmp_path: Path) -> None:
    trigger = _trigger(tmp_path, options={"pathGlobFilter": "*.json"}, conn_id="landing")
    path, arguments = trigger.serialize()
    assert path == "airflow_cloudfiles.triggers.cloud_files.CloudFilesTrigger"
    again = CloudFilesTrigger(**json.loads(json.dumps(arguments)))
    assert again.serialize() == (path, arguments)
    assert isinstance(again, BaseEventTrigger)


def test_an_option_that_cannot_work_breaks_the_dag(tmp_path: Path) -> None:
    with pytest.raises(UnknownOptionError, match=r"cloudFiles\.schemaHints"):
        _trigger(tmp_path, options={"cloudFiles.schemaHint": "a int"}).serialize()
    with pytest.raises(UnsupportedOptionError, match="conn_id"):
        _trigger(tmp_path, options={"cloudFiles.awsAccessKey": "AKIA"}).serialize()


def test_it_fires_once_and_not_for_ever(tmp_path: Path, looks: Looks) -> None:  # B145
    async def watch() -> list[Any]:
        fired: list[Any] = []

        async def listen() -> None:
            async for event in _trigger(tmp_path).run():
                fired.append(event.payload)  # noqa: PERF401 - looked at while it grows

        listening = asyncio.create_task(listen())
        await looks.further(2)
        assert fired == []
        _drop(tmp_path, "1.json")
        await looks.further(5)
        assert len(fired) == 1
        await asyncio.to_thread(_discover, tmp_path)  # a run has looked, and goes on
        await looks.further(3)
        assert len(fired) == 1
        _drop(tmp_path, "2.json")
        await looks.further(3)
        listening.cancel()
        return fired

    event = {
        "source": str(tmp_path / "in"),
        "checkpoint_location": str(tmp_path / "state"),
        "arrived": True,
    }
    assert _run(watch()) == [event, event]


def test_looking_records_nothing(tmp_path: Path) -> None:
    _drop(tmp_path, "1.json")
    _run(_first(_trigger(tmp_path).run()))
    stream = StreamArguments(**_stream(tmp_path))
    files = tmp_path / "state" / "_source" / "files"
    assert not files.exists() or not list(files.iterdir())
    assert CloudFilesHook().has_arrivals(stream)
    batch = CloudFilesHook().discover(stream)
    assert batch is not None
    assert batch["files"] == 1


def test_what_was_fired_for_outlives_the_triggerer(tmp_path: Path, looks: Looks) -> None:
    _drop(tmp_path, "1.json")
    store = Store()

    async def watch() -> int:
        trigger, fired = _trigger(tmp_path), 0
        trigger.asset_state_store = store  # type: ignore[assignment]

        async def listen() -> None:
            nonlocal fired
            async for _ in trigger.run():
                fired += 1

        listening = asyncio.create_task(listen())
        await looks.further(4)
        listening.cancel()
        return fired

    assert _run(watch()) == 1
    assert _run(watch()) == 0
    store.values.clear()  # before Airflow 3.3 there is no such store
    assert _run(watch()) == 1


def test_a_watcher_has_its_options_behind_airflows_own_encoding(tmp_path: Path) -> None:
    from airflow.models.trigger import Trigger

    encoders = pytest.importorskip("airflow.serialization.encoders", reason="from Airflow 3.2 on")
    for options in ({}, {"cloudFiles.maxFilesPerTrigger": "1"}):
        made = _trigger(tmp_path, options=options)
        stored = Trigger.encrypt_kwargs(encoders.encode_trigger(made)["kwargs"])
        given = Trigger._decrypt_kwargs(stored)
        assert CloudFilesTrigger(**given).stream.options == options


def test_a_ring_is_not_remembered_before_airflow_can_have_it(tmp_path: Path) -> None:
    """A triggerer that dies after the event fires again: twice is better than never."""
    _drop(tmp_path, "1.json")
    store = Store()
    for _ in range(2):
        trigger = _trigger(tmp_path)
        trigger.asset_state_store = store  # type: ignore[assignment]
        assert _run(_first(trigger.run())).payload["arrived"]


def test_errors_are_waited_out_and_never_end_a_watcher(
    tmp_path: Path, looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    missing = tmp_path / "later"

    async def watch() -> Any:
        trigger = _trigger(tmp_path, source=str(missing))
        ringing = asyncio.create_task(_first(trigger.run()))
        await looks.further(1)
        missing.mkdir()
        (missing / "1.json").write_text("{}\n")
        return await ringing

    with caplog.at_level(logging.WARNING):
        assert _run(watch()).payload["source"] == str(missing)
    assert "the next check is in 2 s" in caplog.text


def test_a_deferred_task_meets_the_error_in_its_worker(tmp_path: Path) -> None:
    trigger = _trigger(tmp_path, source=str(tmp_path / "nowhere"))
    trigger.task_instance = SimpleNamespace(task_id="t")  # as for a deferred task
    event = _run(_first(trigger.run()))
    assert event.payload["arrived"] is False


def test_a_deferred_task_is_resumed_when_its_time_is_over(tmp_path: Path) -> None:
    """The next check would be in an hour: the last one is when the time is over."""
    (tmp_path / "in").mkdir(exist_ok=True)
    made = _trigger(tmp_path, poke_interval=3600, ends_at=time.time() + 0.05)
    path, arguments = made.serialize()
    trigger = CloudFilesTrigger(**arguments)
    assert trigger.serialize() == (path, arguments)
    trigger.task_instance = SimpleNamespace(task_id="t")
    payload = _run(_first(trigger.run())).payload
    assert (payload["arrived"], payload["is_over"]) == (False, True)
    _drop(tmp_path, "1.json")
    assert _run(_first(trigger.run())).payload["arrived"] is True


def test_a_slow_look_does_not_stop_the_triggerer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look ends only when the event loop has gone on meanwhile."""
    import threading

    gone_on = threading.Event()

    def slow(self: CloudFilesHook, stream: StreamArguments) -> Any:
        assert gone_on.wait(300)
        raise OSError("slow")

    monkeypatch.setattr(CloudFilesHook, "check", slow)
    trigger = _trigger(tmp_path)
    trigger.task_instance = SimpleNamespace(task_id="t")

    async def watch() -> Any:
        ringing = asyncio.create_task(_first(trigger.run()))
        await asyncio.sleep(0.1)
        gone_on.set()
        return await ringing

    assert _run(watch()).payload["arrived"] is False


def test_twenty_five_watchers_of_one_stream_make_one_poller(tmp_path: Path, looks: Looks) -> None:
    shared_stream = pytest.importorskip("airflow.triggers.shared_stream")  # Airflow 3.3

    async def watch() -> int:
        manager = shared_stream.SharedStreamManager()
        fired: list[int] = []

        async def listen(number: int) -> None:
            trigger = _trigger(tmp_path, options={"mode": "FAILFAST", "pathGlobFilter": "*.json"})
            key = trigger.shared_stream_key()
            stream = manager.subscribe(trigger_id=number, trigger=trigger, key=key)
            async for _ in trigger.filter_shared_stream(stream):
                fired.append(number)  # noqa: PERF401 - looked at while it grows

        listening = [asyncio.create_task(listen(number)) for number in range(25)]
        await looks.further(3)
        assert fired == []
        before = looks.count
        _drop(tmp_path, "1.json")
        while len(fired) < 25:  # noqa: ASYNC110 - a poll; `_run` has the deadline
            await asyncio.sleep(0.01)
        polls = looks.count - before
        await looks.further(3)
        for each in listening:
            each.cancel()
        await manager.stop_all()
        assert sorted(fired) == list(range(25))
        return polls

    assert _run(watch()) < 25  # one poller needs one or two looks, 25 pollers need 25


def test_watchers_share_only_what_is_the_same(tmp_path: Path) -> None:
    options = {"pathGlobFilter": "*.json", "mode": "FAILFAST"}
    key = _trigger(tmp_path, options=options).shared_stream_key()
    same = _trigger(tmp_path, options=dict(reversed(options.items())))
    assert same.shared_stream_key() == key
    for change in (
        {"options": {}},
        {"conn_id": "other"},
        {"checkpoint_location": str(tmp_path / "other")},
        {"poke_interval": 1.0},
    ):
        other = _trigger(tmp_path, **{"options": options, **change})
        assert other.shared_stream_key() != key
    same.task_instance = SimpleNamespace(task_id="t")
    assert same.shared_stream_key() is None  # a deferred task looks for itself, and later


def test_a_check_comes_as_soon_as_a_file_that_was_found_may_have_settled() -> None:
    def pause(settles: float | None, *, waits: bool = True) -> float:
        report = WaitingReport(settles_in_seconds=settles)
        return _pause(Arrivals(START, waiting=report if waits else None), 60.0)

    assert [pause(5.0), pause(0.0), pause(90.0)] == [5.0, 1.0, 60.0]
    assert pause(None) == pause(None, waits=False) == _pause(None, 60.0) == 60.0
