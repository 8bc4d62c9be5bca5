"""What are the bytes of the RocksDB index?

Keys and values only, no input or output. The index can be rebuilt at any time, so a version
that is not this one, older or newer, is rebuilt and never converted.

```
m                 → {"version": 2, "entry": n, "id": "…", "files": k}   how far it goes
                    besides, once files were forgotten: "expired_entry", "expired_us"
f<path, bytes>    → <version, 8 bytes><n>                   the file as it was recorded last
```

`n` is the number of the entry of the file log, big-endian without leading zero bytes. The version
is a hash of modification time, size and etag: it shows that a file is another one than before.

Paths are the bytes of the store's key, so that the index sorts as listings do, and a sorted
listing can be merged with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry

FORMAT_VERSION = 2
MARK_KEY = b"m"
"""Key of the mark of how far the index goes."""

FILE_PREFIX = b"f"
"""First byte of the keys of files."""

AFTER_FILES = b"g"
"""The first key behind those of files."""

_VERSION_BYTES = 8


@dataclass(frozen=True, slots=True)
class Mark:
    """How far an index goes.

    Attributes:
        entry: The last entry of the file log that is in it.
        entry_id: The id of that entry's writing.
        files: How many files the entries up to this one hold.
        expired_entry: Old files of the entries before this one were forgotten.
        expired_us: Only files modified before this were forgotten; 0: none was.
    """

    entry: int
    entry_id: str
    files: int
    expired_entry: int = 0
    expired_us: int = 0


def path_key(path: str) -> bytes:
    """Build the key of a file."""
    return FILE_PREFIX + path.encode("utf-8", "surrogateescape")


def key_path(key: bytes) -> str:
    """Read the path of a file from its key."""
    return key[len(FILE_PREFIX) :].decode("utf-8", "surrogateescape")


def key_behind(prefix: bytes) -> bytes:
    """Build the first key behind all that start with a prefix (which does not consist of 0xff)."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def version_hash(file: FileEntry) -> bytes:
    """Distinguish one version of a file from another, in eight bytes."""
    text = f"{file.modification_time_us} {file.size} {file.etag}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_VERSION_BYTES).digest()


def encode_entry_number(number: int) -> bytes:
    """Build the part of a file's value that names its entry."""
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def decode_value(value: bytes) -> tuple[bytes, int]:
    """Read the value of a file: its version, and the number of its entry."""
    return value[:_VERSION_BYTES], int.from_bytes(value[_VERSION_BYTES:], "big")


def encode_mark(mark: Mark) -> bytes:
    """Build the value of the mark."""
    place: dict[str, int | str] = {"entry": mark.entry, "id": mark.entry_id, "files": mark.files}
    if mark.expired_us:
        place |= {"expired_entry": mark.expired_entry, "expired_us": mark.expired_us}
    return json.dumps({"version": FORMAT_VERSION, **place}).encode("ascii")


def decode_mark(value: bytes) -> Mark | None:
    """Read the mark; `None` when it is not of this version, so that the index must be rebuilt."""
    try:
        fields = json.loads(value)
    except ValueError:
        return None
    match fields:
        case {"version": 2, "entry": int(entry), "id": str(entry_id), "files": int(files)}:
            expired = fields.get("expired_entry", 0), fields.get("expired_us", 0)
            is_valid = entry >= 0 and all(type(each) is int and each >= 0 for each in expired)
            return Mark(entry, entry_id, files, *expired) if is_valid else None
    return None
