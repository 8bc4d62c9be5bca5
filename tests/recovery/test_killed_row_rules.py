"""Runs with rules that change, and releases, are killed at random: each row is in one place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.extensions.row_rules.quarantine import Quarantine, RowSelection
from airflow_cloudfiles.engine.job.launch import LocalPython
from tests.support import laws
from tests.support.crash_points import QUARANTINE_POINTS, RELEASE_POINTS
from tests.support.driver import Driver
from tests.support.landing import drop, rows

pytestmark = [pytest.mark.slow, pytest.mark.law]

_ACTIONS = st.sampled_from(["quarantine", "quarantine", "warn", "drop", None])
_POINTS = st.sampled_from(
    [*QUARANTINE_POINTS, "after-data-files", "before-sink-commit:2", "after-sink-commit:2", None]
)
_RELEASED = st.sampled_from([*RELEASE_POINTS, None, "no release"])
_STEPS = st.lists(st.tuples(_ACTIONS, _POINTS, _RELEASED), min_size=1, max_size=2)
_RELEASE = """
import sys
from airflow_cloudfiles.engine.extensions.row_rules.quarantine import Quarantine, RowSelection
Quarantine(sys.argv[1]).release(RowSelection())
"""


def _ids(table: Path) -> list[int]:
    is_there = (table / "_delta_log").exists()
    return sorted(row["id"] for row in rows(table)) if is_there else []


@settings(
    max_examples=laws.examples(9),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(_STEPS)
def test_each_row_is_in_one_place_whatever_is_killed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str | None, str | None, str | None]]
) -> None:
    folder = tmp_path_factory.mktemp("killed")
    driver = Driver(folder)
    driver.how = LocalPython()
    aside = Path(f"{driver.target}_quarantine")
    read: list[int] = []
    dropped = 0
    for number, (action, point, released) in enumerate(steps):
        for sign in (1, -1):
            values = [sign * (10 * number + place + 1) for place in range(2)]
            drop(driver.source, f"{number}{sign}.json", [{"id": value} for value in values])
            read += values
        hints = {"cloudFiles.schemaHints": "id BIGINT"}
        rule = {"expect.row.positive": "id > 0", "expect.row.positive.onViolation": str(action)}
        driver.options = {**hints, **(rule if action else {})}
        driver.run(point)
        both = [*_ids(driver.target), *_ids(aside)]
        assert len(both) == len(set(both)), (action, point)
        code, report = driver.run()  # by the rules that the killed one had
        assert code == 0, driver.log[-3000:]
        # A batch that the table had already was counted by the run that was killed.
        dropped += 2 if action == "drop" else 0
        assert report is not None
        there, put = _ids(driver.target), _ids(aside)
        assert len(there) + len(put) + dropped == len(read), (action, point)
        assert not set(there) & set(put)
        if released != "no release" and aside.exists():
            env = {**os.environ, CRASH_AT: released or ""}
            done = subprocess.run(
                [sys.executable, "-c", _RELEASE, str(driver.target)], env=env, check=False
            )
            assert done.returncode in {0, -signal.SIGKILL}
            Quarantine(str(driver.target)).release(RowSelection())
            assert _ids(aside) == []
            assert _ids(driver.target) == sorted([*there, *put])
    assert set(_ids(driver.target)) | set(_ids(aside)) <= set(read)
