"""Decompress what is compressed.

By its first bytes, whatever its name says; a text never begins like that. Hadoop's own layouts of
LZ4 and Snappy, which Spark writes, and deflate have no such mark: there the name decides. A name
that promises a compression which the content does not have is refused: the file was cut, or is
something else.

Everything is decompressed as it is read, in memory that does not depend on how much comes out. What
ends early, or has something else behind its end, is damaged: never a shorter file.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from functools import partial
from typing import IO, Final

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.reading.compression_blocks import (
    HadoopBlocks,
    SnappyFrames,
    unpack_lz4,
    unpack_snappy,
)

DAMAGED: Final = (EOFError, zlib.error, lzma.LZMAError)
"""What the decompressors of the standard library raise for content that is not valid."""
_GZIP: Final = b"\x1f\x8b"
_XZ: Final = b"\xfd7zXZ\x00"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_LZ4: Final = b"\x04\x22\x4d\x18"
_SNAPPY: Final = b"\xff\x06\x00\x00sNaPpY"
_BZIP2: Final = (
    *(b"BZh%d1AY&SY" % level for level in range(1, 10)),
    *(b"BZh%d\x17\x72\x45\x38\x50\x90" % level for level in range(1, 10)),  # of nothing
)
_SKIPPABLE: Final = tuple(bytes([number]) + b"\x2a\x4d\x18" for number in range(0x50, 0x60))
"""Begin a frame of zstd or LZ4 that holds nothing of the content; pzstd begins each file so."""
MARKS: Final = (_GZIP, _XZ, _ZSTD, _LZ4, _SNAPPY, *_BZIP2, *_SKIPPABLE)
"""First bytes that only compressed files have."""
_ENDINGS: Final = frozenset({".gz", ".bz2", ".zst", ".xz", ".lz4", ".snappy", ".sz", ".deflate"})
_CHUNK_BYTES: Final = 2**16
_FRAME_HEADER: Final = 8
"""Bytes of the mark and the size of a frame that is skipped."""
_BUFFER_BYTES: Final = 2**20
_XZ_MEMORY_BYTES: Final = 512 * 2**20
"""Most memory that a file in xz may ask for; `xz -9` asks for 65 MiB."""
_WHOLE_ZLIB, _WHOLE_GZIP, _RAW_DEFLATE = zlib.MAX_WBITS, zlib.MAX_WBITS + 16, -zlib.MAX_WBITS


def decompressed(stream: IO[bytes], head: bytes, uri: str) -> IO[bytes]:
    """Open what is compressed: gzip, bzip2, xz, zstd, LZ4, Snappy, deflate.

    Files in several parts one after another are read whole, as `gunzip` and Spark do. What reading
    the stream itself raises passes through.

    Args:
        stream: The file's own bytes, from its beginning.
        head: Some of its first bytes.
        uri: The file, for its name and for errors.

    Returns:
        The content; reading it raises `FileUnreadableError` where it is damaged.

    Raises:
        FileUnreadableError: Its name promises another content.
    """
    lower = uri.lower()
    for mark, opened in _MARKED:
        if head.startswith(mark):
            return io.BufferedReader(opened(stream, uri), _BUFFER_BYTES)
    if head:
        ending = lower[lower.rfind(".") :]
        named = _by_name(stream, head, ending, uri)
        if named is not None:
            return io.BufferedReader(named, _BUFFER_BYTES)
        _refuse_misnamed(ending, uri)
    return stream


def damaged(uri: str, error: Exception | str) -> FileUnreadableError:
    """The error of a file whose compressed content is not valid."""
    return FileUnreadableError(
        f"{uri} is damaged or truncated: its compressed content ends early or is invalid "
        f"({error}). Replace it and run again, or remove it and set ignoreMissingFiles=true."
    )


def refuse_compressed(chunk: bytes, uri: str) -> None:
    """Refuse the first bytes of a file that is cut, if its name did not say it is compressed."""
    if chunk.startswith(MARKS):
        raise FileUnreadableError(
            f"{uri} is compressed, but its name has no ending that says so, and it is too large to "
            "be read by one task. Rename it to end in .gz, .bz2, .xz, .zst, .lz4 or .snappy."
        )


def _by_name(stream: IO[bytes], head: bytes, ending: str, uri: str) -> io.RawIOBase | None:
    """What only the name says: what Spark writes as `.lz4`, `.snappy` and `.deflate`."""
    unpack = {".lz4": unpack_lz4, ".snappy": unpack_snappy}.get(ending)
    if unpack is not None:
        return HadoopBlocks(stream, unpack, partial(damaged, uri))
    if ending == ".deflate":
        if _is_zlib(head):
            return _Members(stream, lambda: _Zlib(_WHOLE_ZLIB), uri)
        return _Members(stream, lambda: _Zlib(_RAW_DEFLATE), uri, padding=b"")
    return None


def _is_zlib(head: bytes) -> bool:
    """Whether a deflated content has the header of zlib (RFC 1950)."""
    deflate = 8
    return len(head) > 1 and head[0] & 0xF == deflate and (head[0] << 8 | head[1]) % 31 == 0


def _refuse_misnamed(ending: str, uri: str) -> None:
    """Refuse a name that promises a compression that the content does not have, or is not read."""
    if ending in _ENDINGS:
        raise FileUnreadableError(
            f"{uri} is damaged: its name ends in {ending} but its content is not of that kind. "
            "Replace it, or correct its name."
        )
    if ending == ".zip":
        raise FileUnreadableError(
            f"{uri} is an archive, which may hold many files; archives are not read. Unpack it, "
            "and compress each file in gzip, bzip2, xz, zstd, LZ4 or Snappy."
        )


class _Zlib:
    """The decompressor of `zlib`, as those of `bz2` and `lzma` are."""

    def __init__(self, window_bits: int) -> None:
        self._one = zlib.decompressobj(window_bits)
        self._tail = b""

    @property
    def eof(self) -> bool:
        return self._one.eof

    @property
    def needs_input(self) -> bool:
        return not self._tail

    @property
    def unused_data(self) -> bytes:
        return self._one.unused_data

    def decompress(self, data: bytes, max_length: int = 0) -> bytes:
        content = self._one.decompress(self._tail + data, max_length)
        self._tail = self._one.unconsumed_tail
        return content


_Decompressor = bz2.BZ2Decompressor | lzma.LZMADecompressor | _Zlib


class _Readable(io.RawIOBase):
    """A stream that is read."""

    def readable(self) -> bool:
        """Always."""
        return True


class _Members(_Readable):
    """What is compressed in one or several parts, with nothing or zeros behind each.

    Args:
        source: The compressed bytes.
        new: Makes the decompressor of one part.
        uri: The file, for errors.
        padding: Bytes that may stand behind a part, and mean nothing.
    """

    def __init__(
        self,
        source: IO[bytes],
        new: Callable[[], _Decompressor],
        uri: str,
        *,
        padding: bytes = b"\0",
    ) -> None:
        super().__init__()
        self._source, self._new, self._uri, self._padding = source, new, uri, padding
        self._one = new()
        self._waiting = b""

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer, at least in part, unless everything was read."""
        while not self._one.eof or self._begin_next():
            content = self._more(len(buffer))
            if content:
                buffer[: len(content)] = content
                return len(content)
        return 0

    def _more(self, most: int) -> bytes:
        data = b""
        if self._one.needs_input:
            data, self._waiting = self._waiting or self._source.read(_CHUNK_BYTES), b""
            ends = not data
        else:
            ends = False
        try:
            content = self._one.decompress(data, most)
        except (*DAMAGED, OSError, ValueError) as error:
            raise damaged(self._uri, error) from error
        if ends and not content and not self._one.eof:
            raise damaged(self._uri, "it ends early")
        return content

    def _begin_next(self) -> bool:
        """Go to the next part, if there is one."""
        rest = self._one.unused_data.lstrip(self._padding)
        while not rest:
            chunk = self._source.read(_CHUNK_BYTES)
            if not chunk:
                return False
            rest = chunk.lstrip(self._padding)
        self._one, self._waiting = self._new(), rest
        return True


