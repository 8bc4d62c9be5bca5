"""Make folders and files of a local disk that survive a power failure, or that belong to one user.

What survives is bytes that were synced, under a name whose folder was synced, in folders whose own
names were: an `fsync` of a file says nothing about its name. So whoever acknowledges something
calls this first.

What this package keeps on a local disk besides the state (indexes, Spark's checkpoint on its way,
hand-overs) names files of a source and is believed when it is read. So each such folder belongs to
this user and is closed to others, whatever the umask; and what is written into it stays in it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import stat
from contextlib import suppress
from pathlib import Path, PurePosixPath

_log = logging.getLogger(__name__)

_CANNOT = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EROFS}
"""What file systems answer that keep folders elsewhere, such as an object store that is mounted."""
_known: set[bytes] = set()
"""Folders whose names this process has put on the disk, up to their mount point."""


def sync_file(path: bytes) -> None:
    """Put the bytes of a file on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: bytes) -> None:
    """Put the names in a folder on the disk, if its file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as failure:
        if failure.errno not in _CANNOT:
            raise
        name = folder.decode("utf-8", "backslashreplace")
        _say_once(os.fstat(descriptor).st_dev, name, str(failure.strerror))
    finally:
        os.close(descriptor)


def make_folders(folder: bytes) -> None:
    """Create missing folders from the top down; all of them are on the disk afterwards.

    Those that are there are synced as well, once a process: another one may have been killed
    between creating a folder and syncing its name.
    """
    if folder in _known and os.path.isdir(folder):  # noqa: PTH112 - bytes path
        return
    above = os.path.dirname(folder)  # noqa: PTH120 - bytes path
    if above != folder and not os.path.ismount(folder):
        make_folders(above)
        is_new = _make(folder)
        try:
            sync_folder(above)
        except PermissionError:
            # A folder that may be passed through but not read: what is in it is not ours.
            if is_new:
                raise
    _known.add(folder)


def _make(folder: bytes) -> bool:
    """Create a folder; false when there is one."""
    with suppress(FileExistsError):
        os.mkdir(folder)  # noqa: PTH102 - bytes path
        return True
    return False


@functools.cache
def _say_once(_device: int, folder: str, why: str) -> None:
    _log.warning(
        "The file system of %s cannot sync folders (%s): whether names in them survive a power "
        "failure is up to it.",
        folder,
        why,
    )


_MINE_ONLY = 0o700


def make_private(folder: Path) -> Path:
    """Create a folder that only this user can enter, or close one of this user to others.

    Args:
        folder: Missing folders above it are created as usual. It is not reached through a symbolic
            link of that name, which in a shared folder another user may have put there.

    Raises:
        PermissionError: It belongs to another user, or is a link or a file.
        OSError: It cannot be created.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=_MINE_ONLY)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a folder of this user; remove it.")
    if stat.S_IMODE(status.st_mode) != _MINE_ONLY:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, _MINE_ONLY)
        finally:
            os.close(descriptor)
    return folder


def path_below(folder: Path, key: str) -> Path:
    """Give the path of a key in a folder: never the folder itself, and never outside of it.

    Args:
        folder: Only this user writes in it, so it holds no links of others.
        key: For instance of an object; to an object store a key is any text.

    Raises:
        ValueError: The key is absolute, or has an empty part, a `.`, a `..` or a NUL.
    """
    parts = key.split("/")
    if "\0" in key or any(part in {"", ".", ".."} for part in parts):
        raise ValueError(f"{key!r} does not name a file below a folder")
    return folder / PurePosixPath(key)
