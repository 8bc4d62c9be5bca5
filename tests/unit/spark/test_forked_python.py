"""Spark's Python daemon is forked from the driver, and ends with it.

Real processes, without a JVM: what Spark would do is done here by hand (its `PythonWorkerFactory`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.processes import descendants
from airflow_cloudfiles.engine.spark import forked_python
from airflow_cloudfiles.engine.spark.forked_python import NAME
from airflow_cloudfiles.engine.spark.preload import DAEMON, FORKABLE
from tests.support import pyspark_versions
from tests.support.waiting import PATIENCE_SECONDS, is_there, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forked on Linux only"),
]

WORKER = "pyspark.worker"
SECRET = "a-secret"
DAEMON_ENDS_WITH = 1
"""However it ends: PySpark's code, forked or not."""

DRIVER = """
import sys, time
from pathlib import Path
from airflow_cloudfiles.engine.spark import forked_python
from airflow_cloudfiles.engine.spark.preload import hide_pandas

hide_pandas()
import airflow_cloudfiles.engine.job.run

daemon = forked_python.fork_early()
is_idle, for_iceberg = sys.argv[2] == "idle", sys.argv[2] == "iceberg"
print("" if is_idle else daemon.listen(Path(sys.argv[1]), for_iceberg=for_iceberg), flush=True)
sys.stdin.readline()
daemon.close()
print("closed", flush=True)
time.sleep(600)
"""


class Owner:
    """A process as a driver, with a daemon that it has forked.

    Attributes:
        process: It.
        launcher: What Spark is to start in it in place of Python.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.launcher = process.stdout.readline().strip()

    def below(self) -> list[int]:
        return descendants(self.process.pid)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "closed\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def _owner(folder: Path, how: str = "listens") -> Iterator[Owner]:
    command = [sys.executable, "-c", DRIVER, str(folder), how]
    env = {**os.environ, **FORKABLE}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=env, **pipes) as process:  # type: ignore[call-overload]
        yield Owner(process)
        process.kill()


@pytest.fixture(params=pyspark_versions.VERSIONS)
def owner(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Owner]:
    """With the PySpark whose protocol it is."""
    pyspark_versions.choose(request.param, monkeypatch)
    with _owner(tmp_path) as found:
        yield found


def _start(owner: Owner, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
    """As the JVM starts Python."""
    return subprocess.Popen(
        [owner.launcher, *(arguments or ("-m", DAEMON, WORKER))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHON_WORKER_FACTORY_SECRET": SECRET, **more},
    )


def port(daemon: subprocess.Popen[bytes]) -> int:
    assert daemon.stdout is not None
    found: int = struct.unpack(">i", daemon.stdout.read(4))[0]
    return found


@contextlib.contextmanager
def worker(port: int, secret: str = SECRET) -> Iterator[tuple[int, bytes]]:
    """Have a daemon fork a worker: its process id, and what it answers to a secret."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        pid: int = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
        connection.sendall(struct.pack(">i", len(secret)) + secret.encode())
        length: int = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
        yield pid, connection.recv(length, socket.MSG_WAITALL)


def answer(port: int, secret: str = SECRET) -> bytes:
    with worker(port, secret) as (_, answer):
        return answer


def name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def test_it_has_the_streams_and_the_environment_of_its_launcher(owner: Owner) -> None:
    daemon = _start(owner)
    at = port(daemon)
    assert answer(at) == b"ok"
    assert answer(at, "another") == b"err"
    output, errors = daemon.communicate(timeout=PATIENCE_SECONDS)  # closes its standard input
    assert (daemon.returncode, output, errors) == (DAEMON_ENDS_WITH, b"", b"")


def test_it_is_one_process_with_one_thread_without_pandas_and_most_of_it_is_shared(
    owner: Owner,
) -> None:
    daemon = _start(owner)
    with worker(port(daemon)) as (pid_of_worker, _):
        forked = [pid for pid in owner.below() if name(pid) == NAME]
        assert len(forked) == 2  # the daemon and its worker
        assert pid_of_worker in forked
        for pid in forked:
            assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
            assert "pandas/_libs" not in Path(f"/proc/{pid}/maps").read_text()
        [forked_first] = [pid for pid in forked if pid != pid_of_worker]
        assert _memory(forked_first, "Private_Dirty") < _memory(forked_first, "Anonymous") / 2
    daemon.communicate(timeout=PATIENCE_SECONDS)


