"""Processes that Spark asks for are forked from one that has imported everything, and end with it.

Real processes, without a JVM: what Spark would do is done here by hand (its `PythonWorkerFactory`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.job import forked_python
from airflow_cloudfiles.engine.job.fork_server import NAME
from airflow_cloudfiles.engine.job.forked_python import ForkServer
from airflow_cloudfiles.engine.processes import descendants
from airflow_cloudfiles.engine.spark.preload import DAEMON, FORKABLE, PRELOADED, WORKERS
from tests.support import pyspark_versions
from tests.support.waiting import PATIENCE_SECONDS, is_there, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forked on Linux only"),
]

WORKER = "pyspark.sql.worker.create_data_source"
SECRET = "a-secret"
DAEMON_ENDS_WITH = 1
"""However it ends: PySpark's code, with a fork server or without."""


@pytest.fixture(params=pyspark_versions.VERSIONS)
def pyspark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whose protocol it is."""
    version: str = request.param
    pyspark_versions.choose(version, monkeypatch)
    return version


@dataclass(frozen=True)
class Listening:
    """A fork server that listens."""

    server: ForkServer
    launcher: Path


@pytest.fixture
def server(tmp_path: Path, pyspark: str) -> Iterator[Listening]:
    server = forked_python.started()
    yield Listening(server, server.listen(tmp_path))
    server.close()


def _start(server: Listening, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
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
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        pid: int = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
        connection.sendall(struct.pack(">i", len(secret)) + secret.encode())
        length: int = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
        yield pid, connection.recv(length, socket.MSG_WAITALL)


@pytest.mark.parametrize("for_iceberg", [False, True])
def test_what_writes_to_iceberg_is_forked_with_pyiceberg(tmp_path: Path, for_iceberg: bool) -> None:
    with contextlib.closing(forked_python.started()) as started:
        server = Listening(started, started.listen(tmp_path, for_iceberg=for_iceberg))
        daemon = _start(server, "-m", DAEMON, WORKER)
        port = _port(daemon)
        with _worker(port) as (pid, answer):
            assert answer == b"ok"
            mapped = Path(f"/proc/{pid}/maps").read_text()
        assert ("/pydantic_core/" in mapped) == for_iceberg  # pyiceberg is made of its models
        daemon.communicate(timeout=PATIENCE_SECONDS)


def _answer(port: int, secret: str = SECRET) -> bytes:
    with _worker(port, secret) as (_, answer):
        return answer


def test_a_daemon_is_forked_with_the_streams_and_the_environment_of_its_launcher(
    server: Listening,
) -> None:
    daemon = _start(server, "-m", DAEMON, WORKER)
    port = _port(daemon)
    assert _answer(port) == b"ok"
    assert _answer(port, "another") == b"err"
    assert _forked()
    output, errors = daemon.communicate(timeout=PATIENCE_SECONDS)  # closes its standard input
    assert (daemon.returncode, output, errors) == (DAEMON_ENDS_WITH, b"", b"")


_BEFORE: set[int] = set()
"""Fork servers of this process that other tests share, and what they have forked."""


@pytest.fixture(autouse=True)
def _look_around() -> None:
    _BEFORE.clear()
    _BEFORE.update(_forked())


def _forked() -> list[int]:
    """The fork server of a test, and what it has forked."""
    below = set(descendants(os.getpid())) - _BEFORE
    return [pid for pid in below if "fork_server" in _command(pid)]


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def test_the_server_has_one_thread_and_so_has_what_it_forks(server: Listening) -> None:
    daemon = _start(server, "-m", DAEMON, WORKER)
    _port(daemon)
    forked = _forked()
    assert len(forked) == 2  # itself and the daemon
    for pid in forked:
        assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
    daemon.communicate(timeout=PATIENCE_SECONDS)


def test_a_killed_launcher_takes_its_process_along(server: Listening) -> None:
    """Spark destroys the process that it has started, which is the launcher."""
    daemon = _start(server, "-m", DAEMON, WORKER)
    port = _port(daemon)
    with _worker(port) as (worker, _):
        forked = _forked()
        assert worker in forked
        assert len(forked) == 3
        daemon.kill()
        daemon.communicate(timeout=PATIENCE_SECONDS)
        until(lambda: sum(map(is_there, forked)) == 1)  # all but the server
        assert not is_there(worker)
    second = _start(server, "-m", DAEMON, WORKER)
    assert _answer(_port(second)) == b"ok"
    second.communicate(timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_an_exit_code_comes_back(
    server: Listening, number: signal.Signals
) -> None:
    daemon = _start(server, "-m", DAEMON, WORKER)
    _port(daemon)
    daemon.send_signal(number)
    daemon.communicate(timeout=PATIENCE_SECONDS)
    assert daemon.returncode != 0


def test_a_worker_without_a_daemon_says_why_it_failed(server: Listening) -> None:
    worker = _start(server, "-m", "pyspark.sql.worker.plan_data_source_read")
    _, errors = worker.communicate(timeout=PATIENCE_SECONDS)
    assert worker.returncode == 1
    assert b"Traceback" in errors
    assert b"fork server" not in errors


OWNER = """
import sys, time
from pathlib import Path
from airflow_cloudfiles.engine.job import forked_python
from airflow_cloudfiles.engine.spark.preload import hide_pandas

