"""A run starts its JVM from kept classes and forks its Python daemon, and nothing of it is left.

Whole runs, as operators start them, in processes of their own.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.job import jvm
from airflow_cloudfiles.engine.job.jvm import FOLDER
from airflow_cloudfiles.engine.job.launch import LocalSpark, Run, launch
from airflow_cloudfiles.engine.job.spark_command import JOB_MODULE
from airflow_cloudfiles.engine.processes import descendants
from airflow_cloudfiles.engine.spark.forked_python import NAME
from tests.support import pyspark_versions
from tests.support.driver import Driver
from tests.support.landing import drop, rows
from tests.support.waiting import PATIENCE_SECONDS, is_there, until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MANY = 12
PYTHONS = 5
"""Of a run on `local[2]`, at most: supervisor, driver, Spark's daemon and its two workers."""
KILLED = ("driver", "daemon")


class Stream(Driver):
    """One stream, run again and again, as operators do."""

    log: list[str]
    files = 0

    def land(self, count: int) -> None:
        """Write new files of three rows each."""
        first, self.files = self.files, self.files + count
        for name in (f"f{number}" for number in range(first, self.files)):
            drop(self.source, f"{name}.json", [{"id": f"{name}-{row}"} for row in range(3)])

    def launched(self, **conf: str) -> Run:
        """Start a run, for one more file."""
        self.land(1)
        spec, self.log = self.spec(spark_conf=conf), []
        return launch(spec, LocalSpark(master="local[2]"), on_log=self.log.append)

    def has_every_row_once(self) -> bool:
        found = sorted(row["id"] for row in rows(self.target))
        return found == sorted(f"f{file}-{row}" for file in range(self.files) for row in range(3))


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def test_nobody_waits_for_the_classes_that_the_run_after_a_killed_first_one_keeps_for_later_ones(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "jvm"
    monkeypatch.setenv(FOLDER, str(folder))
    stream.options = {"cloudFiles.maxFilesPerTrigger": "1"}
    stream.land(MANY)
    jvm = _kill_one_of(stream.launched(), "java")
    assert "-XX:DumpLoadedClassList" not in " ".join(jvm)
    stream.options = {}
    second = stream.launched()
    second.wait()
    assert not psutil.pid_exists(second.pid)  # and so has the driver, before there is an archive
    until(lambda: len(_makers(folder)) == 1)  # a fork of it has its command line for a moment
    [maker] = _makers(folder)
    assert not any(folder.glob("*.jsa"))
    until(lambda: maker.nice() == 19)  # it does that itself, when Python has started
    _hurry(maker)
    assert stream.has_every_row_once()
    until(lambda: any(folder.glob("*.jsa")), every=1)
    until(lambda: not _makers(folder))
    [archive] = folder.glob("*.jsa")
    jvms, plain = _watched(stream.launched())
    assert jvms
    assert all(f"-XX:SharedArchiveFile={archive}" in line for line in jvms)
    assert plain == set()
    assert not [line for line in stream.log if "is not forked" in line]
    # Damaged as no disk should: neither noticed by its size and time, nor by whoever runs.
    content = bytearray(archive.read_bytes())
    status = archive.stat()
    content[: len(content) // 2] = b"\xff" * (len(content) // 2)
    archive.chmod(0o600)
    archive.write_bytes(content)
    assert archive.stat().st_mtime_ns != status.st_mtime_ns
    assert stream.launched().wait()["rows"] == 3
    assert "SIGSEGV" not in "\n".join(stream.log)
    assert stream.has_every_row_once()


def test_with_the_oldest_spark_every_python_process_of_a_run_is_forked_too(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyspark_versions.choose("oldest", monkeypatch)
    jvms, plain = _watched(stream.launched())
    assert plain == set()
    assert jvms  # on a machine's first run also the one that prints the command line
    assert all("oldest-spark/pyspark/jars" in line for line in jvms)
    assert not [line for line in stream.log if "is not forked" in line]
    assert stream.has_every_row_once()


def test_nothing_of_killed_runs_is_left_and_without_forks_and_kept_classes_one_does_the_rest(
    stream: Stream,
) -> None:
    stream.options = {"cloudFiles.maxFilesPerTrigger": "1"}  # batches to be in the midst of
    stream.land(MANY)
    for killed in KILLED:
        _kill_one_of(stream.launched(), killed)
    stream.options = {}
    conf = {"spark.cloudFiles.forkedDaemon": "false", "spark.cloudFiles.jvmArchive": "false"}
    assert stream.launched(**conf).wait()["rows"] >= 3
    text = "\n".join(stream.log)
    assert "Spark's Python is not forked: spark.cloudFiles.forkedDaemon is false" in text
    assert stream.has_every_row_once()


def _makers(folder: Path) -> list[psutil.Process]:
    """The processes that make an archive in the background."""
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = each.cmdline()
            if jvm.__name__ in command and str(folder) in command:
                found.append(each)
    return found


def _hurry(maker: psutil.Process) -> None:
    """Let it have a share of the cores beside other tests, where this user may decide that."""
    for each in (maker, *maker.children(recursive=True)):
        with contextlib.suppress(psutil.Error, OSError):
            Path(f"/proc/{each.pid}/autogroup").write_text("0")
            each.nice(0)


def _kill_one_of(run: Run, killed: str) -> list[str]:
    """Kill one process of a run, and wait until all of it have ended; its command line."""
    outcome: list[Any] = []

    def wait() -> None:
        with contextlib.suppress(CloudFilesError):
            outcome.append(run.wait())

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: sum(map(_is_forked, descendants(run.pid))) > 1)  # the daemon and a worker
    tree = {pid: _command(pid) for pid in descendants(run.pid)}
    [victim] = [pid for pid, command in tree.items() if _is(killed, pid, command)]
    psutil.Process(victim).send_signal(signal.SIGKILL)
    waiting.join(PATIENCE_SECONDS)
    # Without its daemon, a run may go on with plain Python.
    assert not outcome or killed == "daemon", f"the {killed} was killed before its end"
    until(lambda: not any(map(is_there, tree)))
    return tree[victim]


def _watched(run: Run) -> tuple[set[str], set[str]]:
    """Wait for a run; the command lines of its JVMs, and of Python that was not forked."""
    jvms: set[str] = set()
    plain: set[str] = set()
    waiting = threading.Thread(target=run.wait)
    waiting.start()
    while waiting.is_alive():
        lines = _commands(run.pid).splitlines()
        jvms |= {line for line in lines if "org.apache.spark.deploy.SparkSubmit" in line}
        pythons = [line for line in lines if line.startswith(f"{sys.executable} -m {JOB_MODULE} ")]
        assert len(pythons) <= PYTHONS - 1, pythons  # the supervisor watches over them
        plain |= {
            line
            for line in lines
            if " -m pyspark" in line
            and "daemon_launcher" not in line
            and not line.startswith("/bin/sh ")  # a launcher in its first moment
        }
        time.sleep(0.05)
    waiting.join()
    return jvms, plain


def _is(killed: str, pid: int, command: list[str]) -> bool:
    if killed == "java":
        return "org.apache.spark.deploy.SparkSubmit" in command
    if killed == "driver":
        driver = "airflow_cloudfiles.engine.job" in command and "supervisor" not in str(command)
        return driver and not _is_forked(pid)
    parent = psutil.Process(pid).parent()
    return _is_forked(pid) and parent is not None and not _is_forked(parent.pid)


def _is_forked(pid: int) -> bool:
    """Whether a process is Spark's daemon, or was forked from it."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).name() == NAME
    return False


def _command(pid: int) -> list[str]:
    """The command line of a process; nothing when it has ended."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).cmdline()
    return []


def _commands(root: int) -> str:
    """The command lines of what runs below a process."""
    return "\n".join(" ".join(_command(pid)) for pid in descendants(root))
