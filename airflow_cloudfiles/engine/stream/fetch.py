"""How do the bytes of a split get here?

Yields blocks of complete lines: small files whole, large ones in pieces of `BLOCK_BYTES`. What is
compressed is decompressed, whatever its name says; a byte order mark is taken off. A file that
changed since it was discovered is read in its present version if that can be done consistently,
and refused otherwise.

Where the store has etags, a small file costs one request: the read itself asks for the version that
was discovered. A local file is looked at before and after.
"""

from __future__ import annotations

import bz2
import gzip
import io
import logging
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, cast

from airflow_cloudfiles.engine.errors import (
    FileChangedError,
    FileMissingError,
    FileUnreadableError,
)
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.base import ObjectChangedError
from airflow_cloudfiles.engine.stream.splits import FileRange

BLOCK_BYTES = 16 * 2**20
"""Blocks a large file is read in: large enough to vectorise, small enough for memory."""
MAX_RECORD_BYTES = 1 * 2**30
"""A line longer than this is refused: it would not fit the columns it goes to."""
_NEWLINE = b"\n"
_UTF8_BOM = b"\xef\xbb\xbf"
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")
_log = logging.getLogger(__name__)

FirstRead = Callable[[], bytes]


@dataclass(slots=True)
class FetchCounts:
    """What was fetched so far."""

    files: int = 0
    bytes: int = 0
    missing_files: int = 0
    changed_files: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """Complete lines of one file."""

    file: FileEntry
    data: bytes


def fetch(
    store: ObjectStore,
    part: FileRange,
    counts: FetchCounts,
    *,
    ignore_missing: bool,
    first: FirstRead | None = None,
) -> Iterator[Block]:
    """Read one part of a file in blocks of complete lines.

    Args:
        store: The source.
        part: What to read.
        counts: Added to.
        ignore_missing: Whether a file that is gone is skipped.
        first: Gives the beginning of the file if it was fetched ahead (`first_read`).

    Raises:
        FileMissingError: The file is gone and `ignore_missing` is false.
        FileChangedError: The file was overwritten while it was read, or since a large file was
            cut into ranges. Nothing of it was committed; trying again reads the new version.
        FileUnreadableError: Permission, I/O, a damaged compression, an encoding that is not UTF-8.
    """
    try:
        yield from _counted(store, part, counts, first)
    except ObjectChangedError as error:
        raise _overwritten(store, part) from error
    except (ObjectNotFoundError, FileNotFoundError) as error:
        if not ignore_missing:
            raise FileMissingError(
                f"{store.child_uri(part.file.path)} was discovered but is gone. Put it back, or "
                "set ignoreMissingFiles=true to go on without it."
            ) from error
        _log.warning("Skipped, because it is gone: %s", store.child_uri(part.file.path))
        counts.missing_files += 1
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileUnreadableError(
            f"{store.child_uri(part.file.path)} cannot be read: {reason}. Mend its permissions or "
            "its content and run again, or remove it and set ignoreMissingFiles=true."
        ) from error


def _counted(
    store: ObjectStore, part: FileRange, counts: FetchCounts, first: FirstRead | None
) -> Iterator[Block]:
    """Read a part in the version that was discovered, else in the present one."""
    found = part.file
    head: bytes | None = None
    try:
        if not found.etag:
            found = _found(store, part.file.path)
        elif part.is_whole:
            head = first() if first else first_read(store, found)
    except ObjectChangedError:
        found = _found(store, part.file.path)
    if _version(found) != _version(part.file):
        _accept_change(store, part, found, counts)
        head = None
    yield from _blocks(store, part, found, head)
    if part.start == 0:
        counts.files += 1
    counts.bytes += part.size if not part.is_whole else found.size
    if not found.etag:
        _refuse_overwritten(store, part, found)


def first_read(store: ObjectStore, file: FileEntry) -> bytes:
    """Read the beginning of a file, in the version that was discovered.

    Raises:
        ObjectChangedError: It is another version by now.
        ObjectNotFoundError: It is gone.
    """
    return _piece(store, file, 0, min(file.size, BLOCK_BYTES))


def _found(store: ObjectStore, path: str) -> FileEntry:
    """The file as it is now."""
    found = store.head(path)
    if found is None:
        raise ObjectNotFoundError(path)
    return found


