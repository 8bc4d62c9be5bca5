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
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, Final

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.formats.content import Watched, unpack_lz4, unpack_snappy
from airflow_cloudfiles.engine.reading.compression_blocks import (
    BUFFER_BYTES,
    hadoop_blocks,
    snappy_frames,
    stream_of,
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
            return stream_of(opened(stream, uri))
    if head:
        ending = lower[lower.rfind(".") :]
        named = _by_name(stream, head, ending, uri)
        if named is not None:
            return stream_of(named)
        _refuse_misnamed(ending, uri)
    return stream


def damaged(uri: str, error: Exception | str) -> FileUnreadableError:
    """Build the error of a file whose compressed content is not valid."""
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


def _by_name(stream: IO[bytes], head: bytes, ending: str, uri: str) -> Iterator[bytes] | None:
    """Decompress what only the name shows: Spark's `.lz4`, `.snappy` and `.deflate`."""
    unpack = {".lz4": unpack_lz4, ".snappy": unpack_snappy}.get(ending)
    if unpack is not None:
        return hadoop_blocks(stream, unpack, partial(damaged, uri))
    if ending == ".deflate":
        if _is_zlib(head):
            return _members(stream, partial(zlib.decompressobj, _WHOLE_ZLIB), uri)
        return _members(stream, partial(zlib.decompressobj, _RAW_DEFLATE), uri, padding=b"")
    return None


def _is_zlib(head: bytes) -> bool:
    """Tell whether a deflated content has the header of zlib (RFC 1950)."""
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


def _members(
    source: IO[bytes], new: Callable[[], Any], uri: str, *, padding: bytes = b"\0"
) -> Iterator[bytes]:
    """Decompress what is in one or several parts, with nothing or zeros behind each.

    Args:
        source: The compressed bytes.
        new: Makes the decompressor of one part: of `zlib`, `bz2` or `lzma`.
        uri: The file, for errors.
        padding: Bytes that may stand behind a part, and mean nothing.
    """
    one, waiting, needs_input = new(), b"", True
    while True:
        data = waiting or (source.read(_CHUNK_BYTES) if needs_input else b"")
        try:
            content = one.decompress(data, BUFFER_BYTES)
        except (*DAMAGED, OSError, ValueError) as error:
            raise damaged(uri, error) from error
        if needs_input and not (data or content or one.eof):
            raise damaged(uri, "it ends early")
        yield content
        # That of `zlib` gives back what it has not used yet; the others keep it.
        waiting = getattr(one, "unconsumed_tail", b"")
        needs_input = getattr(one, "needs_input", not waiting)
        if one.eof:
            waiting = one.unused_data.lstrip(padding)
            while not waiting and (chunk := source.read(_CHUNK_BYTES)):
                waiting = chunk.lstrip(padding)
            if not waiting:
                return
            one, needs_input = new(), True


def _frames(source: IO[bytes], codec: str, uri: str) -> Iterator[bytes]:
    """Decompress what Arrow can as it is read: frames of zstd or LZ4, one after another."""
    import pyarrow as pa  # noqa: PLC0415 - only such files pay for it

    watched = Watched(source)
    stream = pa.CompressedInputStream(pa.PythonFile(watched, mode="r"), codec)
    while True:
        try:
            content: bytes = stream.read(BUFFER_BYTES)
        except (OSError, ValueError) as error:
            if watched.failure is not None:
                raise
            raise damaged(uri, error) from error
        if not content:
            return
        yield content


def _of_skippable(stream: IO[bytes], uri: str) -> Iterator[bytes]:
    """Open what begins with frames to be skipped, by the first frame behind them."""
    place, mark = 0, b""
    while not place or mark.startswith(_SKIPPABLE):
        stream.seek(place)
        mark = stream.read(_FRAME_HEADER)
        place += _FRAME_HEADER + int.from_bytes(mark[4:], "little")
    stream.seek(0)
    return _frames(stream, "lz4" if mark.startswith(_LZ4) else "zstd", uri)


_NEW_XZ: Final = partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
_MARKED: Final[tuple[tuple[bytes | tuple[bytes, ...], Callable[..., Iterator[bytes]]], ...]] = (
    (_GZIP, lambda stream, uri: _members(stream, partial(zlib.decompressobj, _WHOLE_GZIP), uri)),
    (_BZIP2, lambda stream, uri: _members(stream, bz2.BZ2Decompressor, uri)),
    (_XZ, lambda stream, uri: _members(stream, _NEW_XZ, uri)),
    (_ZSTD, lambda stream, uri: _frames(stream, "zstd", uri)),
    (_LZ4, lambda stream, uri: _frames(stream, "lz4", uri)),
    (_SKIPPABLE, _of_skippable),
    (_SNAPPY, lambda stream, uri: snappy_frames(stream, partial(damaged, uri))),
)
