"""Which other file has the content of one that is gone?

Where files are known by their content, the entry of a file stands for these bytes, and whichever
file has them serves. The file may have been touched, or written anew with the same bytes; or other
files with the same bytes were recorded as duplicates of it, and are ingested only here. Without
this, a content would be lost that still lies in the source.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from airflow_cloudfiles.engine.errors import FileChangedError, FileMissingError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.reading.fetch import FetchCounts, FirstRead
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore, open_store
from airflow_cloudfiles.engine.storage.base import ObjectChangedError, is_version
from airflow_cloudfiles.engine.storage.content import content_of

FetchPart = Callable[[FileRange, FirstRead | None], Iterator["_Made"]]
"""Reads a part of a file; raises `FileMissingError` where none of it is there."""
_Made = TypeVar("_Made")
_log = logging.getLogger(__name__)


class SameContent:
    """Finds files by their content; reads nothing before it is asked.

    Args:
        source: Where the files are.
        state_uri: Where the file log is.
        first_entry: The entry of the file log with the first file that is asked for: duplicates of
            a file are in later entries.
    """

    def __init__(self, source: ObjectStore, state_uri: str, first_entry: int) -> None:
        self._source = source
        self._state_uri = state_uri
        self._first_entry = first_entry

    def fetch(
        self,
        part: FileRange,
        first: FirstRead | None,
        fetch_part: FetchPart[_Made],
        counts: FetchCounts,
        *,
        ignore_missing: bool,
    ) -> Iterator[_Made]:
        """Read a part of a file, or another file with the same content.

        Raises:
            FileMissingError: No file has the content, and `ignore_missing` is false.
            FileChangedError: A file that was cut into ranges is gone; the next try does not cut it.
        """
        try:
            yield from fetch_part(part, first)
        except FileMissingError as error:
            if not part.is_whole:
                raise FileChangedError(
                    f"{self._source.child_uri(part.file.path)} was deleted after it was split into "
                    "ranges. Nothing of it was committed: run again."
                ) from error
            other = self.of(part.file) if part.file.content else None
            if other is None and not ignore_missing:
                raise FileMissingError(
                    f"{self._source.child_uri(part.file.path)} was discovered with the content "
                    f"(SHA-256) {part.file.content}, and no recorded file has it any more. Put a "
                    "file with this content back, under any name below the source, or set "
                    "ignoreMissingFiles=true to go on without it."
                ) from error
            if other is None:
                _log.warning("Skipped: %s", error)
                counts.missing_files += 1
                return
        else:
            return
        _log.warning(
            "%s is gone or was overwritten; %s, which has the same content, is read in its place",
            self._source.child_uri(part.file.path),
            self._source.child_uri(other.path),
        )
        yield from fetch_part(FileRange(other), None)

    def of(self, lost: FileEntry) -> FileEntry | None:
        """Give a file, as it is now, with the content that another one had.

        Args:
            lost: The file, in the version that was recorded.

        Raises:
            OSError: The source does not answer.
        """
        with suppress(ObjectNotFoundError, ObjectChangedError):
            found = self._source.head(lost.path)
            if found is not None and found.size == lost.size:
                content = content_of(self._source, found)
                if content == lost.content:
                    return replace(found, content=content)
        files = FileLog(open_store(self._state_uri))
        files.meet_packs()
        for number in range(self._first_entry, files.latest() + 1):
            if files.summary(number).found_by != "duplicate":
                continue
            for file in files.read(number).files:
                if file.content == lost.content and self._is_there(file):
                    return file
        return None

    def _is_there(self, file: FileEntry) -> bool:
        found = self._source.head(file.path)
        return found is not None and is_version(found, file)
