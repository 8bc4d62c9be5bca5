"""What a warm Spark has forked ends with whoever it is for, also where it is stuck."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from airflow_cloudfiles.engine.job.warm_server import forks
from airflow_cloudfiles.engine.job.warm_server.forks import Forks
from airflow_cloudfiles.engine.processes import memory_bytes
from tests.support.waiting import is_there, until

_STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('ready', flush=True); time.sleep(600)"
)
_PARENT = """
import os, sys, time
from airflow_cloudfiles.engine.processes import die_with_parent
os.register_at_fork(after_in_child=die_with_parent)
if not os.fork():
    print(os.getpid(), flush=True)
time.sleep(600)
"""


class Children:
    """Real processes in sessions of their own, and who asked for them."""

    def __init__(self) -> None:
        self.forks = Forks()
        self.asked: dict[int, socket.socket] = {}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, is_run: bool = False, is_of_a_session: bool = False) -> int:
        process = subprocess.Popen(
            command or ("sleep", "600"), start_new_session=True, stdout=subprocess.PIPE
        )
        self.processes.append(process)
        theirs, self.asked[process.pid] = socket.socketpair()
        self.forks.add(process.pid, theirs, is_run=is_run, is_of_a_session=is_of_a_session)
        return process.pid

    def reap(self, pid: int) -> int:
        """Wait for one, as the loop does."""
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.forks.ended(pid, code)
        return code

    def ended(self, pid: int) -> int:
        """End a run from outside."""
        os.kill(pid, signal.SIGKILL)
        return self.reap(pid)


@pytest.fixture
def children() -> Iterator[Children]:
    made = Children()
    yield made
    made.forks.end_all()
    for process in made.processes:
        process.stdout.close()
        process.returncode = 0  # waited for above
    for each in made.asked.values():
        each.close()


def test_one_ends_when_whoever_asked_for_it_has_gone(children: Children) -> None:
    pid = children.start(is_run=True)
    children.forks.leave(pid)
    assert children.reap(pid) == -signal.SIGTERM
    assert children.forks.runs == 0
    assert children.forks.runs_ended == 1


def test_one_that_does_not_end_when_asked_to_is_killed(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "GRACE_SECONDS", 0.0)
    pid = children.start(sys.executable, "-c", _STUBBORN)
    assert children.processes[0].stdout.readline() == b"ready\n"
    children.forks.leave(pid)
    assert children.forks.next_kill() is not None
    children.forks.kill_late()
    assert children.reap(pid) == -signal.SIGKILL


def test_whoever_waits_gets_the_exit_code(children: Children) -> None:
    pid = children.start("sh", "-c", "exit 3", is_run=True)
    assert children.reap(pid) == 3
    assert children.asked[pid].recv(10) == b"3\n"
    assert children.asked[pid].recv(10) == b""


def test_what_one_leaves_behind_in_its_group_is_killed(children: Children) -> None:
    pid = children.start("sh", "-c", "sleep 600 & echo $!")
    left = psutil.Process(int(children.processes[0].stdout.readline()))
    children.reap(pid)
    until(lambda: not is_there(left))


def test_a_daemon_of_a_session_ends_with_the_last_run_that_it_may_be_for(
    children: Children,
) -> None:
    first, second = children.start(is_run=True), children.start(is_run=True)
    daemon, shared = children.start(is_of_a_session=True), children.start()
    later = children.start(is_run=True)

    children.ended(first)
    assert children.forks.next_kill() is None
    children.ended(second)
    assert children.reap(daemon) == -signal.SIGTERM
    children.ended(later)
    assert shared in children.forks


def test_python_of_spark_ends_with_the_jvm_and_drivers_say_why_themselves(
    children: Children,
) -> None:
    driver, python = children.start(is_run=True), children.start()
    children.forks.end_python_of_spark()
    assert children.reap(python) == -signal.SIGKILL
    assert driver in children.forks


def test_a_process_dies_with_its_parent_even_if_it_is_stopped() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        child.suspend()
        parent.kill()
    until(lambda: not is_there(child))


def test_memory_is_that_of_processes_that_are_there() -> None:
    assert memory_bytes([os.getpid()]) > 2**20
    assert memory_bytes([2**22 + 1]) == 0
