"""Recognize content that cannot be read as its format.

Looks at the first bytes for a message: a file of another format is the most frequent reason why
nothing can be read, a mistake in the first record the next. Never decides how a file is read.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from airflow_cloudfiles.engine.errors import FileUnreadableError

HEAD_BYTES: Final = 2**16
"""So many bytes are looked at."""
ZIP_MARK: Final = b"PK\x03\x04"
OLE_MARK: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MARKS: Final = (
    (b"PAR1", "Parquet"),
    (b"PARE", "Parquet"),
    (b"ORC", "ORC"),
    (b"Obj\x01", "Avro"),
    (ZIP_MARK, "zip"),
    (b"PK\x05\x06", "zip"),
    (OLE_MARK, "Excel"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "RAR"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"RIFF", "RIFF"),
    (b"SQLite format 3\x00", "SQLite"),
    (b"ARROW1\x00\x00", "Arrow"),
    (b"\x7fELF", "ELF"),
)
"""Behind it a binary file has bytes that no text has; `ORC,...` may be a header."""
_SURE_MARKS: Final = ((b"%PDF-", "PDF"), (b"\xff\xd8\xff", "JPEG"))
"""With which no text begins."""
_WORKBOOK: Final = (
    b"[Content_Types].xml",
    b"_rels/",
    b"docProps/",
    b"xl/",
    b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet",
)
"""With one of these the first part of an archive begins that is a workbook."""
_FIRST_PART: Final = 30
"""Where the name of the first part of a zip archive begins."""
_ANY_MARK: Final = tuple(mark for mark, _ in (*_MARKS, *_SURE_MARKS))
_UTF8: Final = codecs.BOM_UTF8
BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins as the mark of UTF-16 does
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
"""With which a text says its encoding."""
FORMAT_NAMES: Final = {
    "Avro": "avro",
    "CSV": "csv",
    "Excel": "excel",
    "JSON": "json",
    "ORC": "orc",
    "Parquet": "parquet",
    "XML": "xml",
}
"""The name in `cloudFiles.format` of what can be read."""
_NO_FORMAT: Final = {
    "HTML": "Is it the answer of a server that failed?",
    "zip": "Archives are known by their names: rename it to end in .zip.",
    "tar": "Archives are known by their names: rename it to end in .tar, or .tar.gz and the like.",
    **dict.fromkeys(("7z", "RAR"), "Pack its files as .zip or .tar.gz, which are read."),
}
_NO_RECORDS: Final = "It holds no records."
_NO_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_TEXT_BYTES: Final = 1024
MARK_BYTES: Final = 512
"""The mark of a binary file is known by so many bytes: tar has a checksum there."""
_FEW: Final = 16
"""Of so many bytes of such a text one is 0, or more."""
_FEWEST_ZEROS: Final = 4
_HTML: Final = re.compile(rb"\s*(?:<!doctype\s+html|<html)", re.IGNORECASE)
_SEPARATORS: Final = (",", ";", "\t", "|")
_FEWEST_LINES: Final = 2


def kind_of_content(head: bytes) -> str | None:
    """Find what the first bytes of a file say that it is; `None` when they do not say."""
    head = head.removeprefix(_UTF8)
    if (kind := _binary_kind(head)) is not None:
        return kind
    if _NO_TEXT.search(head[:_TEXT_BYTES]):
        return None
    text = head.lstrip()
    if _HTML.match(text):
        return "HTML"
    if text.startswith(b"<"):
        return "XML"
    if _is_json(text):
        return "JSON"
    return "CSV" if _is_csv(text) else None


def _binary_kind(head: bytes) -> str | None:
    for mark, kind in _SURE_MARKS:
        if head.startswith(mark):
            return kind
    has_others = _NO_TEXT.search(head[:MARK_BYTES]) is not None
    for mark, kind in _MARKS if has_others else ():
        if head.startswith(mark):
            # An archive is one of a workbook by the name of its first part.
            is_workbook = mark == ZIP_MARK and head[_FIRST_PART:].startswith(_WORKBOOK)
            return "Excel" if is_workbook else kind
    return "tar" if has_others and _is_tar(head) else None


def _is_tar(head: bytes) -> bool:
    """Tell whether the checksum of the first member is right, as in all kinds of tar."""
    said = head[148:156].strip(b"\x00 ")
    if len(head) < MARK_BYTES or not re.fullmatch(rb"[0-7]{1,8}", said):
        return False
    return sum(head[:148]) + 8 * ord(" ") + sum(head[156:MARK_BYTES]) == int(said, 8)


def refuse_binary(head: bytes, uri: str, *, is_utf8: bool = True) -> None:
    """Refuse a binary file that is read as text.

    Args:
        head: Its first bytes, decompressed.
        uri: The file.
        is_utf8: Whether it is to be read as UTF-8, in which two bytes a character are a mistake.

    Raises:
        FileUnreadableError: It is one.
    """
    # Asked for each file: most have no mark.
    head = head[: MARK_BYTES + len(_UTF8)].removeprefix(_UTF8)
    if not head.startswith(_ANY_MARK) and b"\x00" not in head:
        return
    kind = _binary_kind(head)
    if kind is not None:
        raise not_of_format(uri, kind)
    if is_utf8 and b"\x00" in head and (codec := wide_codec(head)) is not None:
        raise FileUnreadableError(
            f"{uri} looks like {codec}, without a byte order mark. Set encoding={codec}, or write "
            "it in UTF-8."
        )


def wide_codec(head: bytes) -> str | None:
    """Find a two-byte encoding of a text that is not UTF-8: much of it is ASCII."""
    if _is_utf8(head):
        return None
    for codec, zeros in (("UTF-16LE", 1), ("UTF-16BE", 0)):
        found = head[zeros::2].count(0)
        if (
            found >= _FEWEST_ZEROS
            and found * _FEW >= len(head)
            and not head[1 - zeros :: 2].count(0)
        ):
            return codec
    return None


def _is_utf8(head: bytes) -> bool:
    """Tell whether first bytes are UTF-8, but for a character that is cut at their end."""
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True


def refuse_header(names: list[str], uri: str) -> None:
    """Refuse a file whose first line is no header of CSV.

    Raises:
        FileUnreadableError: It is JSON, XML or HTML.
    """
    first, last = (names[0].strip(), names[-1].strip()) if names else ("", "")
    if first in {"{", "[", "[{"} or (first.startswith(("{", "[{")) and last.endswith(("}", ","))):
        raise not_of_format(uri, "JSON")
    is_one_tag = len(names) == 1 and first.startswith("<")  # `<OPEN>,<HIGH>` is a header
    if is_one_tag or first.lower().startswith(("<?xml", "<!doctype", "<html")):
        raise not_of_format(uri, "HTML" if _HTML.match(first.encode()) else "XML")


def not_of_format(uri: str, kind: str) -> FileUnreadableError:
    """Build the error for a file that is of another format than `cloudFiles.format` says."""
    return FileUnreadableError(
        f"{uri} {looks_like(kind)} Or keep such files out with pathGlobFilter, or set "
        "ignoreCorruptFiles=true to go on without them."
    )


def looks_like(kind: str) -> str:
    """Say what a file is, and what to set."""
    article = "an" if kind[0] in "AEHOX" else "a"
    name = FORMAT_NAMES.get(kind)
    what_to_do = f"Set cloudFiles.format={name}." if name else _NO_FORMAT.get(kind, _NO_RECORDS)
    return f"looks like {article} {kind} file, which cloudFiles.format does not say. {what_to_do}"


def _is_json(text: bytes) -> bool:
    """Tell whether a text begins as a JSON object, or an array of them."""
    return re.match(rb"\[?\s*\{\s*(?:\"|\}|')", text) is not None


def _is_csv(text: bytes) -> bool:
    """Tell whether the first lines have the same number of some separator."""
    lines = text[:HEAD_BYTES].decode("utf-8", "replace").splitlines()[:3]
    return len(lines) >= _FEWEST_LINES and any(
        lines[0].count(each) and len({line.count(each) for line in lines[:_FEWEST_LINES]}) == 1
        for each in _SEPARATORS
    )
