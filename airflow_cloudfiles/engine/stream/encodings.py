"""In which encoding is a text?

What comes out is UTF-8 without a byte order mark.
"""

from __future__ import annotations

import io
from typing import IO, Final

from airflow_cloudfiles.engine.errors import FileUnreadableError

_UTF8_BOM: Final = b"\xef\xbb\xbf"
_WIDE_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")


def in_utf8(stream: IO[bytes], encoding: str, uri: str) -> IO[bytes]:
    """Give a text in UTF-8.

    Args:
        stream: The text, decompressed, from its beginning.
        encoding: The encoding that the user named.
        uri: The file, for errors.

    Raises:
        FileUnreadableError: The text is in another encoding.
    """
    if encoding.lower() not in {"utf-8", "utf8"}:
        raise FileUnreadableError(f"{uri}: encoding {encoding} is not in this version.")
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(_Raw(stream))
    without_mark(buffered.peek(4)[:4], uri)
    if buffered.peek(4).startswith(_UTF8_BOM):
        buffered.read(len(_UTF8_BOM))
    return buffered


def without_mark(chunk: bytes, uri: str) -> bytes:
    """Take off a UTF-8 byte order mark; refuse the marks of other encodings."""
    if chunk.startswith(_WIDE_BOMS):
        raise FileUnreadableError(
            f"{uri} is in UTF-16 or UTF-32; this version reads UTF-8. Convert the file."
        )
    return chunk.removeprefix(_UTF8_BOM)


class _Raw(io.RawIOBase):
    """A stream that can only be read, as a raw one."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream = stream

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer."""
        chunk = self._stream.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)
