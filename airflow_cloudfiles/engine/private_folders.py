"""Which folders on this machine belong to this user alone?

What this package keeps on a local disk besides the state (indexes, Spark's checkpoint on its way,
hand-overs) names files of a source and is believed when it is read. So each such folder belongs to
this user and is closed to others, whatever the umask; and what is written into it stays in it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path, PurePosixPath

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
