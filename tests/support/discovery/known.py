"""A recorder without a file log: what is recorded is in a sorted list."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.storage.base import key_bytes, key_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from airflow_cloudfiles.engine.discovery.base import FoundBy
    from airflow_cloudfiles.engine.files import FileEntry


class Known:
    """Known paths in the order of bytes."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self.keys = sorted({key_bytes(path) for path in paths})

    def last(self, prefix: str = "", *, before: str | None = None) -> str | None:
        first = key_bytes(prefix)
        place = bisect_left(self.keys, first + b"\xff" * 8)
        if before is not None:
            place = min(place, bisect_left(self.keys, key_bytes(before)))
        found = self.keys[place - 1] if place else b""
        return key_text(found) if place and found.startswith(first) else None

    def first_after(self, path: str) -> str | None:
        place = bisect_right(self.keys, key_bytes(path))
        return key_text(self.keys[place]) if place < len(self.keys) else None

    def back(self, path: str, steps: int) -> str | None:
        place = bisect_left(self.keys, key_bytes(path)) - steps
        return key_text(self.keys[place]) if place >= 0 else None

    def __contains__(self, path: str) -> bool:
        place = bisect_left(self.keys, key_bytes(path))
        return self.keys[place : place + 1] == [key_bytes(path)]


class MemoryRecorder:
    """A `Recorder` that counts.

    Attributes:
        recorded: Paths, in the order in which they were recorded.
        batches: How many files each call of `record` brought, and how they were found.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self.known = Known(known)
        self.recorded: list[str] = []
        self.batches: list[tuple[int, str]] = []
        self._lock = threading.Lock()

    def unseen(self, candidates: Iterable[FileEntry]) -> Iterator[FileEntry]:
        for entry in candidates:
            with self._lock:  # the list must not grow between two looks at it
                is_known = entry.path in self.known
            if not is_known:
                yield entry

    def record(self, files: Sequence[FileEntry], found_by: FoundBy) -> int:
        new = 0
        with self._lock:
            for file in files:
                if file.path not in self.known:
                    insort(self.known.keys, key_bytes(file.path))
                    self.recorded.append(file.path)
                    new += 1
            self.batches.append((new, found_by))
        return new

    def record_gone(self, paths: Sequence[str]) -> int:
        """Record nothing: it is the recorder of a table that does not follow its files."""
        return 0
