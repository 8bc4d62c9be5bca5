"""Walk through a tar, from its beginning to its end, as it is read.

Python's `tarfile` takes a header that is damaged, and a file that is cut between two members, for
the end of the archive, and reads extended headers of any size into memory. So it interprets single
headers here, and the walk is ours:

1. A header of 512 bytes, in any of the kinds that `tarfile` knows (ustar, GNU, POSIX).
2. Extended headers (POSIX, and GNU's long names) say more of the header behind them.
3. The content, filled up to 512 bytes.
4. A header of zeros is the end. Without one, the tar was cut.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from functools import partial
from typing import IO, TYPE_CHECKING, Final

from airflow_cloudfiles.engine.extensions.archives.base import (
    PIECE_BYTES,
    ArchiveMember,
    Budget,
    Content,
    damaged,
    plain_name,
    unsupported,
)

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import OpenedFile

_BLOCK: Final = tarfile.BLOCKSIZE
_MAX_HEADER_BYTES: Final = 2**20
"""Most bytes of an extended header."""
_EXTENDED: Final = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_LONG: Final = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_FILES: Final = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
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
    blocks = _Blocks(archive, budget)
    of_all: dict[str, str] = {}
    of_next: dict[str, str] = {}
    while header := blocks.header():
        if header.type in (*_EXTENDED, *_LONG):
            found = _said(archive, header, blocks.extended_header(header.size))
            target = of_all if header.type == tarfile.XGLTYPE else of_next
            target.update(found)
        else:
            yield from _member(archive, blocks, header, {**of_all, **of_next})
            of_next = {}
    blocks.finish()


def _member(
    archive: OpenedFile, blocks: _Blocks, header: tarfile.TarInfo, said: dict[str, str]
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
    if is_sparse or header.type not in _FILES:
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


class _Blocks:
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
