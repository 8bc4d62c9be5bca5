"""Decompress what is compressed, and decode a text, whatever its encoding.

A compressed file is known by its first bytes, whatever its name says; a text never begins like
that. Hadoop's own layouts of LZ4 and Snappy, which Spark writes, and deflate have no such mark:
there the name decides. A name that promises a compression which the content does not have is
refused: the file was cut, or is something else.

Everything is decompressed as it is read, in memory that does not depend on how much comes out. What
ends early, or has something else behind its end, is damaged: never a shorter file.

LZ4 and Snappy compress blocks in memory; how blocks make up a file is defined elsewhere:

- Hadoop, and so Spark, writes for each block its size, then for each compressed chunk of it the
  chunk's size and the chunk (`BlockCompressorStream`); all sizes take four bytes, big end first.
- Snappy's own framing format has typed chunks with checksums. (LZ4's frames are read by Arrow.)

A text comes out in UTF-8 without a byte order mark. A file that is declared as UTF-8, which is the
default, is UTF-16 or UTF-32 if it begins with the mark of one of these, or with two characters of
ASCII that are so written. Otherwise UTF-8 passes as it is: what is invalid in it is the business of
the format, record by record. In any other encoding a byte that means nothing makes the file
unreadable: a sign put in its place would be a silent loss.
"""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import chain
from typing import IO, Any, Final

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.formats.content import WatchedBytes, unpack_lz4, unpack_snappy
from airflow_cloudfiles.engine.formats.recognize import BYTE_ORDER_MARKS, MARK_BYTES, refuse_binary
from airflow_cloudfiles.engine.options.formats.base import UTF8
from airflow_cloudfiles.engine.reading.splits import COMPRESSED

_MAX_BLOCK_BYTES: Final = 256 * 2**20
"""Largest block; Hadoop's default is 256 KiB."""
_SIZE_BYTES: Final = 4
BUFFER_BYTES: Final = 2**20
"""What streams read ahead."""

Unpack = Callable[[bytes, int], bytes]
"""Decompresses a chunk to at most so many bytes; a `ValueError` or `OSError` when it cannot."""


class _Chunks(io.RawIOBase):
    """A stream of what an iterator gives."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._chunk = memoryview(b"")
        self._failure: BaseException | None = None

    def readable(self) -> bool:
        """Return true, always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer, at least in part, unless everything was read."""
        if self._failure is not None:
            raise self._failure  # a generator that has failed would seem to be at its end
        try:
            while not self._chunk:
                self._chunk = memoryview(next(self._chunks))
        except StopIteration:
            return 0
        except BaseException as error:
            self._failure = error
            raise
        count = min(len(buffer), len(self._chunk))
        buffer[:count] = self._chunk[:count]
        self._chunk = self._chunk[count:]
        return count


def stream_of(chunks: Iterator[bytes]) -> IO[bytes]:
    """Make a stream of the bytes that an iterator gives; what it raises, reading raises."""
    return io.BufferedReader(_Chunks(chunks), BUFFER_BYTES)


def hadoop_blocks(source: IO[bytes], unpack: Unpack, uri: str) -> Iterator[bytes]:
    """Yield the content of a file in Hadoop's layout.

    Args:
        source: The compressed bytes.
        unpack: Of the compression.
        uri: The file, for errors.
    """
    while header := _take(source, _SIZE_BYTES, uri, may_end=True):
        left = int.from_bytes(header, "big")
        while left:
            size = int.from_bytes(_take(source, _SIZE_BYTES, uri), "big")
            if max(size, left) > _MAX_BLOCK_BYTES:
                raise damaged(uri, f"it has a block of more than {_MAX_BLOCK_BYTES} bytes")
            packed = _take(source, size, uri)
            try:
                content = unpack(packed, left)
            except (ValueError, OSError, IndexError) as error:
                raise damaged(uri, str(error)) from error
            if not content:
                raise damaged(uri, "it has a chunk of nothing")
            left -= len(content)
            yield content


def _take(source: IO[bytes], size: int, uri: str, *, may_end: bool = False) -> bytes:
    """So many bytes; none at the end of the file, if it may end here."""
    content = source.read(size)
    if len(content) < size and (content or not may_end):
        raise damaged(uri, "it ends early")
    return content


_PACKED, _PLAIN, _FIRST_SKIPPABLE, _MARK = 0x00, 0x01, 0x80, 0xFF
_MAX_FRAME_BYTES: Final = 65536


def snappy_frames(source: IO[bytes], uri: str) -> Iterator[bytes]:
    """Yield the content of Snappy's framing format (`framing_format.txt`), checked."""
    while header := _take(source, _SIZE_BYTES, uri, may_end=True):
        body = _take(source, int.from_bytes(header[1:], "little"), uri)
        kind = header[0]
        if kind in {_PACKED, _PLAIN}:
            yield _content(body, uri, is_packed=kind == _PACKED)
        elif kind == _MARK and body != b"sNaPpY":
            raise damaged(uri, "it has a frame of another format")
        elif kind < _FIRST_SKIPPABLE:
            raise damaged(uri, f"it has a frame of the unknown kind {kind}")


