"""What is the least a ledger can be?

The reference implementation: a dictionary. For tests, and for states in memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.intake.ledger.base import format_of, hash_of
from airflow_cloudfiles.engine.intake.ledger.rocksdb import content_key, key_path, path_key
from airflow_cloudfiles.engine.state.operations import FORGETTING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from airflow_cloudfiles.engine.files import FileEntry, FileIdentity
    from airflow_cloudfiles.engine.state.file_log import FileBatch


class MemoryLedger:
    """A `Ledger` in memory.

    Args:
        identity: By what files are known.
    """

    def __init__(self, identity: FileIdentity = "path") -> None:
        self._format = format_of(identity)
        self._hash = hash_of(self._format)
        self._contents: dict[bytes, int] = {}
        self._versions: dict[bytes, bytes] = {}
        self._entries: dict[bytes, int] = {}
        self._sorted: list[bytes] | None = None
        self._files = 0
        self._caught_up = -1
        self._caught_up_id = ""
        self._expired = (0, 0)

    @property
    def caught_up(self) -> int:
        """Number of the last entry in the index; -1 for none."""
        return self._caught_up

    @property
    def caught_up_id(self) -> str:
        """Id of the writing of that entry."""
        return self._caught_up_id

    @property
    def files(self) -> int:
        """How many files these entries hold."""
        return self._files

    @property
    def expired_entry(self) -> int:
        """Old files of the entries before this one were forgotten."""
        return self._expired[0]

    @property
    def expired_us(self) -> int:
        """Files modified before this may be missing; 0: none is."""
        return self._expired[1]

    @property
    def index_format(self) -> int:
        """Which versions of a file it tells apart."""
        return self._format

    def unseen(
        self,
        entries: Iterable[FileEntry],
        *,
        versions: bool = False,
        changed: Callable[[FileEntry], None] | None = None,
    ) -> Iterator[FileEntry]:
        """Give the files that are in no entry."""
        for entry in entries:
            known = self._versions.get(path_key(entry.path))
            if known is None or (versions and known != self._hash(entry)):
                yield entry
            elif changed is not None and known != self._hash(entry):
                changed(entry)

    def entry_of_content(self, content: str) -> int | None:
        """Give the entry whose file is ingested for a content."""
        return self._contents.get(content_key(content))

    def entry_of(self, path: str) -> int | None:
        """Give the newest entry that has a file."""
        return self._entries.get(path_key(path))

    def paths(self, prefix: str = "") -> Iterator[str]:
        """Give the paths of all files with a prefix, in their order."""
        start = path_key(prefix)
        yield from [key_path(key) for key in self._keys() if key.startswith(start)]

    def last(self, prefix: str = "", *, before: str | None = None) -> str | None:
        """Give the greatest path with a prefix."""
        keys, start = self._keys(), path_key(prefix)
        matching = [key for key in keys if key.startswith(start)]
        stop = len(matching) if before is None else bisect_left(matching, path_key(before))
        return key_path(matching[stop - 1]) if stop else None

    def first_after(self, path: str) -> str | None:
        """Give the least path that is greater than a text."""
        keys = self._keys()
        place = bisect_right(keys, path_key(path))
        return key_path(keys[place]) if place < len(keys) else None

    def back(self, path: str, steps: int) -> str | None:
        """Give the path `steps` places before another."""
        keys = self._keys()
        place = bisect_left(keys, path_key(path)) - steps
        return key_path(keys[place]) if place >= 0 else None

    def record(self, number: int, entry_id: str, batch: FileBatch) -> None:
        """Add an entry of the file log."""
        if number != self._caught_up + 1:
            msg = f"entry {number} does not follow entry {self._caught_up}"
            raise ValueError(msg)
        if batch.found_by in FORGETTING:
            for file in batch.files:
                self._versions.pop(path_key(file.path), None)
                self._entries.pop(path_key(file.path), None)
                self._contents.pop(content_key(file.content), None)
        else:
            self._versions.update((path_key(file.path), self._hash(file)) for file in batch.files)
            self._entries.update((path_key(file.path), number) for file in batch.files)
        self._contents |= {content_key(each): number for each in batch.ingested_contents()}
        self._sorted = None
        self._files += len(batch.files)
        self._caught_up, self._caught_up_id = number, entry_id

    def forget(self, number: int, batch: FileBatch, before_us: int) -> int:
        """Remove old files of an entry."""
        keys = [
            path_key(each.path) for each in batch.files if each.modification_time_us < before_us
        ]
        gone = [key for key in keys if self._entries.get(key) == number]
        for key in gone:
            del self._entries[key], self._versions[key]
        self._sorted = None
        self._expired = (number + 1, max(self.expired_us, before_us))
        return len(gone)

    def save(self) -> Path | None:
        """Do nothing: it is not on a disk."""
        return None

    def clear(self) -> None:
        """Forget everything."""
        self._versions.clear()
        self._entries.clear()
        self._contents.clear()
        self._sorted = None
        self._files = 0
        self._caught_up, self._caught_up_id = -1, ""
        self._expired = (0, 0)

    def _keys(self) -> list[bytes]:
        if self._sorted is None:
            self._sorted = sorted(self._versions)
        return self._sorted

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
