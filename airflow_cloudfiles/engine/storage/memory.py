"""What does a store do when it has no disk?

The reference implementation of `ObjectStore`, for tests. It behaves like an object store: flat
keys, no folders, etags, and an object may have the name of another one's parent.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.storage.base import (
    ObjectNotFoundError,
    SkipRule,
    check_key,
    key_bytes,
    key_text,
)
from airflow_cloudfiles.engine.storage.uri import normalize_uri

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True)
class _Space:
    """The objects of one `memory://name`: full key to (content, time, version)."""

    objects: dict[bytes, tuple[bytes, int, int]] = field(default_factory=dict)
    writes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


_spaces: defaultdict[str, _Space] = defaultdict(_Space)


class MemoryStore:
    """An `ObjectStore` in the memory of this process.

    Stores of one name share their objects; `memory://name/folder` is a root inside it.

    Args:
        uri: `memory://name` or `memory://name/folder`.
    """

    def __init__(self, uri: str) -> None:
        self._uri = normalize_uri(uri)
        name, _, folder = self._uri.removeprefix("memory://").partition("/")
        self._space = _spaces[name]
        self._root = key_bytes(folder + "/") if folder else b""

    @property
    def uri(self) -> str:
        """Canonical URI of the root."""
        return self._uri

    def is_folder(self) -> bool:
        """Tell that the root can be listed: always, as in an object store."""
        return True

    def list(
        self, prefix: str = "", *, start_after: str = "", skip: SkipRule | None = None
    ) -> Iterator[FileEntry]:
        """List the objects, in byte order of their keys."""
        first = self._root + key_bytes(prefix)
        after = self._root + key_bytes(start_after)
        with self._space.lock:
            keys = sorted(key for key in self._space.objects if key.startswith(first))
        for full_key in keys[bisect_left(keys, after) :]:
            key = key_text(full_key[len(self._root) :])
            entry = self.head(key)
            if full_key == after or entry is None or (skip and _skipped(key, skip)):
                continue
            yield entry

    def head(self, key: str) -> FileEntry | None:
        """Look at an object; `None` when there is none."""
        found = self._space.objects.get(self._key(key))
        if found is None:
            return None
        content, written_us, version = found
        return FileEntry(key, len(content), written_us, f'"{version:x}"')

    def get(self, key: str) -> bytes:
        """Read an object."""
        found = self._space.objects.get(self._key(key))
        if found is None:
            raise ObjectNotFoundError(self.child_uri(key))
        return found[0]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read part of an object."""
        if start < 0 or length < 0:
            msg = f"not a range: {start}, {length}"
            raise ValueError(msg)
        return self.get(key)[start : start + length]

    def put(self, key: str, content: bytes) -> None:
        """Create or replace an object."""
        with self._space.lock:
            self._write(self._key(key), content)

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create an object unless there is one."""
        full_key = self._key(key)
        with self._space.lock:
            if full_key in self._space.objects:
                return False
            self._write(full_key, content)
            return True

    def delete(self, key: str) -> None:
        """Remove an object, if there is one."""
        with self._space.lock:
            self._space.objects.pop(self._key(key), None)

    def child_uri(self, key: str) -> str:
        """Give the URI of an object."""
        return f"{self._uri}/{printable_path(key)}"

    def key_of(self, uri: str) -> str | None:
        """Tell under which key another location appears below this root."""
        other = normalize_uri(uri)
        if other == self._uri:
            return ""
        below = other.startswith(self._uri + "/")
        return other[len(self._uri) + 1 :] if below else None

    def _key(self, key: str) -> bytes:
        return self._root + key_bytes(check_key(key))

    def _write(self, full_key: bytes, content: bytes) -> None:
        self._space.writes += 1
        now_us = time.time_ns() // 1000
        self._space.objects[full_key] = (bytes(content), now_us, self._space.writes)


def _skipped(key: str, skip: SkipRule) -> bool:
    """Whether the rule leaves out the object or one of the folders above it."""
    parts = key.split("/")
    folders = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return any(skip(folder, True) for folder in folders) or skip(key, False)
