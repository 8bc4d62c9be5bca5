"""A driver in a cluster outlives the task that submitted it; the next try follows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import RunFailedError, UnknownFieldException
from airflow_cloudfiles.engine.extensions.cluster import submitted_run
from airflow_cloudfiles.engine.extensions.cluster.submitted_run import (
    SUBMITTED_PREFIX,
    SubmittedRun,
    submit,
)
from airflow_cloudfiles.engine.job.spark_command import SparkSubmit
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.state.locks import lease
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.cluster_manager import ClusterManager
from tests.support.laws import some
from tests.support.waiting import until

DRIVER = """
import sys, time
from pathlib import Path
from airflow_cloudfiles.engine.errors import UnknownFieldException, to_record
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.state.run_history import REPORTS_PREFIX, encode_report
from airflow_cloudfiles.engine.storage import open_store
folder, location, run_id = sys.argv[1:]
state = open_store(location)
with RunLock(state, JOB_KEY, run_id=run_id, lease_seconds=2.0):
    while not (way := [each for each in Path(folder).glob("go-*")]):
        time.sleep(0.02)
    report = {"run_id": run_id, "outcome": "succeeded", "rows": 3}
    if way[0].name == "go-fail":
        error = UnknownFieldException("A new field", retry=True)
        report |= {"outcome": "failed", "error": to_record(error)}
    if way[0].name != "go-nowhere":
        state.put(f"{REPORTS_PREFIX}/{run_id}.json", encode_report(report))
