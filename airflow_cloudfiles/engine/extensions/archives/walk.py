"""Walk through a zip archive or a tar, and bound what either may come to.

A name in an archive is text: nothing is ever written under it, so one that points elsewhere
(`../x`, `/etc/x`) does no harm. What an archive holds is read as it is asked for, in memory that
does not depend on it; and no archive comes to more than a thousand times its own size.

Of a zip archive the directory is read, then each member in the order of the bytes. `zipfile` reads
the directory into memory, so that one of more than 16 MiB (some 150,000 members) is refused.
Members are stored or deflated. Of the other methods, `zipfile` gives all at once that comes of
4 KiB, which for bzip2 is up to 4 GB of zeros.

A tar is read from its beginning to its end. Python's `tarfile` takes a header that is damaged, and
a file that is cut between two members, for the end of the archive, and reads extended headers of
any size into memory. So it interprets single headers here, and the walk is ours:

1. A header of 512 bytes, in any of the kinds that `tarfile` knows (ustar, GNU, POSIX).
2. Extended headers (POSIX, and GNU's long names) say more of the header behind them.
3. The content, filled up to 512 bytes.
4. A header of zeros is the end. Without one, the tar was cut.
"""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import IO, TYPE_CHECKING, Final, cast

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.files import MEMBER, printable_path
from airflow_cloudfiles.engine.formats.content import BLOCK_BYTES, WatchedBytes
from airflow_cloudfiles.engine.messages import size_text

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import OpenedFile


MOST_TIMES: Final = 1000
"""An archive comes to no more than so many times its size; deflate reaches 1,032 with zeros."""
LEAST_BYTES: Final = 2**30
"""Up to here an archive of any size may come."""
PIECE_BYTES: Final = 2**16
"""What is read of a member at a time."""


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """A member of an archive, of which nothing was read yet.

    Attributes:
        name: Its path in the archive, without `.` and empty parts.
        size: Its bytes, as the archive says.
        open: Opens its content, to be read once, before the next member is asked for; reading it
            raises `FileUnreadableError` where it is damaged.
        is_file: Whether it has content, rather than being a link or a device.
    """

    name: str
    size: int
    open: Callable[[], IO[bytes]]
    is_file: bool = True


def plain_name(name: str) -> str:
    """Take parts away that say nothing, so that `./a//b` is `a/b`."""
    return "/".join(each for each in name.split("/") if each not in {"", "."})


def member_uri(archive: OpenedFile, name: str) -> str:
    """Write where a member is, for people to read."""
    return f"{archive.uri}{MEMBER}{printable_path(name)}"


def damaged(archive: OpenedFile, reason: object) -> FileUnreadableError:
    """Build the error of an archive that cannot be read."""
    return FileUnreadableError(
        f"{archive.uri} is damaged, or no archive of the kind that its name says: {reason}. "
        "Nothing of it was ingested. Replace it and run again, or set ignoreCorruptFiles=true to "
        "go on without it."
    )


def unsupported(archive: OpenedFile, name: str, reason: str, remedy: str) -> FileUnreadableError:
    """Build the error of a member that is not read."""
    return FileUnreadableError(
        f"{member_uri(archive, name)} cannot be read: {reason}. Nothing of the archive was "
        f"ingested. {remedy}, leave it out with archivePathFilter, or set ignoreCorruptFiles=true "
        "to go on without the archive."
    )


class Budget:
    """Counts what an archive comes to.

    Args:
        archive: The archive.
    """

    def __init__(self, archive: OpenedFile) -> None:
        self._archive = archive
        self._most = max(LEAST_BYTES, MOST_TIMES * archive.entry.size)
        self._spent = 0

    def spend(self, count: int) -> None:
        """Count some more bytes.

        Raises:
            FileUnreadableError: There are too many.
        """
        self._spent += count
        if self._spent > self._most:
            raise FileUnreadableError(
                f"{self._archive.uri} has {self._archive.entry.size} bytes and comes to more than "
                f"{size_text(self._most)}, as an archive does that is made to fill disks. Nothing "
                "of it was ingested. If it is good, unpack it, or pack it in several archives."
            )


