"""What are the bytes of the RocksDB index?

Keys and values only, no input or output. The index can be rebuilt at any time, so a version
that is not this one, older or newer, is rebuilt and never converted.

```
m                 → {"version": 1, "entry": n, "id": "…"}      how far the index goes, JSON
f<path, bytes>    → n, big-endian without leading zero bytes    in which entry the file is
```

Paths are the bytes of the store's key, so that the index sorts as listings do, and a sorted
listing can be merged with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

FORMAT_VERSION = 1
MARK_KEY = b"m"
"""Key of the mark that says how far the index goes."""

FILE_PREFIX = b"f"
"""First byte of the keys of files."""

AFTER_FILES = b"g"
"""The first key behind those of files."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far an index goes.

    Attributes:
        entry: The last entry of the file log that is in it.
        entry_id: The id of that entry's writing.
    """

    entry: int
    entry_id: str


def path_key(path: str) -> bytes:
    """Build the key of a file."""
    return FILE_PREFIX + path.encode("utf-8", "surrogateescape")


def encode_entry_number(number: int) -> bytes:
    """Build the value of a file."""
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def decode_entry_number(value: bytes) -> int:
    """Read the value of a file."""
    return int.from_bytes(value, "big")


def encode_mark(mark: Mark) -> bytes:
    """Build the value of the mark."""
    value = {"version": FORMAT_VERSION, "entry": mark.entry, "id": mark.entry_id}
    return json.dumps(value).encode("ascii")


def decode_mark(value: bytes) -> Mark | None:
    """Read the mark; `None` when it is not of this version, so that the index must be rebuilt."""
    try:
        fields = json.loads(value)
    except ValueError:
        return None
    match fields:
        case {"version": int(version), "entry": int(entry), "id": str(entry_id)}:
            return Mark(entry, entry_id) if version == FORMAT_VERSION and entry >= 0 else None
    return None
