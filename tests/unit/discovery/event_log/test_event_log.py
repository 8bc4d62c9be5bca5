"""An event log keeps what a queue announced, in order, and knows what it has dropped."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace

import pytest

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    OptionError,
    StateConflictError,
    StateError,
)
from airflow_cloudfiles.engine.extensions.event_log import log as event_log
from airflow_cloudfiles.engine.extensions.event_log.collector import (
    EventCollector,
    collect_unless_fresh,
)
from airflow_cloudfiles.engine.extensions.event_log.description import (
    EventLogDescription,
    create_log,
    read_description,
)
from airflow_cloudfiles.engine.extensions.event_log.log import (
    COLLECTED,
    EventLog,
    EventsGoneError,
    LoggedEvent,
)
from airflow_cloudfiles.engine.state.compaction import KEPT
from airflow_cloudfiles.engine.storage import memory, open_store
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from tests.support.discovery.memory_queue import MemoryQueue

QUEUE = {"cloudFiles.queueUrl": "https://sqs.eu-central-1.amazonaws.com/1/q"}
ODD = ("in/a b", "in/é/日本", "in/quote'\"\\", "in/\u2028line")


@pytest.fixture(params=["memory", "local"])
def log(request, tmp_path):
    name = uuid.uuid4().hex
    store = MemoryStore(f"memory://{name}/log") if request.param == "memory" else None
    store = store or open_store(str(tmp_path / "log"))
    described = EventLogDescription(id=name, source=f"memory://{name}/bucket", queue=QUEUE)
    return EventLog(store, described)


def event(key, size=1):
    return LoggedEvent("created", key, size, 5, "e", "s")


def keys(log, numbers):
    return [each.path for number in numbers for each in log.read(number)]


def test_events_are_read_as_they_were_appended_whatever_their_names(log):
    for key in ODD:
        log.append([event(key), LoggedEvent("renamed", f"{key}2", 0, -1, "", "")])
    assert list(log.read(1)) == [event(ODD[1]), LoggedEvent("renamed", f"{ODD[1]}2", 0, -1, "", "")]
    other = EventLog(log.store, log.description)
    assert keys(other, range(other.end())) == [f"{key}{end}" for key in ODD for end in ("", "2")]
    assert [each.path for each in log.read(0, below="in/a b2")] == ["in/a b2"]


def test_a_reader_at_the_end_asks_once(log):
    for number in range(5):
        log.append([event(str(number))])
    log.mark_collected()
    before = log.store.requests.total()
    seen = log.look(5)
    assert (seen.first, seen.end, seen.is_gone, seen.collected_us > 0) == (5, 5, False, True)
    if isinstance(log.store, MemoryStore):
        assert log.store.requests.total() - before == 1
    assert log.look(3).end == 5


def test_two_that_append_at_once_lose_nothing(log):
    logs = [EventLog(log.store, log.description) for _ in range(3)]

    def append(one, name):
        for number in range(10):
            one.append([event(f"{name}-{number}")])

    threads = [threading.Thread(target=append, args=(one, name)) for name, one in enumerate(logs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(keys(log, range(log.end()))) == sorted(
        f"{name}-{number}" for name in range(3) for number in range(10)
    )


def _filled(log, count):
    for number in range(count):
        log.append([event(f"{number:04}")])
    log.mark_collected()


in_memory = pytest.mark.parametrize("log", ["memory"], indirect=True)
"""For logs of hundreds of entries, each of which a disk would make durable."""


@in_memory
def test_old_entries_become_packs_and_read_the_same(log, monkeypatch):
    _filled(log, 3 * KEPT + 1)
    monkeypatch.setattr(event_log, "work_of", _work)
    event_log.tidy(log)
    event_log.tidy(log)
    assert len(list(log.store.list("events/packs/"))) == 4
    assert len(list(log.store.list("events/0"))) == KEPT + 1
    other = EventLog(log.store, log.description)
    assert not other.look(0).is_gone
    assert keys(other, range(other.look(0).end)) == [f"{n:04}" for n in range(3 * KEPT + 1)]
    assert not other.look(150).is_gone
    assert other.append([event("next")]) == 3 * KEPT + 1


def _work(folder, now_us):
    from airflow_cloudfiles.engine.state.compaction import work_of

    return work_of(folder, now_us, grace_seconds=0)


@in_memory
@pytest.mark.parametrize("bound", [{"keep_seconds": -1.0}, {"keep_bytes": 0}])
@pytest.mark.parametrize("is_packed", [False, True])
def test_what_is_too_old_or_too_much_goes_and_numbers_go_on(log, monkeypatch, bound, is_packed):
    _filled(log, 3 * KEPT)
    if is_packed:
        event_log.tidy(log)
    bounded = EventLog(log.store, replace(log.description, **bound))
    assert event_log.tidy(bounded) > 0
    seen = bounded.look(0)
    assert seen.is_gone
    assert (seen.first, seen.end) == (2 * KEPT, 3 * KEPT)
    assert bounded.look(199).is_gone
    assert not bounded.look(200).is_gone
    with pytest.raises(EventsGoneError):
        list(bounded.read(0))
    assert event_log.tidy(bounded) == 0
    assert EventLog(log.store, log.description).append([event("next")]) == 3 * KEPT


def test_a_lost_or_damaged_mark_costs_a_listing_and_nothing_else(log):
    _filled(log, 3)
    for damage in (lambda: log.store.put(COLLECTED, b"x"), lambda: log.store.delete(COLLECTED)):
        damage()
        other = EventLog(log.store, log.description)
        assert other.end() == 3
        other.mark_collected()


def test_damage_is_found_by_name(log):
    number = log.append([event("a")])
    key = f"events/{number:020}"
    log.store.put(key, log.store.get(key).replace(b'"a"', b'"b"'))
    with pytest.raises(CorruptedStateError, match=key):
        list(log.read(number))


# ── what a log is of ────────────────────────────────────────────────────────────────────────────


def test_a_log_keeps_its_id_until_its_queue_is_another_one(tmp_path):
    store = open_store(str(tmp_path))
    assert read_description(store) is None
    with pytest.raises(OptionError, match="no event log"):
        EventLog.open(str(tmp_path))
    first = create_log(store, "s3a://bucket/", QUEUE)
    assert (first.source, first.keep_seconds) == ("s3://bucket", 7 * 86400)
    assert create_log(store, "s3://bucket", QUEUE) == first == read_description(store)
    longer = create_log(store, "s3://bucket", QUEUE, keep_seconds=14 * 86400)
    assert (longer.id, longer.keep_seconds) == (first.id, 14 * 86400)
    other = create_log(store, "s3://bucket", {"cloudFiles.queueUrl": "https://sqs/2/q"})
    assert other.id != first.id
    with pytest.raises(StateConflictError, match="s3://bucket"):
        create_log(store, "s3://other", QUEUE)
    with pytest.raises(OptionError, match="one day"):
        create_log(store, "s3://bucket", QUEUE, keep_seconds=60)


# ── draining ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def queue(log):
    return MemoryQueue(log.description.source)


def test_what_is_received_is_in_the_log_before_it_is_deleted(log, queue):  # B93, B95
    source = open_store(log.description.source)
    for key in ("in/a", "in/b"):
        source.put(key, b"x")
    queue.send(b"in/a", b"in/b", b"?", b"!", b"in/a")
    collector = EventCollector(log, queue=queue)
    assert collector.try_begin()
    report = collector.collect()
    assert (report.received, report.poison, report.deleted) == (5, 1, 4)
    assert report.ignored == {"the end of a file": 1}
    assert keys(log, range(log.end())) == ["in/a", "in/b"]
    assert queue.approximate_size() == 1  # the poison
    collector.end()


def test_what_cannot_be_appended_stays_in_the_queue(log, queue, monkeypatch):
    open_store(log.description.source).put("in/a", b"x")
    queue.send(b"in/a")
    collector = EventCollector(log, queue=queue)

    def fail(*_):
        raise ConnectionError

    with monkeypatch.context() as patched:
        patched.setattr(log.store, "put_if_absent", fail)
        with pytest.raises(StateError):
            collector.collect()
    assert queue.approximate_size() == 1
    collector.collect()
    assert keys(log, range(log.end())) == ["in/a"]


def test_the_files_of_a_log_in_its_own_bucket_are_no_events(queue):
    name = uuid.uuid4().hex
    bucket = MemoryStore(f"memory://{name}/bucket")
    store = MemoryStore(f"memory://{name}/bucket/events-of-it")
    log = EventLog(store, EventLogDescription(id=name, source=bucket.uri, queue=QUEUE))
    own = MemoryQueue(bucket.uri)
    for key in ("events-of-it/events/0", "events-of-it2/a", "a"):
        bucket.put(key, b"x")
        own.send(key.encode())
    EventCollector(log, queue=own).collect()
    assert keys(log, range(log.end())) == ["events-of-it2/a", "a"]
    assert own.approximate_size() == 0


@in_memory
def test_a_queue_that_was_left_alone_for_too_long_makes_every_stream_list(log, queue, monkeypatch):
    log = EventLog(log.store, create_log(log.store, log.description.source, QUEUE))
    first = log.description.id

    def drained(days: float) -> str:
        """The id after a draining, the last one having been some days ago."""
        now_us = memory.now_us()
        with monkeypatch.context() as patched:
            patched.setattr(memory, "now_us", lambda: now_us - int(days * 86400e6))
            log.mark_collected()
        EventCollector(log, queue=queue).collect()
        assert read_description(log.store) == log.description
        return log.description.id

    assert [drained(days) for days in (0, 6.9)] == [first, first]
    second = drained(7.1)
    assert second != first
    assert drained(0) == second


def test_two_collectors_at_once_lose_nothing(log):
    """One of them has lost the lease and does not know it."""
    queue = MemoryQueue(log.description.source)
    names = [f"in/{number:03}" for number in range(200)]
    source = open_store(log.description.source)
    for name in names:
        source.put(name, b"x")
        queue.send(name.encode())
    collectors = [
        EventCollector(EventLog(log.store, log.description), queue=queue) for _ in range(2)
    ]
    threads = [threading.Thread(target=each.collect) for each in collectors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(keys(log, range(log.end()))) == names
    assert queue.approximate_size() == 0


def test_one_has_the_lease_and_a_queue_that_was_drained_just_now_is_left_alone(log, queue):
    one, other = (EventCollector(log, queue=queue) for _ in range(2))
    assert one.try_begin()
    assert not other.try_begin()
    assert collect_unless_fresh(log, other, 0, wait_seconds=0)[0] is None  # nobody has marked it
    assert queue.calls == 0
    one.end()
    assert collect_unless_fresh(log, other, 0)[0] is not None
    calls = queue.calls
    assert calls > 0
    assert collect_unless_fresh(log, one, 0)[0] is None
    assert queue.calls == calls
