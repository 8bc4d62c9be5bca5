"""What is asked of an SFTP server about its files, and how?

The requests of one question, over one session. Those that need not wait for each other are sent
together.
"""

from __future__ import annotations

import asyncio
import contextlib
import stat
from typing import Any

import asyncssh  # noqa: TID253 - as the session, which this is for

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.base import key_bytes
from airflow_cloudfiles.engine.storage.sftp.errors import GONE, NotKeptToError

Attributes = tuple[int, int, int]
"""Mode, size in bytes and modification time in seconds since 1970."""
Names = list[tuple[bytes, Attributes]]


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
        try:
            found.append((name, attributes_of(each.attrs)))
        except NotKeptToError:  # a server that lists names alone
            with contextlib.suppress(*GONE):
                found.append(
                    (name, attributes_of(await client.lstat(folder.rstrip(b"/") + b"/" + name)))
                )
    return found


async def content_of(
    client: asyncssh.SFTPClient, path: bytes, start: int, length: int | None, etag: str | None
) -> bytes | None:
    """Read part of a file, or all of it; `None` when it is, or becomes, another version."""
    named = attributes_of(await client.lstat(path))
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
    """What is known of a file or folder.

    Raises:
        NotKeptToError: The server does not say what it is, or how large and how old.
    """
    if found.permissions is None or found.size is None or found.mtime is None:
        raise NotKeptToError(
            "the server does not say of a file what kind it is of, how large it is, and how old."
        )
    return found.permissions, found.size, int(found.mtime)
