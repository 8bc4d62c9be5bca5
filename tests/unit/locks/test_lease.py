"""A lock in an object store is one run's, and no longer than that run lives."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from airflow_cloudfiles.engine.errors import StateLockedError
from airflow_cloudfiles.engine.state.locks import lease as leases
from airflow_cloudfiles.engine.state.locks.lease import Lease, free_left_behind
from airflow_cloudfiles.engine.state.locks.run_lock import KEY, RunLock, end_releases, free_aside
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.landing_zone import FailingStore, Fault
from tests.support.waiting import until

SHORT = 1.0
LONG = 60.0

HOLD = """
import sys
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.storage import open_store
lock = RunLock(open_store(sys.argv[1]), lease_seconds=float(sys.argv[2]))
lock.acquire()
print("held", flush=True)
sys.stdin.readline()
lock.release()
"""


@pytest.fixture
def state(aws):
    return open_store(f"{aws.bucket()}/state", aws.access)


@pytest.fixture
def holder(aws, state):
    """A real process that holds the lock of the state."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, state.uri, str(SHORT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=to_environment(aws.access),
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def elsewhere(monkeypatch):
    """This process as on another machine, which cannot look at the holder's processes."""
    monkeypatch.setattr(leases, "machine", lambda: "another one")


def beat(state) -> int:
    return int(json.loads(state.get(KEY))["beat"])


def test_a_second_run_is_refused_while_the_first_one_runs(state):
    with RunLock(state) as first:
        assert first.is_held
        with pytest.raises(StateLockedError, match=r"process [0-9]+ on "):
            RunLock(state).acquire()
    assert not first.is_held
    assert state.head(KEY) is None
    with RunLock(state):
        pass


@pytest.mark.slow
def test_a_holder_that_lives_keeps_the_lock_for_longer_than_a_lease(
    state, holder, elsewhere, monkeypatch
):
    """By a clock that goes on when the holder has renewed its lock, however long that takes."""
    now = 0.0
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: now, sleep=time.sleep))
    waiting = Lease(state, KEY, {}, lease_seconds=SHORT)
    for _ in range(4):
        seen = beat(state)
        assert not waiting.try_acquire()
        until(lambda seen=seen: beat(state) > seen)
        now += 0.9 * SHORT
    monkeypatch.undo()
    with pytest.raises(StateLockedError, match=f"process {holder.pid} "):
        RunLock(state, lease_seconds=LONG).acquire()
    holder.communicate("end\n")
    lock = RunLock(state, lease_seconds=SHORT)
    lock.acquire(timeout_seconds=300)
    lock.release()


@pytest.mark.slow
def test_the_lock_of_a_killed_holder_is_taken_over(state, holder, elsewhere):
    holder.kill()
    holder.wait()
    lock = RunLock(state, lease_seconds=SHORT)
    with pytest.raises(StateLockedError):
        lock.acquire()
    lock.acquire(timeout_seconds=0.1)  # who waits at all waits for that long
    assert lock.is_held
    lock.release()


def test_on_one_machine_the_death_of_the_holder_is_seen_at_once(state, holder):
    with pytest.raises(StateLockedError):
        RunLock(state, lease_seconds=LONG).acquire()
    holder.kill()
    holder.wait()
    with RunLock(state, lease_seconds=LONG):
        pass


def test_a_lock_left_behind_on_this_machine_is_freed_for_the_others(state, holder):
    assert not free_left_behind(state, KEY)
    holder.kill()
    assert free_left_behind(state, KEY, patience_seconds=300)
    assert state.head(KEY) is None
    assert free_left_behind(state, KEY)


def test_a_lock_of_another_machine_is_not_freed(state, holder, elsewhere):
    holder.kill()
    holder.wait()
    assert not free_left_behind(state, KEY, patience_seconds=300)
    assert state.head(KEY) is not None


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.DENIED])
def test_a_lost_answer_is_read_back(state, fault):
    lease = Lease(FailingStore(state, {1: fault, 2: fault}), KEY, {}, lease_seconds=0.4)
    assert lease.try_acquire()
    until(lambda: beat(state) > 3)
    assert lease.is_held
    lease.release()
    assert state.head(KEY) is None


def test_a_store_out_of_reach_for_a_moment_costs_nothing(state):
    refused = dict.fromkeys(range(2, 5), Fault.REFUSED)
    lease = Lease(FailingStore(state, refused), KEY, {}, lease_seconds=0.4)
    assert lease.try_acquire()
    until(lambda: beat(state) > 4)
    assert lease.is_held
    lease.release()


def test_who_was_taken_for_dead_learns_that_it_lost_the_lock(state, caplog):
    lease = Lease(state, KEY, {}, lease_seconds=0.4)
    assert lease.try_acquire()
    with caplog.at_level(logging.ERROR):
        state.put(KEY, b'{"nonce": "another run"}')
        until(lambda: not lease.is_held)
    assert "taken over by another run" in caplog.text
    lease.release()
    assert state.get(KEY) == b'{"nonce": "another run"}'


def test_a_lock_that_was_deleted_by_hand_comes_back(state):
    with RunLock(state, lease_seconds=0.4) as lock:
        state.delete(KEY)
        until(lambda: state.head(KEY) is not None)
        assert lock.is_held


@pytest.mark.slow
def test_whatever_is_in_the_lock_it_is_taken_over_in_time(state):
    for content in (
        b"",
        b"[]",
        b"\xff",
        b'{"pid": 1}',
        b'{"pid": 1, "machine": "", "started": ""}',
    ):
        state.put(KEY, content)
        lock = RunLock(state, lease_seconds=0.2)
        with pytest.raises(StateLockedError, match="left no note"):
            lock.acquire()
        lock.acquire(timeout_seconds=300)
        lock.release()


def test_a_lock_is_free_when_what_was_freed_before_it_is(state):
    lock, may_end = RunLock(state, lease_seconds=LONG), threading.Event()
    lock.acquire()
    free_aside(may_end.wait)
    lock.release_aside()
    with pytest.raises(StateLockedError):
        RunLock(state, lease_seconds=LONG).acquire()
    may_end.set()
    end_releases()
    assert state.head(KEY) is None


def test_a_lock_that_was_taken_over_while_its_holder_waited_is_left_alone(state):
    lease = Lease(state, KEY, {}, lease_seconds=LONG)
    assert lease.try_acquire()
    other = b'{"nonce": "another run"}'

    def wait() -> None:
        looked = time.monotonic()
        state.put(KEY, other)
        until(lambda: time.monotonic() - looked > leases.LOOK_AGAIN_SECONDS)

    lease.release(wait)
    assert state.get(KEY) == other
