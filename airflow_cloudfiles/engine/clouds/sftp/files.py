"""Ask an SFTP server about its files.

The requests of one question go over one session. Those that need not wait for each other are sent
together.

In the order of all listings. While the files of a folder are given, the folders that come next are
being read already: a few at a time, over the connections there are. What is read of a folder has
the sizes and times of its files, so none is inspected by itself.

Symbolic links below the source are left out, and the log says so: they could lead out of it, lead
back into it, and give one file under two names.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import stat
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

import asyncssh

from airflow_cloudfiles.engine.clouds.sftp.login import GONE, NotKeptToError
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.messages import counted, plural
from airflow_cloudfiles.engine.storage.base import ListRequest, RequestCounter, key_bytes, key_text
from airflow_cloudfiles.engine.storage.flat import TreeWalk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


Attributes = tuple[int, int, int]
"""Mode, size in bytes and modification time in seconds since 1970."""
Names = list[tuple[bytes, Attributes]]
_OF_TYPE: Final = {
    asyncssh.FILEXFER_TYPE_REGULAR: stat.S_IFREG,
    asyncssh.FILEXFER_TYPE_DIRECTORY: stat.S_IFDIR,
    asyncssh.FILEXFER_TYPE_SYMLINK: stat.S_IFLNK,
}
_LINE: Final = re.compile(rb"([-dl])[-rwxsStT]{9}")
_OF_LETTER: Final = {b"-": stat.S_IFREG, b"d": stat.S_IFDIR, b"l": stat.S_IFLNK}
_REFUSED: Final = (
    *GONE,
    asyncssh.SFTPBadMessage,
    asyncssh.SFTPFailure,
    asyncssh.SFTPInvalidParameter,
    asyncssh.SFTPNotADirectory,
    asyncssh.SFTPOpUnsupported,
)
"""How servers answer a request that is not for something of this kind."""


def version_of(attributes: Attributes) -> str:
    """Build what stands in for an etag: a version is known by its size and its second."""
    _, size, seconds = attributes
    return f"{seconds:x}-{size:x}"


def file_entry(key: str, attributes: Attributes) -> FileEntry:
    """Describe a file on a server."""
    _, size, seconds = attributes
    return FileEntry(key, size, seconds * 1_000_000, version_of(attributes))


async def names_in(client: asyncssh.SFTPClient, folder: bytes) -> Names:
    """List what is in a folder, with what is known of each name."""
    found: Names = []
    async for each in client.scandir(folder):
        name = each.filename
        name = name if isinstance(name, bytes) else key_bytes(name)
        if name in {b".", b".."}:
            continue
        path = folder.rstrip(b"/") + b"/" + name
        line = each.longname
        with contextlib.suppress(*GONE):
            try:
                found.append((name, await described(client, path, each.attrs, line)))
            except NotKeptToError:  # a server that lists names alone
                attributes = await client.lstat(path)
                found.append((name, await described(client, path, attributes, line)))
    return found


async def content_of(
    client: asyncssh.SFTPClient, path: bytes, start: int, length: int | None, etag: str | None
) -> bytes | None:
    """Read part of a file, or all of it; `None` when it is, or becomes, another version."""
    named = await described(client, path, await client.lstat(path))
    if not stat.S_ISREG(named[0]):
        raise asyncssh.SFTPNoSuchFile("not a file")
    file = await client.open(path, "rb")
    try:
        if length is None:
            before = attributes_of(await file.stat())
            content = await _bytes(file, start, before[1])
        else:
            given, content = await asyncio.gather(file.stat(), _bytes(file, start, length))
            before = attributes_of(given)
        after = attributes_of(await file.stat())
    finally:
        await file.close()
    if etag is not None and {version_of(before), version_of(after)} != {etag}:
        return None
    return content


async def _bytes(file: Any, start: int, length: int) -> bytes:
    """Read so many bytes, of which a server may give few at a time; less only at the file's end."""
    parts: list[bytes] = []
    while length and (part := await file.read(length, start)):
        parts.append(part)
        start, length = start + len(part), length - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def attributes_of(found: asyncssh.SFTPAttrs) -> Attributes:
    """Give what is known of a file or folder, but perhaps not what kind it is of.

    Raises:
        NotKeptToError: The server does not say how large it is, and how old.
    """
    if found.size is None or found.mtime is None:
        raise NotKeptToError("the server does not say of a file how large it is, and how old.")
    return found.permissions or 0, found.size, int(found.mtime)


async def described(
    client: asyncssh.SFTPClient,
    path: bytes,
    found: asyncssh.SFTPAttrs,
    line: str | bytes = "",
    *,
    is_followed: bool = False,
) -> Attributes:
    """Give what is known of a file or folder, with its kind in the mode.

    Servers that are no Unix send permissions without a kind, or none. Then the type of later
    versions of the protocol tells it, its line in the listing, or an attempt.

    Args:
        client: The session.
        path: Its path.
        found: What the server sent.
        line: What a listing says of it; `ls -l` has its kind.
        is_followed: Whether `found` is of what a link leads to.

    Raises:
        NotKeptToError: As `attributes_of`.
    """
    mode, size, seconds = attributes_of(found)
    if not stat.S_IFMT(mode):
        shown = _LINE.match(line if isinstance(line, bytes) else line.encode(errors="replace"))
        kind = _OF_TYPE.get(found.type) or (shown and _OF_LETTER[shown[1]])
        mode |= kind or await _tried(client, path, is_followed=is_followed)
    return mode, size, seconds


async def _tried(client: asyncssh.SFTPClient, path: bytes, *, is_followed: bool) -> int:
    """Find out by requests of what kind something is."""
    if not is_followed:
        with contextlib.suppress(*_REFUSED):
            await client.readlink(path)
            return stat.S_IFLNK
    try:
        async for _ in client.scandir(path):
            break
    except asyncssh.SFTPPermissionDenied:
        return stat.S_IFDIR  # whoever lists it gets the refusal
    except _REFUSED:
        return stat.S_IFREG
    return stat.S_IFDIR


AHEAD: Final = 8
"""Folders that are being read, or are read and not given yet, at most."""

_log = logging.getLogger(__name__)

_warned: dict[str, int] = {}
"""By root: how many links this process has warned of."""


class OpenFolder(Protocol):
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
        read: Callable[[bytes], OpenFolder],
        name: str,
        wanted: ListRequest,
        requests: RequestCounter,
    ) -> None:
        super().__init__(wanted, requests)
        self._read = read
        self._name = name
        self._ahead: dict[bytes, OpenFolder] = {}
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

    def _begin(self, folder: bytes) -> OpenFolder:
        self._requests.add("list")
        return self._read(folder)

    def _look_ahead(self) -> None:
        """Begin to read the next folders, in the order in which they are entered."""
        for coming in reversed(self._coming):
            while coming and len(self._ahead) < AHEAD:
                folder = coming.popleft()
                self._ahead[folder] = self._begin(folder)

    def _key(self, folder: bytes, name: bytes, found: Attributes) -> bytes | None:
        """Build the key of a name in a folder; `None` when it is not to be listed."""
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
