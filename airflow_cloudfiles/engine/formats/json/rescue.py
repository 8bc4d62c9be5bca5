"""How is rescued data of JSON written?"""

from __future__ import annotations

import json


def quote(text: str) -> bytes:
    """A text as JSON."""
    return json.dumps(text, ensure_ascii=False).encode()


def printable(record: bytes) -> str:
    """A corrupt record as a text, in which bytes that are not UTF-8 are escaped."""
    return record.rstrip(b"\n").decode("utf-8", "backslashreplace")


def corrupt_member(name: str, record: bytes) -> bytes:
    """A corrupt record as a member of rescued data."""
    return quote(name) + b":" + quote(printable(record))


def with_path(members: bytes, file_uri: str) -> bytes:
    """Rescued data, with the path of the file last."""
    return b"{" + members + b',"_file_path":' + quote(file_uri) + b"}"
