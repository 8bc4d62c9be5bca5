"""How is a tree on an SFTP server listed without waiting for one folder after the other?

In the order of all listings. While the files of a folder are given, the folders that come next are
being read already: a few at a time, over the connections there are. What is read of a folder has
the sizes and times of its files, so none is inspected by itself.

Symbolic links below the source are left out, and the log says so: they could lead out of it, lead
back into it, and give one file under two names.
"""

from __future__ import annotations

import logging
import stat
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.messages import counted, plural
from airflow_cloudfiles.engine.storage.base import key_text
from airflow_cloudfiles.engine.storage.sftp.files import Attributes, Names, file_entry
from airflow_cloudfiles.engine.storage.walk import TreeWalk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage.base import ListRequest, RequestCounter

AHEAD: Final = 8
"""Folders that are being read, or are read and not given yet, at most."""

_log = logging.getLogger(__name__)

_warned: dict[str, int] = {}
"""By root: how many links this process has warned of."""


class Reading(Protocol):
    """A folder that is being read."""

    def result(self) -> Names | None:
        """Wait for the names; `None` when the folder is gone."""

    def cancel(self) -> None:
        """Ask for it no more."""


class SftpWalk(TreeWalk):
    """One listing of a tree on a server.

    Args:
        read: Begins to read a folder below the root, `b""` for the root itself.
        name: Of the root, for the log.
        wanted: Which keys are asked for.
        requests: Counts the folders that are read.
    """

    def __init__(
        self,
        read: Callable[[bytes], Reading],
        name: str,
        wanted: ListRequest,
        requests: RequestCounter,
    ) -> None:
        super().__init__(wanted, requests)
        self._read = read
        self._name = name
        self._ahead: dict[bytes, Reading] = {}
        self._coming: list[deque[bytes]] = []
        self._found: dict[bytes, FileEntry] = {}
        self._links = 0
        self._link = b""

    def files(self) -> Iterator[FileEntry]:
        """List the files in byte order of their keys."""
        try:
            yield from super().files()
        finally:
            for each in self._ahead.values():
                each.cancel()
            self._tell()

    def _enter(self, folder: bytes, stack: list[Iterator[bytes]]) -> None:
        """Put a folder's keys on the stack, and have those read that come next."""
        if self._coming and self._coming[-1] and self._coming[-1][0] == folder:
            self._coming[-1].popleft()
        future = self._ahead.pop(folder, None) or self._begin(folder)
        names = future.result()
        if names is None:  # it went meanwhile
            return
        keys = sorted(key for name, found in names if (key := self._key(folder, name, found)))
        self._coming.append(deque(key for key in keys if key.endswith(b"/")))
        self._look_ahead()
        stack.append(iter(keys))

    def _file(self, key: bytes) -> FileEntry | None:
        return self._found.pop(key)

    def _left(self) -> None:
        self._coming.pop()

    def _begin(self, folder: bytes) -> Reading:
        self._requests.add("list")
        return self._read(folder)

    def _look_ahead(self) -> None:
        """Begin to read the next folders, in the order in which they are entered."""
        for coming in reversed(self._coming):
            while coming and len(self._ahead) < AHEAD:
                folder = coming.popleft()
                self._ahead[folder] = self._begin(folder)

    def _key(self, folder: bytes, name: bytes, found: Attributes) -> bytes | None:
        """The key of a name in a folder; `None` when it is not to be listed."""
        if not name or b"/" in name or b"\0" in name:
            raise OSError(
                f"the server lists a name in {self._name}/{printable_path(key_text(folder))} that "
                "no file can have. It does not keep to the protocol."
            )
        kind = stat.S_IFMT(found[0])
        is_folder = kind == stat.S_IFDIR
        key = folder + name + (b"/" if is_folder else b"")
        if not self._wanted(key, name, is_folder=is_folder):
            return None
        if kind == stat.S_IFLNK:
            self._links += 1
            self._link = self._link or key
        if is_folder:
            return key
        if kind != stat.S_IFREG:
            return None
        self._found[key] = file_entry(key_text(key), found)
        return key

    def _tell(self) -> None:
        if self._links and _warned.get(self._name) != self._links:  # a sensor lists again and again
            _warned[self._name] = self._links
            _log.warning(
                "%s in %s %s not followed, such as %s: a source on an SFTP server has the files "
                "and folders that are in it. Give where a link leads as a source of its own.",
                counted(self._links, "symbolic link"),
                self._name,
                plural(self._links, "is", "are"),
                printable_path(key_text(self._link)),
            )
