"""Who has this file now?

An advisory lock on a local file that the operating system frees when its holder ends, however it
ends. It belongs to one holder in one process: not to a program that process starts, and not to a
copy of it made by fork.
"""

from __future__ import annotations

import errno
import fcntl
import os
import weakref

from airflow_cloudfiles.engine.errors import StateError

_BUSY = {errno.EWOULDBLOCK, errno.EACCES}
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_MAX_NOTE_BYTES = 4096


class FileLock:
    """A lock on a file; the file is created, and stays when the lock is freed.

    Args:
        path: The file, in a folder that exists.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it.

        Raises:
            StateError: The file system does not know locks.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            os.close(descriptor)
            if failure.errno in _BUSY:
                return False
            if failure.errno in _NO_LOCKS:
                msg = f"The file system of {self._path} has no file locks: {failure.strerror}."
                raise StateError(msg) from failure
            raise
        self._descriptor = descriptor
        _held.add(self)
        return True

    def release(self) -> None:
        """Free the lock at once; freeing it twice does nothing."""
        if self._descriptor >= 0:
            # Closing alone frees it only when a program that is just being started has closed its
            # copy, too.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.forget()

    def forget(self) -> None:
        """Close this process's copy; the lock stays with whoever has another one."""
        descriptor, self._descriptor = self._descriptor, -1
        _held.discard(self)
        if descriptor >= 0:
            os.close(descriptor)

    def write_note(self, note: bytes) -> None:
        """Note the holder in the file."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, note, 0)

    def read_note(self) -> bytes:
        """Read the note of the holder; empty when there is none (yet)."""
        try:
            with open(self._path, "rb") as file:  # noqa: PTH123 - the path may not be UTF-8
                return file.read(_MAX_NOTE_BYTES)
        except OSError:
            return b""


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """Close a forked child's copies of the locks, which would outlive the parent's."""
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_leave_to_parent)
