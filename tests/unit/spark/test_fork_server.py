"""The Python processes of plain queries are forked from one process, and end as Spark ends them.

Real processes, without a JVM: what Spark would do is done here by hand, as for `forked_python`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.spark.fork_server import NAME
from airflow_cloudfiles.engine.spark.preload import DAEMON
from tests.support.waiting import PATIENCE_SECONDS, is_there, until
from tests.unit.spark.test_forked_python import SECRET, WORKER, Owner, answer, name, port, worker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forked on Linux only"),
]

DRIVER = """
import sys
from airflow_cloudfiles.engine.spark import fork_server

assert fork_server.launcher() == fork_server.launcher()
print(fork_server.launcher(), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def owner() -> Iterator[Owner]:
    """A process that has a launcher, as one that has registered the package."""
    command = [sys.executable, "-c", DRIVER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        yield Owner(process)
        process.kill()


@contextlib.contextmanager
def started(owner: Owner, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start Python as the JVM does."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": SECRET}
    command = [owner.launcher, *(arguments or ("-m", DAEMON, WORKER))]
    with subprocess.Popen(command, env=environment, **pipes) as process:  # type: ignore[call-overload]
        yield process
        process.kill()


def forked(owner: Owner) -> list[int]:
    """What is forked from the process, and what that has forked."""
    return [pid for pid in owner.below()[1:] if name(pid) == NAME]


def test_each_daemon_is_forked_has_its_streams_and_ends_when_they_do(owner: Owner) -> None:
    with started(owner) as first, started(owner) as second:
        for each in (first, second):
            assert answer(port(each)) == b"ok"
        assert len(forked(owner)) >= 2
        for each in (first, second):
            output, errors = each.communicate(timeout=PATIENCE_SECONDS)  # closes standard input
            assert (each.returncode, output, errors) == (1, b"", b"")
        until(lambda: not forked(owner))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_spark_kills_ends_with_its_workers_and_nothing_else_does(
    owner: Owner, number: signal.Signals
) -> None:
    with started(owner) as other:
        assert answer(port(other)) == b"ok"
        until(lambda: len(forked(owner)) == 1)  # its worker has ended
        [stays] = forked(owner)
        with started(owner) as killed, worker(port(killed)) as (pid, _):
            ends = {*forked(owner)} - {stays}
            assert pid in ends
            killed.send_signal(number)
            until(lambda: not any(map(is_there, ends)))
        assert forked(owner) == [stays]


def test_what_is_no_module_of_spark_runs_in_plain_python(owner: Owner) -> None:
    with started(owner, "-c", "import sys; print(sys.argv[1:], end='')", "a b", "*") as plain:
        output, errors = plain.communicate(timeout=PATIENCE_SECONDS)
    assert (plain.returncode, output) == (0, b"['a b', '*']")
    assert errors.startswith(b"Python is not forked (it does not run this): -c ")


def test_it_ends_with_its_owner_also_a_killed_one(owner: Owner) -> None:
    [server] = owner.below()
    folder = Path(owner.launcher).parent
    with started(owner) as daemon:
        assert answer(port(daemon)) == b"ok"
        owner.kill()
        until(lambda: not is_there(server))
        # A JVM that is still there has its processes, and gets new ones from plain Python.
        with started(owner) as plain:
            assert answer(port(plain)) == b"ok"
        daemon.communicate(timeout=PATIENCE_SECONDS)
    assert folder.stat().st_mode & 0o077 == 0


def test_an_owner_that_ends_by_itself_leaves_no_folder(owner: Owner) -> None:
    folder = Path(owner.launcher).parent
    owner.process.communicate("\n", timeout=PATIENCE_SECONDS)
    assert not folder.exists()


@pytest.fixture
def no_programs(tmp_path: Path) -> Iterator[Path]:
    """A folder of a file system from which no program runs."""
    folder = tmp_path / "noexec"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_where_no_program_can_be_run_spark_starts_python_by_itself(no_programs: Path) -> None:
    program = """
import logging, sys
from airflow_cloudfiles.engine.spark import fork_server
logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stdout)
assert fork_server.launcher() is None
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(no_programs)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "programs cannot be run there" in done.stdout
    assert [*no_programs.iterdir()] == []
