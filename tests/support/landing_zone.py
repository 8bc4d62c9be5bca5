"""A folder that files land in, and a store that fails.

`LandingZone` writes files that a source discovers,
with the modification times a test wants. `FailingStore` is a store whose answers get lost, as
networks lose them. To kill a process at a given step, see `airflow_cloudfiles.engine.crashpoints`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.storage.local import LocalStore

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage.base import Fingerprint, ObjectStore, SkipRule


class LandingZone:
    """A local folder that files land in.

    Args:
        folder: The folder; it is created.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.uri = LocalStore(str(folder)).uri
        self._store = LocalStore(str(folder))

    def write(
        self, path: str, content: bytes | str = b"", *, modified: datetime | float | None = None
    ) -> str:
        """Put a file there; a file of that path is replaced.

        Args:
            path: Relative to the folder. Lone surrogates stand for bytes that are not UTF-8.
            content: Text is written as UTF-8.
            modified: Modification time: an aware `datetime` or seconds since 1970; `None` is now.

        Returns:
            The path.
        """
        self._store.put(path, content.encode() if isinstance(content, str) else content)
        if modified is not None:
            self.touch(path, modified)
        return path

    def write_json(
        self,
        path: str,
        records: Iterable[Mapping[str, Any]],
        *,
        modified: datetime | float | None = None,
    ) -> str:
        """Put a file of JSON Lines there, one record a line."""
        lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        return self.write(path, "".join(lines), modified=modified)

    def touch(self, path: str, modified: datetime | float) -> None:
        """Set the modification time of a file."""
        if isinstance(modified, datetime):
            since = modified.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
            nanoseconds = (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000
        else:
            nanoseconds = round(modified * 10**6) * 1000
        name = os.fsencode(self._store.local_path(path))
        os.utime(name, ns=(nanoseconds, nanoseconds))

    def remove(self, path: str) -> None:
        """Take a file away."""
        self._store.delete(path)

    def paths(self) -> list[str]:
        """List the paths of all files, in byte order."""
        return [entry.path for entry in self._store.list()]


class Fault(Enum):
    """What happens to one writing call of a `FailingStore`."""

    REFUSED = "refused"
    """It raises `ConnectionError`; nothing was written."""
    LOST = "lost"
    """It is carried out, then raises `ConnectionError`: the answer is lost."""
    DENIED = "denied"
    """It is carried out, then answers that the object was there already: what a client says whose
    own retry met its own first try."""
    KILLED_BEFORE = "killed before"
    """The process ends (`KilledError`); nothing was written."""
    KILLED_AFTER = "killed after"
    """It is carried out, then the process ends (`KilledError`)."""


class KilledError(BaseException):
    """Stands for the end of the process: no code of this package catches it."""


@dataclass
class FailingStore:
    """An `ObjectStore` some of whose writing calls fail, or lie about what they did.

    Attributes:
        store: The store that does the work.
        faults: The k-th call of `put`, `put_if_absent` or `put_if_match`, counted from 1, and what
            happens to it.
        puts: How many of these calls there were.
    """

    store: ObjectStore
    faults: dict[int, Fault] = field(default_factory=dict)
    puts: int = 0

    @property
    def uri(self) -> str:
        """Canonical URI of the root."""
        return self.store.uri

    def is_folder(self) -> bool:
        """Whether the root can be listed."""
        return self.store.is_folder()

    @property
    def requests(self) -> Counter[str]:
        """How many requests were made so far."""
        return self.store.requests

    def list(
        self,
        prefix: str = "",
        *,
        start_after: str = "",
        end_before: str = "",
        skip: SkipRule | None = None,
        ordered: bool = True,
    ) -> Iterator[FileEntry]:
        """List the objects."""
        return self.store.list(
            prefix, start_after=start_after, end_before=end_before, skip=skip, ordered=ordered
        )

    def key_after(self, after: str) -> str | None:
        """Give the first key after a text."""
        return self.store.key_after(after)

    def head(self, key: str) -> FileEntry | None:
        """Look at an object."""
        return self.store.head(key)

    def clock_us(self) -> int:
        """Tell the time by the clock of the store."""
        return self.store.clock_us()

    def arrived_us(self, entry: FileEntry) -> int:
        """Tell when an object came to be under its key."""
        return self.store.arrived_us(entry)

    def get(self, key: str) -> bytes:
        """Read an object."""
        return self.store.get(key)

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Read part of an object."""
        return self.store.get_range(key, start, length, etag=etag)

    def put(self, key: str, content: bytes) -> None:
        """Create or replace an object, unless this call is to fail."""
        fault = self._before()
        self.store.put(key, content)
        self._after(fault)

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create an object unless there is one, or unless this call is to fail."""
        fault = self._before()
        created = self.store.put_if_absent(key, content)
        self._after(fault)
        return created and fault is not Fault.DENIED

    def put_if_match(self, key: str, content: bytes, etag: str) -> bool:
        """Replace an object of a version, unless this call is to fail."""
        fault = self._before()
        replaced = self.store.put_if_match(key, content, etag)
        self._after(fault)
        return replaced and fault is not Fault.DENIED

    def delete(self, key: str) -> None:
        """Remove an object."""
        self.store.delete(key)

    def delete_version(self, entry: FileEntry) -> None:
        """Remove a version of an object."""
        self.store.delete_version(entry)

    def copy_version(self, entry: FileEntry, to: ObjectStore, key: str) -> bool:
        """Copy a version of an object."""
        return self.store.copy_version(entry, to, key)

    def fingerprint(self, key: str) -> Fingerprint | None:
        """Inspect an object and its checksums."""
        return self.store.fingerprint(key)

    def child_uri(self, key: str) -> str:
        """Give the URI of an object."""
        return self.store.child_uri(key)

    def key_of(self, uri: str) -> str | None:
        """Tell under which key another location appears below this root."""
        return self.store.key_of(uri)

    def _before(self) -> Fault | None:
        self.puts += 1
        fault = self.faults.get(self.puts)
        if fault is Fault.REFUSED:
            raise ConnectionError(f"put {self.puts} was refused")
        if fault is Fault.KILLED_BEFORE:
            raise KilledError
        return fault

    def _after(self, fault: Fault | None) -> None:
        if fault is Fault.LOST:
            raise ConnectionError(f"the answer to put {self.puts} was lost")
        if fault is Fault.KILLED_AFTER:
            raise KilledError