class Content(io.RawIOBase):
    """The content of a member.

    Args:
        read: Reads some bytes, at most so many as it is given, and none at the end.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        super().__init__()
        self._read = read

    def readable(self) -> bool:
        """Return true, always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read on into a buffer."""
        found = self._read(min(len(buffer), PIECE_BYTES))
        buffer[: len(found)] = found
        return len(found)


MAX_DIRECTORY_BYTES: Final = 16 * 2**20
"""The largest directory that is read."""
_ZIP_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_IS_ENCRYPTED: Final = 1
_ZIP_NO_FILES: Final = (stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK)
_ZIP_DAMAGE: Final = (
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
    source = _ZipBytes(
        io.BufferedReader(cast("io.RawIOBase", archive.random_access()), BLOCK_BYTES)
    )
    with source:
        with _zip_damage(archive, source):
            opened = zipfile.ZipFile(cast("IO[bytes]", source))
        source.most = None
        for member in sorted(opened.infolist(), key=attrgetter("header_offset")):
            if not member.is_dir():
                is_file = stat.S_IFMT(member.external_attr >> 16) not in _ZIP_NO_FILES
                content = partial(_zip_content, archive, source, opened, member, budget)
                yield ArchiveMember(plain_name(member.filename), member.file_size, content, is_file)


class _ZipBytes(WatchedBytes):
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
def _zip_damage(archive: OpenedFile, source: _ZipBytes) -> Iterator[None]:
    """Turn what `zipfile` raises into an error that names the archive, but not what a store did."""
    try:
        yield
    except _ZIP_DAMAGE as error:
        if source.failure is not None:
            raise source.failure from error
        raise damaged(archive, error) from error


def _zip_content(
    archive: OpenedFile,
    source: _ZipBytes,
    opened: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    budget: Budget,
) -> IO[bytes]:
    """Open the content of a member; at its end its size and checksum are checked."""
    name = plain_name(member.filename)
    if member.flag_bits & _IS_ENCRYPTED:
        raise unsupported(archive, name, "it is encrypted", "Pack it without a password")
    if member.compress_type not in _ZIP_METHODS:
        reason = f"its compression (method {member.compress_type}) is not read"
        raise unsupported(archive, name, reason, "Pack it with deflate")
    with _zip_damage(archive, source):
        stream = cast("zipfile.ZipExtFile", opened.open(member))
    left = member.file_size

    def read(size: int) -> bytes:
        nonlocal left
        with _zip_damage(archive, source):
            found = stream.read1(size)
        left -= len(found)
        if not found and left:
            raise damaged(archive, f"{name!r} ends early")
        budget.spend(len(found))
        return found

    return io.BufferedReader(Content(read), PIECE_BYTES)


_BLOCK: Final = tarfile.BLOCKSIZE
_MAX_HEADER_BYTES: Final = 2**20
"""Most bytes of an extended header."""
_EXTENDED: Final = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_LONG: Final = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_TAR_FILES: Final = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_VOLUME_LABEL: Final = b"V"
_WITHOUT_CONTENT: Final = (
    *(tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE),
    _VOLUME_LABEL,
)
_SPARSE: Final = "GNU.sparse."
_MAX_DIGITS: Final = 20
_IS_EXTENDED, _GOES_ON = 482, 504
"""Where a header of GNU's sparse files, and each block of their map behind it, says that a block of
the map follows."""


def tar_members(archive: OpenedFile, budget: Budget) -> Iterator[ArchiveMember]:
    """Yield the members of a tar, compressed or not, in their order.

    Raises:
        FileUnreadableError: It is damaged, cut, or of a kind that is not read.
    """
    blocks = _TarBlocks(archive, budget)
    of_all: dict[str, str] = {}
    of_next: dict[str, str] = {}
    while header := blocks.header():
        if header.type in (*_EXTENDED, *_LONG):
            found = _said(archive, header, blocks.extended_header(header.size))
            target = of_all if header.type == tarfile.XGLTYPE else of_next
            target.update(found)
        else:
            yield from _tar_member(archive, blocks, header, {**of_all, **of_next})
            of_next = {}
    blocks.finish()


def _tar_member(
    archive: OpenedFile, blocks: _TarBlocks, header: tarfile.TarInfo, said: dict[str, str]
) -> Iterator[ArchiveMember]:
    """Yield the member of a header, unless it is a folder, and pass over its content."""
    name = plain_name(said.get("path", header.name))
    if header.type in _WITHOUT_CONTENT:
        yield ArchiveMember(name, 0, io.BytesIO, is_file=False)
        return
    if header.type == tarfile.DIRTYPE:
        return
    is_sparse = header.type == tarfile.GNUTYPE_SPARSE or _SPARSE in said
    size = _size(archive, said["size"]) if "size" in said else header.size
    blocks.begin(size, is_sparse=header.type == tarfile.GNUTYPE_SPARSE)
    if is_sparse or header.type not in _TAR_FILES:
        kind = "it is sparse" if is_sparse else f"it is of the unknown kind {header.type!r}"
        yield ArchiveMember(name, size, partial(_refuse, archive, name, kind))
    else:
        yield ArchiveMember(name, size, blocks.content)
    blocks.skip()


def _refuse(archive: OpenedFile, name: str, reason: str) -> IO[bytes]:
    raise unsupported(archive, name, reason, "Pack it as a regular file")


def _size(archive: OpenedFile, text: str) -> int:
    """Read the size of a content in an extended header."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise damaged(archive, "an extended header has a size that is no number")
    return int(text)


