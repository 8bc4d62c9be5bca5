"""Read the text of an XML file, in UTF-8.

The encoding is, in this order: what a byte order mark tells, what the user named, what the XML
declaration names, UTF-8. Line ends become a line feed each, as XML has it.

A byte that its encoding does not know is no reason to give up a file: it comes out as something
that no XML may hold, so the record it is in is a corrupt one.
"""

from __future__ import annotations

import codecs
import lzma
import re
import zlib
from typing import IO, TYPE_CHECKING, Final

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.formats import base
from airflow_cloudfiles.engine.formats.recognize import refuse_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_cloudfiles.engine.formats.base import OpenedFile

CHUNK_BYTES: Final = 2**21
"""Read at a time: enough rows to convert whole columns, little enough for memory."""

_DAMAGED: Final = (EOFError, zlib.error, lzma.LZMAError)
_MARKS: Final = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_WIDE: Final = (
    (b"<\x00\x00\x00", "utf-32-le"),
    (b"\x00\x00\x00<", "utf-32-be"),
    (b"<\x00", "utf-16-le"),
    (b"\x00<", "utf-16-be"),
)
_LITTLE_ENDIAN: Final = {"utf-16": b"<\x00", "utf-32": b"<\x00\x00\x00"}
"""How a file begins in an encoding of two orders when the lower byte comes first."""
_DECLARATION: Final = re.compile(
    rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([A-Za-z0-9._:-]{1,40})[\"'][^>]*?\?>"
)
_LONGEST_DECLARATION: Final = 1024
_UNKNOWN_BYTE: Final = "\ufffe"
"""No character, so no XML holds it: what comes before the text of bytes that are none."""


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return _UNKNOWN_BYTE + "".join(f"\\x{each:02x}" for each in wrong), error.end


codecs.register_error("airflow-cloudfiles-xml", _escape)


def printable(text: bytes) -> str:
    """A part of a file for people: bytes that are no UTF-8 are escaped."""
    return base.printable(text).replace(_UNKNOWN_BYTE, "")


class XmlText:
    """The text of one file, from its beginning.

    Args:
        file: The file.
        encoding: What the user named, if anything.

    Raises:
        FileUnreadableError: The file is damaged, or names an encoding that nobody knows.
    """

    def __init__(self, file: OpenedFile, encoding: str | None) -> None:
        self._uri = file.uri
        self._encoding = encoding
        self._stream = self._open(file)
        self._after_return = False
        head = self._read(CHUNK_BYTES)
        name, skipped = self._find_encoding(head)
        refuse_binary(head, self._uri, is_utf8=name == "utf-8")
        self._head = head[skipped:]
        self._decoder = (
            None
            if name == "utf-8"
            else codecs.getincrementaldecoder(name)("airflow-cloudfiles-xml")
        )

    def chunks(self, sizes: Iterator[int]) -> Iterator[bytes]:
        """The text in pieces, which may be cut anywhere.

        Args:
            sizes: Tells before each piece how many bytes to read for it.
        """
        raw, is_first = self._head, True
        while raw:
            text = self._in_utf8(raw, final=False)
            while is_first and text.startswith(codecs.BOM_UTF8):
                text = text.removeprefix(codecs.BOM_UTF8)  # a second mark is no text either
            yield text
            raw, is_first = self._read(next(sizes)), False
        yield self._in_utf8(b"", final=True)

    def _open(self, file: OpenedFile) -> IO[bytes]:
        try:
            return file.stream()
        except _DAMAGED as error:
            raise self._damaged(error) from error

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except _DAMAGED as error:
            raise self._damaged(error) from error

    def _damaged(self, error: BaseException) -> FileUnreadableError:
        return FileUnreadableError(
            f"{self._uri} cannot be read: {error}. Replace the file, or set "
            "ignoreCorruptFiles=true to go on without it."
        )

    def _find_encoding(self, head: bytes) -> tuple[str, int]:
        """The encoding, and how many bytes its mark has."""
        for mark, name in _MARKS:
            if head.startswith(mark):
                return name, len(mark)
        if self._encoding is not None:
            first = _LITTLE_ENDIAN.get(self._encoding)
            order = "" if first is None else "-le" if head.startswith(first) else "-be"
            return self._encoding + order, 0
        for begin, name in _WIDE:
            if head.startswith(begin):
                return name, 0
        found = _DECLARATION.match(head[:_LONGEST_DECLARATION])
        return (self._declared(found[1].decode()) if found else "utf-8"), 0

    def _declared(self, given: str) -> str:
        try:
            found = codecs.lookup(given)
        except LookupError:
            found = None
        if found is None or not getattr(found, "_is_text_encoding", True):
            raise FileUnreadableError(
                f"{self._uri} says that its encoding is {given!r}, which is not known here. "
                "Name the right one with the option encoding."
            )
        if found.name in {"utf-16", "utf-32"} or found.name.startswith(("utf-16-", "utf-32-")):
            return "utf-8"  # the declaration itself could be read in bytes: it is wrong
        return found.name

    def _in_utf8(self, raw: bytes, *, final: bool) -> bytes:
        if self._decoder is not None:
            raw = self._decoder.decode(raw, final).encode("utf-8", "backslashreplace")
        return self._with_line_feeds(raw)

    def _with_line_feeds(self, text: bytes) -> bytes:
        if not text:
            return text
        if self._after_return:
            text = text.removeprefix(b"\n")
        self._after_return = text.endswith(b"\r")
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return text
