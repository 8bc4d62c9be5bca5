"""Walk through a zip archive: its directory, then each member in the order of the bytes.

`zipfile` reads the directory into memory, so that one of more than 16 MiB (some 150,000 members) is
refused. Members are stored or deflated. Of the other methods, `zipfile` gives all at once that
comes of 4 KiB, which for bzip2 is up to 4 GB of zeros.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import IO, TYPE_CHECKING, Final, cast

from airflow_cloudfiles.engine.extensions.archives.base import (
    PIECE_BYTES,
    ArchiveMember,
    Budget,
    Content,
    damaged,
    plain_name,
    unsupported,
)
from airflow_cloudfiles.engine.formats.content import BLOCK_BYTES, WatchedBytes

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import OpenedFile

MAX_DIRECTORY_BYTES: Final = 16 * 2**20
"""The largest directory that is read."""
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED: Final = 1
_NO_FILES: Final = (stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK)
_DAMAGE: Final = (
    *(zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, OverflowError),
    *(struct.error, zlib.error),
)
"""What `zipfile` raises for content that is not valid, and for features that it does not read:
`NotImplementedError` is of those, such as a newer version or patched data."""


def zip_members(archive: OpenedFile, budget: Budget) -> Iterator[ArchiveMember]:
    """Yield the members of a zip archive.

    Raises:
        FileUnreadableError: It is damaged, cut, or has too many members.
    """
    source = _ArchiveBytes(
        io.BufferedReader(cast("io.RawIOBase", archive.random_access()), BLOCK_BYTES)
    )
    with source:
        with _damage(archive, source):
            opened = zipfile.ZipFile(cast("IO[bytes]", source))
        source.most = None
        for member in sorted(opened.infolist(), key=attrgetter("header_offset")):
            if not member.is_dir():
                is_file = stat.S_IFMT(member.external_attr >> 16) not in _NO_FILES
                content = partial(_content, archive, source, opened, member, budget)
                yield ArchiveMember(plain_name(member.filename), member.file_size, content, is_file)


class _ArchiveBytes(WatchedBytes):
    """The bytes of an archive, of which no large piece is read before `most` is `None`."""

    most: int | None = MAX_DIRECTORY_BYTES

    def read(self, size: int | None = -1) -> bytes:
        """Read on."""
        if self.most is not None and size is not None and size > self.most:
            raise zipfile.BadZipFile(
                f"its directory has {size} bytes, which are too many members (the most are "
                f"{self.most} bytes); a tar may have as many as it likes"
            )
        return super().read(size)

    def close(self) -> None:
        """Close the file, too."""
        self._content.close()
        super().close()


@contextmanager
def _damage(archive: OpenedFile, source: _ArchiveBytes) -> Iterator[None]:
    """Turn what `zipfile` raises into an error that names the archive, but not what a store did."""
    try:
        yield
    except _DAMAGE as error:
        if source.failure is not None:
            raise source.failure from error
        raise damaged(archive, error) from error


def _content(
    archive: OpenedFile,
    source: _ArchiveBytes,
    opened: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    budget: Budget,
) -> IO[bytes]:
    """Open the content of a member; at its end its size and checksum are checked."""
    name = plain_name(member.filename)
    if member.flag_bits & _ENCRYPTED:
        raise unsupported(archive, name, "it is encrypted", "Pack it without a password")
    if member.compress_type not in _METHODS:
        reason = f"its compression (method {member.compress_type}) is not read"
        raise unsupported(archive, name, reason, "Pack it with deflate")
    with _damage(archive, source):
        stream = cast("zipfile.ZipExtFile", opened.open(member))
    left = member.file_size

    def read(size: int) -> bytes:
        nonlocal left
        with _damage(archive, source):
            found = stream.read1(size)
        left -= len(found)
        if not found and left:
            raise damaged(archive, f"{name!r} ends early")
        budget.spend(len(found))
        return found

    return io.BufferedReader(Content(read), PIECE_BYTES)
