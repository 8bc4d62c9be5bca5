"""Whatever is killed between any two steps, every row is in the table exactly once.

The rows of docs/concepts/exactly-once.md, in its order. A run is killed at a point; the next run,
which is the restart, is killed at the next point, while new files keep arriving. The points around
the commit of the table are in each run of the tests, some of the others too (`laws`).
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.job.run import run
from tests.support import laws
from tests.support.driver import RUN_SECONDS, TOUR, Driver
from tests.support.landing import drop, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Of a batch with a new column; the second is where the next run has the new schema.
SCHEMA_TOUR = (
    "before-schema-append",
    "after-schema-append",
    "after-sink-columns",
    "after-sink-commit",
)
FILES_A_RUN = 3
ROWS_A_FILE = 5


def _arrive(driver: Driver, wave: int, **more: object) -> list[str]:
    """Drop the files of one wave; every row has an id of its own."""
    ids = []
    for number in range(FILES_A_RUN):
        mine = [f"{wave}-{number}-{row}" for row in range(ROWS_A_FILE)]
        drop(driver.source, f"w{wave:02}/f{number}.json", [{"id": i, **more} for i in mine])
        ids += mine
    return ids


def _ids(driver: Driver) -> list[str]:
    return [row["id"] for row in rows(driver.target)] if driver.target.exists() else []


# B106
def test_a_driver_killed_between_any_two_steps_lands_every_row_once(tmp_path: Path) -> None:
    driver = Driver(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "2"})
    dropped: list[str] = []
    always = ("before-sink-commit", "after-sink-commit", "after-sink-record")
    tour = laws.some(TOUR, 2, name="killed between steps", always=always)
    for wave, point in enumerate(tour):
        dropped += _arrive(driver, wave)
        driver.killed_at(point)
        found = _ids(driver) if (driver.target / "_delta_log").exists() else []
        assert len(found) == len(set(found)), f"rows twice after {point} of {tour}"
        assert set(found) <= set(dropped), tour
    dropped += _arrive(driver, len(tour))
    driver.killed_at("after-sink-commit:2")
    _lose_the_records(driver)
    dropped += _arrive(driver, len(tour) + 1, country="CH")
    driver.options = {**driver.options, "cloudFiles.evolveAhead": "true"}
    code, report = driver.run()
    assert code == 0, driver.log[-3000:]
    assert report is not None
    assert (report["schema_version"], report["outcome"]) == (1, "succeeded")
    assert sorted(_ids(driver)) == sorted(dropped), tour
    assert _versions(driver) == ["0", "1"], "evolved ahead, once"
    driver.run()
    assert sorted(_ids(driver)) == sorted(dropped), tour


def _lose_the_records(driver: Driver) -> None:
    """Delete what the state says of the batches; no one is repeated with other files for that."""
    assert not {"offsets", "commits", "metadata"} & {each.name for each in driver.state.iterdir()}
    shutil.rmtree(driver.state / "_source" / "sink")


def test_a_schema_change_in_the_middle_of_kills_changes_nothing_about_that(tmp_path: Path) -> None:
    driver = Driver(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "2"})
    dropped = _arrive(driver, 0)
    inferred = run(dataclasses.replace(driver.spec(), kind="infer"))
    assert inferred["schema_version"] == 0
    dropped += _arrive(driver, 1, currency="USD")
    always = ("after-schema-append", "after-sink-commit")
    tour = laws.some(SCHEMA_TOUR, 1, name="killed at a schema change", always=always)
    for point in tour:
        driver.killed_at(point)
        expected = ["0"] if point == "before-schema-append" else ["0", "1"]
        assert _versions(driver) == expected, tour
    dropped += _arrive(driver, 2, country="CH")
    code, report = driver.run()
    assert code == 1
    assert report is not None
    assert report["error"]["class"] == "UnknownFieldException"
    assert report["error"]["is_retryable"]
    assert report["rows"] > 0, "what a failing run has committed is in its report"
    assert driver.run()[0] == 0, driver.log[-3000:]
    assert sorted(_ids(driver)) == sorted(dropped)
    table = {row["id"][0]: (row["currency"], row["country"]) for row in rows(driver.target)}
    assert table == {"0": (None, None), "1": ("USD", None), "2": (None, "CH")}
    assert _versions(driver) == ["0", "1", "2"]


def test_a_batch_that_the_table_has_is_not_read_again(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    driver = Driver(
        tmp_path, badRecordsPath=str(bad), ignoreMissingFiles="true", rescuedDataColumn="_rescued"
    )
    files = [driver.source / name for name in ("gone.json", "other.json", "same.json")]
    for path in files:
        path.write_text(f'{{"id": "{path.stem}"}}\n{path.stem} is no record\n')
    size = sum(path.stat().st_size for path in files)
    driver.killed_at("after-sink-commit")
    files[0].unlink()
    files[1].write_text('{"id": "newer"}\nnewer is no record\n')
    code, report = driver.run()
    assert code == 0, driver.log[-3000:]
    assert report is not None
    assert "query_seconds" not in report["durations"], "nothing was left to read"
    names = ("files", "bytes", "rows", "dropped_records", "batches", "batches_recovered")
    assert [report[name] for name in names] == [3, size, 3, 3, 1, 1]
    invalid, changed = report["warnings"]
    assert invalid == "3 invalid records are in badRecordsPath."
    assert (
        "1 file has changed since it was ingested; the table has what it was then. other.json"
        in changed
    )
    assert sorted(_ids(driver)) == ["gone", "other", "same"]
    apart = [json.loads(text) for each in bad.rglob("*.json") for text in _lines(each)]
    assert sorted(each["record"] for each in apart) == [
        f"{name} is no record" for name in ("gone", "other", "same")
    ]
    drop(driver.source, "next.json", [{"id": "next"}])
    assert driver.run()[0] == 0, driver.log[-3000:]
    assert sorted(_ids(driver)) == ["gone", "next", "other", "same"]


def test_two_runs_at_once_land_every_row_once(tmp_path: Path) -> None:  # B148
    driver = Driver(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "1"})
    dropped = _arrive(driver, 0)
    both = [(driver.start(), driver.run_id) for _ in range(2)]
    codes = []
    for process, run_id in both:
        process.communicate(timeout=RUN_SECONDS)
        codes.append(process.returncode)
        driver.run_id = run_id
        report = driver.report()
        assert report is not None
        if process.returncode:
            assert report["error"]["class"] == "StateLockedError"
            assert report["error"]["is_retryable"]
    assert 0 in codes
    assert sorted(_ids(driver)) == sorted(dropped)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _versions(driver: Driver) -> list[str]:
    return sorted(p.name for p in (driver.state / "_schemas").iterdir() if p.name.isdigit())
