"""Give a format what it needs of one file.

`StoreFile` is the `OpenedFile` of `formats.base` over an object store: one version of one file,
whose bytes are fetched when they are asked for. Blocks are cut at the ends of lines; what is
compressed is decompressed, and what is in another encoding is turned into UTF-8.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, cast

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.formats.recognize import MARK_BYTES, refuse_binary
from airflow_cloudfiles.engine.options.formats.base import overlaps_itself
from airflow_cloudfiles.engine.reading.decoding import (
    decompressed,
    in_utf8,
    mark_of_utf8,
    refuse_compressed,
    without_mark,
)
from airflow_cloudfiles.engine.storage import ObjectStore
from airflow_cloudfiles.engine.storage.local import LocalStore

BLOCK_BYTES = 16 * 2**20
"""What one request for a part of a large file asks a store for."""
TEXT_BYTES = 2 * 2**20
"""Text is handed out, and read from a local disk, in blocks of about so many bytes: memory that is
used again and again stays in the processor's cache, and is not asked of the system each time."""
MAX_RECORD_BYTES = 1 * 2**30
"""A line longer than this is refused: it would not fit the columns it goes to."""
_NEWLINE = b"\n"


class StoreFile:
    """One version of one file.

    Args:
        store: Where it is.
        entry: The version that is read.
        first: The bytes that are there already, at most `BLOCK_BYTES`, if any are.
        at: Where these begin in the file.

    Attributes:
        block_begin: The first byte of the block that `blocks` gave last, where it reads a part.
    """

    def __init__(
        self, store: ObjectStore, entry: FileEntry, first: bytes | None = None, at: int = 0
    ) -> None:
        self._store = store
        self.entry = self.container = entry
        self.uri = store.child_uri(entry.path)
        self.block_begin = 0
        self._first = _Chunk(at, first or b"")
        self._head = None if at else first
        # What a request to a store costs does not depend on its size; one to a disk costs nothing.
        is_local = isinstance(store, LocalStore)
        self._at_once = min(TEXT_BYTES, BLOCK_BYTES) if is_local else BLOCK_BYTES

    def stream(self) -> IO[bytes]:
        """Open the whole file from its beginning, decompressed, to be read once."""
        head = self._beginning()
        return decompressed(self._raw(head), head, self.uri)

    def text_stream(self, encoding: str = "utf-8") -> IO[bytes]:
        """`stream()` in UTF-8 without a byte order mark."""
        return in_utf8(self.stream(), encoding, self.uri)

    def random_access(self) -> IO[bytes]:
        """Open the file's own bytes, seekable."""
        if self._head is not None and len(self._head) == self.entry.size:
            return io.BytesIO(self._head)
        if isinstance(self._store, LocalStore):
            return open(self._store.local_path(self.entry.path), "rb")  # noqa: PTH123
        return cast("IO[bytes]", _StoreBytes(self._store, self.entry, self._first))

    def blocks(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        encoding: str = "utf-8",
        separator: bytes | None = None,
        most: int | None = None,
    ) -> Iterator[bytes]:
        """Blocks of complete lines: those that start in `[start, end)`.

        Raises:
            FileUnreadableError: Damaged, in another encoding, or with an endless line.
        """
        if start == 0 and end is None:
            return line_ends(self._chunks_of_all(encoding), self.uri, separator, most)
        lines = _LineBuffer(separator or _NEWLINE, self.uri, most or MAX_RECORD_BYTES)
        return self._blocks_of_range(start, self.entry.size if end is None else end, lines)

    def _beginning(self) -> bytes:
        if self._head is None:
            self._head = piece(self._store, self.entry, 0, min(self.entry.size, self._at_once))
            self._first = _Chunk(0, self._head)
        return self._head

    def _raw(self, head: bytes) -> IO[bytes]:
        if len(head) == self.entry.size:
            return io.BytesIO(head)
        source = _StoreBytes(self._store, self.entry, _Chunk(0, head), ahead=self._at_once)
        return io.BufferedReader(source, 2**20)

    def _chunks_of_all(self, encoding: str) -> Iterator[bytes]:
        """Yield the text from its beginning, in chunks that may be cut anywhere."""
        mark = mark_of_utf8(self._beginning(), encoding)
        if mark is None or self._is_compressed():
            stream = self.text_stream(encoding)
            while chunk := stream.read(min(TEXT_BYTES, BLOCK_BYTES)):
                yield chunk
            return
        # What needs no change is not copied from stream to stream, nor kept.
        chunk, position = self._beginning(), 0
        refuse_binary(chunk, self.uri)
        self._head, self._first = None, _Chunk(0, b"")
        while chunk:
            position += len(chunk)
            yield from _small(chunk, mark)
            mark = 0
            chunk = self._read(position, min(self._at_once, self.entry.size - position))

    def _is_compressed(self) -> bool:
        head = self._beginning()
        raw = self._raw(head)
        return decompressed(raw, head, self.uri) is not raw

    def _blocks_of_range(self, start: int, end: int, lines: _LineBuffer) -> Iterator[bytes]:
        """Blocks of the lines that start within `[start, end)` of an uncompressed file.

        A line belongs to the range its first byte is in: a range skips to the first line start (it
        reads the bytes before its own first to see whether that is one) and reads past its end
        to finish its last line.
        """
        if start:  # with `ignoreCorruptFiles`, other parts do not hear of what the first one finds
            self._refuse_uncuttable(self._read(0, min(MARK_BYTES, self.entry.size)))
        separator = lines.separator
        position = self._after_line(start - len(separator), separator) if start else 0
        begin = position
        while position < end:
            chunk = self._read(position, min(self._at_once, end - position))
            if not chunk:
                break
            at, position = position, position + len(chunk)
            for part in _small(chunk if at else self._refuse_uncuttable(chunk)):
                if complete := lines.add(part):
                    self.block_begin = begin
                    begin += len(complete)
                    yield complete
        if lines.held:
            self.block_begin = begin
            tail_end = self._after_line(end - min(lines.held, len(separator) - 1), separator)
            lines.refuse_huge(tail_end - end)
            yield lines.rest() + self._read(end, tail_end - end)

    def _refuse_uncuttable(self, chunk: bytes) -> bytes:
        """Read the first bytes, without a mark; refuse a file whose parts mean nothing."""
        refuse_compressed(chunk, self.uri)
        refuse_binary(chunk, self.uri)
        return without_mark(chunk, self.uri)

    def _after_line(self, position: int, separator: bytes) -> int:
        """Position after the first line end at or behind `position`; the size if there is none."""
        position = max(0, position)
        while position < self.entry.size:
            chunk = self._read(position, min(2**16, self.entry.size - position))
            found = chunk.find(separator)
            if found >= 0:
                return position + found + len(separator)
            if len(chunk) < len(separator):
                return self.entry.size
            position += len(chunk) - len(separator) + 1
        return self.entry.size

    def _read(self, start: int, length: int) -> bytes:
        return piece(self._store, self.entry, start, length) if length else b""


