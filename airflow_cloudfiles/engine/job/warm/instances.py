"""Where is a warm Spark on this machine, and is it alive?

Each has a folder of its own in a private folder of this user: `<key>-<random>/` with its socket,
its log, and a lock that it holds for as long as it lives, so the operating system tells whether it
does. What it says of itself in `server.json` is for people, and for finding the process that holds
the lock; nothing is ended because a file names it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_cloudfiles.engine.ledger.opening import cache_folder
from airflow_cloudfiles.engine.locks.file_lock import FileLock
from airflow_cloudfiles.engine.private_folders import make_private

FOLDER = "CLOUDFILES_WARM_DIR"
"""Environment variable: folder of this user for warm Sparks; default is `spark` in the cache."""
_SOCKET, _LOCK, _RECORD, _LOG, _SETTINGS = "s", "alive", "server.json", "log", "settings.json"
_LONGEST = 100
"""Bytes of the path of a socket; the system takes some more."""
_MINE_ONLY = 0o600
_VERSION = 1


def root() -> Path:
    """The folder of all of this user.

    Raises:
        OSError: It cannot be made, or is another user's.
        LedgerAccessError: No folder of this user can be made.
    """
    chosen = os.environ.get(FOLDER)
    return make_private(Path(chosen).absolute() if chosen else cache_folder() / "spark")


@dataclass(frozen=True, slots=True)
class Instance:
    """One warm Spark.

    Attributes:
        folder: Its own folder.
    """

    folder: Path

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.folder / _SOCKET

    @property
    def log(self) -> Path:
        """What its JVM and its Python processes write."""
        return self.folder / _LOG

    @property
    def settings(self) -> Path:
        """What it was started with."""
        return self.folder / _SETTINGS

    def is_alive(self) -> bool:
        """Whether its process is there."""
        try:
            descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)

    def take_lock(self) -> int:
        """Take the lock of a new one; whoever has the descriptor, or a copy of it, holds it."""
        descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MINE_ONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor

    def write_record(self, **more: Any) -> None:
        """Say what it is; then runs find it."""
        draft = self.folder / f"{_RECORD}.draft"
        write_private(draft, json.dumps({"version": _VERSION, **more}, indent=1))
        draft.replace(self.folder / _RECORD)

    def record(self) -> dict[str, Any] | None:
        """What it says of itself; `None` where that cannot be read, or it takes no more runs."""
        try:
            found = json.loads((self.folder / _RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        is_ours = isinstance(found, dict) and found.get("version") == _VERSION
        return found if is_ours else None

    def remove_record(self) -> None:
        """Have no more runs find it."""
        with contextlib.suppress(OSError):
            (self.folder / _RECORD).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove all it has on the disk."""
        shutil.rmtree(self.folder, ignore_errors=True)


def new_instance(key: str) -> Instance:
    """Make the folder of a new one.

    Raises:
        OSError: It cannot be made, or the path of its socket would be too long.
    """
    folder = root() / f"{key}-{secrets.token_hex(4)}"
    if len(os.fsencode(folder / _SOCKET)) > _LONGEST:
        raise OSError(
            f"the path {folder} is too long for a socket; set {FOLDER} to a shorter folder"
        )
    return Instance(make_private(folder))


def instances(key: str = "") -> Iterator[Instance]:
    """All there are, the newest first, dead ones too."""
    found = [path for path in root().glob(f"{key}*-*") if path.is_dir() and not path.is_symlink()]
    with contextlib.suppress(OSError):
        found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    yield from map(Instance, found)


def remove_dead() -> None:
    """Remove what dead ones have left; only while nobody starts one (`start_lock`)."""
    for each in instances():
        if not each.is_alive():
            each.remove()


def remove_dead_ones() -> None:
    """Remove what dead ones have left, unless somebody is starting one."""
    lock = FileLock(start_lock())
    if lock.try_acquire():
        try:
            remove_dead()
        finally:
            lock.release()


def start_lock() -> str:
    """The lock under which one is started, and the dead are removed."""
    return str(root() / "start.lock")


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MINE_ONLY)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