def _version(file: FileEntry) -> tuple[int, int | str]:
    return (file.size, file.etag or file.modification_time_us)


def _refuse_overwritten(store: ObjectStore, part: FileRange, found: FileEntry) -> None:
    """A file that is another after reading than before may have given a mixture."""
    after = store.head(part.file.path)
    if after is not None and _version(after) != _version(found):
        raise _overwritten(store, part)


def _overwritten(store: ObjectStore, part: FileRange) -> FileChangedError:
    return FileChangedError(
        f"{store.child_uri(part.file.path)} was overwritten while it was being read. Nothing "
        "of it was committed: run again. Write files under another name and rename them when "
        "they are complete."
    )


def _accept_change(
    store: ObjectStore, part: FileRange, found: FileEntry, counts: FetchCounts
) -> None:
    """Go on with a file that is not the version that was discovered, if it is read as a whole."""
    uri = store.child_uri(part.file.path)
    if not part.is_whole:
        raise FileChangedError(
            f"{uri} changed after it was cut into ranges ({part.file.size} bytes then, "
            f"{found.size} now). Nothing of it was committed: run again."
        )
    _log.warning(
        "%s changed since it was discovered (%s bytes then, %s now); its present content is read",
        uri,
        part.file.size,
        found.size,
    )
    counts.changed_files += 1


def _blocks(
    store: ObjectStore, part: FileRange, found: FileEntry, head: bytes | None
) -> Iterator[Block]:
    """Blocks of a part, decompressed and without a byte order mark."""
    uri = store.child_uri(part.file.path)
    if not part.is_whole:
        yield from _range_blocks(store, part, found, uri)
        return
    if head is None:
        head = first_read(store, found)
    if len(head) == found.size:
        stream: IO[bytes] = io.BytesIO(head)
    else:
        stream = io.BufferedReader(_StoreFile(store, found, head), 2**20)
    opened = _decompressed(stream, head, uri)
    yield from _lines_of(opened, part.file, uri)


def _lines_of(stream: IO[bytes], file: FileEntry, uri: str) -> Iterator[Block]:
    """Cut a stream into blocks of complete lines."""
    rest: list[bytes] = []
    held = 0
    first = True
    while True:
        try:
            chunk = stream.read(BLOCK_BYTES)
        except (EOFError, zlib.error, lzma.LZMAError) as error:
            raise FileUnreadableError(
                f"{uri} is damaged or truncated: its compressed content ends early or is invalid "
                f"({error}). Replace it and run again, or remove it and set "
                "ignoreMissingFiles=true."
            ) from error
        if first:
            chunk = _without_mark(chunk, uri)
            first = False
        if not chunk:
            break
        cut = chunk.rfind(_NEWLINE) + 1
        if cut:
            yield Block(file, b"".join([*rest, chunk[:cut]]))
            rest, held = [], 0
        if cut < len(chunk):
            rest.append(chunk[cut:])
            held += len(chunk) - cut
            _refuse_huge(held, uri)
    if rest:
        yield Block(file, b"".join(rest))


def _range_blocks(
    store: ObjectStore, part: FileRange, found: FileEntry, uri: str
) -> Iterator[Block]:
    """Blocks of the lines that start within `[start, end)` of an uncompressed file.

    A line belongs to the range its first byte is in: a range skips to the first line start (it
    looks at the byte before its own first to see whether that is one) and reads past its end to
    finish its last line.
    """
    end = found.size if part.end is None else part.end
    position = part.start
    if position:
        position = _after_newline(store, found, position - 1)
    rest: list[bytes] = []
    held = 0
    while position < end:
        chunk = _read(store, found, position, min(BLOCK_BYTES, end - position))
        if not chunk:
            break
        at = position
        position += len(chunk)
        if at == 0:
            chunk = _uncompressed(chunk, uri)
        cut = chunk.rfind(_NEWLINE) + 1
        if cut:
            yield Block(part.file, b"".join([*rest, chunk[:cut]]))
            rest, held = [], 0
        if cut < len(chunk):
            rest.append(chunk[cut:])
            held += len(chunk) - cut
            _refuse_huge(held, uri)
    if rest:
        tail_end = _after_newline(store, found, end)
        _refuse_huge(held + tail_end - end, uri)
        rest.append(_read(store, found, end, tail_end - end))
        yield Block(part.file, b"".join(rest))


