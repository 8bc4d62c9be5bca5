"""A cleaning that is killed in a cloud loses no file, and is repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.emulated.storage.test_storage_behaviors import EMULATORS
from tests.support.cleaned import Cleaned

FILES = ["2026/a b.json", "2026/b%.json", "c.json"]
CODE = (
    "import sys\n"
    "from airflow_cloudfiles.engine.cleaning import clean, due\n"
    "from tests.support.cleaned import Cleaned\n"
    "clean.PART_FILES = due.PART_FILES = 1\n"
    "Cleaned(sys.argv[1]).clean()\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["s3", "azure", "gcs"])
def test_a_cleaning_that_is_killed_is_repeated(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator = request.getfixturevalue(EMULATORS.get(kind, kind))
    for name, value in to_environment(emulator.access).items():
        monkeypatch.setenv(name, value)
    root = f"{emulator.container() if kind == 'azure' else emulator.bucket()}/stream"
    stream = Cleaned(root)
    stream.ingest(*FILES, days_ago=1)
    for point in ("after-clean-copy", "before-clean-delete", "after-clean-delete:2"):
        killed = subprocess.run(
            [sys.executable, "-c", CODE, root],
            env={**os.environ, CRASH_AT: point, "PYTHONPATH": str(Path.cwd())},
            check=False,
            capture_output=True,
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert {*stream.left(), *stream.moved()} == set(FILES), point
    assert stream.clean().is_complete
    assert (stream.left(), sorted(stream.moved())) == ([], FILES)
    assert {stream.archive.get(name) for name in FILES} == {b"rows"}
