"""Declare what the ways of discovering have in common.

A listing and a queue both give candidates: files that may be new. Whether they are is not theirs
to know. They hand candidates to a `Recorder`, which leaves out what the file log has and appends
the rest; when `record` returns, the files are durable, and only then may a message be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from airflow_cloudfiles.engine.errors import ListingError
from airflow_cloudfiles.engine.files import FileEntry, printable_path

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

FoundBy = Literal["listing", "notification", "backfill", "existing"]
"""How a file was found. `existing` files were there before the first start of a stream with
`cloudFiles.includeExistingFiles=false`: they are known and never ingested."""


def head_of(source: ObjectStore, path: str) -> FileEntry | None:
    """Look at a file of a source; `None` where it is gone.

    Raises:
        ListingError: The source does not answer.
    """
    try:
        return source.head(path)
    except OSError as failure:
        name = printable_path(source.child_uri(path))
        raise ListingError(f"{name} could not be inspected: {failure} Run again.") from failure


class KnownKeys(Protocol):
    """The files in the file log, in the order of the store."""

    def last(self, prefix: str = "", *, before: str | None = None) -> str | None:
        """Find the greatest known path with a prefix (and less than `before`, when given)."""

    def first_after(self, path: str) -> str | None:
        """Find the least known path that is greater than a text."""

    def back(self, path: str, steps: int) -> str | None:
        """Find the known path `steps` places before a known one; `None` when there are fewer."""


class Recorder(Protocol):
    """Where candidates go. Safe to use from several threads."""

    @property
    def known(self) -> KnownKeys:
        """What is recorded already."""

    def unseen(self, candidates: Iterable[FileEntry]) -> Iterator[FileEntry]:
        """Leave out what is recorded.

        Fast for candidates in the order of the store (a sorted merge), right for any order. Lazy;
        each call has a scan of its own, so several threads may each work on a range.
        """

    def record(
        self, files: Sequence[FileEntry], found_by: FoundBy, *, position: str | None = None
    ) -> int:
        """Append what no entry of the file log holds.

        Args:
            files: Candidates, in any number and order; a path may occur twice.
            found_by: How they were found.
            position: Up to where all that was announced is recorded with the last of them; it is in
                the entry that holds that one.

        Returns:
            How many were new. When it returns, all of them are durable.
        """

    def record_gone(self, paths: Sequence[str]) -> int:
        """Append which of some files are gone, if the rows of such files are to be removed.

        Args:
            paths: Files, and folders with a slash at their end, of which it is said that they are
                gone; each is looked for.

        Returns:
            How many files were appended.
        """
