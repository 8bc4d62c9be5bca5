"""What has each version of a table changed, and which versions are there?

The log from where the stream is. A version that is missing in it was cleaned up or is damaged: the
stream fails there, or goes on behind it where `failOnDataLoss` is false.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.delta.read.actions import require_readable
from airflow_cloudfiles.engine.delta.read.log import LogListing, list_log_after
from airflow_cloudfiles.engine.delta.read.snapshot import PARALLEL_REQUESTS
from airflow_cloudfiles.engine.delta.stream.offsets import other_table
from airflow_cloudfiles.engine.errors import VersionsGoneError

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.delta.read.actions import AddFile, Metadata, Protocol, RemoveFile
    from airflow_cloudfiles.engine.delta.read.snapshot import TableLog
    from airflow_cloudfiles.engine.files import FileEntry

_KEPT: Final = 64
"""Commits that are kept: a micro-batch is planned from them, and its files are looked up again."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Commit:
    """What one version has changed.

    Attributes:
        version: Its number.
        adds: Files with new rows.
        removes: Files whose rows are gone.
        metadata: The columns and the configuration, where they have changed.
        protocol: The protocol, where it has changed.
        has_files: Whether it names any file, also one whose rows are in others.
    """

    version: int
    adds: tuple[AddFile, ...]
    removes: tuple[RemoveFile, ...]
    metadata: Metadata | None
    protocol: Protocol | None
    has_files: bool


class TableCommits:
    """The versions of one table.

    Args:
        log: Of the table.
        table_id: Which table it has to be.
        fail_on_data_loss: Whether a missing version is a reason to fail.
    """

    def __init__(self, log: TableLog, table_id: str, *, fail_on_data_loss: bool) -> None:
        self._log = log
        self._table_id = table_id
        self._fails = fail_on_data_loss
        self._listing = LogListing()
        self._kept: OrderedDict[int, Commit] = OrderedDict()
        self._marks: dict[int, FileEntry] = {}

    @property
    def target(self) -> str:
        """The table, for errors."""
        return self._log.target

    def poll(self, version: int) -> int:
        """List the log from the version before one on.

        Returns:
            The newest version.

        Raises:
            VersionsGoneError: The table has lost versions that the stream has read.
            StateConflictError: There is another table now.
            TargetUnreachableError: The storage failed.
        """
        with self._log.location.translate_store_errors("cannot be read"):
            self._listing = list_log_after(self._log.store, max(-1, version - 2))
        newest = self._listing.latest
        if newest < version - 1 or self._is_rewritten():
            self._require_same_table()
        if newest < version - 1:
            # Where commits were removed behind a checkpoint, the head is still listed.
            raise VersionsGoneError(
                f"The Delta table {self.target} has no version {version - 1} any more, which the "
                "stream has read: its newest is "
                f"{self._log.listing().latest}. Commits were removed from its log by hand. Restore "
                "the log, or start with a new checkpoint location."
            )
        self._marks = dict(list(self._listing.commits.items())[-2:])
        return newest

    def between(self, first: int, last: int) -> Iterator[Commit]:
        """The versions from one to another (inclusive), in order, of those that `poll` has seen.

        Raises:
            VersionsGoneError: One is missing, and that is a reason to fail.
            UnsupportedTableError: One changes the protocol to what is not supported.
            StateConflictError: There is another table now.
            TargetCorruptedError: One is damaged.
        """
        version = first
        ahead = _ReadAhead(self._parsed)
        try:
            while version <= last:
                if version not in self._listing.commits:
                    version = self._behind_gap(version, last)
                    continue
                near = range(version, min(last, version + PARALLEL_REQUESTS - 1) + 1)
                if len(near) > 1:
                    ahead.begin(
                        each
                        for each in near
                        if each in self._listing.commits and each not in self._kept
                    )
                yield self._kept.get(version) or self._keep(ahead.take(version))
                version += 1
        finally:
            for commit in ahead.close():
                self._keep(commit)

    def has(self, version: int) -> bool:
        """Whether `poll` has seen the commit of a version."""
        return version in self._listing.commits

    def read(self, version: int) -> Commit:
        """Read a version that `poll` has seen; see `between`."""
        return self._kept.get(version) or self._keep(self._parsed(version))

    def _keep(self, commit: Commit) -> Commit:
        self._kept[commit.version] = commit
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return commit

    def _parsed(self, version: int) -> Commit:
        adds: list[AddFile] = []
        removes: list[RemoveFile] = []
        metadata = protocol = None
        has_files = False
        for action in self._log.actions(self._listing.commits[version]):
            has_files = has_files or bool(action.add or action.remove or action.cdc)
            if action.add is not None and action.add.data_change:
                adds.append(action.add)
            elif action.remove is not None and action.remove.data_change:
                removes.append(action.remove)
            metadata = action.meta_data or metadata
            protocol = action.protocol or protocol
        if protocol is not None:
            require_readable(protocol, self.target)
        if metadata is not None and metadata.id != self._table_id:
            raise other_table(self.target, metadata.id, self._table_id)
        return Commit(version, tuple(adds), tuple(removes), metadata, protocol, has_files)

    def _behind_gap(self, version: int, last: int) -> int:
        there = min((each for each in self._listing.commits if each > version), default=last + 1)
        if not self._fails:
            _log.warning(
                "Versions %s to %s of the Delta table %s are gone from its log and are skipped "
                "(failOnDataLoss=false)",
                version,
                there - 1,
                self.target,
            )
            return there
        what = f"the earliest available version after that is {there}" if there <= last else (
            "no later version is there"
        )  # fmt: skip
        raise VersionsGoneError(
            f"The stream from the Delta table {self.target} was expecting to process data from "
            f"version {version}, but {what} in the _delta_log directory. The files in the "
            "transaction log may have been deleted due to log cleanup. To lose no data, start with "
            "a new checkpoint location, and raise delta.logRetentionDuration above the longest "
            'pause of the stream. To go on without the missed data, set failOnDataLoss to "false".'
        )

    def _is_rewritten(self) -> bool:
        """Whether a version that was seen before has another file now."""
        return any(
            version in self._listing.commits and self._listing.commits[version] != mark
            for version, mark in self._marks.items()
        )

    def _require_same_table(self) -> None:
        self._kept.clear()
        found = self._log.snapshot().metadata.id
        if found != self._table_id:
            raise other_table(self.target, found, self._table_id)


class _ReadAhead:
    """Reads commits side by side, since object stores answer slowly, but many at once.

    Args:
        read: Reads one.
    """

    def __init__(self, read: Callable[[int], Commit]) -> None:
        self._read = read
        self._pool: ThreadPoolExecutor | None = None
        self._begun: dict[int, Future[Commit]] = {}

    def begin(self, versions: Iterable[int]) -> None:
        """Begin to read commits, but those that were begun."""
        for version in versions:
            if version not in self._begun:
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(PARALLEL_REQUESTS, "cloudfiles-delta")
                self._begun[version] = self._pool.submit(self._read, version)

    def take(self, version: int) -> Commit:
        """Give one; what its reading raises is raised here."""
        begun = self._begun.pop(version, None)
        return self._read(version) if begun is None else begun.result()

    def close(self) -> list[Commit]:
        """Give what was read and not taken."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        done = [each for each in self._begun.values() if not each.cancelled()]
        return [each.result() for each in done if each.exception() is None]
