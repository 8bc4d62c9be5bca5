"""Store objects in memory.

The reference implementation of `ObjectStore`, for tests. It behaves like an object store: flat
keys, no folders, pages, etags, and an object may have the name of another one's parent.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.base import (
    Fingerprint,
    ObjectChangedError,
    ObjectNotFoundError,
    ObjectStore,
    check_key,
    check_range,
    is_version,
    key_bytes,
    key_text,
    now_us,
)
from airflow_cloudfiles.engine.storage.flat import Fetch, ListedObject, Order, Page
from airflow_cloudfiles.engine.storage.flat_store import FlatStore


@dataclass(slots=True)
class _Space:
    """The objects of one `memory://name`: full key to (content, time, version)."""

    objects: dict[bytes, tuple[bytes, int, int]] = field(default_factory=dict)
    writes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    sorted: list[bytes] | None = None

    def keys(self) -> list[bytes]:
        """List all keys in the order of bytes; what was given is never changed."""
        with self.lock:
            if self.sorted is None:
                self.sorted = sorted(self.objects)
            return self.sorted


_spaces: defaultdict[str, _Space] = defaultdict(_Space)

_BEYOND = b"\xff" * 8


class MemoryStore(FlatStore):
    """An `ObjectStore` in the memory of this process.

    Stores of one name share their objects; `memory://name/folder` is a root inside it.

    Args:
        uri: `memory://name` or `memory://name/folder`.
        page_size: Objects on a page of a listing.
    """

    _order = Order(key_bytes, last="\udcff")
    """By the bytes of a key, of which there are more than strings in UTF-8 have."""

    def __init__(self, uri: str, *, page_size: int = 1000) -> None:
        super().__init__(uri, page_size=page_size)
        self._space = _spaces[self._bucket]

    def is_folder(self) -> bool:
        """Tell that the root can be listed: always, as in an object store."""
        return True

    def head(self, key: str) -> FileEntry | None:
        """Inspect an object; `None` when there is none."""
        self._requests.add("head")
        found = self._find(self._key(key))
        return None if found is None else FileEntry(key, *found[1:4])

    def clock_us(self) -> int:
        """Give the time by which writes are noted."""
        return now_us()

    def get(self, key: str) -> bytes:
        """Read an object."""
        self._requests.add("get")
        found = self._space.objects.get(self._key(key))
        if found is None:
            raise ObjectNotFoundError(self.child_uri(key))
        return found[0]

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Read part of an object."""
        check_range(start, length)
        found = self._find(self._key(key))
        if etag is not None and found is not None and etag != found.etag:
            raise ObjectChangedError(self.child_uri(key))
        return self.get(key)[start : start + length]

    def put(self, key: str, content: bytes) -> None:
        """Create or replace an object."""
        self._requests.add("put")
        with self._space.lock:
            self._write(self._key(key), content)

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create an object unless there is one."""
        self._requests.add("put")
        full_key = self._key(key)
        with self._space.lock:
            if full_key in self._space.objects:
                return False
            self._write(full_key, content)
            return True

    def put_if_match(self, key: str, content: bytes, etag: str) -> bool:
        """Reposition an object if it still is the version that has an etag."""
        self._requests.add("put")
        full_key = self._key(key)
        with self._space.lock:
            found = self._find(full_key)
            if found is None or found.etag != etag:
                return False
            self._write(full_key, content)
            return True

    def delete(self, key: str) -> None:
        """Remove an object, if there is one."""
        self._requests.add("delete")
        with self._space.lock:
            self._space.objects.pop(self._key(key), None)
            self._space.sorted = None

    def delete_version(self, entry: FileEntry) -> None:
        """Remove an object if it still is a version."""
        self._requests.add("delete")
        full_key = self._key(entry.path)
        with self._space.lock:
            self._require_version(full_key, entry)
            del self._space.objects[full_key]
            self._space.sorted = None

    def copy_version(self, entry: FileEntry, to: ObjectStore, key: str) -> bool:
        """Copy a version of an object, unless there is an object already."""
        if not isinstance(to, MemoryStore) or to._space is not self._space:  # noqa: SLF001 - of this class, too
            msg = f"{to.uri} is not in the memory of {self.uri}"
            raise ValueError(msg)
        to._requests.add("put")  # noqa: SLF001 - of this class, too
        full_key, new_key = self._key(entry.path), to._key(key)  # noqa: SLF001 - of this class, too
        with self._space.lock:
            if new_key in self._space.objects:
                return False
            self._require_version(full_key, entry)
            to._write(new_key, self._space.objects[full_key][0])  # noqa: SLF001 - of this class, too
            return True

    def fingerprint(self, key: str) -> Fingerprint | None:
        """Inspect an object and its checksum."""
        found = self.head(key)
        if found is None:
            return None
        content = self._space.objects[self._key(key)][0]
        return Fingerprint(found, frozenset({("sha256", hashlib.sha256(content).hexdigest())}))

    def _require_version(self, full_key: bytes, entry: FileEntry) -> None:
        found = self._find(full_key)
        if found is None:
            raise ObjectNotFoundError(self.child_uri(entry.path))
        if not is_version(FileEntry(*found[:4]), entry):
            raise ObjectChangedError(self.child_uri(entry.path))

    def _pages(self, prefix: str, size: int, end_before: str = "") -> Fetch:  # noqa: ARG002
        """Give the function that fetches pages of a listing of what is there now."""
        first = key_bytes(self._root + prefix)
        keys = self._space.keys()
        keys = keys[bisect_left(keys, first) : bisect_left(keys, first + _BEYOND)]

        def fetch(start_after: str, mark: int | None) -> Page:
            after = key_bytes(start_after)
            begin = bisect_right(keys, after) if mark is None and after > first else mark or 0
            return self._page(keys, begin, begin + size)

        return fetch

    def _page(self, keys: list[bytes], begin: int, end: int) -> Page:
        self._requests.add("list")
        found = (self._find(key) for key in keys[begin:end])
        there = [listed for listed in found if listed is not None]
        return Page(there, end if end < len(keys) else None)

    def _find(self, full_key: bytes) -> ListedObject | None:
        found = self._space.objects.get(full_key)
        if found is None:
            return None
        content, written_us, version = found
        return ListedObject(key_text(full_key), len(content), written_us, f"{version:x}")

    def _key(self, key: str) -> bytes:
        return key_bytes(self._root + check_key(key))

    def _write(self, full_key: bytes, content: bytes) -> None:
        self._space.writes += 1
        if full_key not in self._space.objects:
            self._space.sorted = None
        self._space.objects[full_key] = (bytes(content), now_us(), self._space.writes)
