"""A small file that describes much costs an error, not the memory of the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.reading import columnar_bombs
from tests.unit.reading.bombs import CASES, PIECE, PIECES

pytestmark = pytest.mark.slow
MOST_MB = 200
"""A record of 8 MB, what it is put together from and taken apart into; of 256 MB in the file."""

MOST_COLUMNAR_MB = 300
"""Batches of 32 MB, and what is made of them; of 400 MB and more that the files describe."""


def _run(module: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.unit.reading.{module}", *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each case came to, in one process that does nothing else."""
    found: dict[str, dict[str, Any]] = json.loads(_run("bombs", tmp_path_factory.mktemp("bombs")))
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with their own types, which another process has made."""
    folder: Path = tmp_path_factory.mktemp("columnar")
    _run("columnar_bombs", "make", folder)
    return folder


@pytest.fixture(scope="module")
def columnar(made: Path) -> dict[str, dict[str, Any]]:
    """What each of them came to."""
    found: dict[str, dict[str, Any]] = json.loads(_run("columnar_bombs", "read", made))
    return found


@pytest.fixture(scope="module")
def left(made: Path) -> dict[str, dict[str, Any]]:
    """The same of those that nothing bounds."""
    found: dict[str, dict[str, Any]] = json.loads(_run("columnar_bombs", "left", made))
    return found


@pytest.mark.parametrize("name", CASES)
def test_memory_does_not_depend_on_what_a_file_describes(
    read: dict[str, dict[str, Any]], name: str
) -> None:
    found = read[name]
    assert found["ratio"] >= 20
    assert found["grew_mb"] < MOST_MB
    if name == "many lines.gz":
        assert (found["rows"], found["error"]) == (PIECE // 100 * PIECES, "")
    else:
        assert found["rows"] == 0
        assert "maxRecordBytes" in found["error"], "the option that limits it"
        assert "bomb." in found["error"], "the file"


@pytest.mark.parametrize("name", columnar_bombs.CASES)
def test_memory_does_not_depend_on_what_a_file_of_columns_describes(
    columnar: dict[str, dict[str, Any]], name: str
) -> None:
    found = columnar[name]
    expected = columnar_bombs.CASES[name][3]
    assert found["grew_mb"] < MOST_COLUMNAR_MB
    if isinstance(expected, str):
        assert found["rows"] == 0
        assert "bomb" in found["error"], "the file"
        assert expected in found["error"], "the option that limits it, if one does"
    else:
        assert (found["rows"], found["error"]) == (expected, "")


@pytest.mark.parametrize("name", columnar_bombs.LEFT)
def test_what_is_left_is_read_with_as_much_memory_as_it_describes(
    left: dict[str, dict[str, Any]], name: str
) -> None:
    """As `SECURITY.md` says: when one of them is bounded, it belongs to the others."""
    found = left[name]
    assert (found["rows"], found["error"]) == (columnar_bombs.LEFT[name][3], "")
    assert found["grew_mb"] > MOST_COLUMNAR_MB