"""
"""Lock and report of a driver, without Spark: `go-*` in the folder ends it."""

TASK = """
import json, sys
from airflow_cloudfiles.engine.extensions.cluster.submitted_run import submit
from airflow_cloudfiles.engine.job.spark_command import SparkSubmit
from airflow_cloudfiles.engine.job.spec import JobSpec
spec, binary = json.loads(sys.argv[1]), sys.argv[2]
how = SparkSubmit(master="yarn", deploy_mode="cluster", binary=binary)
submit(JobSpec(**spec), how, on_log=print).wait()
"""
"""The first try of a task, in a worker that is lost."""


class Place:
    """A state, a cluster, and a task that is tried again and again."""

    def __init__(self, folder: Path, location: str, access: Any) -> None:
        self.folder = folder
        self.location = location
        self.access = access
        self.state = open_store(location, access)
        self.cluster = ClusterManager(
            folder / "cluster", [sys.executable, "-c", DRIVER, str(folder)]
        )
        self.log: list[str] = []
        self.pool = ThreadPoolExecutor(1)

    def spec(self, number: int) -> JobSpec:
        return JobSpec(
            kind="ingest",
            source="/in",
            format="json",
            checkpoint_location=self.location,
            target="/table",
            run_id=f"try-{number}",
            options={},
        )

    def lose_a_worker(self, number: int = 1) -> None:
        """Begin a try, and kill its worker when the driver is at work."""
        environment = {} if self.access is None else to_environment(self.access)
        arguments = [json.dumps(asdict(self.spec(number))), str(self.cluster.binary)]
        worker = subprocess.Popen(
            [sys.executable, "-c", TASK, *arguments],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
        )
        lock = RunLock(self.state, JOB_KEY)
        until(lambda: lock.noted_run() == f"try-{number}", more=lambda: self.cluster.log)
        worker.kill()
        worker.wait()

    def submit(self, number: int) -> SubmittedRun:
        how = SparkSubmit(master="yarn", deploy_mode="cluster", binary=str(self.cluster.binary))
        return submit(
            self.spec(number),
            how,
            on_log=self.log.append,
            access=self.access,
            earlier=[f"try-{each}" for each in range(number - 1, 0, -1)],
        )

    def retry(self, number: int = 2) -> Future[dict[str, Any]]:
        """Begin a later try, in a thread."""
        return self.pool.submit(self.submit(number).wait)

    def go(self, how: str = "on") -> None:
        (self.folder / f"go-{how}").touch()

    def open_notes(self) -> list[str]:
        return [each.path for each in self.state.list(f"{SUBMITTED_PREFIX}/")]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitted_run, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(lease, "LEASE_SECONDS", 2.0)


STATES = ["disk", pytest.param("s3", marks=pytest.mark.emulator)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Put the state of each test on a disk or into a bucket, in another run the other way."""
    if "place" in metafunc.fixturenames:
        chosen = some(STATES, 1, name=metafunc.function.__name__)
        metafunc.parametrize("place", chosen, indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "disk":
        made = Place(tmp_path, f"{tmp_path}/state", None)
    else:
        aws = request.getfixturevalue("aws")
        made = Place(tmp_path, f"{aws.bucket()}/state", aws.access)
    yield made
    made.go()
    made.pool.shutdown()


def test_the_next_try_follows_the_driver_that_a_lost_worker_has_left(place: Place) -> None:
    place.lose_a_worker()
    found = place.retry()
    until(lambda: any("at work in the cluster" in line for line in place.log))
    assert not found.done()
    place.go()
    assert found.result()["run_id"] == "try-1"
    assert place.cluster.submitted == ["try-1"]
    assert place.open_notes() == []


def test_an_error_of_that_driver_is_the_error_of_the_try(place: Place) -> None:
    place.lose_a_worker()
    place.go("fail")
    with pytest.raises(UnknownFieldException, match="A new field"):
        place.retry().result()
    assert place.cluster.submitted == ["try-1"]


def test_a_report_that_nobody_has_got_is_the_result_once(place: Place) -> None:
    place.lose_a_worker()
    place.go()
    until((place.cluster.folder / "try-1.end").exists)
    assert place.retry(2).result()["run_id"] == "try-1"
    # Somebody clears the task: that is a run of its own.
    assert place.retry(3).result()["run_id"] == "try-3"
    assert place.cluster.submitted == ["try-1", "try-3"]


def test_a_driver_that_dies_is_submitted_anew(place: Place) -> None:
    place.lose_a_worker()
    found = place.retry()
    until(lambda: any("at work in the cluster" in line for line in place.log))
    place.cluster.kill("try-1")
    until(lambda: place.cluster.submitted == ["try-1", "try-2"])
    place.go()
    assert found.result()["run_id"] == "try-2"
    assert place.open_notes() == []


def test_a_driver_that_ended_without_a_report_is_submitted_anew(place: Place) -> None:
    place.lose_a_worker()
    place.go("nowhere")
    until((place.cluster.folder / "try-1.end").exists)
    (place.folder / "go-nowhere").unlink()
    place.go()
    assert place.retry().result()["run_id"] == "try-2"


def test_the_lock_of_another_run_is_not_followed(place: Place) -> None:
    place.lose_a_worker()
    place.cluster.kill("try-1")
    lock = RunLock(place.state, JOB_KEY, run_id="of-another-task", lease_seconds=2.0)
    lock.acquire(timeout_seconds=60.0)
    try:
        run = place.submit(2)
        until(lambda: place.cluster.submitted == ["try-1", "try-2"])
        with pytest.raises(RunFailedError, match="before it wrote a report"):
            run.wait()
        assert "Another run is working" in place.cluster.log
        assert "for the run of-another-task" in place.cluster.log
    finally:
        lock.release()


def test_a_task_that_is_ended_stops_waiting_and_says_that_the_driver_goes_on(place: Place) -> None:
    place.lose_a_worker()
    run = place.submit(2)
    ended = threading.Timer(0.5, run.kill)
    ended.start()
    with pytest.raises(RunFailedError, match="goes on in the cluster"):
        run.wait()
    assert run.report is None
    place.go()
    assert place.retry(3).result()["run_id"] == "try-1"


def test_a_run_that_nothing_happens_to_leaves_no_note(place: Place) -> None:
    place.go()
    run = place.submit(1)
    assert run.wait()["run_id"] == "try-1"
    assert run.report is not None
    assert place.open_notes() == []


def test_a_driver_that_ends_between_two_looks_is_not_submitted_anew(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.lose_a_worker()
    looked = RunLock.noted_run

    def ends(lock: RunLock) -> str | None:
        place.go()
        until((place.cluster.folder / "try-1.end").exists)
        return looked(lock)

    monkeypatch.setattr(RunLock, "noted_run", ends)
    assert place.retry().result()["run_id"] == "try-1"
    assert place.cluster.submitted == ["try-1"]
