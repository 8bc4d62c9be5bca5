"""Find what stands in for a file that is gone, or that its source is away.

Where files are known by their content, the entry of a file stands for these bytes, and whichever
file has them serves. The file may have been touched, or written anew with the same bytes; or other
files with the same bytes were recorded as duplicates of it, and are ingested only here. Without
this, a content would be lost that still lies in the source.

`ignoreMissingFiles` gives up files that were deleted. Before a task does, it looks at what is
around them: a batch that is gone as a whole is an outage (`storage.outage`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeVar

from airflow_cloudfiles.engine.discovery.filters import is_hidden
from airflow_cloudfiles.engine.errors import (
    FileChangedError,
    FileMissingError,
    FileUnreachableError,
)
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.reading.fetch import FetchCounts, FirstRead
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore, open_store
from airflow_cloudfiles.engine.storage.base import ObjectChangedError, is_tree, is_version
from airflow_cloudfiles.engine.storage.content import content_of
from airflow_cloudfiles.engine.storage.outage import absence

LOOKS = 16
"""Files that are looked for side by side."""
MOST_FOLDERS = 100
"""Folders of a batch in which another file is looked for."""


def check_root(store: ObjectStore, *, is_in_use: bool = False) -> None:
    """Check that the root of a source is there.

    Args:
        store: The source.
        is_in_use: Whether it must hold a file, too, that may be input.

    Raises:
        FileUnreachableError: It is not, or cannot be listed.
    """
    why = absence(store, holds=_may_be_input if is_in_use else None)
    if why is not None:
        raise _away(why)


def check_deleted(
    store: ObjectStore, gone: Sequence[FileEntry], batch: Callable[[], Iterable[FileEntry]]
) -> None:
    """Check that files which are about to be given up were deleted.

    Args:
        store: The source.
        gone: The files.
        batch: Gives all files of their micro-batch.

    Raises:
        FileUnreachableError: Their storage is away, or was; nothing tells that they were deleted.
    """
    check_root(store, is_in_use=True)
    try:
        with ThreadPoolExecutor(LOOKS, thread_name_prefix="cloudfiles-head") as pool:
            back = any(pool.map(partial(_is_there, store), gone))
        if back:
            raise _away(f"{store.child_uri(gone[0].path)} and others were gone for a moment")
        if is_tree(store) and not any(_is_there(store, file) for file in batch()):
            _check_folders(store, gone)
    except OSError as failure:
        raise _away(f"{printable_path(store.uri)} does not answer ({failure})") from failure


def _check_folders(store: ObjectStore, gone: Sequence[FileEntry]) -> None:
    """Check that some folder of a batch that is gone as a whole holds another file.

    Raises:
        FileUnreachableError: None does, as where a disk below the source is not mounted.
    """
    folders = dict.fromkeys(file.path.rpartition("/")[0] for file in gone)
    for folder in islice(folders, MOST_FOLDERS):
        prefix = f"{folder}/" if folder else ""
        if any(_may_be_input(each.path) for each in store.list(prefix, ordered=False)):
            return
    first = store.child_uri(gone[0].path)
    raise _away(f"All files of a micro-batch are gone, such as {first}, and so is all beside them")


def _may_be_input(key: str) -> bool:
    """Tell whether a file shows that the source is there: a mount point may hold a hidden mark."""
    return not any(map(is_hidden, key.split("/")))


def _is_there(store: ObjectStore, file: FileEntry) -> bool:
    """Tell whether there is something to read: of a file that is known by it, the same content."""
    found = store.head(file.path)
    return found is not None and (not file.content or is_version(found, file))


def _away(what: str) -> FileUnreachableError:
    return FileUnreachableError(
        f"{what}, as where a disk is not mounted or a server is not ready. No file was given up, "
        "and nothing was committed: run again when the storage is back. If the files were deleted, "
        "set ignoreMissingFiles=true and leave them out with cloudfiles file skip, or run again "
        "when another file has arrived beside them."
    )


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
                if file.content == lost.content and _is_there(self._source, file):
                    return file
        return None
