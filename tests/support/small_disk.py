"""A disk that can be full: a small file system in memory, where this user may mount one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Self

import pytest

PAGE = 4096


class SmallDisk:
    """A mounted file system of some megabytes.

    Args:
        folder: Where it is mounted; it is created.
        size: In bytes.

    Attributes:
        folder: The same.
    """

    def __init__(self, folder: Path, size: int = 32 * 2**20) -> None:
        self.folder = folder
        self._size = size
        self._ballast = folder / ".ballast"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={self._size}", "tmpfs", str(self.folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"this user may not mount a file system: {done.stderr.strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)

    def fill(self, free: int = 0) -> None:
        """Leave only so many bytes, in whole pages."""
        self.empty()
        left = os.statvfs(self.folder)
        size = left.f_bavail * left.f_frsize - free
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)

    def empty(self) -> None:
        """Free the space again."""
        self._ballast.unlink(missing_ok=True)
