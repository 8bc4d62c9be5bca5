"""Memory does not depend on how large an archive is, or a member of it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.unit.archives.measured import LINES, PIECES, ROWS

pytestmark = pytest.mark.slow

MOST_MB = {
    "text in a tar": 150,
    "text in a zip": 150,
    "Parquet in a zip": 60,
    "many members": 150,
    "too many members": 150,
}
"""Of members of 200, 200 and 120 MB, and of 50,000 and 200,000 members."""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each case came to, in one process that does nothing else."""
    command = [sys.executable, "-m", "tests.unit.archives.measured", tmp_path_factory.mktemp("m")]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", MOST_MB)
def test_memory_is_bounded(read: dict[str, dict[str, Any]], name: str) -> None:
    found = read[name]
    assert found["grew_mb"] < MOST_MB[name], found
    text = "" if "text" not in name else len(LINES.splitlines()) * PIECES
    if name == "too many members":
        assert "too many members" in found["error"]
    else:
        assert (found["rows"], found["error"]) == (
            text or {"Parquet in a zip": ROWS}.get(name, 50_000),
            "",
        )
