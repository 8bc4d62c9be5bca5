"""A driver killed between refusing a batch and quarantining its files: each row is there once."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cloudfiles.engine.job.files.operate import operate_on_files
from tests.support.driver import Driver
from tests.support.landing import drop, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXPECTED = {
    "cloudFiles.schemaEvolutionMode": "rescue",
    "cloudFiles.schemaHints": "id BIGINT",
    "expect.maxRescuedShare": "0.1",
    "expect.onViolation": "quarantine",
}


def _ids(driver: Driver) -> list[int]:
    return sorted(row["id"] for row in rows(driver.target))


def test_killed_between_refusing_and_recording_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    driver = Driver(tmp_path, **EXPECTED)
    drop(driver.source, "0.json", [{"id": 0}])
    assert driver.run()[0] == 0, driver.log[-3000:]
    drop(driver.source, "1.json", [{"id": 1}])
    drop(driver.source, "bad.json", [{"id": "two"}])
    driver.killed_at("before-file-operation")
    driver.killed_at("after-file-operation-note")
    assert _ids(driver) == [0]
    # Recorded, and killed before anybody was told.
    driver.killed_at("after-file-operation")
    assert _ids(driver) == [0]
    drop(driver.source, "3.json", [{"id": 3}])
    driver.killed_at("after-sink-commit")
    code, report = driver.run()
    assert code == 0, driver.log[-3000:]
    assert report is not None
    assert _ids(driver) == [0, 1, 3]
    drop(driver.source, "bad.json", [{"id": 2}])
    operate_on_files(str(driver.state), "release", "bad.json")
    assert driver.run()[0] == 0, driver.log[-3000:]
    assert driver.run()[0] == 0, driver.log[-3000:]
    assert _ids(driver) == [0, 1, 2, 3]
