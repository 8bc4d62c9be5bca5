"""A process dies at the point that it is told, and only there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from tests.support import crash_points

PASSES = """
import sys
from airflow_cloudfiles.engine.crashpoints import crash_point
for line in sys.stdin:
    crash_point(line.strip())
    print(line.strip(), flush=True)
"""


class Passing:
    """A process that passes the points it is given, one after the other."""

    def __init__(self, crash_at: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PASSES],
            env={**os.environ, CRASH_AT: crash_at},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def passes(self, point: str) -> bool:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{point}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline() == f"{point}\n"

    def end(self) -> int:
        self.process.communicate()
        return self.process.returncode


def test_a_variable_names_the_point_and_the_passage() -> None:
    passing = Passing("here:2")
    assert [passing.passes(each) for each in ("here", "there", "here")] == [True, True, False]
    assert passing.end() == -signal.SIGKILL


def test_a_file_tells_processes_that_run_already_and_one_of_them_dies(tmp_path: Path) -> None:
    order = tmp_path / "order"
    one, other = Passing(f"@{order}"), Passing(f"@{order}")
    assert one.passes("here")
    order.write_text("here:2\n")
    assert one.passes("here"), "passages before the order do not count"
    assert other.passes("there")
    assert not one.passes("here")
    assert one.end() == -signal.SIGKILL
    assert [each.name for each in tmp_path.iterdir()] == [f"order.taken-{one.process.pid}"]
    assert all(other.passes("here") for _ in range(3))
    assert other.end() == 0


def test_the_points_of_the_tests_are_those_of_the_package(repository: Path) -> None:
    passed = {
        name
        for path in (repository / "airflow_cloudfiles").rglob("*.py")
        for name in re.findall(r'crash_point\(\s*"([a-z-]+)"', path.read_text(encoding="utf-8"))
    }
    lists = [points for name, points in vars(crash_points).items() if name.endswith("_POINTS")]
    assert passed == {name.partition(":")[0] for points in lists for name in points}
