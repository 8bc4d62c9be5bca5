"""Take one field out of rescued data, and leave the rest as it was.

Rescued data is one JSON object that is the record without everything that found its column; nested
fields keep their path, `_file_path` comes last. Values are cut out, not parsed and written again:
what stays keeps its digits, its escapes and its order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from airflow_cloudfiles.engine.formats.json import tokens as json_tokens

FILE_PATH: Final = "_file_path"
"""The member with the file that a row is from; without any other, nothing is rescued."""
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_QUOTE: Final = b'"'

Path = Sequence[str]


def find(rescued: bytes, path: Path, *, case_sensitive: bool) -> bytes | None:
    """Find the text of a field's value; `None` when it is not rescued.

    Of duplicate keys, the last one counts, as in the record.

    Args:
        rescued: Rescued data: strict JSON.
        path: The field, from the outside in.
        case_sensitive: Whether `Foo` is another field than `foo`.
    """
    value: bytes | None = rescued
    for name in path:
        if value is None or value[:1] != b"{":
            return None
        try:
            found = members(value)
        except json_tokens.NotJsonError:  # another writer wrote into the column
            return None
        place = _place(found, name, case_sensitive=case_sensitive)
        value = None if place is None else found[place][1]
    return value


def replace(
    rescued: bytes, path: Path, value: bytes | None, *, case_sensitive: bool
) -> bytes | None:
    """Replace the value of a field that `find` finds in rescued data, or remove the field.

    Args:
        rescued: Rescued data.
        path: The field.
        value: What is left of it; `None`: nothing.
        case_sensitive: As for `find`.

    Returns:
        The text; `None` when nothing is rescued any more.
    """
    found = _replace(rescued, path, value, case_sensitive=case_sensitive)
    if found is None:
        return None
    left = members(found)  # of two members of that name, the first is the record's own
    return None if len(left) == 1 and key_name(left[0][0]) == FILE_PATH else found


def members(value: bytes) -> list[tuple[bytes, bytes]]:
    """Parse keys and values of an object as they are written, including duplicate keys.

    Raises:
        NotJsonError: It is not an object.
    """
    if b"\\" not in value:
        try:
            decoded = _MEMBERS.decode(value)
        except (msgspec.DecodeError, RecursionError):
            decoded = {}
        found = [(_QUOTE + key.encode() + _QUOTE, bytes(text)) for key, text in decoded.items()]
        # Every key has two quotes; what is left over belongs to a key that came twice.
        if found and value.count(_QUOTE) == 2 * len(found) + sum(
            text.count(_QUOTE) for _, text in found
        ):
            return found
    if json_tokens.DEFAULT.value_end(value) != len(value):
        raise json_tokens.NotJsonError("more after the object")
    return json_tokens.DEFAULT.members(value)


def key_name(key: bytes) -> str:
    """Decode a key's text to the name it stands for; one without UTF-8 is its own text."""
    name = json_tokens.key_text(key)
    return key.decode() if name is None else name


def key_of(name: str) -> bytes:
    """Encode a name as the text of a key."""
    return json.dumps(name, ensure_ascii=False).encode()


def as_object(found: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Encode members as an object."""
    return b"{" + b",".join(key + b":" + text for key, text in found) + b"}"


def _place(found: list[tuple[bytes, bytes]], name: str, *, case_sensitive: bool) -> int | None:
    for place in range(len(found) - 1, -1, -1):
        other = key_name(found[place][0])
        if other == name or (not case_sensitive and other.lower() == name.lower()):
            return place
    return None


def _replace(value: bytes, path: Path, new: bytes | None, *, case_sensitive: bool) -> bytes | None:
    """Replace the value at a path of an object; return `None` when no member is left."""
    if not path:
        return new
    found = members(value)
    place = _place(found, path[0], case_sensitive=case_sensitive)
    if place is None:
        return value
    key, inner = found[place]
    rest = _replace(inner, path[1:], new, case_sensitive=case_sensitive)
    found[place : place + 1] = [] if rest is None else [(key, rest)]
    return as_object(found) if found else None