def line_ends(
    chunks: Iterable[bytes], uri: str, separator: bytes | None = None, most: int | None = None
) -> Iterator[bytes]:
    """Yield a text, which is cut anywhere, in blocks that end where lines end.

    Args:
        chunks: The text.
        uri: The file, for errors.
        separator: What ends a line; default is a newline.
        most: How many bytes a line may have.

    Raises:
        FileUnreadableError: A line is too long.
    """
    lines = _LineBuffer(separator or _NEWLINE, uri, most or MAX_RECORD_BYTES)
    for chunk in chunks:
        if complete := lines.add(chunk):
            yield complete
    if rest := lines.rest():
        yield rest


def _small(chunk: bytes, begin: int = 0) -> Iterator[bytes]:
    """Yield what is large in parts of `TEXT_BYTES`."""
    for start in range(begin, len(chunk), TEXT_BYTES):
        yield chunk[start : start + TEXT_BYTES]


class _LineBuffer:
    """Puts chunks together so that they end where lines end."""

    def __init__(self, separator: bytes, uri: str, most: int) -> None:
        self.separator = separator
        self._uri = uri
        self._most = most
        self._rest: list[bytes] = []
        self.held = 0

    def add(self, chunk: bytes) -> bytes:
        """Take a chunk; returns the lines that are complete now."""
        overlap = len(self.separator) - 1
        if overlap and self._rest:  # the separator may begin in what is held
            chunk, self._rest, self.held = b"".join([*self._rest, chunk]), [], 0
        cut = self._last_end(chunk)
        if not cut:
            self._hold(chunk)
            return b""
        # A view of the chunk, so that only the whole is copied.
        complete = b"".join([*self._rest, memoryview(chunk)[:cut]]) if self._rest else chunk[:cut]
        self._rest, self.held = [], 0
        self._hold(chunk[cut:])
        return complete

    def _last_end(self, chunk: bytes) -> int:
        """Find where the last separator ends, as found from the first line on; 0: nowhere."""
        if overlaps_itself(self.separator):
            return len(chunk) - len(chunk.split(self.separator)[-1])
        found = chunk.rfind(self.separator)
        return 0 if found < 0 else found + len(self.separator)

    def rest(self) -> bytes:
        """Return what is left without a line end."""
        return b"".join(self._rest)

    def refuse_huge(self, more: int = 0) -> None:
        """Raise if the line that is held is too long."""
        if self.held + more > self._most:
            raise FileUnreadableError(
                f"{self._uri} has a line of more than {self._most} bytes, which is the largest "
                "record that is read (maxRecordBytes). Has it one record a line?"
            )

    def _hold(self, chunk: bytes) -> None:
        if chunk:
            self._rest.append(chunk)
            self.held += len(chunk)
            self.refuse_huge()