hide_pandas()
import airflow_cloudfiles.engine.job.run

server = getattr(forked_python, sys.argv[2])()
print(server.listen(Path(sys.argv[1])) if sys.argv[3:] else "", flush=True)
time.sleep(600)
"""
HOW = ["started", "fork_early"]


@contextlib.contextmanager
def _owner(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process with a fork server: as a driver, and what Spark is to start in it."""
    command = [sys.executable, "-c", OWNER, *arguments]
    env = {**os.environ, **FORKABLE}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as owner:
        assert owner.stdout is not None
        yield owner, owner.stdout.readline().strip()
        owner.kill()


@pytest.mark.parametrize("how", HOW)
def test_a_server_that_idles_ends_with_its_owner(how: str, tmp_path: Path) -> None:
    with _owner(str(tmp_path), how) as (owner, _):
        below = descendants(owner.pid)
        assert len(below) == 1
        owner.kill()
        owner.communicate()
        until(lambda: not any(map(is_there, below)))


@pytest.mark.parametrize("how", HOW)
def test_what_is_forked_has_one_thread_no_pandas_and_no_file_of_the_owner(
    how: str, tmp_path: Path
) -> None:
    with _owner(str(tmp_path), how, "listen") as (owner, launcher):
        daemon = _launched(launcher)
        with _worker(_port(daemon)):
            forked = [pid for pid in descendants(owner.pid) if _name(pid) == NAME]
            assert len(forked) == 3  # the server, a daemon and its worker
            for pid in forked:
                assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
                assert "pandas/_libs" not in Path(f"/proc/{pid}/maps").read_text()
            [server] = [pid for pid in forked if _parent(pid) == owner.pid]
            held = {str(each.readlink()) for each in Path(f"/proc/{server}/fd").iterdir()}
            owners = Path(f"/proc/{owner.pid}/fd").iterdir()
            sockets = {str(each.readlink()) for each in owners if each.name != "2"}
            assert not {each for each in held & sockets if each.startswith("socket")}
        daemon.communicate(timeout=PATIENCE_SECONDS)


def test_a_server_that_is_forked_has_what_its_owner_has_imported(tmp_path: Path) -> None:
    """Most of its memory is shared with the owner, and stays so when all of it has ended."""
    with _owner(str(tmp_path), "fork_early", "listen") as (owner, launcher):
        daemon = _launched(launcher)
        with _worker(_port(daemon)):
            [server] = [pid for pid in descendants(owner.pid) if _parent(pid) == owner.pid]
            assert _memory(server, "Private_Dirty") < _memory(server, "Anonymous") / 2
        daemon.communicate(timeout=PATIENCE_SECONDS)


def test_with_a_thread_no_server_is_forked() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        assert forked_python.fork_early() is None
    finally:
        ended.set()
        thread.join()


def test_a_server_that_is_not_used_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    idle = forked_python.started()
    [server] = _forked()
    conf = {"spark.cloudFiles.forkServer": "false"}
    assert forked_python.start(tmp_path, conf, idle) is None
    assert not is_there(server)