def _said(archive: OpenedFile, header: tarfile.TarInfo, content: bytes) -> dict[str, str]:
    """Read what an extended header says of path and size, and whether content is sparse."""
    if header.type == tarfile.GNUTYPE_LONGNAME:
        return {"path": content.partition(b"\0")[0].decode("utf-8", "surrogateescape")}
    if header.type == tarfile.GNUTYPE_LONGLINK:
        return {}
    found = {}
    for key, value in _records(archive, content):
        if key in {b"path", b"size"}:
            found[key.decode()] = value.decode("utf-8", "surrogateescape")
        elif key.startswith(_SPARSE.encode()):
            found[_SPARSE] = ""
    return found


def _records(archive: OpenedFile, content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records of an extended header: length, blank, `key=value` and line end each."""
    place = 0
    while place < len(content) and content[place]:
        blank = content.find(b" ", place, place + _MAX_DIGITS)
        length = content[place:blank] if blank >= 0 else b""
        end = place + int(length) if length.isdigit() else 0
        key, equals, value = content[blank + 1 : max(0, end - 1)].partition(b"=")
        if not equals or content[end - 1 : end] != b"\n":
            raise damaged(archive, "an extended header cannot be read")
        yield key, value
        place = end


class _TarBlocks:
    """The blocks of a tar."""

    def __init__(self, archive: OpenedFile, budget: Budget) -> None:
        self._archive, self._budget = archive, budget
        self._stream = archive.stream()
        self._block = b""
        self._left = self._padding = 0
        self._is_first = True

    def header(self) -> tarfile.TarInfo | None:
        """Read the next header; `None` at the end of the archive."""
        self._block = block = self._read(_BLOCK)
        if not block.strip(b"\0"):
            return None
        try:
            found = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError, OverflowError) as error:
            reason = "it is no tar" if self._is_first else f"a header is not valid ({error})"
            raise damaged(self._archive, reason) from error
        self._is_first = False
        if found.size < 0:
            raise damaged(self._archive, "a header has a negative size")
        return found

    def extended_header(self, size: int) -> bytes:
        """Read the content of an extended header."""
        if size > _MAX_HEADER_BYTES:
            raise damaged(self._archive, f"an extended header has {size} bytes")
        content = self._read(size)
        self._read(-size % _BLOCK)
        return content

    def begin(self, size: int, *, is_sparse: bool = False) -> None:
        """Begin the content of a member, behind the map of a sparse one."""
        follows = self._block[_IS_EXTENDED] if is_sparse else 0
        while follows:
            follows = self._read(_BLOCK)[_GOES_ON]
        self._left, self._padding = size, -size % _BLOCK

    def content(self) -> IO[bytes]:
        """Open the content that was begun."""
        return io.BufferedReader(Content(self._next), PIECE_BYTES)

    def skip(self) -> None:
        """Pass over what is left of the content."""
        while self._next(PIECE_BYTES):
            pass
        self._read(self._padding)

    def finish(self) -> None:
        """Read what stands behind the end: a compression has its checksum there."""
        while found := self._stream.read(PIECE_BYTES):
            self._budget.spend(len(found))

    def _next(self, most: int) -> bytes:
        found = self._read(min(most, self._left))
        self._left -= len(found)
        return found

    def _read(self, size: int) -> bytes:
        found = self._stream.read(size) if size else b""
        while len(found) < size and (more := self._stream.read(size - len(found))):
            found += more
        self._budget.spend(len(found))
        if len(found) < size:
            raise damaged(self._archive, "it ends early")
        return found
