"""A watcher of a bucket fires for the folders that got files, once, and says how many."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cloudfiles.engine.extensions.event_log import collector
from airflow_cloudfiles.engine.extensions.event_log.collector import LogCheck, check_log
from airflow_cloudfiles.engine.extensions.event_log.description import create_log
from airflow_cloudfiles.engine.extensions.event_log.log import EventLog, LoggedEvent
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.triggers.file_events import MEMORY, CloudFilesEventsTrigger
from tests.support.waiting import PATIENCE_SECONDS, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.airflow

QUEUE = {"cloudFiles.queueUrl": "https://sqs.eu-central-1.amazonaws.com/1/q"}


class Store:
    """What Airflow keeps for an asset."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    async def aget(self, key: str) -> Any:
        return self.values.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self.values[key] = dict(value)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EventLog:
    location = tmp_path / "log"
    create_log(open_store(str(location)), "s3://bucket", QUEUE)
    monkeypatch.setattr(collector, "FRESH_SECONDS", 3600.0)  # the test appends; nobody drains
    found = EventLog.open(str(location))
    found.mark_collected()
    return found


def _land(log: EventLog, *keys: str) -> None:
    log.append([LoggedEvent("created", key, 10, 5, "e", "s") for key in keys])
    log.mark_collected()


def _trigger(log: EventLog, folder: str, store: Store | None = None) -> CloudFilesEventsTrigger:
    found = CloudFilesEventsTrigger(
        events_location=log.store.uri, source=f"s3://bucket/{folder}", poke_interval=0.01
    )
    if store is not None:
        found.asset_state_store = store  # type: ignore[assignment, attr-defined]
    return found


def _fired(trigger: CloudFilesEventsTrigger, *checks: LogCheck) -> list[Any]:
    """The payloads of the events for what a shared poller has found."""

    async def shared() -> AsyncIterator[LogCheck]:
        for check in checks:
            yield check

    async def collected() -> list[Any]:
        return [event.payload async for event in trigger.filter_shared_stream(shared())]

    return asyncio.run(asyncio.wait_for(collected(), PATIENCE_SECONDS))


def _check(log: EventLog, start: int | None) -> LogCheck:
    return check_log(log.store.uri, start)


def test_only_the_folders_that_got_files_fire_and_say_how_many(log: EventLog) -> None:
    checks = [_check(log, None)]
    _land(log, "orders/1", "orders/2", "orders-old/1")
    checks.append(_check(log, checks[-1].end))
    _land(log, "clicks/day=1/a")
    checks += [_check(log, checks[-1].end)] * 1
    checks.append(_check(log, checks[-1].end))
    unknown = {"files": None, "bytes": None}
    for folder, counts in {
        "orders": [unknown, {"files": 2, "bytes": 20}],
        "clicks": [unknown, {"files": 1, "bytes": 10}],
        "clicks/day=1": [unknown, {"files": 1, "bytes": 10}],
        "clicks/day=2": [unknown],
    }.items():
        expected = [{"source": f"s3://bucket/{folder}", **each} for each in counts]
        assert _fired(_trigger(log, folder), *checks) == expected


def test_a_watcher_that_was_restarted_fires_for_what_came_meanwhile_and_nothing_else(
    log: EventLog,
) -> None:
    stores = {folder: Store() for folder in ("orders", "clicks")}
    before = _check(log, None)
    for folder, store in stores.items():
        _fired(_trigger(log, folder, store), before, _check(log, before.end))
        assert store.values[MEMORY] == {"log": log.description.id, "next": 0}
    for number in range(250):  # more than one check reads
        _land(log, f"orders/{number}")
    anew = _check(log, None)
    assert [len(_fired(_trigger(log, folder, stores[folder]), anew)) for folder in stores] == [1, 0]
    orders = _fired(_trigger(log, "orders", stores["orders"]), anew)
    assert orders[0]["files"] == 250


def test_a_log_with_another_queue_wakes_everybody_once(log: EventLog) -> None:
    store = Store()
    first = _check(log, None)
    _fired(_trigger(log, "orders", store), first, _check(log, first.end))
    create_log(log.store, "s3://bucket", {"cloudFiles.queueUrl": "https://sqs/2/q"})
    again = _check(log, None)
    fired = _fired(_trigger(log, "orders", store), again, _check(log, again.end))
    assert [each["files"] for each in fired] == [None]


def test_it_polls_by_itself_where_nothing_is_shared_and_survives_what_fails(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    trigger = _trigger(log, "orders")

    async def fires() -> list[Any]:
        payloads = []
        async with aclosing(trigger.run()) as events:  # type: ignore[type-var]
            payloads.append((await anext(events)).payload)  # type: ignore[attr-defined]
            log.store.put("event-log.json", b"x")  # for a while, nobody can read what it is of
            task = asyncio.ensure_future(anext(events))
            await asyncio.to_thread(until, lambda: "failed" in caplog.text)
            log.store.put("event-log.json", content)
            _land(log, "orders/1")
            payloads.append((await task).payload)
        return payloads

    content = log.store.get("event-log.json")
    found = asyncio.run(asyncio.wait_for(fires(), PATIENCE_SECONDS))
    assert [each["files"] for each in found] == [None, 1]


def test_watchers_of_one_log_share_a_poller_and_are_made_again_the_same(log: EventLog) -> None:
    one, other = _trigger(log, "orders"), _trigger(log, "clicks")
    assert one.shared_stream_key() == other.shared_stream_key()
    path, arguments = one.serialize()
    assert path.endswith("file_events.CloudFilesEventsTrigger")
    assert CloudFilesEventsTrigger(**arguments).serialize() == one.serialize()