def test_what_is_forked_ends_as_python_does_but_for_its_memory(tmp_path: Path) -> None:
    """What is registered for the end is done, the streams are written, the code is the same."""
    script = tmp_path / "ends.py"
    script.write_text(ENDS, encoding="utf-8")
    for ending, code in (("", 0), ("sys.exit(3)", 3), ("sys.exit('why')", 1), ("1 / 0", 1)):
        done = subprocess.run(
            [sys.executable, str(script), ending], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (code, "at the end\n")
        assert ("why" in done.stderr) == ("why" in ending)
        assert ("ZeroDivisionError" in done.stderr) == ("/ 0" in ending)


ENDS = """
import atexit, os, socket, sys
from airflow_cloudfiles.engine.job import fork_server

def work():
    exec(sys.argv[1])
    return 0

atexit.register(lambda: sys.stdout.write("at the end\\n"))
fork_server.main = work
fork_server.become(socket.socket())
"""


DRIVER = """
import gc, sys, threading
from airflow_cloudfiles.engine.job import __main__ as driver, fork_server

def main():
    print(gc.isenabled(), gc.get_freeze_count() > 100_000, "pandas" in sys.modules, flush=True)
    return 0

fork_server.main = main
driver.main(["", sys.argv[1], "no-such-run"])
"""


def test_a_local_driver_forks_its_server_before_it_reads_anything(tmp_path: Path) -> None:
    """Here what it is to read is not there; garbage is collected in what is forked."""
    env = {**os.environ, **FORKABLE, "CLOUDFILES_LAUNCHED": "local"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )
    assert "no-such-run" in done.stderr
    assert done.stdout == "True True False\n"


@pytest.mark.parametrize("how", HOW)
def test_nothing_outlives_an_owner_that_is_killed(how: str, tmp_path: Path) -> None:
    with _owner(str(tmp_path), how, "listen") as (owner, launcher):
        daemon = _launched(launcher)
        with _worker(_port(daemon)) as (worker, _):
            below = descendants(owner.pid)
            assert worker in below
            owner.kill()
            owner.communicate()
            until(lambda: not any(map(is_there, below)))
        daemon.communicate(timeout=PATIENCE_SECONDS)


def _launched(launcher: str) -> subprocess.Popen[bytes]:
    """A daemon, started as the JVM does."""
    return subprocess.Popen(
        [launcher, "-m", DAEMON, WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHON_WORKER_FACTORY_SECRET": SECRET},
    )


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _memory(pid: int, kind: str) -> int:
    """Kilobytes of one kind that a process has."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    [found] = [line.split()[1] for line in lines if line.startswith(f"{kind}:")]
    return int(found)


def test_what_the_server_does_not_know_runs_in_plain_python(server: Listening) -> None:
    plain = _start(server, "-c", "import sys; print(sys.argv[1:], end='')", "a b", "*")
    output, errors = plain.communicate(timeout=PATIENCE_SECONDS)
    assert (plain.returncode, output) == (0, b"['a b', '*']")
    assert errors.startswith(b"Python starts without the fork server (it does not run this): -c ")


def test_the_version_that_spark_asks_for_needs_no_other_python(server: Listening) -> None:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    asked = _start(server, "-c", code)
    output, errors = asked.communicate(timeout=PATIENCE_SECONDS)
    expected = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert (asked.returncode, output, errors) == (0, expected, b"")


def test_without_a_server_plain_python_runs(server: Listening) -> None:
    server.server.close()
    daemon = _start(server, "-m", DAEMON, WORKER)
    assert _answer(_port(daemon)) == b"ok"
    _, errors = daemon.communicate(timeout=PATIENCE_SECONDS)
    assert daemon.returncode == DAEMON_ENDS_WITH
    assert errors.startswith(b"Python starts without the fork server (")


def test_a_request_that_is_none_is_answered_by_a_line_and_harms_nobody(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with contextlib.closing(forked_python.started()) as started:
        server = Listening(started, started.listen(tmp_path))
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(tmp_path / "fork-server"))
            connection.sendall(struct.pack(">I", 5) + b"hello")
            assert connection.recv(1) == b""
        daemon = _start(server, "-m", DAEMON, WORKER)
        assert _answer(_port(daemon)) == b"ok"
        daemon.communicate(timeout=PATIENCE_SECONDS)
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


def test_the_workers_are_those_of_every_pyspark(pyspark: str) -> None:
    """A worker that PySpark adds would start as plain Python, and say so in every run."""
    code = """
import json, pkgutil, pyspark, pyspark.sql.worker
names = [each.name for each in pkgutil.iter_modules(pyspark.sql.worker.__path__)]
print(json.dumps([pyspark.__version__, names]))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    version, names = json.loads(found)
    assert (version == metadata.version("pyspark")) == (pyspark == "installed")
    theirs = {f"pyspark.sql.worker.{name}" for name in names}
    not_for_sources = {
        "pyspark.sql.worker.analyze_udtf",
        "pyspark.sql.worker.utils",
        "pyspark.sql.worker.__init__",
    }
    assert theirs - not_for_sources == {
        each for each in WORKERS if each.startswith("pyspark.sql.worker.")
    }
    assert len(set(PRELOADED)) == len(PRELOADED)
