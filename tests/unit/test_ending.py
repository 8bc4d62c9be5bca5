"""A run of the tests that hangs after its last test ends, and says where it hung."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CONFTEST = """
import threading
import pytest
from tests.support.ending import Ending

def pytest_configure(config):
    config.pluginmanager.register(Ending({seconds}), "ending")

@pytest.fixture(scope="session")
def shared():
    yield
    if {hangs}:
        wait_for_ever()

def wait_for_ever():
    threading.Event().wait()
"""


def _run(folder: Path, *, hangs: bool, seconds: float) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST.format(hangs=hangs, seconds=seconds))
    (folder / "test_it.py").write_text("def test_it(shared):\n    pass\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-c", "/dev/null", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_a_session_that_does_not_end_is_ended_and_says_where_it_was(tmp_path: Path) -> None:
    ended = _run(tmp_path, hangs=True, seconds=1)
    assert ended.returncode == 1
    assert "in wait_for_ever" in ended.stderr


def test_a_session_that_ends_is_left_alone(tmp_path: Path) -> None:
    ended = _run(tmp_path, hangs=False, seconds=600)
    assert (ended.returncode, ended.stderr) == (0, "")
