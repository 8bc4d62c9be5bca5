"""A user whom permissions bind: root, as whom tests run in a container, may do everything."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

NOBODY = 65534


@contextlib.contextmanager
def unprivileged() -> Iterator[Path]:
    """Be another user for a while, if this one is root; gives a folder of that user."""
    folder = Path(tempfile.mkdtemp(prefix="unprivileged-"))
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.chown(folder, NOBODY, -1)
            os.setresuid(NOBODY, NOBODY, 0)
        yield folder
    finally:
        if is_root:
            os.setresuid(0, 0, 0)
        for path in [folder, *folder.rglob("*")]:
            if path.is_dir():
                path.chmod(0o700)
        shutil.rmtree(folder)