class _Frames(_Readable):
    """What Arrow decompresses as it is read: frames of zstd or LZ4, one after another."""

    def __init__(self, source: IO[bytes], codec: str, uri: str) -> None:
        import pyarrow as pa  # noqa: PLC0415 - only such files pay for it

        super().__init__()
        self._source = _Watched(source)
        self._uri = uri
        self._stream = pa.CompressedInputStream(pa.PythonFile(self._source, mode="r"), codec)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer, at least in part, unless everything was read."""
        try:
            content: bytes = self._stream.read(len(buffer))
        except (OSError, ValueError) as error:
            if self._source.failed:
                raise
            raise damaged(self._uri, error) from error
        buffer[: len(content)] = content
        return len(content)


def _of_skippable(stream: IO[bytes], uri: str) -> io.RawIOBase:
    """Open what begins with frames to be skipped, by the first frame behind them."""
    place, mark = 0, b""
    while not place or mark.startswith(_SKIPPABLE):
        stream.seek(place)
        mark = stream.read(_FRAME_HEADER)
        place += _FRAME_HEADER + int.from_bytes(mark[4:], "little")
    stream.seek(0)
    return _Frames(stream, "lz4" if mark.startswith(_LZ4) else "zstd", uri)


class _Watched(_Readable):
    """A stream that remembers whether it was itself that failed."""

    def __init__(self, source: IO[bytes]) -> None:
        super().__init__()
        self._source = source
        self.failed = False

    def read(self, size: int = -1) -> bytes:
        """Read on."""
        try:
            return self._source.read(size)
        except BaseException:
            self.failed = True
            raise


_NEW_XZ: Final = partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
_MARKED: Final[tuple[tuple[bytes | tuple[bytes, ...], Callable[..., io.RawIOBase]], ...]] = (
    (_GZIP, lambda stream, uri: _Members(stream, lambda: _Zlib(_WHOLE_GZIP), uri)),
    (_BZIP2, lambda stream, uri: _Members(stream, bz2.BZ2Decompressor, uri)),
    (_XZ, lambda stream, uri: _Members(stream, _NEW_XZ, uri)),
    (_ZSTD, lambda stream, uri: _Frames(stream, "zstd", uri)),
    (_LZ4, lambda stream, uri: _Frames(stream, "lz4", uri)),
    (_SKIPPABLE, _of_skippable),
    (_SNAPPY, lambda stream, uri: SnappyFrames(stream, partial(damaged, uri))),
)
