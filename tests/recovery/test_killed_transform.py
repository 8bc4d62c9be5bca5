"""A run with a function over micro-batches is killed between its steps: each row is there once."""

from __future__ import annotations

import dataclasses
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from airflow_cloudfiles.engine.job.batch_function import BatchFunction
from airflow_cloudfiles.engine.job.launch import LocalSpark
from airflow_cloudfiles.engine.job.spec import BESIDE, SPEC, TRANSFORMS
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.delta.opening import open_table
from tests.support import laws
from tests.support.driver import Driver
from tests.support.table_streams import GrowingTable

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class TransformingDriver(Driver):
    """A driver with a function, which it is handed in a folder of this user."""

    function: Any = None
    format = "json"

    def start(self, crash_at: str | None = None) -> subprocess.Popen[str]:
        spec = self.spec(transform=BatchFunction.of(self.function).to_json())
        spec = dataclasses.replace(spec, format=self.format)
        folder = Path(tempfile.mkdtemp(dir=self.state.parent))
        (folder / SPEC).write_text(spec.to_json())
        open_store(str(self.state)).put(spec.spec_key, spec.sealed())
        how = LocalSpark(master="local[2]")
        env = {BESIDE: str(folder), TRANSFORMS: "1"}
        return self.begun(how, env, crash_at)


def doubled(batch):
    """Each row twice, with what differs from run to run: a second commit would be seen."""
    from pyspark.sql import functions as fn

    both = batch.union(batch)
    return both.withColumn("made", fn.uuid())


# A batch that is committed and not recorded is recorded first by the next run, hence this order.
TOUR = ("after-data-files", "before-sink-commit", "after-sink-record", "after-sink-commit")


def test_rows_of_killed_runs_are_there_once(tmp_path: Path) -> None:
    driver = TransformingDriver(tmp_path)
    driver.function = doubled
    committed: set[str] = set()
    always = ("before-sink-commit", "after-sink-commit")
    tour = laws.some(TOUR, 1, name="killed transform", always=always)
    for wave, point in enumerate(tour):
        (driver.source / f"{wave}.json").write_text(
            f'{{"id": {2 * wave}}}\n{{"id": {2 * wave + 1}}}\n'
        )
        driver.killed_at(point)
        if point.startswith("after-sink"):
            found = _made(driver)
            assert committed < found, "the rows of a committed batch were made anew"
            committed = found
    (driver.source / "last.json").write_text(f'{{"id": {2 * len(tour)}}}\n')
    code, report = driver.run()

    assert code == 0, driver.log[-3000:]
    assert report is not None
    table = open_table(str(driver.target))
    assert table is not None
    ids = sorted(table.to_pyarrow_table().column("id").to_pylist())
    assert ids == sorted([str(number) for number in range(2 * len(tour) + 1)] * 2), tour
    assert committed < _made(driver), "the rows of a committed batch were made anew"


def test_rows_of_killed_runs_from_a_table_are_there_once(tmp_path: Path) -> None:
    driver = TransformingDriver(tmp_path)
    driver.function, driver.format = doubled, "delta"
    table = GrowingTable(driver.source, "id")
    made: set[str] = set()
    for value, point in enumerate(("after-spark-offset", "after-sink-commit", "after-data-files")):
        table.append(value)
        driver.killed_at(point)
        if point == "after-sink-commit":
            made = _made(driver)
    code, _ = driver.run()

    assert code == 0, driver.log[-3000:]
    found = open_table(str(driver.target))
    assert found is not None
    assert sorted(found.to_pyarrow_table().column("id").to_pylist()) == [0, 0, 1, 1, 2, 2]
    assert made < _made(driver), "the rows of a committed batch were made anew"


def _made(driver: Driver) -> set[str]:
    table = open_table(str(driver.target))
    assert table is not None
    return set(table.to_pyarrow_table().column("made").to_pylist())
