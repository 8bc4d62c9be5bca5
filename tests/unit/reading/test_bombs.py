"""A small file that describes much costs an error, not the memory of the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.reading.bombs import CASES, PIECE, PIECES

pytestmark = pytest.mark.slow
MOST_MB = 200
"""A record of 8 MB, what it is put together from and taken apart into; of 256 MB in the file."""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each case came to, in one process that does nothing else."""
    folder: Path = tmp_path_factory.mktemp("bombs")
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.reading.bombs", str(folder)],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
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
