"""Which files of a commit does a stream emit?

Those with new rows. A commit that also takes rows away is refused, unless the options say what is
to become of it: Delta's own rules, which decide by commit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from airflow_cloudfiles.engine.delta.read.actions import AddFile
from airflow_cloudfiles.engine.delta.read.paths import decoded
from airflow_cloudfiles.engine.delta.read.snapshot import Snapshot
from airflow_cloudfiles.engine.delta.stream.commits import Commit
from airflow_cloudfiles.engine.errors import TableRowsChangedError
from airflow_cloudfiles.engine.options.table_stream import TableStreamOptions

_UPDATED: Final = (
    "This is currently not supported. If this is going to happen regularly and you are okay to "
    "skip changes, set the option 'skipChangeCommits' to 'true'. If you would like the data "
    "update to be reflected, please restart this query with a fresh checkpoint directory."
)


@dataclass(frozen=True, slots=True)
class FileRules:
    """What the options say about files.

    Attributes:
        options: Of the stream.
        target: The table, for errors.
    """

    options: TableStreamOptions
    target: str

    def of_commit(self, commit: Commit) -> Sequence[AddFile]:
        """The files of a commit that have an index; none, where the commit is skipped.

        Raises:
            TableRowsChangedError: The commit takes rows away, and no option says to go on.
        """
        if not commit.removes:
            return commit.adds
        options = self.options
        if options.skip_change_commits:
            return ()
        file = decoded(commit.removes[0].path)
        if commit.adds and not options.ignore_changes:
            raise TableRowsChangedError(
                f"Detected a data update (for example {file}) in the source table at version "
                f"{commit.version}. {_UPDATED} The source table can be found at path {self.target}."
            )
        if not commit.adds and not (options.ignore_deletes or options.ignore_changes):
            raise TableRowsChangedError(
                f"Detected deleted data (for example {file}) from streaming source at version "
                f"{commit.version}. This is currently not supported. If you'd like to ignore "
                "deletes, set the option 'ignoreDeletes' to 'true'. The source table can be found "
                f"at path {self.target}."
            )
        return commit.adds

    def is_excluded(self, file: AddFile) -> bool:
        """Whether a file is left out; it keeps its index."""
        pattern = self.options.exclude_regex
        return pattern is not None and re.search(pattern, decoded(file.path)) is not None


def in_order(snapshot: Snapshot) -> list[AddFile]:
    """The files of a version in the order of an initial snapshot, which never changes."""
    return sorted(snapshot.files, key=lambda each: (each.modification_time, each.path, each.key))


@dataclass(slots=True)
class Budget:
    """How much a micro-batch may still take.

    Attributes:
        files: How many files; `None` for any number.
        size: How many bytes; `None` for any number. The file that exceeds it is the last one.
    """

    files: int | None
    size: int | None

    @classmethod
    def of(cls, options: TableStreamOptions, *, unlimited: bool) -> Budget:
        """That of a new micro-batch."""
        if unlimited:
            return cls(None, None)
        return cls(options.most_files, options.max_bytes_per_trigger)

    @property
    def is_spent(self) -> bool:
        """Whether no further file is taken."""
        return (self.files is not None and self.files <= 0) or (
            self.size is not None and self.size <= 0
        )

    def take(self, file: AddFile) -> None:
        """Take a file."""
        if self.files is not None:
            self.files -= 1
        if self.size is not None:
            self.size -= file.size
