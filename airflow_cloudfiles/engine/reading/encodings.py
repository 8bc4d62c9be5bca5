"""Decode a text, whatever its encoding.

What comes out is UTF-8 without a byte order mark. A file that is declared as UTF-8, which is the
default, is UTF-16 or UTF-32 if it begins with the mark of one of these, or with two characters of
ASCII that are so written. Otherwise UTF-8 passes as it is: what is invalid in it is the business of
the format, record by record. In any other encoding a byte that means nothing makes the file
unreadable: a sign put in its place would be a silent loss.

What is no text at all is refused here, after it was decompressed.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import IO, Final

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.formats.recognize import MARK_BYTES, refuse_binary
from airflow_cloudfiles.engine.options.formats.base import UTF8
from airflow_cloudfiles.engine.reading.compression import MARKS as COMPRESSION_MARKS
from airflow_cloudfiles.engine.reading.compression_blocks import BUFFER_BYTES, stream_of

_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins as the mark of UTF-16 does
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, UTF8),
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
    if head.startswith(COMPRESSION_MARKS):
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
    for mark, of_mark in _MARKS:
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
