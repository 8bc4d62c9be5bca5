"""Whatever is killed between any two steps, every row is in the Iceberg table exactly once.

As test_killed_between_steps.py, for the steps that depend on the kind of table, and with a schema
change in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import laws
from tests.support.driver import RUN_SECONDS, Driver
from tests.support.iceberg_tables import LocalCatalog
from tests.support.landing import drop

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TOUR = (
    "before-sink-commit",
    "after-schema-append",
    "after-sink-columns",
    "after-data-files",
    "after-sink-record",
    "after-sink-commit",
)
"""Files of the first wave have a column less."""


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
    before: list[str] = []
    found: list[str] = []
    always = ("before-sink-commit", "after-schema-append", "after-sink-commit")
    tour = laws.some(TOUR, 1, name="iceberg killed", always=always)
    for wave, point in enumerate(tour):
        more = {"currency": "CHF"} if wave >= 1 else {}
        dropped += _arrive(driver, str(wave), **more)
        driver.killed_at(point)
        if lake.catalog.table_exists(("db", "t")):
            before, found = found, _ids(lake)
            assert len(found) == len(set(found)), f"rows twice after {point} of {tour}"
            assert set(found) <= set(dropped), tour
    _delete_the_file_of(driver, min(set(found) - set(before)))
    code, report = driver.run()
    assert code == 0, driver.log[-3000:]
    assert report is not None
    assert report["target"] == lake.uri("t")
    assert report["target_version"] == lake.table("t").last_sequence_number
    assert _ids(lake) == sorted(dropped), tour
    rows = len(dropped) - len(before)
    counted = ("files", "rows", "batches_recovered", "schema_version")
    assert [report[name] for name in counted] == [rows // 2, rows, 1, 1], (
        "the batch that the table has is not read again"
    )
    by_wave = {row["id"][0]: row["currency"] for row in lake.rows("t")}
    assert by_wave == {str(wave): "CHF" if wave else None for wave in range(len(tour))}
    code, report = driver.run()
    assert (code, report and report["rows"]) == (0, 0)
    _check_a_table_that_was_rolled_back(driver, lake)


def _delete_the_file_of(driver: Driver, row: str) -> None:
    wave, _, number = row.partition("-")
    (driver.source / f"w{wave}/f{int(number) // 2}.json").unlink()


def _check_a_table_that_was_rolled_back(driver: Driver, lake: LocalCatalog) -> None:
    """It is refused, without Spark."""
    table = lake.table("t")
    first = min(table.snapshots(), key=lambda each: each.sequence_number or 0)
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    _arrive(driver, "9")
    code, report = driver.run()
    assert code == 1
    assert report is not None
    assert report["error"]["class"] == "LostBatchesError"
    assert not report["error"]["is_retryable"]
    assert "query_seconds" not in report["durations"]


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
