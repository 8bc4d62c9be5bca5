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
from itertools import chain
from typing import TYPE_CHECKING, Final

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
    """Format a part of a file for people: bytes that are not UTF-8 are escaped."""
    return base.printable(text).replace(_UNKNOWN_BYTE, "")


def text_of(file: OpenedFile, encoding: str | None, sizes: Iterator[int]) -> Iterator[bytes]:
    """Yield the text of one file, in pieces, which may be cut anywhere.

    Args:
        file: The file.
        encoding: What the user named, if anything.
        sizes: Tells before each piece but the first how many bytes to read for it.

    Raises:
        FileUnreadableError: The file is damaged, or names an encoding that nobody knows.
    """
    raw = _read(file, sizes)
    head = next(raw, b"")
    name, skipped = _find_encoding(head, encoding, file.uri)
    refuse_binary(head, file.uri, is_utf8=name == "utf-8")
    decoder = codecs.getincrementaldecoder(name)("airflow-cloudfiles-xml")
    is_first, after_return = True, False
    for chunk in chain((head[skipped:],), raw, (b"",)):
        text = chunk
        if name != "utf-8":
            text = decoder.decode(chunk, not chunk).encode("utf-8", "backslashreplace")
        if text:
            text = text.removeprefix(b"\n") if after_return else text
            after_return = text.endswith(b"\r")
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        while is_first and text.startswith(codecs.BOM_UTF8):
            text = text.removeprefix(codecs.BOM_UTF8)  # a second mark is no text either
        is_first = False
        yield text


def _read(file: OpenedFile, sizes: Iterator[int]) -> Iterator[bytes]:
    """Yield the bytes of the file."""
    try:
        stream, size = file.stream(), CHUNK_BYTES
        while chunk := stream.read(size):
            yield chunk
            size = next(sizes)
    except _DAMAGED as error:
        raise FileUnreadableError(
            f"{file.uri} cannot be read: {error}. Replace the file, or set "
            "ignoreCorruptFiles=true to go on without it."
        ) from error


def _find_encoding(head: bytes, given: str | None, uri: str) -> tuple[str, int]:
    """Find the encoding, and how many bytes its mark has."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name, len(mark)
    if given is not None:
        first = _LITTLE_ENDIAN.get(given)
        order = "" if first is None else "-le" if head.startswith(first) else "-be"
        return given + order, 0
    for begin, name in _WIDE:
        if head.startswith(begin):
            return name, 0
    found = _DECLARATION.match(head[:_LONGEST_DECLARATION])
    return (_declared(found[1].decode(), uri) if found else "utf-8"), 0


def _declared(given: str, uri: str) -> str:
    """Read the codec that a declaration names."""
    try:
        found = codecs.lookup(given)
    except LookupError:
        found = None
    if found is None or not getattr(found, "_is_text_encoding", True):
        raise FileUnreadableError(
            f"{uri} says that its encoding is {given!r}, which is not known here. "
            "Name the right one with the option encoding."
        )
    if found.name in {"utf-16", "utf-32"} or found.name.startswith(("utf-16-", "utf-32-")):
        return "utf-8"  # the declaration itself could be read in bytes: it is wrong
    return found.name
