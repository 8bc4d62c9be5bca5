"""List a tree of folders in order, and cheaply.

In byte order of the full keys, as object stores list. A folder `a` sorts as `a/`, that is between
the files `a-b` and `a0`. So each folder's names are sorted once, folders with their slash, and
folders are entered where they stand: memory holds the names of the folders on the way down only.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.base import (
    ListedStore,
    ListRequest,
    RequestCounter,
    key_bytes,
    key_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPORARY = b".cloudfiles-"
"""Start of the names of unfinished writes, which no listing shows."""

_Identity = tuple[int, int]


def hidden_name(path: bytes) -> bytes:
    """Give the name under which a file is inspected for the last time; no listing shows it."""
    folder, _, name = path.rpartition(b"/")
    return folder + b"/" + TEMPORARY + b"clean-" + hashlib.sha256(name).hexdigest().encode()


def file_entry(key: str, found: os.stat_result) -> FileEntry:
    """Describe a local file; local disks have no etags."""
    return FileEntry(key, found.st_size, found.st_mtime_ns // 1000)


class TreeStore(ListedStore):
    """What stores have in common that are a tree of folders."""

    is_tree = True
    """A folder that is not there does not look like an empty one."""

    def key_after(self, after: str) -> str | None:
        """Give the first key after a text; reads the folders on the way to it."""
        with contextlib.closing(self.list(start_after=after)) as listing:  # type: ignore[type-var]
            found = next(listing, None)
        return None if found is None else found.path

    def _listing(self, wanted: ListRequest, *, ordered: bool) -> Iterator[FileEntry]:
        """Yield the files in byte order of their keys; hold the names of one folder at a time."""
        del ordered
        return self._walk(wanted).files()

    @abstractmethod
    def _walk(self, wanted: ListRequest) -> TreeWalk:
        """Begin to list; nothing is read before the first file is asked for."""


class TreeWalk(ABC):
    """One listing of a tree of folders, wherever it is.

    Args:
        wanted: Which keys are asked for.
        requests: Counts the folders that are read.
    """

    def __init__(self, wanted: ListRequest, requests: RequestCounter) -> None:
        self._prefix = key_bytes(wanted.prefix)
        self._start_after = key_bytes(wanted.start_after)
        self._end_before = key_bytes(wanted.end_before)
        self._skip = wanted.skip
        self._requests = requests

    def files(self) -> Iterator[FileEntry]:
        """List the files in byte order of their keys.

        Raises:
            OSError: A folder or file is there but cannot be inspected.
        """
        top, _, _ = self._prefix.rpartition(b"/")
        stack: list[Iterator[bytes]] = []
        if self._skips_above(top):
            return
        self._enter(top + b"/" if top else b"", stack)
        while stack:
            key = next(stack[-1], None)
            if key is None:
                stack.pop()
                self._left()
            elif key.endswith(b"/"):
                self._enter(key, stack)
            elif (found := self._file(key)) is not None:
                yield found

    @abstractmethod
    def _enter(self, folder: bytes, stack: list[Iterator[bytes]]) -> None:
        """Put a folder's keys on the stack: sorted, those of folders with a slash at the end."""

    @abstractmethod
    def _file(self, key: bytes) -> FileEntry | None:
        """Describe a file; `None` where there is none."""

    @abstractmethod
    def _left(self) -> None:
        """Take note that the last folder of the stack is done."""

    def _skips_above(self, top: bytes) -> bool:
        """Tell whether the rule leaves out a folder above everything that has the prefix."""
        if self._skip is None or not top:
            return False
        parts = key_text(top).split("/")
        folders = ("/".join(parts[: depth + 1]) for depth in range(len(parts)))
        return any(self._skip(folder, True) for folder in folders)

    def _wanted(self, key: bytes, name: bytes, *, is_folder: bool) -> bool:
        """Tell whether a key, or anything below it, may be listed."""
        prefix, after, end = self._prefix, self._start_after, self._end_before
        if end and key >= end:
            return False
        if not (key.startswith(prefix) or (is_folder and prefix.startswith(key))):
            return False
        if key <= after and not (is_folder and after.startswith(key)):
            return False
        if name.startswith(TEMPORARY):
            return False
        skip = self._skip
        return skip is None or not skip(key_text(key.removesuffix(b"/")), is_folder)


class Walk(TreeWalk):
    """One listing of a local tree.

    Args:
        root: Absolute path of the tree.
        wanted: Which keys are asked for.
        requests: Counts the folders that are read.
    """

    def __init__(self, root: bytes, wanted: ListRequest, requests: RequestCounter) -> None:
        super().__init__(wanted, requests)
        self._root = root.rstrip(b"/")
        self._above: list[_Identity] = []

    def _enter(self, folder: bytes, stack: list[Iterator[bytes]]) -> None:
        """Put a folder's keys on the stack, unless it is one of those it was reached through."""
        path = self._root + b"/" + folder
        found = _stat(path)
        if found is None or not stat.S_ISDIR(found.st_mode):
            return
        identity = (found.st_dev, found.st_ino)
        if identity in self._above:
            return
        self._above.append(identity)
        stack.append(iter(self._keys(path, folder)))

    def _left(self) -> None:
        self._above.pop()

    def _file(self, key: bytes) -> FileEntry | None:
        found = _stat(self._root + b"/" + key)
        if found is None or not stat.S_ISREG(found.st_mode):
            return None
        return file_entry(key_text(key), found)

    def _keys(self, path: bytes, folder: bytes) -> list[bytes]:
        """Sorted keys in one folder, those of folders with a slash at the end."""
        keys = []
        self._requests.add("list")
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    is_folder = _is_folder(entry)
                    key = folder + entry.name + (b"/" if is_folder else b"")
                    if self._wanted(key, entry.name, is_folder=is_folder):
                        keys.append(key)
        except FileNotFoundError:
            return []
        keys.sort()
        return keys


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    """Tell whether a name is a folder, links followed; a link to itself is not."""
    try:
        return entry.is_dir()
    except OSError as failure:
        if failure.errno == errno.ELOOP:
            return False
        raise


def _stat(path: bytes) -> os.stat_result | None:
    """Stat, links followed; `None` when it is gone, or a link that leads nowhere."""
    try:
        return os.stat(path)  # noqa: PTH116 - bytes path
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as failure:
        if failure.errno == errno.ELOOP:
            return None
        raise
