"""A stream from a Delta table, killed at every step and over a change of schema, repeats no row."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.job.launch import LocalPython, LocalSpark
from airflow_cloudfiles.engine.job.spark_command import DriverStart
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.storage import open_store
from tests.support import laws
from tests.support.driver import Driver
from tests.support.table_streams import GrowingTable

pytestmark = pytest.mark.slow

SPARK = LocalSpark(master="local[2]")
TOUR = (
    "after-spark-offset",
    "before-read",
    "after-data-files",
    "before-sink-commit",
    "after-sink-commit",
    "after-sink-record",
    "after-spark-commit",
)
TRACKING = ("before-tracking-append", "after-tracking-append")


class FromTable(Driver):
    """Runs that read a table."""

    def spec(self, **more: Any) -> JobSpec:
        """What the next run is told."""
        return dataclasses.replace(super().spec(**more), format="delta")

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of the target."""
        if not (self.target / "_delta_log").exists():
            return []
        found = DeltaTable(self.target).to_pyarrow_table().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=str)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(SPARK, id="spark", marks=pytest.mark.spark),
        pytest.param(LocalPython(), id="local"),
    ],
)
def test_a_stream_from_a_table_killed_between_any_two_steps_reads_every_row_once(
    tmp_path: Path, how: DriverStart
) -> None:
    driver = FromTable(tmp_path, maxFilesPerTrigger="1", allowSourceColumnRename="always")
    driver.how = how
    table = GrowingTable(driver.source, "a", "b")
    expected: list[tuple[Any, ...]] = []
    value = 0
    always = ("before-sink-commit", "after-sink-commit")
    for point in laws.some(TOUR, 1, name="table stream killed", always=always):
        for _ in range(2):
            value += 1
            table.append(value)
            expected.append((value, value))
        driver.killed_at(point)
        found = driver.rows()
        assert len(found) == len(set(found)), f"rows twice after {point}"
        assert set(found) <= set(expected), point
    table.rename("b", "c")
    value += 1
    table.append(value)
    for point in TRACKING:
        driver.killed_at(point)
        # All that is before the change is there, with the old schema.
        assert driver.rows() == sorted(expected, key=str)
    code, report = driver.run()
    assert (code, report and report["outcome"]) == (0, "succeeded"), driver.log[-3000:]
    expected = sorted([*((*row, None) for row in expected), (value, None, value)], key=str)
    assert driver.rows() == expected
    assert DeltaTable(driver.target).to_pyarrow_table().column_names == ["a", "b", "c"]
    assert report is not None
    assert (report["rows"], report["source_version"]) == (1, table.version)
    code, report = driver.run()
    assert report is not None
    assert (report["rows"], report["batches"], report["versions"]) == (0, 0, 0)
    assert "no Spark is started" in driver.log
    assert driver.rows() == expected


@pytest.mark.spark
def test_a_batch_that_one_executor_began_is_finished_by_the_other(tmp_path: Path) -> None:
    driver = FromTable(tmp_path, maxFilesPerTrigger="1")
    table = GrowingTable(driver.source, "a", "b")
    turns: list[tuple[DriverStart, str | None]] = [
        (LocalPython(), "after-spark-offset"),
        (SPARK, "after-sink-commit"),
        (LocalPython(), "after-data-files"),
        (SPARK, None),
        (LocalPython(), None),
    ]
    for value, (how, point) in enumerate(turns):
        table.append(value)
        driver.how = how
        if point is not None:
            driver.killed_at(point)
            continue
        code, _ = driver.run()
        assert code == 0, driver.log[-3000:]
        assert driver.rows() == [(each, each) for each in range(value + 1)]


def test_a_commit_that_is_lost_adds_no_row_and_counts_as_recovered(tmp_path: Path) -> None:
    driver = FromTable(tmp_path, maxFilesPerTrigger="1")
    driver.how = LocalPython()
    table = GrowingTable(driver.source, "a")
    table.append(1)
    table.append(2)
    assert driver.run()[0] == 0, driver.log[-3000:]
    (driver.state / "commits" / "1").unlink()
    table.append(3)
    _, report = driver.run()
    assert report is not None
    assert (report["batches"], report["batches_recovered"]) == (2, 1)
    assert driver.rows() == [(1,), (2,), (3,)]


def test_of_two_runs_at_once_one_fails(tmp_path: Path) -> None:
    driver = FromTable(tmp_path)
    driver.how = LocalPython()
    GrowingTable(driver.source, "a").append(1)
    with RunLock(open_store(str(driver.state)), JOB_KEY):
        code, report = driver.run()
    assert code != 0
    assert report is not None
    assert report["error"]["class"] == "StateLockedError"
    assert driver.rows() == []
    assert driver.run()[0] == 0
    assert driver.rows() == [(1,)]