def _memory(pid: int, kind: str) -> int:
    """Kilobytes of one kind that a process has."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    [found] = [line.split()[1] for line in lines if line.startswith(f"{kind}:")]
    return int(found)


@pytest.mark.parametrize("how", ["listens", "iceberg"])
def test_what_writes_to_iceberg_has_pyiceberg(tmp_path: Path, how: str) -> None:
    with _owner(tmp_path, how) as owner:
        daemon = _start(owner)
        with worker(port(daemon)) as (pid, _):
            mapped = Path(f"/proc/{pid}/maps").read_text()
        assert ("/pydantic_core/" in mapped) == (how == "iceberg")  # it is made of its models
        daemon.communicate(timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize("how", ["idle", "listens"])
def test_one_that_waits_ends_with_the_driver(how: str, tmp_path: Path) -> None:
    with _owner(tmp_path, how) as owner:
        [idle] = owner.below()
        owner.kill()
        until(lambda: not is_there(idle))


@pytest.mark.parametrize("ending", ["closed", "ended by Spark"])
def test_a_daemon_ends_with_its_workers(ending: str, tmp_path: Path) -> None:
    with _owner(tmp_path) as owner:
        daemon = _start(owner)
        with worker(port(daemon)) as (pid_of_worker, _):
            below = owner.below()
            assert pid_of_worker in below
            if ending == "closed":
                owner.close()
            else:  # it kills the launcher, and closes the streams
                daemon.send_signal(signal.SIGTERM)
            daemon.communicate(timeout=PATIENCE_SECONDS)
            until(lambda: not any(map(is_there, below)))
        assert daemon.returncode != 0


def test_a_second_daemon_is_plain_python(owner: Owner) -> None:
    first, second = _start(owner), None
    assert answer(port(first)) == b"ok"
    second = _start(owner)
    assert answer(port(second)) == b"ok"
    for each in (first, second):
        _, errors = each.communicate(timeout=PATIENCE_SECONDS)
        assert each.returncode == DAEMON_ENDS_WITH
    assert errors.startswith(b"Python is not forked (")


def test_what_is_no_daemon_runs_in_plain_python_and_the_daemon_waits_on(owner: Owner) -> None:
    plain = _start(owner, "-c", "import sys; print(sys.argv[1:], end='')", "a b", "*")
    output, errors = plain.communicate(timeout=PATIENCE_SECONDS)
    assert (plain.returncode, output) == (0, b"['a b', '*']")
    assert errors.startswith(b"Python is not forked (it does not run this): -c ")
    with socket.socket(socket.AF_UNIX) as connection:  # nor does what is no request harm it
        connection.connect(str(Path(owner.launcher).with_name("daemon")))
        connection.sendall(struct.pack(">I", 5) + b"hello")
        assert connection.recv(1) == b""
    daemon = _start(owner)
    assert answer(port(daemon)) == b"ok"
    _, errors = daemon.communicate(timeout=PATIENCE_SECONDS)
    assert errors == b""


def test_the_version_that_spark_asks_for_needs_no_other_python(owner: Owner) -> None:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    asked = _start(owner, "-c", code)
    output, errors = asked.communicate(timeout=PATIENCE_SECONDS)
    expected = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert (asked.returncode, output, errors) == (0, expected, b"")


def test_a_process_with_threads_forks_none() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        assert forked_python.fork_early() is None
    finally:
        ended.set()
        thread.join()


FORKS_FIRST = """
import gc, sys
from airflow_cloudfiles.engine.job import __main__ as driver
from airflow_cloudfiles.engine.spark import forked_python

def become(control):
    print(gc.isenabled(), gc.get_freeze_count() > 100_000, "pandas" in sys.modules, flush=True)
    sys.exit(0)

forked_python._become_daemon = become
driver.main(["", sys.argv[1], "no-such-run"])
"""


def test_a_local_driver_forks_it_before_it_reads_anything(tmp_path: Path) -> None:
    """Here what it is to read is not there; garbage is collected in what is forked."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS_FIRST, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **FORKABLE, "CLOUDFILES_LAUNCHED": "local"},
    )
    assert "no-such-run" in done.stderr
    assert done.stdout == "True True False\n"


_WITHOUT = """
import logging, os, sys
from pathlib import Path
from airflow_cloudfiles.engine.spark import forked_python
from airflow_cloudfiles.engine.processes import descendants

logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stdout)
daemon = forked_python.fork_early()
assert forked_python.start(Path(sys.argv[1]), dict([sys.argv[2:]]), daemon) is None
print(os.environ["PYSPARK_PYTHON"], descendants(os.getpid()))
"""


@pytest.mark.parametrize(
    ("key", "value", "python", "reason"),
    [
        ("spark.cloudFiles.forkedDaemon", "false", None, "spark.cloudFiles.forkedDaemon is false"),
        ("spark.pyspark.python", "/opt/python", None, "spark.pyspark.python is /opt/python"),
        ("spark.ui.enabled", "false", "/opt/python", "PYSPARK_PYTHON is /opt/python"),
        ("folder", "long" * 30, None, "AF_UNIX path too long"),
    ],
)
def test_where_none_is_used_one_line_says_so_and_none_is_left(
    key: str, value: str, python: str | None, reason: str, tmp_path: Path
) -> None:
    python = python or sys.executable
    folder = tmp_path / (value if key == "folder" else "")
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, str(folder), key, value],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **FORKABLE, "PYSPARK_PYTHON": python},
    )
    assert done.stdout == f"Spark's Python is not forked: {reason}\n{python} []\n"