def _read(store: ObjectStore, file: FileEntry, start: int, length: int) -> bytes:
    """Read a piece of a version of a file."""
    return _piece(store, file, start, length) if length else b""


def _piece(store: ObjectStore, file: FileEntry, start: int, length: int) -> bytes:
    """Ask for a piece. Of a version that has an etag, another length is no end of the file.

    A local file is looked at when it was read; it may have become shorter.
    """
    content = store.get_range(file.path, start, length, etag=file.etag or None)
    if file.etag and len(content) != length:
        raise ConnectionError(
            f"the answer broke off or is not what was asked for ({len(content)} bytes instead of "
            f"{length})"
        )
    return content


def _after_newline(store: ObjectStore, file: FileEntry, position: int) -> int:
    """Position after the first newline at or behind `position`; the size when there is none."""
    while position < file.size:
        chunk = _read(store, file, position, min(2**16, file.size - position))
        if not chunk:
            return file.size
        found = chunk.find(_NEWLINE)
        if found >= 0:
            return position + found + 1
        position += len(chunk)
    return file.size


def _decompressed(stream: IO[bytes], head: bytes, uri: str) -> IO[bytes]:
    """Open what is compressed, by its first bytes; a JSON text never begins like that."""
    lower = uri.lower()
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    if head.startswith(b"BZh") and lower.endswith(".bz2"):
        return bz2.BZ2File(stream)
    if head.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(stream)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        import pyarrow as pa  # noqa: PLC0415 - only files in zstd pay for it

        return pa.input_stream(stream, compression="zstd")  # type: ignore[no-any-return]
    if head:
        _refuse_misnamed(lower, uri)
    return stream


def _refuse_misnamed(lower: str, uri: str) -> None:
    """Refuse a name that promises a compression that the content does not have, or is not read."""
    ending = lower[lower.rfind(".") :]
    if ending in {".gz", ".bz2", ".zst", ".xz"}:
        raise FileUnreadableError(
            f"{uri} is damaged: its name ends in {ending} but its content is not of that kind. "
            "Replace it, or name it for what it is."
        )
    if ending in {".deflate", ".lz4", ".snappy", ".zip"}:
        raise FileUnreadableError(
            f"{uri}: compression {ending} is not in this version, which reads gzip, bzip2, xz "
            "and zstd. Compress the file in one of these."
        )


def _without_mark(chunk: bytes, uri: str) -> bytes:
    """Take off a UTF-8 byte order mark; refuse the marks of other encodings."""
    if chunk.startswith(_WIDE_BOMS):
        raise FileUnreadableError(
            f"{uri} is in UTF-16 or UTF-32; this version reads UTF-8. Convert the file."
        )
    return chunk.removeprefix(_UTF8_BOM)


def _uncompressed(chunk: bytes, uri: str) -> bytes:
    """The first chunk of a file that is cut, which its name must have said if it is compressed."""
    if chunk.startswith((b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")):
        raise FileUnreadableError(
            f"{uri} is compressed but its name does not say so, and it is too large to be read by "
            "one task. Name it with the ending .gz, .xz or .zst."
        )
    return _without_mark(chunk, uri)


def _refuse_huge(size: int, uri: str) -> None:
    if size > MAX_RECORD_BYTES:
        raise FileUnreadableError(
            f"{uri} has a line of more than {MAX_RECORD_BYTES} bytes, which is the largest record "
            "that can be read. Is it JSON Lines, one record a line?"
        )


class _StoreFile(io.RawIOBase):
    """A file of a store as a raw stream, read front to back by ranges of `BLOCK_BYTES`.

    Args:
        store: Where it is.
        file: The version that is read.
        head: Its beginning, which is there already.
    """

    def __init__(self, store: ObjectStore, file: FileEntry, head: bytes) -> None:
        super().__init__()
        self._store, self._file = store, file
        self._chunk = memoryview(head)
        self._position = len(head)

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer from the present position."""
        if not self._chunk:
            wanted = min(BLOCK_BYTES, self._file.size - self._position)
            self._chunk = memoryview(_read(self._store, self._file, self._position, wanted))
            self._position += len(self._chunk)
        count = min(len(buffer), len(self._chunk))
        buffer[:count] = self._chunk[:count]
        self._chunk = self._chunk[count:]
        return count
