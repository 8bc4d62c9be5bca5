"""A run starts its JVM from kept classes and forks its Python processes, and nothing of it is left.

Whole runs, as operators start them, in processes of their own.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.job.jvm import FOLDER
from airflow_cloudfiles.engine.job.launch import JobSpec, LocalSpark, Run, launch
from airflow_cloudfiles.engine.processes import descendants
from tests.support.landing import drop, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_SECONDS = 600


class Stream:
    """One stream, run again and again."""

    def __init__(self, folder: Path) -> None:
        self.source, self.state, self.target = (folder / name for name in ("in", "state", "table"))
        self.source.mkdir()
        self.runs = 0
        self.log: list[str] = []

    def start(self, **conf: str) -> Run:
        """Start a run for one new file of three rows."""
        name = f"f{self.runs}"
        self.runs += 1
        drop(self.source, f"{name}.json", [{"id": f"{name}-{row}"} for row in range(3)])
        spec = JobSpec(
            kind="ingest",
            source=str(self.source),
            format="json",
            checkpoint_location=str(self.state),
            target=str(self.target),
            run_id=f"run-{self.runs}",
            spark_conf=conf,
        )
        self.log = []
        return launch(spec, LocalSpark(master="local[2]"), on_log=self.log.append)

    def has_every_row_once(self) -> bool:
        found = sorted(row["id"] for row in rows(self.target))
        return found == sorted(f"f{run}-{row}" for run in range(self.runs) for row in range(3))


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


def test_the_second_run_keeps_the_classes_of_its_jvm_and_the_third_uses_them(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "jvm"
    monkeypatch.setenv(FOLDER, str(folder))
    logs = []
    for _ in range(2):
        assert stream.start().wait()["rows"] == 3
        logs.append("\n".join(stream.log))
    assert "Keeping the classes" not in logs[0]
    assert "Keeping the classes of this JVM for later runs" in logs[1]
    [archive] = folder.glob("*.jsa")
    run = stream.start()
    used = _until(lambda: f"-XX:SharedArchiveFile={archive}" in _commands(run.pid))
    assert run.wait()["rows"] == 3
    assert used
    # Damaged as no disk should: neither noticed by its size and time, nor by whoever runs.
    content = bytearray(archive.read_bytes())
    status = archive.stat()
    content[: len(content) // 2] = b"\xff" * (len(content) // 2)
    archive.chmod(0o600)
    archive.write_bytes(content)
    assert archive.stat().st_mtime_ns != status.st_mtime_ns
    assert stream.start().wait()["rows"] == 3
    assert "SIGSEGV" not in "\n".join(stream.log)
    assert stream.has_every_row_once()


def test_every_python_process_of_a_run_is_forked(stream: Stream) -> None:
    run = stream.start()
    plain: set[str] = set()
    waiting = threading.Thread(target=run.wait)
    waiting.start()
    while waiting.is_alive():
        plain |= {
            line
            for line in _commands(run.pid).splitlines()
            if " -m pyspark" in line
            and "fork_" not in line
            and not line.startswith("/bin/sh ")  # a launcher in its first moment
        }
        time.sleep(0.05)
    waiting.join()
    assert plain == set()
    assert not [line for line in stream.log if "fork server" in line]
    assert stream.has_every_row_once()


def test_without_forks_and_kept_classes_a_run_does_the_same(stream: Stream) -> None:
    conf = {"spark.cloudFiles.forkServer": "false", "spark.cloudFiles.jvmArchive": "false"}
    assert stream.start(**conf).wait()["rows"] == 3
    text = "\n".join(stream.log)
    assert "Python processes are not forked: spark.cloudFiles.forkServer is false" in text
    assert stream.has_every_row_once()


@pytest.mark.parametrize("killed", ["driver", "java", "fork server"])
def test_nothing_of_a_killed_run_is_left(stream: Stream, killed: str) -> None:
    run = stream.start()
    outcome: list[Any] = []

    def wait() -> None:
        with contextlib.suppress(CloudFilesError):
            outcome.append(run.wait())

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert _until(lambda: _commands(run.pid).count("fork_server") > 2)  # itself and a daemon
    tree = {pid: psutil.Process(pid).cmdline() for pid in descendants(run.pid)}
    [victim] = [pid for pid, command in tree.items() if _is(killed, pid, command)]
    psutil.Process(victim).send_signal(signal.SIGKILL)
    waiting.join(PATIENCE_SECONDS)
    assert _until(lambda: not [pid for pid in tree if _is_there(pid)])
    stream.start().wait()
    assert stream.has_every_row_once()


def _is(killed: str, pid: int, command: list[str]) -> bool:
    if killed == "java":
        return "org.apache.spark.deploy.SparkSubmit" in command
    if killed == "driver":
        return "airflow_cloudfiles.engine.job" in command and "supervisor" not in str(command)
    forked = any(each.endswith("fork_server") for each in command)
    parent = psutil.Process(pid).parent()
    return forked and parent is not None and "airflow_cloudfiles.engine.job" in parent.cmdline()


def _commands(root: int) -> str:
    """The command lines of what runs below a process."""
    lines = []
    for pid in descendants(root):
        with contextlib.suppress(psutil.Error):
            lines.append(" ".join(psutil.Process(pid).cmdline()))
    return "\n".join(lines)


def _is_there(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def _until(condition: Any) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
