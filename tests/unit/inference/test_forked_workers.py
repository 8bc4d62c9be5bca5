"""In a local run, processes that help to infer a schema are forked, and end with who asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import RunFailedError
from airflow_cloudfiles.engine.inference import tasks
from airflow_cloudfiles.engine.inference.tasks import learn_sample
from airflow_cloudfiles.engine.inference.workers import WORKER, ProcessWorkers
from airflow_cloudfiles.engine.job.fork_server import NAME
from airflow_cloudfiles.engine.job.session import SparkStart
from airflow_cloudfiles.engine.job.spark_command import LAUNCHED
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.processes import descendants
from airflow_cloudfiles.engine.reading.fetch import FetchCounts
from airflow_cloudfiles.engine.spark import handoff
from tests.support.waiting import is_there, until
from tests.unit.inference.test_workers import _land, _sample

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forked on Linux only"),
]
LONG = 300


@pytest.fixture(autouse=True)
def _share_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TRIAL_SECONDS", 0.0)
    for name in ("MIN_SPLIT_BYTES", "OPEN_COST_BYTES"):
        monkeypatch.setattr(f"airflow_cloudfiles.engine.reading.splits.{name}", 100)
    monkeypatch.setenv(LAUNCHED, "local")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):  # which a run sets
        monkeypatch.setenv(name, sys.executable)
        monkeypatch.delenv(name)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessWorkers]:
    with tempfile.TemporaryDirectory(prefix="cf-") as folder:
        # A run has a process of its own, and so a folder.
        monkeypatch.setattr(handoff, "process_folder", lambda: Path(folder))
        yield from _workers_of_a_run()


def _workers_of_a_run() -> Iterator[ProcessWorkers]:
    spec = JobSpec(
        kind="ingest",
        source="/in",
        format="json",
        checkpoint_location="/state",
        target="/table",
        run_id="r",
    )
    with closing(SparkStart(spec)) as spark:
        found = spark.local_workers(2)
        assert found is not None
        found.start_seconds = -1.0  # always worth it
        yield found


def _commands() -> list[str]:
    """The command lines of the processes below this one."""
    return [_read(pid, "cmdline") for pid in _below()]


def _read(pid: int, name: str) -> str:
    """What the kernel says of a process; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def _below() -> set[int]:
    """The processes that this test has started: its server, and what that has forked."""
    return _all_below() - _BEFORE


def _all_below() -> set[int]:
    return {
        pid
        for pid in descendants(os.getpid())
        if is_there(pid) and (_read(pid, "comm").strip() == NAME or WORKER in _read(pid, "cmdline"))
    }


_BEFORE: set[int] = set()
"""What other tests of this process share."""


@pytest.fixture(autouse=True)
def _look_around() -> None:
    _BEFORE.clear()
    _BEFORE.update(_all_below())


def test_forked_processes_give_the_schema_of_one_process(
    tmp_path: Path, workers: ProcessWorkers
) -> None:
    _land(tmp_path, 7, files=30)
    sample, counts = _sample(tmp_path), FetchCounts()
    before = _below()
    seen: list[str] = []

    def note(files: int, size: int) -> None:
        del files, size
        seen.extend(_commands())

    learned = list(workers.learn(_tasks(sample), note))
    assert learned
    assert seen
    # What runs is not a Python of its own, but forked from the server.
    assert not [each for each in seen if each.startswith(sys.executable) and WORKER in each]
    assert any("fork_server" in each for each in seen)
    found = learn_sample(sample, counts, workers)
    assert found.json() == learn_sample(sample, FetchCounts()).json()
    assert counts.files == 30
    until(lambda: len(_below() - before) == 1)  # the server, until the run ends


def _tasks(sample: tasks.Sample) -> list[tasks.SampleTask]:
    return [
        tasks.SampleTask(
            source_uri=sample.store.uri,
            options=sample.options,
            known=None,
            ranges=(tasks.FileRange(file),),
        )
        for file in sample.files
    ]


def test_a_forked_worker_that_dies_ends_the_inference_and_leaves_no_process(
    tmp_path: Path, workers: ProcessWorkers
) -> None:
    _land(tmp_path, 3)

    def kill(files: int, size: int) -> None:
        del files, size
        for pid in _forked():
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(RunFailedError, match=r"has died; its task began with \d+\.json"):
        list(workers.learn(_tasks(_sample(tmp_path)), kill))
    until(lambda: len(_below()) == 1)


def _forked() -> list[int]:
    """What the fork server below this process has forked."""
    named = [pid for pid in _below() if _read(pid, "comm").strip() == NAME]
    return [pid for pid in named if _parent(pid) in named]


def _parent(pid: int) -> int | None:
    stat = _read(pid, "stat")
    return int(stat.rpartition(")")[2].split()[1]) if stat else None


OWNER = """
import sys, time
from pathlib import Path
from airflow_cloudfiles.engine.job.session import SparkStart
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.inference.workers import _processes
given = {"source": "/in", "format": "json", "checkpoint_location": "/s", "target": "/t"}
spec = JobSpec(kind="ingest", run_id="r", **given)
workers = SparkStart(spec).local_workers(2)
with _processes(workers._python(), 2):
    print("there", flush=True)
    time.sleep(600)
"""


def test_forked_workers_do_not_outlive_a_driver_that_is_killed(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER)],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"there\n"
        # The server, two forked processes and what waits for these.
        until(lambda: len(descendants(owner.pid)) >= 5)
        below = descendants(owner.pid)
        owner.kill()
        owner.wait()
        until(lambda: not any(map(is_there, below)))
