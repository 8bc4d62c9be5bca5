"""Whatever is killed between two steps of a merge, every change is in the table once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.driver import Driver
from tests.support.landing import drop, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# The first makes the table. The last leaves a batch that the next run finds in it.
TOUR = (
    "after-sink-record",
    "after-data-files",
    "before-sink-commit",
    "after-sink-commit",
)


def _arrive(driver: Driver, wave: int, model: dict[int, int]) -> None:
    """Two files: each wave inserts a row, updates one that all waves have, and deletes another."""
    changes = [
        {"id": 0, "at": 2 * wave, "value": wave, "op": "U"},
        {"id": 0, "at": 2 * wave - 1, "value": -1, "op": "U"},
        {"id": 100 + wave, "at": wave, "value": wave, "op": "I"},
        {"id": 99 + wave, "at": wave, "value": 0, "op": "D"},
    ]
    drop(driver.source, f"w{wave}/a.json", changes[:2])
    drop(driver.source, f"w{wave}/b.json", changes[2:])
    model[0] = wave
    model[100 + wave] = wave
    model.pop(99 + wave, None)


def _table(driver: Driver) -> dict[int, int]:
    found = rows(driver.target)
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["value"] for row in found}


def test_a_run_that_merges_and_is_killed_between_any_two_steps_merges_once(tmp_path: Path) -> None:
    options = {
        "cloudFiles.inferColumnTypes": "true",
        "mergeKeys": "id",
        "mergeOrderBy": "at",
        "mergeDeleteWhen": "op = 'D'",
    }
    driver, model = Driver(tmp_path, **options), dict[int, int]()
    for wave, point in enumerate(TOUR, start=1):
        _arrive(driver, wave, model)
        driver.killed_at(point)
    # Killed when it had committed the oldest batch, which the two before it had planned.
    assert _table(driver) == {0: 2, 102: 2}
    _arrive(driver, 9, model)
    code, report = driver.run()
    assert code == 0, driver.log[-3000:]
    assert _table(driver) == model
    assert report is not None
    # The batch that the table had, and one of three waves. The table does not say of a batch how
    # many of its rows were superseded.
    assert (report["batches"], report["batches_recovered"]) == (2, 1)
    assert (report["rows"], report["superseded_rows"]) == (4 + 12, 6)
    found = {name: report[f"{name}_rows"] for name in ("inserted", "updated", "deleted")}
    assert found == {"inserted": 1 + 2, "updated": 1 + 1, "deleted": 1 + 1}
