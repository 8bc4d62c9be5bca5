"""A test that starts what its markers do not name fails, and says which marker it lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

UNMARKED = """
import subprocess
from tests.support.emulators import processes

def test_jvm():
    subprocess.run(["java", "-jar", "any.jar"])

def test_emulator():
    processes.require_marker()

def test_airflow():
    import airflow

def test_nothing():
    pass
"""


@pytest.mark.slow
def test_what_is_started_without_its_marker_fails_the_test(
    tmp_path: Path, repository: Path
) -> None:
    file = tmp_path / "test_unmarked.py"
    file.write_text(UNMARKED)
    options = ["-p", "tests.conftest", "-p", "no:randomly", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-c", repository / "pyproject.toml", file],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "3 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "test_jvm starts a JVM: mark it `spark`" in done.stdout
    assert "test_emulator starts an emulator: mark it `emulator`" in done.stdout
    assert "test_airflow imports Airflow: mark it `airflow`" in done.stdout
