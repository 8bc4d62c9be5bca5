"""What of a local disk survives a power failure?

Bytes that were synced, under a name whose folder was synced, in folders whose own names were: an
`fsync` of a file says nothing about its name. So whoever acknowledges something calls this first.
"""

from __future__ import annotations

import errno
import functools
import logging
import os
from contextlib import suppress

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
