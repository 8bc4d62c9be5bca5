"""Note which files a process is reading, for when the system ends it.

A library that crashes, or a machine without memory, leaves no error. So the files of a split are
noted on the local disk while it is read, and whoever misses the process finds their names.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.private_folders import make_private
from airflow_cloudfiles.engine.processes import is_alive
from airflow_cloudfiles.engine.shortened import few

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.reading.splits import Split

MOST_NAMES = 20


@contextlib.contextmanager
def in_hand(split: Split) -> Iterator[None]:
    """Note the files of a split as long as the block lasts; that it cannot be noted is no error."""
    context = split.context
    root = printable_path(context.source_uri).rstrip("/")
    names = [f"{root}/{printable_path(part.file.path)}" for part in split.ranges]
    path = _folder() / f"{_mark(context.state_uri)}-{os.getpid()}"
    with contextlib.suppress(OSError):
        make_private(path.parent)
        path.write_text(few(names, most=MOST_NAMES, characters=4000), encoding="utf-8")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def names_of_the_dead(state_uri: str) -> list[str]:
    """Give the files that processes of this machine had which are gone, and forget them.

    Args:
        state_uri: Of the stream whose files they are.

    Returns:
        For each process, its files as text.
    """
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(_folder().glob(f"{_mark(state_uri)}-*")):
            number = path.name.rpartition("-")[2]
            if number.isdecimal() and not is_alive(int(number)):
                found.append(path.read_text(encoding="utf-8"))
                path.unlink()
    return found


def _folder() -> Path:
    return Path(tempfile.gettempdir(), f"cloudfiles-in-hand-{os.getuid()}")


def _mark(state_uri: str) -> str:
    return hashlib.sha256(state_uri.encode("utf-8", "surrogateescape")).hexdigest()[:16]
