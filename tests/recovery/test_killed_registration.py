"""A run that registers files, killed between any two steps, has every row once; so do two runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cloudfiles.engine.job.launch import LocalPython, LocalSpark
from airflow_cloudfiles.engine.job.spec import JobSpec
from tests.support import laws
from tests.support.driver import RUN_SECONDS, TOUR, Driver
from tests.support.landing import rows

pytestmark = pytest.mark.slow


class ParquetDriver(Driver):
    """A stream of Parquet files that land in a folder of its table."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            folder, **{"cloudFiles.loadMode": "reference", "cloudFiles.maxFilesPerTrigger": "3"}
        )
        self.source = self.target / "_landing"
        self.source.mkdir(parents=True)
        self.how = LocalPython()

    def spec(self, **more: object) -> JobSpec:
        """What the next run is told."""
        return super().spec(format="parquet", **more)

    def arrive(self, wave: int) -> list[str]:
        """Let two files land that fit, and one that is copied."""
        ids = [f"{wave}-{number}" for number in range(6)]
        for number in range(2):
            table = pa.table({"id": ids[number * 2 : number * 2 + 2]})
            pq.write_table(table, self.source / f"{wave:02}-{number}.parquet")
        copied = pa.table({"id": ids[4:]})
        pq.write_table(copied, self.source / f"{wave:02}-copied.parquet", compression="brotli")
        return ids

    def ids(self) -> list[str]:
        """All rows of the table."""
        is_there = (self.target / "_delta_log").exists()
        return sorted(row["id"] for row in rows(self.target)) if is_there else []

    def files(self) -> list[str]:
        """The files of the source."""
        return sorted(each.name for each in self.source.iterdir())


def test_a_registration_killed_between_any_two_steps_has_every_row_once(tmp_path: Path) -> None:
    driver = ParquetDriver(tmp_path)
    landed: list[str] = []
    always = ("after-data-files", "before-sink-commit", "after-sink-commit", "after-sink-record")
    for wave, point in enumerate(laws.some(TOUR, 3, name="killed registration", always=always)):
        landed += driver.arrive(wave)
        there = driver.files()
        driver.killed_at(point)
        found = driver.ids()
        assert len(found) == len(set(found)), point
        assert set(found) <= set(landed), point
        assert driver.files() == there, point
    code, report = driver.run()
    assert code == 0, driver.log[-3000:]
    assert driver.ids() == sorted(landed)
    assert report is not None
    assert report["outcome"] == "succeeded"


def test_two_runs_at_once_register_each_file_once(tmp_path: Path) -> None:
    driver = ParquetDriver(tmp_path)
    landed = [each for wave in range(4) for each in driver.arrive(wave)]
    processes: list[subprocess.Popen[str]] = [driver.start() for _ in range(2)]
    for process in processes:
        process.communicate(timeout=RUN_SECONDS)
    assert {process.returncode for process in processes} <= {0, 1}
    assert driver.run()[0] == 0, driver.log[-3000:]
    assert driver.ids() == sorted(landed)
    registered = [each for each in driver.files() if "copied" not in each]
    log = "".join(each.read_text() for each in (driver.target / "_delta_log").glob("*.json"))
    assert all(log.count(f'"_landing/{name}"') == 1 for name in registered)


@pytest.mark.spark
def test_spark_and_processes_of_the_machine_finish_what_the_other_began(tmp_path: Path) -> None:
    driver = ParquetDriver(tmp_path)
    landed: list[str] = []
    here, spark = LocalPython(), LocalSpark(master="local[2]")
    turns = ((here, "before-sink-commit"), (spark, "after-sink-commit"), (here, "after-data-files"))
    for wave, (how, point) in enumerate(turns):
        landed += driver.arrive(wave)
        driver.how = how
        driver.killed_at(point)
    driver.how = spark
    code, report = driver.run()
    assert code == 0, driver.log[-3000:]
    assert driver.ids() == sorted(landed)
    assert report is not None
    assert report["registered_files"] + report["copied_files"] == report["files"]
