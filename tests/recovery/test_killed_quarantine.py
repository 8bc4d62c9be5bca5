"""A driver killed between refusing a batch and quarantining its files: each row is there once."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cloudfiles.engine.extensions.file_operations.of_table import operate_on_files
from tests.support import laws
from tests.support.driver import Driver
from tests.support.landing import drop, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXPECTED = {
    "cloudFiles.schemaEvolutionMode": "rescue",
    "cloudFiles.schemaHints": "id BIGINT",
    "expect.maxRescuedShare": "0.1",
    "expect.onViolation": "quarantine",
}


TOUR = ("before-file-operation", "after-file-operation-note", "after-file-operation")


def _ids(driver: Driver) -> list[int]:
    return sorted(row["id"] for row in rows(driver.target))


def test_killed_between_refusing_and_recording_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    driver = Driver(tmp_path, **EXPECTED)
    drop(driver.source, "1.json", [{"id": 1}])
    drop(driver.source, "bad.json", [{"id": "two"}])
    # After the last, it is recorded, and nobody was told.
    for point in laws.some(TOUR, 1, name="killed quarantine", always=("after-file-operation",)):
        driver.killed_at(point)
        assert not (driver.target / "_delta_log").exists() or _ids(driver) == [], point
    drop(driver.source, "3.json", [{"id": 3}])
    driver.killed_at("after-sink-commit")
    assert _ids(driver) == [1], "the batch without the bad file"
    drop(driver.source, "bad.json", [{"id": 2}])
    operate_on_files(str(driver.state), "release", "bad.json")
    code, report = driver.run()
    assert code == 0, driver.log[-3000:]
    assert report is not None
    assert _ids(driver) == [1, 2, 3]
    assert driver.run()[0] == 0, driver.log[-3000:]
    assert _ids(driver) == [1, 2, 3]
