"""Draining a queue: each file once, messages deleted after the log; the same on three services."""

from __future__ import annotations

import collections
import logging
import threading
import time

import pytest

from airflow_cloudfiles.engine.discovery.queues import notifications
from airflow_cloudfiles.engine.discovery.queues.base import open_queue
from airflow_cloudfiles.engine.errors import QueueAccessError
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.storage.vendors import BY_SCHEME
from tests.support.discovery.known import MemoryRecorder
from tests.support.discovery.places import AzurePlace, PubSubPlace, SqsPlace
from tests.support.waiting import PATIENCE_SECONDS

ODD_KEYS = ["a b", "a+b", "a%2Bb", "caf\u00e9/\u65e5=\U0001f48e", "date=2026-01-01/x", "100%"]
SERVICES = {
    "sqs": ("aws", SqsPlace),
    "azure": ("azurite", AzurePlace),
    "pubsub": ("pubsub_here", PubSubPlace),
    "pubsub-google": ("pubsub_google", PubSubPlace),  # waits long when there is nothing
}


@pytest.fixture(params=[name for name in SERVICES if name != "pubsub-google"])
def place(request):
    fixture, kind = SERVICES[request.param]
    return kind(request.getfixturevalue(fixture))


@pytest.mark.parametrize("place", SERVICES, indirect=True)
def test_files_are_recorded_once_and_their_messages_deleted(place):  # B93, B94, B98, B99
    keys = [f"{number}.json" for number in range(9)] + ODD_KEYS
    place.put(*keys, *reversed(keys[:5]))
    report = place.run()
    assert place.recorded() == sorted(keys)
    assert (report.received, report.files, report.new, report.duplicates) == (20, 20, 15, 5)
    assert (report.deleted, report.failed_deletes, report.poison) == (20, 0, 0)
    assert report.queue == place.queue.name
    assert place.queue.approximate_size() in {0, None}
    assert place.left() == []
    place.put(*keys)
    report = place.run()
    assert (report.files, report.new, report.deleted) == (15, 0, 15)
    assert place.recorded() == sorted(keys)


