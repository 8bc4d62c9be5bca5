"""Ask an SFTP server about its files.

The requests of one question go over one session. Those that need not wait for each other are sent
together.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import stat
from typing import Any, Final

import asyncssh  # noqa: TID253 - as the session, which this is for

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.base import key_bytes
from airflow_cloudfiles.engine.storage.sftp.errors import GONE, NotKeptToError

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
    """What stands in for an etag: a version is known by its size and its second."""
    _, size, seconds = attributes
    return f"{seconds:x}-{size:x}"


def file_entry(key: str, attributes: Attributes) -> FileEntry:
    """Describe a file on a server."""
    _, size, seconds = attributes
    return FileEntry(key, size, seconds * 1_000_000, version_of(attributes))


async def names_in(client: asyncssh.SFTPClient, folder: bytes) -> Names:
    """What is in a folder, with what is known of each."""
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
