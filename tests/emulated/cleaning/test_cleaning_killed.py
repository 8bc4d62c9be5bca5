"""A cleaning that is killed in a cloud, or at a server, loses no file, and is repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.emulated.storage.test_storage_behaviors import EMULATORS
from tests.support.cleaned import Cleaned

if TYPE_CHECKING:
    from tests.support.sftp_servers import Served

FILES = ["2026/a b.json", "2026/b%.json", "c.json"]
CODE = (
    "import sys\n"
    "from airflow_cloudfiles.engine.extensions.cleaning import clean\n"
    "from tests.support.cleaned import Cleaned\n"
    "clean.PART_FILES = 1\n"
    "Cleaned(sys.argv[1], at=sys.argv[2]).clean()\n"
)


def _kill(root: str, at: str, point: str) -> None:
    """Clean in a process that is killed at a point."""
    killed = subprocess.run(
        [sys.executable, "-c", CODE, root, at],
        env={**os.environ, CRASH_AT: point, "PYTHONPATH": str(Path.cwd())},
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr


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
        _kill(root, "", point)
        assert {*stream.left(), *stream.moved()} == set(FILES), point
    assert stream.clean().is_complete
    assert (stream.left(), sorted(stream.moved())) == ([], FILES)
    assert {stream.archive.get(name) for name in FILES} == {b"rows"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["MOVE", "DELETE"])
@pytest.mark.parametrize("kind", ["openssh_server", "asyncssh_server"])
def test_a_cleaning_of_an_inbox_that_is_killed_is_repeated(
    kind: str,
    mode: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: Served = request.getfixturevalue(kind)
    for name, value in to_environment(served.access).items():
        monkeypatch.setenv(name, value)
    name = uuid.uuid4().hex
    at, folder = f"{served.location.rstrip('/')}/{name}", served.folder / name
    (folder / "archive").mkdir(parents=True)
    stream = Cleaned(str(tmp_path), at=at, behind=str(folder))
    stream.ingest(*FILES, days_ago=1)
    code = CODE.replace(".clean()", f".clean({mode!r})")
    monkeypatch.setattr(sys.modules[__name__], "CODE", code)
    done = {"MOVE": "after-clean-copy", "DELETE": "after-clean-delete"}[mode]
    for point in ("after-clean-rename", done, "before-clean-record"):
        _kill(str(tmp_path), at, point)
        hidden = [path for path in (folder / "in").rglob(".cloudfiles-*") if path.is_file()]
        gone = len(FILES) - len({*stream.left(), *stream.moved()}) - len(hidden)
        assert gone == 0 if mode == "MOVE" else gone <= len(FILES), point
        assert len(hidden) == (point == "after-clean-rename")
    assert stream.clean(mode).is_complete
    assert (stream.left(), sorted(stream.moved())) == ([], FILES if mode == "MOVE" else [])
    assert not [path for path in folder.rglob(".cloudfiles-*") if path.is_file()]
    assert all((folder / "archive" / name).read_bytes() == b"rows" for name in stream.moved())
