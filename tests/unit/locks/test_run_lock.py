"""One run at a time, and none that blocks the next after its death."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import uuid

import pytest

from airflow_cloudfiles.engine.errors import StateLockedError
from airflow_cloudfiles.engine.state.locks.run_lock import KEY, RunLock
from airflow_cloudfiles.engine.storage import open_store

HOLD = """
import sys
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.storage import open_store
lock = RunLock(open_store(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(params=["local", "memory"])
def state(request, tmp_path):
    uri = str(tmp_path / "state") if request.param == "local" else f"memory://{uuid.uuid4().hex}"
    return open_store(uri)


@pytest.fixture
def holder(tmp_path):
    """A real process that holds the lock of `tmp_path`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_run_is_refused_while_the_first_one_runs(state):  # B148
    with RunLock(state), pytest.raises(StateLockedError, match="Another run"):
        RunLock(state).acquire()
    with RunLock(state):
        pass


def test_freeing_twice_is_freeing_once(state):
    lock = RunLock(state)
    lock.acquire()
    lock.release()
    other = RunLock(state)
    other.acquire()
    lock.release()
    with pytest.raises(StateLockedError):
        RunLock(state).acquire()
    other.release()


def test_another_process_is_told_who_holds_it(tmp_path, holder):
    with pytest.raises(StateLockedError) as caught:
        RunLock(open_store(str(tmp_path))).acquire()
    assert f"process {holder.pid} on {socket.gethostname()}, since 20" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert caught.value.is_retryable


def test_the_lock_of_a_killed_process_is_free(tmp_path, holder):
    holder.kill()
    holder.wait()
    RunLock(open_store(str(tmp_path))).acquire()


def test_waiting_ends_when_the_other_run_does(tmp_path, holder):
    lock = RunLock(open_store(str(tmp_path)))
    with pytest.raises(StateLockedError):
        lock.acquire(timeout_seconds=0.2)
    holder.communicate("end\n")
    lock.acquire(timeout_seconds=300)
    lock.release()


def test_a_program_started_meanwhile_does_not_keep_the_lock(tmp_path):
    state = open_store(str(tmp_path))
    lock = RunLock(state)
    lock.acquire()
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False
    )
    lock.release()
    with RunLock(state):
        child.communicate(b"\n")


def test_a_forked_copy_does_not_keep_the_lock(tmp_path):
    script = """
import os, sys
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.storage import open_store
lock = RunLock(open_store(sys.argv[1]))
lock.acquire()
if os.fork() == 0:
    sys.stdin.readline()
    os._exit(0)
print("forked", flush=True)
os._exit(0)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdin
    assert process.stdout.readline() == "forked\n"
    process.wait()
    lock = RunLock(open_store(str(tmp_path)))
    lock.acquire(timeout_seconds=300)
    process.stdin.write("\n")
    process.communicate()


def test_the_note_is_readable_and_never_a_reason_to_fail(tmp_path):
    state = open_store(str(tmp_path))
    with RunLock(state):
        note = json.loads(state.get(KEY))
        assert note["pid"] == os.getpid()
        for content in (b"", b"[]", b"\xff", b'{"pid": "x"}'):
            (tmp_path / KEY).write_bytes(content)
            with pytest.raises(StateLockedError, match="left no note"):
                RunLock(state).acquire()
