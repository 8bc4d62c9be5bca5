"""Read little of a source: count its bytes, and give the readers a beginning for a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.messages import size_text
from airflow_cloudfiles.engine.storage import ObjectStore

HEAD_BYTES: Final = 256 * 2**10
"""So much of a file is read to recognize it, and to infer its columns."""
DOCUMENT_BYTES: Final = 4 * 2**20
"""A workbook up to this size is read whole."""


class SampledStore:
    """A source of which some files are only what was sampled of them.

    Args:
        store: The source.
        most_bytes: At most so many bytes are asked for.

    Attributes:
        bytes: So many bytes have come.
    """

    def __init__(self, store: ObjectStore, most_bytes: int) -> None:
        self._store = store
        self._most = most_bytes
        self._sampled: dict[str, tuple[FileEntry, bytes]] = {}
        self.bytes = 0
        self.uri = store.uri

    def add(self, file: FileEntry, path: str, content: bytes) -> FileEntry:
        """Let the readers find a content instead of a file.

        Args:
            file: Whose content it is the beginning of.
            path: Its path for the readers: without the ending of a compression.
            content: Decompressed.
        """
        entry = replace(file, path=path, size=len(content), etag="")
        self._sampled[path] = entry, content
        return entry

    def child_uri(self, key: str) -> str:
        """Give the URI of a file."""
        return self._store.child_uri(key)

    def head(self, key: str) -> FileEntry | None:
        """Describe a file, or what was sampled of it."""
        if key in self._sampled:
            return self._sampled[key][0]
        return self._store.head(key)

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Read a part of a file, or of what was sampled of it.

        Raises:
            FileUnreadableError: More bytes would be read than may be.
        """
        if key in self._sampled:
            return self._sampled[key][1][start : start + length]
        if self.bytes + length > self._most:
            raise FileUnreadableError(
                f"{self._store.child_uri(key)} was not read: with it more than "
                f"{size_text(self._most)} would have been (--most-bytes)."
            )
        content = self._store.get_range(key, start, length, etag=etag)
        self.bytes += len(content)
        return content


def chosen(files: Sequence[FileEntry], most: int) -> list[FileEntry]:
    """Choose files of a table: the newest first, then from all of its life.

    Args:
        files: Of a table.
        most: At most so many.
    """
    by_time = sorted(
        (file for file in files if file.size),
        key=lambda file: (file.modification_time_us, file.path),
        reverse=True,
    )
    if len(by_time) <= most:
        return by_time
    last = len(by_time) - 1
    places = [at * last // max(1, most - 1) for at in range(most)]
    return [by_time[place] for place in dict.fromkeys(places)]
