"""What a format on disk is to the golden tests, and how its bytes are made the same each time."""

from __future__ import annotations

import json
import re
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from airflow_cloudfiles.engine.state.packs import encode_entry
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.storage.small_objects import seal

FOLDER = Path(__file__).with_name("formats")
ID = "ffeeddccbbaa99887766554433221100"
CREATED = "2026-01-01T00:00:00.000000+00:00"
_LINE = re.compile(rb"v([0-9]+)\n")
_CHECKSUM = re.compile(rb',\n "crc32": "[0-9a-f]{8}"\n}\n\Z')

Newer = Literal["refused", "passed over", "read"]
"""What becomes of a newer version: it is an error that names it; it counts as nothing, since it is
a hint or a cache; or nothing is ever decided by it, so that nobody looks."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format.

    Attributes:
        name: Of its golden file.
        keys: Pattern of its keys below the checkpoint location; empty for what is elsewhere.
        version: That of the golden bytes.
        write: What the package writes today, with a fixed id and time.
        read: What the package reads from some bytes.
        expected: What it reads from the golden ones.
        understood: The newest version that is understood.
        newer: What becomes of a newer one.
        nothing: What is read of a newer one that is passed over.
    """

    name: str
    keys: str
    version: int = 1
    write: Callable[[], bytes]
    read: Callable[[bytes], object]
    expected: object
    understood: int = 0
    newer: Newer = "refused"
    nothing: object = None

    @property
    def path(self) -> Path:
        """Where its golden bytes are."""
        return FOLDER / f"{self.name}.v{self.version}"

    @property
    def newest(self) -> int:
        """The newest version that is understood."""
        return self.understood or self.version

    def newer_bytes(self) -> bytes:
        """The golden bytes, with the version after the newest one that is understood."""
        content, next_one = self.path.read_bytes(), self.newest + 1
        if _LINE.match(content):
            return resealed(_LINE.sub(b"v%d\n" % next_one, content, count=1))
        changed, count = re.subn(
            rb'("(?:version|sourceVersion|cloudfiles.version)": ?"?)[0-9]+',
            rb"\g<1>%d" % next_one,
            content,
        )
        assert count, f"{self.path} says no version"
        return resealed(changed)


def new_store() -> ObjectStore:
    """An empty checkpoint location."""
    return open_store(f"memory://{uuid.uuid4().hex}")


def in_store(key: str, reader: Callable[[ObjectStore], object]) -> Callable[[bytes], object]:
    """Read bytes that are under a key of a checkpoint location."""

    def read(content: bytes) -> object:
        store = new_store()
        store.put(key, content)
        return reader(store)

    return read


def written(key: str, writer: Callable[[ObjectStore], object], **fixed: Any) -> bytes:
    """What a writer puts under a key, with a fixed id and time."""
    store = new_store()
    writer(store)
    return stamped(store.get(key), **fixed)


def resealed(content: bytes) -> bytes:
    """Give changed bytes the checksum that belongs to them, where they end with one."""
    found = _CHECKSUM.search(content)
    if found is None:
        return content
    text = content[: found.start()]
    return b'%b,\n "crc32": "%08x"\n}\n' % (text, zlib.crc32(text))


def stamped(content: bytes, **fixed: Any) -> bytes:
    """Give bytes a fixed id, time and other fields; their form stays."""
    found = _LINE.match(content)
    if found is None:
        value = json.loads(content)
        value |= {name: fixed[name] for name in fixed if name in value}
        if _CHECKSUM.search(content):
            del value["crc32"]
            return seal(value)
        indent = 1 if b"\n " in content else None
        end = b"\n" if content.endswith(b"\n") else b""
        return json.dumps(value, indent=indent).encode() + end
    _, line, body = content.split(b"\n", 2)
    header = json.loads(line)
    del header["crc32"]
    return encode_entry(
        {**header, "id": ID, "created": CREATED}, body, format_version=int(found[1])
    )
