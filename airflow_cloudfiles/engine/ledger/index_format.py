"""What are the bytes of the RocksDB index?

Keys and values only, no input or output. The index can be rebuilt at any time, so a version
that is not this one, older or newer, is rebuilt and never converted.

```
m                 → {"version": 2, "entry": n, "id": "…", "files": k}   how far it goes
                    besides, once files were forgotten: "expired_entry", "expired_us"
f<path, bytes>    → <version, 8 bytes><n>                   the file as it was recorded last
c<16 bytes>       → <n>                                     a content that is ingested (format 4)
```

`n` is the number of the entry of the file log, big-endian without leading zero bytes. The version
is a hash that shows that a file is another one than before. What is in it, the identity of files
says (`cloudFiles.fileIdentity`), and each has a format of its own:

- 2: modification time, size and etag (`path`, `pathAndModificationTime`);
- 3: size and etag, or size and modification time where there is no etag (`pathAndVersion`);
- 4: as 3; besides, the first half of the SHA-256 of each content (`content`).

Paths are the bytes of the store's key, so that the index sorts as listings do, and a sorted
listing can be merged with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_cloudfiles.engine.files import FileEntry, FileIdentity

FORMAT_VERSION = 2
WITH_CONTENTS = 4
"""The format in which contents are known."""
_FORMATS: Final[dict[FileIdentity, int]] = {
    "path": FORMAT_VERSION,
    "pathAndModificationTime": FORMAT_VERSION,
    "pathAndVersion": 3,
    "content": WITH_CONTENTS,
}
MARK_KEY = b"m"
"""Key of the mark of how far the index goes."""

FILE_PREFIX = b"f"
"""First byte of the keys of files."""

AFTER_FILES = b"g"
"""The first key behind those of files."""

_CONTENT_PREFIX = b"c"
_VERSION_BYTES = 8
_CONTENT_BYTES = 16


@dataclass(frozen=True, slots=True)
class IndexMark:
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


def stored_version_hash(file: FileEntry) -> bytes:
    """Distinguish what a store calls one version from another, in eight bytes."""
    version = f"e{file.etag}" if file.etag else f"t{file.modification_time_us}"
    text = f"{file.size} {version}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_VERSION_BYTES).digest()


def format_of(identity: FileIdentity) -> int:
    """The format of an index for files that are known by this."""
    return _FORMATS[identity]


def hash_of(index_format: int) -> Callable[[FileEntry], bytes]:
    """What distinguishes the versions of a file in an index of some format."""
    return version_hash if index_format == FORMAT_VERSION else stored_version_hash


def content_key(content: str) -> bytes:
    """Build the key of a content, of which the SHA-256 is given in hexadecimal digits."""
    return _CONTENT_PREFIX + bytes.fromhex(content)[:_CONTENT_BYTES]


def encode_entry_number(number: int) -> bytes:
    """Build the part of a file's value that names its entry."""
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def decode_entry_number(value: bytes) -> int:
    """Read the part of a value that names an entry."""
    return int.from_bytes(value, "big")


def decode_version(value: bytes) -> bytes:
    """Read the version of a file from its value."""
    return value[:_VERSION_BYTES]


def decode_value(value: bytes) -> tuple[bytes, int]:
    """Read the value of a file: its version, and the number of its entry."""
    return value[:_VERSION_BYTES], decode_entry_number(value[_VERSION_BYTES:])


def encode_mark(mark: IndexMark, index_format: int = FORMAT_VERSION) -> bytes:
    """Build the value of the mark."""
    place: dict[str, int | str] = {"entry": mark.entry, "id": mark.entry_id, "files": mark.files}
    if mark.expired_us:
        place |= {"expired_entry": mark.expired_entry, "expired_us": mark.expired_us}
    return json.dumps({"version": index_format, **place}).encode("ascii")


def decode_mark(value: bytes, index_format: int = FORMAT_VERSION) -> IndexMark | None:
    """Read the mark; `None` when it is of another format, so that the index must be rebuilt."""
    try:
        fields = json.loads(value)
    except ValueError:
        return None
    match fields:
        case {"version": found, "entry": int(entry), "id": str(entry_id), "files": int(files)}:
            expired = fields.get("expired_entry", 0), fields.get("expired_us", 0)
            is_valid = entry >= 0 and all(type(each) is int and each >= 0 for each in expired)
            is_mine = is_valid and found == index_format
            return IndexMark(entry, entry_id, files, *expired) if is_mine else None
    return None
