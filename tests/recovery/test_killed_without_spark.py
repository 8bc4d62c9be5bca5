"""A run without Spark, killed between any two steps, lands every row once; so do two executors."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import psutil
import pytest

from airflow_cloudfiles.engine.job.launch import LocalPython, LocalSpark
from airflow_cloudfiles.engine.processes import descendants
from tests.support import laws
from tests.support.driver import RUN_SECONDS, TOUR, Driver
from tests.support.landing import drop, rows
from tests.support.waiting import until

pytestmark = pytest.mark.slow

SCHEMA_TOUR = ("before-schema-append", "after-schema-append", "after-sink-columns")
HERE = LocalPython()


def _arrive(driver: Driver, wave: int, **more: object) -> list[str]:
    ids = [f"{wave}-{number}" for number in range(3)]
    for each in ids:
        drop(driver.source, f"w{wave:02}/{each}.json", [{"id": each, **more}])
    return ids


def _ids(driver: Driver) -> list[str]:
    is_there = (driver.target / "_delta_log").exists()
    return sorted(row["id"] for row in rows(driver.target)) if is_there else []


def test_a_run_without_spark_killed_between_any_two_steps_lands_every_row_once(  # B106
    tmp_path: Path,
) -> None:
    driver = Driver(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "2"})
    driver.how = HERE
    dropped: list[str] = []
    always = ("after-data-files", "before-sink-commit", "after-sink-commit", "after-sink-record")
    tour = laws.some(TOUR, 3, name="killed without spark", always=always)
    for wave, point in enumerate(tour):
        dropped += _arrive(driver, wave)
        driver.killed_at(point)
        found = _ids(driver)
        assert len(found) == len(set(found)), point
        assert set(found) <= set(dropped), point
    code, report = driver.run()
    assert code == 0, driver.log[-3000:]
    assert _ids(driver) == sorted(dropped)
    assert report is not None
    assert report["outcome"] == "succeeded"
    for wave, point in enumerate(SCHEMA_TOUR, len(tour)):
        dropped += _arrive(driver, wave, currency="USD")
        driver.killed_at(point)
    while driver.run()[0] != 0:
        assert "UNKNOWN_FIELD_EXCEPTION" in driver.log
    assert _ids(driver) == sorted(dropped)


@pytest.mark.spark
def test_a_run_that_one_executor_began_is_finished_by_the_other(tmp_path: Path) -> None:
    driver = Driver(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "2"})
    dropped: list[str] = []
    turns = (
        (HERE, "after-data-files"),
        (LocalSpark(master="local[2]"), "after-sink-commit"),
        (HERE, "after-plan-append"),
        (LocalSpark(master="local[2]"), None),
        (HERE, None),
    )
    for wave, (how, point) in enumerate(turns):
        dropped += _arrive(driver, wave)
        driver.how = how
        if point is None:
            assert driver.run()[0] == 0, driver.log[-3000:]
            assert _ids(driver) == sorted(dropped)
        else:
            driver.killed_at(point)


def _working(driver: Driver) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a run over a large file, and wait until processes of their own read its splits."""
    line = json.dumps({"id": "x" * 20, "text": "y" * 40}) + "\n"
    (driver.source / "large.json").write_text(line * 500_000)
    process = driver.start()
    tasks: list[int] = []

    def reads() -> bool:
        tasks[:] = [pid for pid in descendants(process.pid) if _is_for_tasks(pid, process.pid)]
        tasks.sort(key=_has_files, reverse=True)
        return (len(tasks) > 1 and _has_files(tasks[0])) or process.poll() is not None

    until(reads, every=0.005)
    assert process.poll() is None, process.communicate()[0][-3000:]
    return process, tasks


def _is_for_tasks(pid: int, driver: int) -> bool:
    """Whether a process below the driver was forked from the fork server, which it has started."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).ppid() != driver
    return False


def _has_files(pid: int) -> bool:
    """Whether a process has noted which files it reads."""
    notes = Path(tempfile.gettempdir(), f"cloudfiles-in-hand-{os.getuid()}")
    return any(notes.glob(f"*-{pid}"))


def test_a_process_that_dies_is_an_error_that_names_its_files_and_nothing_stays(
    tmp_path: Path,
) -> None:
    driver = Driver(tmp_path)
    driver.how = HERE
    process, tasks = _working(driver)
    os.kill(tasks[0], signal.SIGKILL)
    log, _ = process.communicate(timeout=RUN_SECONDS)
    assert process.returncode == 1, log[-3000:]
    report = driver.report()
    assert report is not None
    assert "has died" in report["error"]["message"]
    assert "large.json" in report["error"]["message"]
    until(lambda: not any(map(psutil.pid_exists, tasks)), 60)
    assert not list(driver.target.glob("**/*.parquet")) or not _ids(driver)
    assert driver.run()[0] == 0, driver.log[-3000:]
    assert len(_ids(driver)) == 500_000


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_driver_that_ends_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    driver = Driver(tmp_path)
    driver.how = HERE
    process, _ = _working(driver)
    below = [psutil.Process(pid) for pid in descendants(process.pid)]
    process.send_signal(how)
    process.communicate(timeout=RUN_SECONDS)
    _, alive = psutil.wait_procs(below, 60)
    assert not alive
    if how is signal.SIGTERM:
        report = driver.report()
        assert report is not None
        assert "stopped by signal 15" in report["error"]["message"]
    assert driver.run()[0] == 0, driver.log[-3000:]
    assert len(_ids(driver)) == 500_000
