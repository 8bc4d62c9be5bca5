"""Use a local disk as an object store.

A key is a path below the root; folders exist only as parts of keys. What is written is on the disk
(fsync of the file and of the folder that names it) when the call returns.

An object is created in three steps, so that a crash leaves all of it or nothing:

1. Its bytes go to a temporary file in the same folder, and to the disk.
2. `put_if_absent` makes a hard link under the real name, which fails if the name is taken (so one
   of any number of processes, on any number of hosts, wins); `put` renames, which replaces.
3. The folder goes to the disk, and the temporary name goes away. A crash before that leaves a
   file whose name starts with `.cloudfiles-`; it is never listed.

Make folders and files of a local disk that survive a power failure, or that belong to one user.

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
import shutil
import stat
import uuid
from contextlib import suppress
from pathlib import Path, PurePosixPath

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import StateError
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.storage import base
from airflow_cloudfiles.engine.storage.flat import (
    TEMPORARY,
    TreeStore,
    Walk,
    file_entry,
    hidden_name,
)
from airflow_cloudfiles.engine.storage.uri import local_path, normalize_uri

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


_NO_OBJECT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


class LocalStore(TreeStore):
    """An `ObjectStore` on a local (or mounted) file system.

    Symbolic links are followed, to files and to folders; a link back to a folder above it is not
    entered. Broken links, sockets, pipes and devices are no objects.

    Args:
        uri: Path or `file:` URI of the root. It need not exist; writing creates it.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._root = base.key_bytes(local_path(self.uri))

    def is_folder(self) -> bool:
        """Tell whether the root is a directory."""
        try:
            return stat.S_ISDIR(os.stat(self._root).st_mode)  # noqa: PTH116 - bytes path
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _walk(self, wanted: base.ListRequest) -> Walk:
        return Walk(self._root, wanted, self._requests)

    def head(self, key: str) -> FileEntry | None:
        """Inspect an object; `None` when there is none."""
        self._requests.add("head")
        try:
            found = os.stat(self._path(key))  # noqa: PTH116 - bytes path
        except _NO_OBJECT:
            return None
        return file_entry(key, found) if stat.S_ISREG(found.st_mode) else None

    def clock_us(self) -> int:
        """Give the time as the kernel notes it in files."""
        return base.disk_now_us()

    def arrived_us(self, entry: FileEntry) -> int:
        """Give the time at which a file was last changed, renamed or moved here."""
        try:
            return os.stat(self._path(entry.path)).st_ctime_ns // 1000  # noqa: PTH116 - bytes path
        except _NO_OBJECT:
            return entry.modification_time_us

    def get(self, key: str) -> bytes:
        """Read an object."""
        return self._read(key, 0, -1)

    def get_range(
        self,
        key: str,
        start: int,
        length: int,
        *,
        etag: str | None = None,  # noqa: ARG002 - the protocol
    ) -> bytes:
        """Read part of an object."""
        base.check_range(start, length)
        return self._read(key, start, length)

    def put(self, key: str, content: bytes) -> None:
        """Create or replace an object."""
        self._requests.add("put")
        path = self._path(key)
        temporary = self._write_temporary(path, content)
        try:
            os.replace(temporary, path)  # noqa: PTH105 - bytes path
        except BaseException:
            _remove(temporary)
            raise
        sync_folder(os.path.dirname(path))  # noqa: PTH120 - bytes path

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create an object unless there is one."""
        self._requests.add("put")
        path = self._path(key)
        if os.path.lexists(path):
            return False
        temporary = self._write_temporary(path, content)
        try:
            os.link(temporary, path)
            sync_folder(os.path.dirname(path))  # noqa: PTH120 - bytes path
        except FileExistsError:
            return False
        except OSError as failure:
            if failure.errno not in _NO_HARD_LINKS:
                raise
            msg = (
                f"The file system of {self.uri} does not support hard links ({failure.strerror}), "
                f"which keep two writers apart. Put the state, or the table, on one that does."
            )
            raise StateError(msg) from failure
        finally:
            _remove(temporary)
        return True

    def put_if_match(self, key: str, content: bytes, etag: str) -> bool:
        """Refuse: a local disk has no etags."""
        raise NotImplementedError(f"{self.uri} is on a local disk, which has no etags.")

    def delete(self, key: str) -> None:
        """Remove an object, if there is one."""
        self._requests.add("delete")
        path = self._path(key)
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)  # noqa: PTH108 - bytes path
            sync_folder(os.path.dirname(path))  # noqa: PTH120 - bytes path

    def delete_version(self, entry: FileEntry) -> None:
        """Remove a file if it still is a version.

        There is no conditional deletion on a disk. A rename takes whatever has the name; so the
        file is renamed before it is inspected for the last time, and put back if it is another.
        """
        self._requests.add("delete")
        path = self._path(entry.path)
        hidden = hidden_name(path)
        self._put_back(hidden, path)
        self._require_version(path, entry)
        os.rename(path, hidden)  # noqa: PTH104 - bytes path
        crash_point("after-clean-rename")
        try:
            self._require_version(hidden, entry)
        except LookupError:
            self._put_back(hidden, path)
            raise
        _remove(hidden)
        sync_folder(os.path.dirname(path))  # noqa: PTH120 - bytes path

    def copy_version(self, entry: FileEntry, to: base.ObjectStore, key: str) -> bool:
        """Give a file another name, or copy its bytes where that is another file system."""
        if not isinstance(to, LocalStore):
            msg = f"{to.uri} is not on a disk, as {self.uri} is"
            raise ValueError(msg)  # noqa: TRY004 - as of other stores
        to._requests.add("put")  # noqa: SLF001 - of this class, too
        path, target = self._path(entry.path), to._path(key)  # noqa: SLF001 - of this class, too
        self._put_back(hidden_name(path), path)
        self._require_version(path, entry)
        make_folders(os.path.dirname(target))  # noqa: PTH120 - bytes path
        try:
            return self._link(path, target, entry)
        except OSError as failure:
            if failure.errno not in {errno.EXDEV, *_NO_HARD_LINKS}:
                raise
        return self._copy_bytes(path, target, entry)

    def fingerprint(self, key: str) -> base.Fingerprint | None:
        """Inspect a file; two names of one file have the same content."""
        self._requests.add("head")
        path = self._path(key)
        self._put_back(hidden_name(path), path)
        try:
            found = os.stat(path)  # noqa: PTH116 - bytes path
        except _NO_OBJECT:
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        same = ("file", f"{found.st_dev}:{found.st_ino}")
        return base.Fingerprint(file_entry(key, found), frozenset({same}))

    def _link(self, path: bytes, target: bytes, entry: FileEntry) -> bool:
        """Make a second name; false when the name is taken."""
        try:
            os.link(path, target)
        except FileExistsError:
            return False
        except _NO_OBJECT as failure:
            raise base.ObjectNotFoundError(self.child_uri(entry.path)) from failure
        try:
            self._require_version(target, entry)
        except LookupError:
            _remove(target)
            raise
        sync_folder(os.path.dirname(target))  # noqa: PTH120 - bytes path
        return True

    def _copy_bytes(self, path: bytes, target: bytes, entry: FileEntry) -> bool:
        """Copy to another file system, with the modification time."""
        folder = os.path.dirname(target)  # noqa: PTH120 - bytes path
        temporary = folder + b"/" + TEMPORARY + uuid.uuid4().hex.encode()
        try:
            shutil.copy2(path, temporary)
            sync_file(temporary)
            self._require_version(path, entry)
            os.link(temporary, target)
            sync_folder(folder)
        except FileExistsError:
            return False
        finally:
            _remove(temporary)
        return True

    def _require_version(self, path: bytes, entry: FileEntry) -> None:
        """Refuse what is not a version: nothing, another one, a link to one."""
        uri = self.child_uri(entry.path)
        try:
            found = os.lstat(path)
        except _NO_OBJECT as failure:
            raise base.ObjectNotFoundError(uri) from failure
        if stat.S_ISLNK(found.st_mode):
            raise base.LinkedObjectError(uri)
        if not stat.S_ISREG(found.st_mode) or not base.is_version(file_entry("", found), entry):
            raise base.ObjectChangedError(uri)

    def _put_back(self, hidden: bytes, path: bytes) -> None:
        """Give a file its name back that a deletion had taken, unless a newer one has it."""
        if not os.path.lexists(hidden):
            return
        try:
            os.link(hidden, path)
        except FileExistsError:
            pass  # it was written anew, as if over the one that is hidden
        except FileNotFoundError:
            return  # another process was faster
        except OSError as failure:
            if failure.errno not in _NO_HARD_LINKS or os.path.lexists(path):
                raise
            os.rename(hidden, path)  # noqa: PTH104 - bytes path
        _remove(hidden)
        sync_folder(os.path.dirname(path))  # noqa: PTH120 - bytes path

    def sync_folder(self, folder: str) -> None:
        """Sync the names in a folder to the disk, whoever has created them.

        What this process writes is durable when the call returns. What it finds may be the work of
        one that was killed a moment before that.
        """
        path = self._path(folder)
        make_folders(path)
        sync_folder(path)

    def child_uri(self, key: str) -> str:
        """Give the URI of an object."""
        return f"{printable_path(self.uri).removesuffix('/')}/{printable_path(key)}"

    def key_of(self, uri: str) -> str | None:
        """Give the key of another location below this root, links resolved."""
        other = normalize_uri(uri)
        if not other.startswith("file://"):
            return None
        root = os.path.realpath(self._root)
        path = os.path.realpath(base.key_bytes(local_path(other)))
        if path == root:
            return ""
        folder = root.rstrip(b"/") + b"/"
        return base.key_text(path[len(folder) :]) if path.startswith(folder) else None

    def local_path(self, key: str) -> str:
        """Give the local path of an object as Python names it, for locks."""
        return os.fsdecode(self._path(key))

    def make_folder(self, key: str) -> None:
        """Create the folder in which an object will be, and put it on the disk."""
        make_folders(os.path.dirname(self._path(key)))  # noqa: PTH120 - bytes path

    def _read(self, key: str, start: int, length: int) -> bytes:
        """Read so many bytes; all that there are for a negative number."""
        self._requests.add("get")
        try:
            with open(self._path(key), "rb") as file:  # noqa: PTH123 - bytes path
                file.seek(start)
                return file.read(length)
        except _NO_OBJECT as failure:
            raise base.ObjectNotFoundError(self.child_uri(key)) from failure

    def _path(self, key: str) -> bytes:
        return self._root.rstrip(b"/") + b"/" + base.key_bytes(base.check_key(key))

    def _write_temporary(self, path: bytes, content: bytes) -> bytes:
        """Write and fsync a file beside `path`; its name is never listed."""
        folder = os.path.dirname(path)  # noqa: PTH120 - bytes path
        make_folders(folder)
        temporary = folder + b"/" + TEMPORARY + uuid.uuid4().hex.encode()
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        try:
            with open(os.open(temporary, flags, 0o666), "wb") as file:  # noqa: PTH123 - descriptor
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            _remove(temporary)
            raise
        return temporary


def _remove(path: bytes) -> None:
    """Remove a temporary name; that it is gone already is as good."""
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - bytes path