def test_a_queue_is_asked_as_often_as_the_estimate_says(place):
    name = {SqsPlace: "s3", AzurePlace: "abfss", PubSubPlace: "gs"}[type(place)]
    service = BY_SCHEME[name].queue
    place.put(*(f"{number:02}" for number in range(64)))
    report = place.run(fetch_parallelism=1)
    assert report.received == 64
    assert report.receive_calls == -(-64 // service.received) + 2
    assert place.queue.batch_size in {service.received, service.deleted}


def test_who_drains_again_and_again_waits_for_one_empty_receive(place):
    place.put("x")
    discovery = place.discovery(fetch_parallelism=1)
    first, nothing = discovery.run(place.recorder), discovery.run(place.recorder)
    assert first.new == 1
    assert first.receive_calls >= 3  # what there is, and two that brought nothing
    assert (nothing.received, nothing.receive_calls) == (0, 1)
    place.put("y", "z")
    end = time.monotonic() + 60
    while place.recorded() != ["x", "y", "z"] and time.monotonic() < end:
        discovery.run(place.recorder)
    assert place.recorded() == ["x", "y", "z"]
    assert place.left() == []


class OneAnswers:
    """A queue that answers one thread; the others wait until something is recorded."""

    def __init__(self, queue, recorded):
        self._queue, self._recorded = queue, recorded

    def receive(self, seconds):
        if threading.current_thread().name == "cloudfiles-receive-0":
            return self._queue.receive(seconds)
        assert self._recorded.wait(PATIENCE_SECONDS)
        return []

    def __getattr__(self, name):
        return getattr(self._queue, name)


def test_who_drains_again_and_again_records_while_other_threads_wait(place, monkeypatch):
    monkeypatch.setattr(notifications, "GATHERED_SECONDS", 2 * PATIENCE_SECONDS)
    recorded = threading.Event()

    class Noting(MemoryRecorder):
        def record(self, files, found_by):
            recorded.set()
            return place.recorder.record(files, found_by)

    recorded.set()
    discovery = place.discovery(queue=OneAnswers(place.queue, recorded), fetch_parallelism=4)
    discovery.run(Noting())
    recorded.clear()
    place.put("x", "y")
    assert discovery.run(Noting()).new >= 1
    place.run()
    assert place.recorded() == ["x", "y"]


def test_what_is_outside_or_not_wanted_is_removed(place):  # B89, B91, B95
    place.put("x.json", "_hidden.json", "a/.b/c.json", "x.csv")
    place.send(place.event("other/y"), place.event("inside.json"), place.event("in"))
    report = place.run(path_glob_filter="*.json")
    assert (report.outside, report.rejected, report.files, report.deleted) == (3, 3, 1, 7)
    assert place.recorded() == ["x.json"]
    assert place.left() == []


def test_poison_stays_in_the_queue_and_blocks_nothing(place, caplog):
    place.send(b"\x01\x1b[2Jnonsense" if "Pub" in type(place).__name__ else b"nonsense")
    place.put("x", "y")
    with caplog.at_level(logging.WARNING):
        report = place.run(hidden=2)
    assert (report.poison, report.received, report.deleted, report.new) == (1, 3, 2, 2)
    [found] = report.poison_samples
    assert found.message_id
    assert "nonsense" in found.body
    assert found.body.isprintable()
    assert "not understood" in caplog.text
    assert len(place.wait_for(1)) == 1
    assert report.to_json()["poison_samples"][0]["reason"] == found.reason


def test_what_was_received_and_not_recorded_is_visible_again_at_once(place):
    class Full(MemoryRecorder):
        def record(self, files, found_by):
            raise OSError("no space left")

    place.put("x", "y")
    with pytest.raises(OSError, match="no space left"):
        place.discovery(hidden=500).run(Full())
    assert len(place.wait_for(2)) == 2


def test_messages_stay_hidden_while_recording_takes_long(place, monkeypatch):
    """Counted in renewals that the queue took, not in seconds: a busy machine is only slower."""
    seen_by_others = []
    renewed = collections.Counter()
    hide = place.queue.hide

    def counted(messages, seconds):
        failed = hide(messages, seconds)
        renewed.update({message.id for message in messages} - {message.id for message in failed})
        return failed

    class Slow(MemoryRecorder):
        def record(self, files, found_by):
            end = time.monotonic() + 300
            while len(renewed) < 2 or min(renewed.values()) < 3:
                assert time.monotonic() < end
                seen_by_others.extend(place.queue.receive(30))
            return len(files)

    monkeypatch.setattr(place.queue, "hide", counted)
    place.put("x", "y")
    report = place.discovery(hidden=60, renewal=0.5).run(Slow())
    assert seen_by_others == []
    assert (report.new, report.deleted, report.failed_deletes) == (2, 2, 0)
    assert place.left() == []


def test_messages_of_a_discoverer_that_died_are_delivered_again(place):
    place.put("x", "y")
    died: set[str] = set()
    while len(died) < 2:
        died |= {message.id for message in place.queue.receive(1)}
    end = time.monotonic() + 300
    while place.recorded() != ["x", "y"] and time.monotonic() < end:
        place.run()
    assert place.recorded() == ["x", "y"]
    assert place.left() == []


def test_many_messages_are_drained_by_several_threads(place):
    keys = [f"{number:03}" for number in range(200)]
    place.put(*keys)
    report = place.run(fetch_parallelism=4)
    assert (report.received, report.deleted, report.redelivered) == (200, 200, 0)
    assert place.recorded() == keys


def test_a_queue_that_never_rests_is_left_after_what_was_there(place):
    place.put("x", "y")
    stop = threading.Event()

    def trickle():
        number = 0
        while not stop.wait(0.05):
            place.put(f"late{number}")
            number += 1

    sender = threading.Thread(target=trickle)
    sender.start()
    try:
        report = place.run()
    finally:
        stop.set()
        sender.join()
    assert {"x", "y"} <= set(place.recorded())
    assert report.deleted == report.received >= 2


def test_a_missing_queue_is_said(place, request):
    options = {
        SqsPlace: DiscoveryOptions(
            queue_url="https://sqs.us-east-1.amazonaws.com/000000000000/none-such"
        ),
        AzurePlace: DiscoveryOptions(queue_name="none-such"),
        PubSubPlace: DiscoveryOptions(
            subscription="projects/cloudfiles-tests/subscriptions/none-such"
        ),
    }[type(place)]
    source = {
        SqsPlace: "s3://bucket",
        AzurePlace: "abfss://c@devstoreaccount1.dfs.core.windows.net",
        PubSubPlace: "gs://bucket",
    }[type(place)]
    name = request.node.callspec.params["place"]
    access = request.getfixturevalue(SERVICES[name][0]).access
    queue = open_queue(source, options, access)
    with pytest.raises(QueueAccessError, match="none-such") as raised:
        place.run(queue=queue)
    assert queue.name in raised.value.message
    assert not raised.value.is_retryable