def piece(store: ObjectStore, file: FileEntry, start: int, length: int) -> bytes:
    """Read a piece of a version of a file.

    Of a version that has an etag, another length is no end of the file. A local file is checked
    when it was read; it may have become shorter.

    Raises:
        ObjectChangedError: It is another version by now.
        ObjectNotFoundError: It is gone.
        ConnectionError: The answer broke off.
    """
    content = store.get_range(file.path, start, length, etag=file.etag or None)
    if file.etag and len(content) != length:
        raise ConnectionError(
            f"the answer broke off or is not what was asked for ({len(content)} bytes instead of "
            f"{length})"
        )
    return content


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some bytes of a file, and where they begin."""

    at: int
    data: bytes

    def from_position(self, position: int, most: int) -> bytes:
        """Return at most that many of these bytes from a position; none if it is elsewhere."""
        begin = position - self.at
        if not 0 <= begin < len(self.data):
            return b""
        return self.data[begin : begin + most]


class _StoreBytes(io.RawIOBase):
    """A file of a store, read by ranges of at most `BLOCK_BYTES`.

    What is asked for is asked of the store, neither more nor in smaller pieces: formats that go
    from place to place in a file know best how much they need.

    Args:
        store: Where it is.
        file: The version that is read.
        first: What is there already.
        ahead: How much is read at a time where it is read from its beginning to its end.
    """

    def __init__(
        self, store: ObjectStore, file: FileEntry, first: _Chunk, *, ahead: int | None = None
    ) -> None:
        super().__init__()
        self._store, self._file = store, file
        self._first, self._ahead = first, ahead
        self._chunk = first
        self._position = 0

    def readable(self) -> bool:
        """Return true, always."""
        return True

    def seekable(self) -> bool:
        """Return true, always."""
        return True

    def tell(self) -> int:
        """Return where the next byte is read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to another position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Read so many bytes; less only at the end of the file."""
        left = max(0, self._file.size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        parts = []
        while wanted and (part := self._next(wanted)):
            parts.append(part)
            wanted -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def readall(self) -> bytes:
        """Read all that is left."""
        return self.read()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer, at least in part, unless everything was read."""
        content = self._next(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def _next(self, most: int) -> bytes:
        """Read at most that many bytes from the present position, with one request at most."""
        found = self._chunk.from_position(self._position, most)
        found = found or self._first.from_position(self._position, most)
        if not found:
            asked = self._ahead or min(most, BLOCK_BYTES)
            wanted = min(asked, max(0, self._file.size - self._position))
            if not wanted:
                return b""
            content = piece(self._store, self._file, self._position, wanted)
            self._chunk = _Chunk(self._position, content)
            found = self._chunk.from_position(self._position, most)
        self._position += len(found)
        return found
