"""What does a file hold that cannot be read as its format?

Looks at the first bytes for a message: a file of another format is the most frequent reason why
nothing can be read, a mistake in the first record the next. Never decides how a file is read.
"""

from __future__ import annotations

import json
import re
from typing import Final

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.formats.xml.tree import NotXmlError, parse
from airflow_cloudfiles.engine.options.formats.base import FormatOptions
from airflow_cloudfiles.engine.options.formats.json import JsonOptions
from airflow_cloudfiles.engine.options.formats.xml import XmlOptions
from airflow_cloudfiles.engine.shortened import cut, few

HEAD_BYTES: Final = 2**16
"""So many bytes are looked at."""
_MARKS: Final = (
    (b"PAR1", "Parquet"),
    (b"ORC", "ORC"),
    (b"Obj\x01", "Avro"),
    (b"PK\x03\x04", "zip"),
)
_BINARY: Final = frozenset(kind for _, kind in _MARKS)
_FORMATS: Final = {
    "Avro": "avro",
    "CSV": "csv",
    "JSON": "json",
    "ORC": "orc",
    "Parquet": "parquet",
    "XML": "xml",
}
"""The name in `cloudFiles.format` of what can be read."""
_NO_FORMAT: Final = {
    "HTML": "Is it the answer of a server that failed?",
    "zip": "Archives are not read: extract its files.",
}
_NO_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_TEXT_BYTES: Final = 1024
MARK_BYTES: Final = 64
"""The mark of a binary file is known by so many bytes."""
_HTML: Final = re.compile(rb"\s*(?:<!doctype\s+html|<html)", re.IGNORECASE)
_TRAILING_COMMA: Final = re.compile(r",\s*[}\]]")
_ELEMENT: Final = re.compile(r"<([A-Za-z_][\w.:-]*)")
_SEPARATORS: Final = (",", ";", "\t", "|")
_FEWEST_LINES: Final = 2


def kind_of_content(head: bytes) -> str | None:
    """What the first bytes of a file say that it is; `None` when they do not say."""
    head = head.removeprefix(b"\xef\xbb\xbf")
    for mark, kind in _MARKS:
        # Behind its mark a binary file has bytes that no text has; `ORC,...` may be a header.
        if head.startswith(mark) and _NO_TEXT.search(head[:MARK_BYTES]):
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


def refuse_binary(head: bytes, uri: str) -> None:
    """Refuse a binary file that is read as text.

    Raises:
        FileUnreadableError: It is one.
    """
    kind = kind_of_content(head[:MARK_BYTES])
    if kind is not None and kind in _BINARY:
        raise not_of_format(uri, kind)


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
    """The error for a file that is of another format than `cloudFiles.format` says."""
    return FileUnreadableError(
        f"{uri} {_looks_like(kind)} Or keep such files out with pathGlobFilter, or set "
        "ignoreCorruptFiles=true to go on without them."
    )


def _looks_like(kind: str) -> str:
    """What a file is, and what to set."""
    article = "an" if kind[0] in "AHOX" else "a"
    name = _FORMATS.get(kind)
    what_to_do = f"Set cloudFiles.format={name}." if name else _NO_FORMAT.get(kind, "")
    return f"looks like {article} {kind} file, which cloudFiles.format does not say. {what_to_do}"


def why_nothing(head: bytes, options: FormatOptions, asked: str) -> str | None:
    """Why no field was found in a file, as a sentence; `None` when that is not known.

    Args:
        head: Its first bytes, decompressed.
        options: The options of the format.
        asked: `cloudFiles.format`.
    """
    kind = kind_of_content(head)
    if kind is not None and _FORMATS.get(kind) != asked:
        return f"It {_looks_like(kind)}"
    text = head.decode("utf-8", "replace").removeprefix("\ufeff")
    if isinstance(options, JsonOptions):
        return _json_reason(text, is_whole=options.multi_line)
    return _xml_reason(text, options) if isinstance(options, XmlOptions) else None


def _json_reason(text: str, *, is_whole: bool) -> str | None:
    if not is_whole and _json_error(text) is None:
        return "The file is one JSON document: set multiLine=true."
    lines = ((n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip())
    number, record = (1, text) if is_whole else next(lines, (1, ""))
    error = _json_error(record)
    if error is None:
        return None
    if _TRAILING_COMMA.match(record, record.rfind(",", 0, error.pos + 1)):
        reason = "a comma stands before a closing bracket"
    elif not is_whole and error.pos >= len(record.rstrip()):
        return f"Line {number} ends in the middle of a record: set multiLine=true."
    else:
        reason = error.msg[0].lower() + error.msg[1:]
    at = f"line {error.lineno if is_whole else number}, character {error.colno}"
    return f"Its first record is not valid JSON: {reason} ({at})."


def _json_error(text: str) -> json.JSONDecodeError | None:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error
    except RecursionError:
        return None
    return None


def _xml_reason(text: str, options: XmlOptions) -> str | None:
    tag = re.escape(options.row_tag)
    row = re.search(rf"<{tag}(?:\s[^>]*)?>.*?</{tag}\s*>|<{tag}(?:\s[^>]*)?/>", text, re.DOTALL)
    if row is None:
        names = [name for name in dict.fromkeys(_ELEMENT.findall(text)) if name != options.row_tag]
        return f"Elements there are {few(names)}: set rowTag to that of a row." if names else None
    try:
        parse(row[0].encode())
    except NotXmlError as error:
        entity = "undefined entity" in str(error)
        mend = " Write it as a character, or as a number such as &#160;." if entity else ""
        return f"Its first <{cut(options.row_tag)}> is not well-formed XML: {error}.{mend}"
    return None


def _is_json(text: bytes) -> bool:
    """Whether a text begins as a JSON object, or an array of them."""
    return re.match(rb"\[?\s*\{\s*(?:\"|\}|')", text) is not None


def _is_csv(text: bytes) -> bool:
    """Whether the first lines have the same number of some separator."""
    lines = text[:HEAD_BYTES].decode("utf-8", "replace").splitlines()[:3]
    return len(lines) >= _FEWEST_LINES and any(
        lines[0].count(each) and len({line.count(each) for line in lines[:_FEWEST_LINES]}) == 1
        for each in _SEPARATORS
    )