def _content(body: bytes, uri: str, *, is_packed: bool) -> bytes:
    """Decompress the content of a frame."""
    try:
        content = unpack_snappy(body[4:], _MAX_FRAME_BYTES) if is_packed else body[4:]
    except (ValueError, OSError, IndexError) as error:
        raise damaged(uri, str(error)) from error
    checksum = int.from_bytes(body[:4], "little")
    if len(body) <= _SIZE_BYTES or _masked_crc32c(content) != checksum:
        raise damaged(uri, "a checksum does not fit")
    return content


def _masked_crc32c(content: bytes) -> int:
    """Compute the checksum of the framing format."""
    table = _crc32c_table()
    crc = 0xFFFFFFFF
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


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
        return hadoop_blocks(stream, unpack, uri)
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
    if ending in COMPRESSED:
        raise FileUnreadableError(
            f"{uri} is damaged: its name ends in {ending} but its content is not of that kind. "
            "Replace it, or correct its name."
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

    watched = WatchedBytes(source)
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
    mark = _read_fully(stream, _FRAME_HEADER)
    while mark.startswith(_SKIPPABLE):
        left = int.from_bytes(mark[4:], "little")
        while left and (skipped := stream.read(min(left, BUFFER_BYTES))):
            left -= len(skipped)
        if left:
            raise damaged(uri, "it ends early")
        mark = _read_fully(stream, _FRAME_HEADER)
    rest = stream_of(chain((mark,), iter(partial(stream.read, BUFFER_BYTES), b"")))
    return _frames(rest, "lz4" if mark.startswith(_LZ4) else "zstd", uri)


_NEW_XZ: Final = partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
_MARKED: Final[tuple[tuple[bytes | tuple[bytes, ...], Callable[..., Iterator[bytes]]], ...]] = (
    (_GZIP, lambda stream, uri: _members(stream, partial(zlib.decompressobj, _WHOLE_GZIP), uri)),
    (_BZIP2, lambda stream, uri: _members(stream, bz2.BZ2Decompressor, uri)),
    (_XZ, lambda stream, uri: _members(stream, _NEW_XZ, uri)),
    (_ZSTD, lambda stream, uri: _frames(stream, "zstd", uri)),
    (_LZ4, lambda stream, uri: _frames(stream, "lz4", uri)),
    (_SKIPPABLE, _of_skippable),
    (_SNAPPY, snappy_frames),
)


_LONGEST_MARK: Final = 4
_SILENT: Final = (
    (re.compile(rb"[\t\n\r -~]\0\0\0"), "utf-32-le"),
    (re.compile(rb"\0\0\0[\t\n\r -~]"), "utf-32-be"),
    (re.compile(rb"[\t\n\r -~]\0[\t\n\r -~]\0"), "utf-16-le"),
    (re.compile(rb"\0[\t\n\r -~]\0[\t\n\r -~]"), "utf-16-be"),
)
"""How a text without a mark begins whose first characters are those of ASCII, as JSON's are (RFC
4627); Jackson, and so Spark, reads it so."""
_UNMARKED: Final = {"utf-16": "utf-16-be", "utf-32": "utf-32-be"}
"""What a text without a mark is in, as in Java."""


def in_utf8(stream: IO[bytes], encoding: str, uri: str) -> IO[bytes]:
    """Give a text in UTF-8, as it is read.

    Args:
        stream: The text, decompressed, from its beginning.
        encoding: What the user named, as `charsets.codec_of` gives it.
        uri: The file, for errors.

    Returns:
        The text; reading it raises `FileUnreadableError` where it is not in its encoding.
    """
    head = _read_fully(stream, MARK_BYTES)
    if head.startswith(MARKS):
        raise FileUnreadableError(
            f"{uri} is compressed twice. Decompress it once, or write it compressed once only."
        )
    codec, mark = _codec_of(head, encoding)
    refuse_binary(head, uri, is_utf8=codec == UTF8)
    chunks = chain((head[mark:],), iter(partial(stream.read, BUFFER_BYTES), b""))
    return stream_of(chunks if codec == UTF8 else _decoded(chunks, codec, uri, mark))


def mark_of_utf8(head: bytes, encoding: str) -> int | None:
    """Find out whether a text is in UTF-8 already.

    Args:
        head: Its first bytes, decompressed.
        encoding: What the user named, as `charsets.codec_of` gives it.

    Returns:
        The length of its byte order mark; `None` when it is in another encoding.
    """
    codec, mark = _codec_of(head[:_LONGEST_MARK], encoding)
    return mark if codec == UTF8 else None


def without_mark(chunk: bytes, uri: str) -> bytes:
    """Take the mark of UTF-8 off the first bytes of a text of which only a part is read.

    Raises:
        FileUnreadableError: It has the mark of another encoding, which cannot be cut.
    """
    codec, mark = _codec_of(chunk[:_LONGEST_MARK], UTF8)
    if codec != UTF8:
        raise FileUnreadableError(
            f"{uri} is in {codec.upper()}, as its first bytes show, and too large to be read by "
            f"one task as UTF-8. Set encoding={codec.upper()}, or write it in UTF-8."
        )
    return chunk[mark:]


def _codec_of(head: bytes, encoding: str) -> tuple[str, int]:
    """Find the codec of a text, and the length of its mark."""
    codec = UTF8 if encoding.lower() in {"utf-8", "utf8", "utf-8-sig"} else encoding
    for mark, of_mark in BYTE_ORDER_MARKS:
        # A mark counts where the name allows for it, and everywhere in what is declared as UTF-8.
        if head.startswith(mark) and (codec == UTF8 or of_mark.startswith(codec)):
            return of_mark, len(mark)
    silent = _SILENT if codec == UTF8 else ()
    found = next((of_text for begins, of_text in silent if begins.match(head)), codec)
    return _UNMARKED.get(found, found), 0


def _read_fully(stream: IO[bytes], size: int) -> bytes:
    """Read the next bytes, fewer only at the end."""
    content = b""
    while len(content) < size and (more := stream.read(size - len(content))):
        content += more
    return content


def _decoded(chunks: Iterator[bytes], codec: str, uri: str, position: int) -> Iterator[bytes]:
    """Convert a text in another encoding to UTF-8.

    Args:
        chunks: The text, without the mark.
        codec: Of the text.
        uri: The file, for errors.
        position: How many bytes the mark had.
    """
    decoder = codecs.getincrementaldecoder(codec)("strict")
    for chunk in chain(chunks, (b"",)):
        held = len(decoder.getstate()[0])
        try:
            text = decoder.decode(chunk, final=not chunk)
            position += len(chunk)
            content = text.encode()
        except UnicodeError as error:
            start = error.start if isinstance(error, UnicodeDecodeError) else 0
            raise FileUnreadableError(
                f"{uri} is not in {codec.upper()}: byte {position - held + start} cannot be read "
                f"({getattr(error, 'reason', error)}). Set encoding to the encoding of the file, "
                "or write the file again."
            ) from error
        yield content
