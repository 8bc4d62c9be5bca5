"""Whatever is killed between any two steps, every row is in the Iceberg table exactly once.

As test_killed_between_steps.py, for the steps that depend on the kind of table, and with a schema
change in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.driver import RUN_SECONDS, Driver
from tests.support.iceberg_tables import LocalCatalog
from tests.support.landing import drop

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TOUR = (
    "after-data-files",
    "before-sink-commit",
    "after-sink-commit",
    "after-sink-record",
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LocalCatalog]:
    """A catalog that the runs find by their environment."""
    found = LocalCatalog(tmp_path)
    yield found
    found.close()


def _driver(tmp_path: Path, lake: LocalCatalog, name: str = "", **options: str) -> Driver:
    folder = tmp_path / f"stream{name}"
    folder.mkdir()
    found = Driver(folder, **{"cloudFiles.maxFilesPerTrigger": "2", **options})
    found.target = lake.uri("t")  # type: ignore[assignment]
    return found


def _arrive(driver: Driver, wave: str, **more: object) -> list[str]:
    ids = [f"{wave}-{number}" for number in range(6)]
    for number in range(3):
        mine = [{"id": each, **more} for each in ids[2 * number : 2 * number + 2]]
        drop(driver.source, f"w{wave}/f{number}.json", mine)
    return ids


def _ids(lake: LocalCatalog) -> list[str]:
    return sorted(row["id"] for row in lake.rows("t"))


def test_a_driver_killed_between_any_two_steps_lands_every_row_once(
    tmp_path: Path, lake: LocalCatalog
) -> None:
    driver = _driver(tmp_path, lake, partitionBy="bucket(3, id)")
    dropped: list[str] = []
    for wave, point in enumerate(TOUR):
        more = {"currency": "CHF"} if wave >= 1 else {}
        dropped += _arrive(driver, str(wave), **more)
        if wave == 1:
            driver.killed_at("after-schema-append")
            driver.killed_at("after-sink-columns")
        driver.killed_at(point)
        if lake.catalog.table_exists(("db", "t")):
            found = _ids(lake)
            assert len(found) == len(set(found)), f"rows twice after {point}"
            assert set(found) <= set(dropped)
    code, report = driver.run()
    assert code == 0, driver.log[-3000:]
    assert report is not None
    assert report["target"] == lake.uri("t")
    assert report["target_version"] == lake.table("t").last_sequence_number
    assert _ids(lake) == sorted(dropped)
    by_wave = {row["id"][0]: row["currency"] for row in lake.rows("t")}
    assert by_wave == {"0": None, "1": "CHF", "2": "CHF", "3": "CHF"}
    code, report = driver.run()
    assert (code, report and report["rows"]) == (0, 0)


def test_a_batch_that_the_table_has_is_not_read_again(tmp_path: Path, lake: LocalCatalog) -> None:
    driver = _driver(tmp_path, lake)
    dropped = _arrive(driver, "0")
    driver.killed_at("after-sink-commit")
    (driver.source / "w0/f0.json").unlink()
    code, report = driver.run()
    assert code == 0, driver.log[-3000:]
    assert report is not None
    counted = ("files", "rows", "batches", "batches_recovered", "schema_version")
    assert [report[name] for name in counted] == [3, 6, 2, 1, 0]
    assert _ids(lake) == sorted(dropped)


def test_two_streams_at_once_into_one_table_land_every_row_once(
    tmp_path: Path, lake: LocalCatalog
) -> None:
    both = [_driver(tmp_path, lake, name) for name in "ab"]
    options = {"cloudFiles.maxFilesPerTrigger": "1"}
    dropped: list[str] = []
    for number, driver in enumerate(both):
        driver.options = options
        dropped += _arrive(driver, f"{number}")
    processes = [driver.start() for driver in both]
    for process in processes:
        output, _ = process.communicate(timeout=RUN_SECONDS)
        assert process.returncode == 0, output[-3000:]
    assert _ids(lake) == sorted(dropped)
    assert len(lake.table("t").snapshots()) == 6


def test_a_run_into_a_rolled_back_table_is_refused_without_spark(
    tmp_path: Path, lake: LocalCatalog
) -> None:
    driver = _driver(tmp_path, lake)
    _arrive(driver, "0")
    assert driver.run()[0] == 0, driver.log[-3000:]
    table = lake.table("t")
    first = min(table.snapshots(), key=lambda each: each.sequence_number or 0)
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    _arrive(driver, "1")
    code, report = driver.run()
    assert code == 1
    assert report is not None
    assert report["error"]["class"] == "LostBatchesError"
    assert not report["error"]["is_retryable"]
    assert "query_seconds" not in report["durations"]
