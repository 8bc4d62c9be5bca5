"""The test's own eyes are open: what anybody may see, it sees; what is private, it does not."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.storage.local import make_private
from tests.support.other_user import OtherUser

pytestmark = pytest.mark.slow
MARK = "marked-3f9c1e"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all can enter; those of pytest are closed."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def test_what_is_open_to_all_is_seen(folder: Path) -> None:
    with OtherUser([folder], [MARK]) as other:
        (folder / "open").write_text(MARK)
        (folder / "open").chmod(0o644)
        waits = "import sys; print(flush=True); sys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-c", waits, MARK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            other.look_again()
            process.communicate(b"")
    assert {"command", f"file {folder / 'open'}"} <= set(other.seen.found)


def test_what_is_private_is_not_seen(folder: Path) -> None:
    private = make_private(folder / "private")
    (private / "file").write_text(MARK)
    waits = "import sys; print(flush=True); sys.stdin.read()"
    with (
        OtherUser([folder], [MARK]) as other,
        socket.socket(socket.AF_UNIX) as listening,
        subprocess.Popen(
            [sys.executable, "-c", waits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"SECRET": MARK},
        ) as process,
    ):
        listening.bind(str(private / "socket"))
        listening.listen()
        assert process.stdout is not None
        process.stdout.readline()
        other.look_again()
        process.communicate(b"")
    if not other.seen.is_other:
        pytest.skip("only root can look as another user")
    assert other.seen.found == []
    assert other.seen.commands > 0
