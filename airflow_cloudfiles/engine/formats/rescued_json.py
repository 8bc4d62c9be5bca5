"""How is rescued data written?

Rescued data is one JSON object a row: members by the names in the file, the path of the file last.
"""

from __future__ import annotations

import json


def quote(text: str) -> str:
    """A JSON string."""
    return json.dumps(text, ensure_ascii=False)


def member(name: str, text: str) -> str:
    """A member of an object, whose value is a string."""
    return f"{quote(name)}:{quote(text)}"


def path_end(file_uri: str) -> str:
    """The end of the object: the path of the file, and the brace."""
    return f',"_file_path":{quote(file_uri)}}}'


def printable(record: bytes) -> str:
    """A record as a string, in which bytes that are not UTF-8 are escaped."""
    return record.decode("utf-8", "backslashreplace")
