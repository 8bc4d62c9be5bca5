"""Compute the contents of candidates, and leave out those that are known.

With `cloudFiles.fileIdentity=content` a candidate is read before it is recorded: the file log says
which content each file had. A candidate whose content no ingested entry has is new. One whose
content is known is recorded as well, as a `duplicate` that is never ingested: then its path and
version are known, and it is not read again at each listing.

New files are recorded before the duplicates among the same candidates. Killed in between, the
duplicates are candidates once more; the other way round, a content could be known as a duplicate of
a file that nobody had recorded, and that is gone when somebody looks again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.errors import ListingError
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.storage.base import ObjectChangedError, ObjectNotFoundError
from airflow_cloudfiles.engine.storage.content import content_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

THREADS: Final = 8
"""Files that are read at once; each holds one piece of a file in memory."""
TRIES: Final = 5
"""How often a file is read that is overwritten each time."""
_log = logging.getLogger(__name__)


class Contents:
    """Reads candidates to know their content.

    Args:
        source: Where they are.
    """

    def __init__(self, source: ObjectStore) -> None:
        self._source = source

    def of(self, files: Sequence[FileEntry]) -> list[FileEntry]:
        """Add the content to files that are without.

        A file that was overwritten meanwhile is given in the version that was read. One that is
        gone is left out, with a warning, as if it had gone before it was listed.

        Raises:
            ListingError: A file cannot be read, or is overwritten each time.
        """
        if all(file.content for file in files):
            return list(files)
        with ThreadPoolExecutor(THREADS, thread_name_prefix="cloudfiles-content") as pool:
            found = list(pool.map(self._with_content, files))
        return [file for file in found if file is not None]

    def _with_content(self, file: FileEntry) -> FileEntry | None:
        if file.content:
            return file
        name = printable_path(self._source.child_uri(file.path))
        current: FileEntry | None = file
        try:
            for _ in range(TRIES):
                if current is None:
                    break
                try:
                    return replace(current, content=content_of(self._source, current))
                except ObjectChangedError:
                    current = self._source.head(file.path)
                except ObjectNotFoundError:
                    current = None
        except OSError as failure:
            raise ListingError(
                f"{name} could not be read for its content (cloudFiles.fileIdentity=content): "
                f"{failure}. Nothing of it is recorded. Correct its permissions or remove it, and "
                "run again."
            ) from failure
        if current is None:
            _log.warning("%s was gone before its content was known, and is not recorded", name)
            return None
        raise ListingError(
            f"{name} was overwritten {TRIES} times while it was read for its content "
            "(cloudFiles.fileIdentity=content). Nothing of it is recorded: run again, and write "
            "files under another name that is renamed when they are complete."
        )


def first_of_each(
    files: Sequence[FileEntry], entry_of: Callable[[str], int | None]
) -> list[FileEntry]:
    """Give those of some files whose content is new, the first one of each content.

    Args:
        files: With their contents.
        entry_of: Gives the entry whose file is ingested for a content; `None` for a new one.
    """
    found: dict[str, FileEntry] = {}
    for file in files:
        if file.content not in found and entry_of(file.content) is None:
            found[file.content] = file
    return list(found.values())
