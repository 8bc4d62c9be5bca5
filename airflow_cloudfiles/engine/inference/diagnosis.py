"""Why was no field found in a file?

A mistake in the first record is the most frequent reason, after a file of another format.
"""

from __future__ import annotations

import json
import re
from typing import Final

from airflow_cloudfiles.engine.formats.recognize import FORMAT_NAMES, kind_of_content, looks_like
from airflow_cloudfiles.engine.formats.xml.tree import NotXmlError, parse
from airflow_cloudfiles.engine.options.formats.base import FormatOptions
from airflow_cloudfiles.engine.options.formats.json import JsonOptions
from airflow_cloudfiles.engine.options.formats.xml import XmlOptions
from airflow_cloudfiles.engine.shortened import cut, few

_ELEMENT: Final = re.compile(r"<([A-Za-z_][\w.:-]*)")
_TRAILING_COMMA: Final = re.compile(r",\s*[}\]]")


def why_nothing(head: bytes, options: FormatOptions, asked: str) -> str | None:
    """Why no field was found in a file, as a sentence; `None` when that is not known.

    Args:
        head: Its first bytes, decompressed.
        options: The options of the format.
        asked: `cloudFiles.format`.
    """
    kind = kind_of_content(head)
    if kind is not None and FORMAT_NAMES.get(kind) != asked:
        return f"It {looks_like(kind)}"
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
