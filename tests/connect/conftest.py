"""What the tests of Spark Connect share: one server, and an environment that has no Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.connect_server import ConnectServer, ConnectStream

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A server whose Python has this package."""
    with ConnectServer(tmp_path_factory.mktemp("connect")) as running:
        yield running


@pytest.fixture(scope="session")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """Another one, which starts Python anew, so that a test can find its processes."""
    folder = tmp_path_factory.mktemp("plain")
    with ConnectServer(folder, python=sys.executable) as running:
        yield running


@pytest.fixture(scope="session")
def bare_python(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has only `pyspark-client` and what jobs need beside it."""
    folder = tmp_path_factory.mktemp("client") / "venv"
    uv = Path(sys.executable).with_name("uv")
    for command in (
        ["venv", "--quiet", "--python", sys.executable, folder],
        [
            *("pip", "sync", "--quiet", "--require-hashes", "--python", folder / "bin" / "python"),
            repository / "requirements" / "connect.lock",
        ],
    ):
        subprocess.run([uv, *command], check=True, cwd=repository)
    return folder / "bin" / "python"


@pytest.fixture
def stream(tmp_path: Path) -> ConnectStream:
    """A stream of small micro-batches."""
    return ConnectStream(tmp_path, **{"cloudFiles.maxFilesPerTrigger": "1"})


@pytest.fixture
def without_java(tmp_path: Path, repository: Path) -> dict[str, str]:
    """An environment in which nobody finds Java, or another Python's packages."""
    kept = {key: os.environ[key] for key in ("HOME", "CLOUDFILES_CACHE_DIR") if key in os.environ}
    return {**kept, "PATH": str(tmp_path), "PYTHONPATH": str(repository)}
