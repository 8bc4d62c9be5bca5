"""An event log knows since when it has everything, and where that begins."""

from __future__ import annotations

import uuid

import pytest

from airflow_cloudfiles.engine.extensions.event_log.description import create_log
from airflow_cloudfiles.engine.extensions.event_log.log import (
    UNDRAINED_SECONDS,
    EventLog,
    LoggedEvent,
    reach_of,
    tidy,
)
from airflow_cloudfiles.engine.state.compaction import KEPT
from airflow_cloudfiles.engine.storage import memory, open_store
from airflow_cloudfiles.engine.storage.base import SKEW_SECONDS

QUEUE = {"cloudFiles.queueUrl": "https://sqs.eu-central-1.amazonaws.com/1/q"}
HOUR_US = 3600 * 10**6
START_US = 1_700_000_000 * 10**6
SKEW_US = SKEW_SECONDS * 10**6


class Clock:
    """The time of stores in memory."""

    def __init__(self) -> None:
        self.us = START_US

    def hours(self, count: float) -> int:
        self.us += int(count * HOUR_US)
        return self.us


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(memory, "now_us", lambda: made.us)
    return made


@pytest.fixture
def log(clock):
    location = f"memory://{uuid.uuid4().hex}/log"
    create_log(open_store(location), "s3://bucket", QUEUE, keep_seconds=86400)
    return EventLog.open(location)


def _append(log):
    return log.append([LoggedEvent("created", "in/a", 1, 5, "e", "s")])


def test_no_event_since_a_time_is_before_the_entry_that_is_given(log, clock):
    appended = []
    for _ in range(5 * KEPT):
        clock.hours(0.1)
        appended.append(clock.us)
        _append(log)
    for is_tidied in (False, True, True):
        if is_tidied:  # packs are made, and old entries go
            tidy(log)
            clock.hours(0.1)
        reach = reach_of(log)
        first = log.look(0).first
        assert reach.first == first
        for since_us in (*appended, *(each + HOUR_US // 20 for each in appended)):
            if since_us < reach.since_us:
                continue
            start = reach.start(since_us)
            assert all(start <= n for n, time_us in enumerate(appended) if time_us >= since_us)
            assert start >= first
    assert reach.first > 0
    assert len(reach.appended) < len(appended) - reach.first, "there is a pack"
    newest = reach.start(appended[-1])
    assert newest > len(appended) - 5, "not everything is read again"


def test_a_log_that_dropped_nothing_has_everything_since_it_was_made(log, clock):
    for _ in range(3):
        clock.hours(2)
        _append(log)
    reach = reach_of(log)
    assert (reach.since_us, reach.start(reach.since_us)) == (START_US + SKEW_US, 0)


def test_what_a_queue_may_have_dropped_before_it_was_drained_is_not_there(log, clock):
    pause = UNDRAINED_SECONDS / 3600
    clock.hours(pause)
    assert _append(log) == 0
    assert reach_of(log).since_us == START_US + SKEW_US
    after = clock.hours(pause + 1)
    assert _append(log) == 1
    clock.hours(pause)
    assert reach_of(log).since_us == after + SKEW_US
    assert reach_of(log).start(after + SKEW_US) == 1
    clock.hours(1)
    assert reach_of(log).since_us == clock.us + SKEW_US


def test_a_log_with_another_queue_has_nothing_of_what_came_before_that(log, clock):
    _append(log)
    clock.hours(5)
    create_log(log.store, "s3://bucket", {"cloudFiles.queueUrl": "https://sqs/2/q"})
    assert reach_of(log).since_us == clock.us + SKEW_US
