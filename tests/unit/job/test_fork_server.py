"""Processes that Spark asks for are forked from one that has imported everything, and end with it.

Real processes, without a JVM: what Spark would do is done here by hand (its `PythonWorkerFactory`).
"""

from __future__ import annotations

import contextlib
import os
import pkgutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.job import forked_python
from airflow_cloudfiles.engine.job.forked_python import ForkServer
from airflow_cloudfiles.engine.processes import descendants
from airflow_cloudfiles.engine.spark.preload import DAEMON, PRELOADED, WORKERS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forked on Linux only"),
]

WORKER = "pyspark.sql.worker.create_data_source"
SECRET = "a-secret"
DAEMON_ENDS_WITH = 1
"""However it ends: PySpark's code, with a fork server or without."""
LONG = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    server = ForkServer(tmp_path)
    yield server
    server.close()


def _start(server: ForkServer, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
    """As the JVM starts Python."""
    return subprocess.Popen(
        [str(server.launcher), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHON_WORKER_FACTORY_SECRET": SECRET, **more},
    )


def _port(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    found: int = struct.unpack(">i", process.stdout.read(4))[0]
    return found


@contextlib.contextmanager
def _worker(port: int, secret: str = SECRET) -> Iterator[tuple[int, bytes]]:
    """Have a daemon fork a worker: its process id, and what it answers to a secret."""
    with socket.create_connection(("127.0.0.1", port), timeout=LONG) as connection:
        pid: int = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
        connection.sendall(struct.pack(">i", len(secret)) + secret.encode())
        length: int = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
        yield pid, connection.recv(length, socket.MSG_WAITALL)


def _answer(port: int, secret: str = SECRET) -> bytes:
    with _worker(port, secret) as (_, answer):
        return answer


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _is_gone(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def test_a_daemon_is_forked_with_the_streams_and_the_environment_of_its_launcher(
    server: ForkServer,
) -> None:
    daemon = _start(server, "-m", DAEMON, WORKER)
    port = _port(daemon)
    assert _answer(port) == b"ok"
    assert _answer(port, "another") == b"err"
    assert any("fork_server" in _command(pid) for pid in descendants(os.getpid()))
    output, errors = daemon.communicate(timeout=LONG)  # closes its standard input
    assert (daemon.returncode, output, errors) == (DAEMON_ENDS_WITH, b"", b"")


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def test_the_server_has_one_thread_and_so_has_what_it_forks(server: ForkServer) -> None:
    daemon = _start(server, "-m", DAEMON, WORKER)
    _port(daemon)
    forked = [pid for pid in descendants(os.getpid()) if "fork_server" in _command(pid)]
    assert len(forked) == 2  # itself and the daemon
    for pid in forked:
        assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
    daemon.communicate(timeout=LONG)


def test_a_killed_launcher_takes_its_process_along(server: ForkServer) -> None:
    """Spark destroys the process that it has started, which is the launcher."""
    daemon = _start(server, "-m", DAEMON, WORKER)
    port = _port(daemon)
    with _worker(port) as (worker, _):
        forked = [pid for pid in descendants(os.getpid()) if "fork_server" in _command(pid)]
        assert worker in forked
        assert len(forked) == 3
        daemon.kill()
        daemon.communicate(timeout=LONG)
        _until(lambda: sum(map(_is_gone, forked)) == 2)  # all but the server
        assert _is_gone(worker)
    second = _start(server, "-m", DAEMON, WORKER)
    assert _answer(_port(second)) == b"ok"
    second.communicate(timeout=LONG)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_an_exit_code_comes_back(
    server: ForkServer, number: signal.Signals
) -> None:
    daemon = _start(server, "-m", DAEMON, WORKER)
    _port(daemon)
    daemon.send_signal(number)
    daemon.communicate(timeout=LONG)
    assert daemon.returncode != 0


def test_a_worker_without_a_daemon_says_why_it_failed(server: ForkServer) -> None:
    worker = _start(server, "-m", "pyspark.sql.worker.plan_data_source_read")
    _, errors = worker.communicate(timeout=LONG)
    assert worker.returncode == 1
    assert b"Traceback" in errors
    assert b"fork server" not in errors


OWNER = """
import sys, time
from pathlib import Path
from airflow_cloudfiles.engine.job.forked_python import ForkServer

server = ForkServer(Path(sys.argv[1]))
print(server.launcher, flush=True)
time.sleep(600)
"""


def test_nothing_outlives_an_owner_that_is_killed(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    launcher = owner.stdout.readline().strip()
    daemon = subprocess.Popen(
        [launcher, "-m", DAEMON, WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHON_WORKER_FACTORY_SECRET": SECRET},
    )
    with _worker(_port(daemon)) as (worker, _):
        below = descendants(owner.pid)
        assert worker in below
        owner.kill()
        owner.communicate()
        _until(lambda: all(map(_is_gone, below)))
    daemon.communicate(timeout=LONG)


def test_what_the_server_does_not_know_runs_in_plain_python(server: ForkServer) -> None:
    plain = _start(server, "-c", "import sys; print(sys.argv[1:], end='')", "a b", "*")
    output, errors = plain.communicate(timeout=LONG)
    assert (plain.returncode, output) == (0, b"['a b', '*']")
    assert errors.startswith(b"Python starts without the fork server (it does not run this): -c ")


def test_the_version_that_spark_asks_for_needs_no_other_python(server: ForkServer) -> None:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    asked = _start(server, "-c", code)
    output, errors = asked.communicate(timeout=LONG)
    expected = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert (asked.returncode, output, errors) == (0, expected, b"")


def test_without_a_server_plain_python_runs(server: ForkServer) -> None:
    server.close()
    daemon = _start(server, "-m", DAEMON, WORKER)
    assert _answer(_port(daemon)) == b"ok"
    _, errors = daemon.communicate(timeout=LONG)
    assert daemon.returncode == DAEMON_ENDS_WITH
    assert errors.startswith(b"Python starts without the fork server (")


def test_a_request_that_is_none_is_answered_by_a_line_and_harms_nobody(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with contextlib.closing(ForkServer(tmp_path)) as server:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(tmp_path / "fork-server"))
            connection.sendall(struct.pack(">I", 5) + b"hello")
            assert connection.recv(1) == b""
        daemon = _start(server, "-m", DAEMON, WORKER)
        assert _answer(_port(daemon)) == b"ok"
        daemon.communicate(timeout=LONG)
    assert "The fork server cannot answer: " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("conf", "python", "reason"),
    [
        ({"spark.cloudFiles.forkServer": "false"}, None, "spark.cloudFiles.forkServer is false"),
        ({"spark.pyspark.python": "/opt/python"}, None, "spark.pyspark.python is /opt/python"),
        ({}, "/opt/python", "PYSPARK_PYTHON is /opt/python"),
    ],
)
def test_where_it_does_not_apply_one_line_says_so(
    conf: dict[str, str],
    python: str | None,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", python or sys.executable)
    with caplog.at_level("INFO"):
        assert forked_python.start(tmp_path, conf) is None
    assert caplog.messages == [f"Python processes are not forked: {reason}"]
    assert os.environ["PYSPARK_PYTHON"] == (python or sys.executable)


def test_a_folder_whose_path_is_too_long_for_a_socket_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with caplog.at_level("INFO"):
        assert forked_python.start(folder, {}) is None
    assert "AF_UNIX path too long" in caplog.messages[0]


def test_the_workers_are_those_of_this_pyspark() -> None:
    """A worker that PySpark adds would start as plain Python, and say so in every run."""
    import pyspark.sql.worker

    theirs = {
        f"pyspark.sql.worker.{each.name}"
        for each in pkgutil.iter_modules(pyspark.sql.worker.__path__)
    }
    not_for_sources = {
        "pyspark.sql.worker.analyze_udtf",
        "pyspark.sql.worker.utils",
        "pyspark.sql.worker.__init__",
    }
    assert theirs - not_for_sources == {
        each for each in WORKERS if each.startswith("pyspark.sql.worker.")
    }
    assert len(set(PRELOADED)) == len(PRELOADED)
