"""With which PySpark do tests of what is PySpark's own run: the installed one, and the oldest."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

VERSIONS = ("installed", "oldest")
_OLDEST = Path(sys.prefix) / "oldest-spark"


def choose(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the processes that this test starts import a version of PySpark.

    Args:
        version: One of `VERSIONS`.
        monkeypatch: What takes it back.
    """
    if version == "oldest":
        if not _OLDEST.exists():
            pytest.skip("PySpark's oldest supported version is not here: run `make oldest-spark`")
        path = os.pathsep.join(filter(None, (str(_OLDEST), os.environ.get("PYTHONPATH"))))
        monkeypatch.setenv("PYTHONPATH", path)
