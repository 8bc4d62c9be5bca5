"""Read where a stream is in a Delta table, and what each version after that has changed.

The log from where the stream is. A version that is missing in it was cleaned up or is damaged: the
stream fails there, or goes on behind it where `failOnDataLoss` is false.

A stream is behind a file of a version: the version, and the file's index in it. The JSON is Delta's
own (`DeltaSourceOffset`), so a checkpoint goes on with Delta's jars, and one of theirs with this.

Below the indices of files are three more, in this order: the begin of a version, the place before a
change of the schema in it, and the place behind that. As in Delta, an offset is written as
`sourceVersion` 3 only at a change, which older readers do not know; everywhere else as 1, where the
begin is -1.

References:
    https://github.com/delta-io/delta/blob/master/spark/src/main/scala/org/apache/spark/sql/delta/sources/DeltaSourceOffset.scala

How far a query from a Delta table has come Spark's own checkpoint says: the offset of the newest
micro-batch that was committed. One request for the newest version of the table, and no Spark.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    IncompatibleStateError,
    StateConflictError,
    VersionsGoneError,
)
from airflow_cloudfiles.engine.state import spark_checkpoint
from airflow_cloudfiles.engine.state.spark_checkpoint import progress_of
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.actions import require_readable
from airflow_cloudfiles.engine.tables.delta.read.log import LogListing, list_log_after
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.tables.delta.read.actions import (
        AddFile,
        Metadata,
        Protocol,
        RemoveFile,
    )

BEGIN: Final = -100
"""Before the first file of a version."""
CHANGE: Final = -20
"""Before a change of schema, configuration or protocol; what comes before it was served."""
AFTER_CHANGE: Final = -19
"""Behind such a change, and before the first file of its version."""
NOWHERE: Final = -1
"""Version of the offset of a stream that does not know yet which version is the latest."""
_BEGIN_WRITTEN: Final = -1
_PLAIN, _AT_CHANGE = 1, 3


@dataclass(frozen=True, slots=True)
class TableOffset:
    """A place in a table: what is before it was read.

    Attributes:
        table_id: The table's, from its metadata.
        version: Of the table.
        index: The last file of the version that was read, or one of the places before the first.
        is_initial: Whether the files are those of the table at the version, sorted by modification
            time and path, and not those that the version has added.
    """

    table_id: str
    version: int
    index: int = BEGIN
    is_initial: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """What the order of offsets is."""
        return self.version, self.index

    @property
    def is_at_change(self) -> bool:
        """Whether a change of the schema comes next, or has just been passed."""
        return self.index in {CHANGE, AFTER_CHANGE}

    def to_json(self) -> dict[str, Any]:
        """Write the offset as Spark's offset log has it."""
        return {
            "sourceVersion": _AT_CHANGE if self.is_at_change else _PLAIN,
            "reservoirId": self.table_id,
            "reservoirVersion": self.version,
            "index": _BEGIN_WRITTEN if self.index == BEGIN else self.index,
            "isStartingVersion": self.is_initial,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], table_id: str, target: str) -> TableOffset:
        """Read an offset of a table.

        Args:
            value: As `to_json` gave it, or Delta wrote it.
            table_id: The table that is read.
            target: The table, for errors.

        Raises:
            CorruptedStateError: It is not an offset of a Delta table.
            IncompatibleStateError: A newer version of Delta or of this package wrote it.
            StateConflictError: It is of another table.
        """
        _check_version(value, target)
        try:
            found = cls(
                str(value["reservoirId"]),
                _whole(value["reservoirVersion"]),
                _whole(value["index"]),
                value["isStartingVersion"] is True,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _invalid(value, target, f"{error!r}") from error
        if value["sourceVersion"] == _PLAIN and found.is_at_change:
            raise _invalid(value, target, f"sourceVersion 1 has no index {found.index}")
        if found.index == _BEGIN_WRITTEN:
            found = cls(found.table_id, found.version, BEGIN, found.is_initial)
        if found.table_id != table_id:
            raise other_table(target, table_id, found.table_id)
        return found


def other_table(target: str, found: str, before: str) -> StateConflictError:
    """Build the error for a path with another table than the one the stream has read."""
    return StateConflictError(
        "[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE] The streaming query was reading from an "
        f"unexpected Delta table (id = '{found}'). It used to read from another Delta table (id = "
        f"'{before}') according to checkpoint. This may happen when you changed the code to read "
        f"from a new table or you deleted and re-created a table. Revert that change ({target}), "
        "or start from scratch with a new checkpoint location."
    )


def check_order(start: TableOffset, end: TableOffset, target: str) -> None:
    """Refuse a micro-batch that ends before it begins.

    Raises:
        CorruptedStateError: The offsets are not those of one stream.
    """
    if end.is_initial and not start.is_initial:
        what = "isStartingVersion becomes true again"
    elif end.place < start.place and not start.is_initial:
        what = "it moves back"
    else:
        return
    raise _invalid(end.to_json(), target, f"{what}, from {start.to_json()}")


def _check_version(value: Mapping[str, Any], target: str) -> None:
    found = value.get("sourceVersion")
    if found is None:
        raise _invalid(value, target, "it has no sourceVersion")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise _invalid(value, target, f"its sourceVersion is {found!r}")
    if found > _AT_CHANGE:
        raise IncompatibleStateError(
            f"The checkpoint of the stream from {target} has the sourceVersion {found}, and this "
            f"version of the package understands versions up to {_AT_CHANGE}. Update the package."
        )
    if found not in {_PLAIN, _AT_CHANGE}:
        raise _invalid(value, target, f"its sourceVersion is {found}, which is reserved")


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _invalid(value: Mapping[str, Any], target: str, why: str) -> CorruptedStateError:
    return CorruptedStateError(
        f"The checkpoint of the stream from the Delta table {target} has an offset that is not "
        f"valid: {dict(value)}: {why}. Restore the checkpoint location from a backup, or start "
        "with a new one."
    )


@dataclass(frozen=True, slots=True)
class TableBacklog:
    """What is left to read.

    Attributes:
        newest: The newest version of the table.
        batch: The newest micro-batch that was committed; -1 for none.
        next_version: The version that is read next; `None` where nothing was read yet.
        is_whole: Whether nothing of that version was read.
        is_planned: Whether a micro-batch was planned that is not committed.
    """

    newest: int
    batch: int = -1
    next_version: int | None = None
    is_whole: bool = True
    is_planned: bool = False

    @property
    def has_work(self) -> bool:
        """Whether there is anything to read, or a planned micro-batch to finish."""
        if self.is_planned or self.next_version is None or not self.is_whole:
            return True
        return self.next_version <= self.newest


def backlog(state: ObjectStore, target: str, table: ObjectStore | None = None) -> TableBacklog:
    """Find what a query has left to read.

    Args:
        state: The checkpoint location.
        target: The table it reads.
        table: The table's files; opened for `target`, unless given.

    Raises:
        TargetNotDeltaError: There is no Delta table.
        StateUnreachableError: The checkpoint location does not answer.
    """
    newest = TableLog(DeltaLocation.to_read(target), table).listing().latest
    with reaching_state(state):
        progress = progress_of(state)
        batch, is_planned = progress.committed, progress.planned > progress.committed
        found = _offset(state, batch) if batch >= 0 else None
    if found is None:
        return TableBacklog(newest, batch, is_planned=is_planned)
    is_whole = found.get("index") in {_BEGIN_WRITTEN, BEGIN}
    version = int(found["reservoirVersion"])
    if found.get("isStartingVersion"):
        is_whole = False
    return TableBacklog(newest, batch, version, is_whole, is_planned)


def read_again(state: ObjectStore, batch: int) -> str | None:
    """Say how what a query has read from a table since a micro-batch can be read again.

    Spark's checkpoint goes forward only, so that takes a new one.

    Args:
        state: The checkpoint location.
        batch: Number of the micro-batch.

    Returns:
        Part of a message; `None` where the checkpoint is not that of a query from one table.
    """
    with reaching_state(state):
        offsets = spark_checkpoint.numbers(state, spark_checkpoint.OFFSETS)
        if not offsets or _offset(state, offsets[-1]) is None:
            return None
        before = _offset(state, batch - 1) if batch else None
    new = "with a new checkpoint location"
    if batch == 0:
        return f"read the source again from where the stream began, {new}"
    if before is None:  # Spark keeps the offsets of the newest batches only
        where = ""
    else:
        version = int(before["reservoirVersion"])
        if int(before.get("index", 0)) < 0 and not before.get("isStartingVersion"):
            start = f"{new} and startingVersion={version}"
            return f"read the source again from version {version} on, {start}"
        where = f", which begins in the middle of version {version}"
    return (
        f"read the source again, {new} and into a new table: no version begins with batch {batch}"
        f"{where}"
    )


def _offset(state: ObjectStore, batch: int) -> dict[str, Any] | None:
    """Read the offset of a micro-batch's only source; `None` where the source is not a table."""
    try:
        lines = state.get(f"{spark_checkpoint.OFFSETS}/{batch}").decode().splitlines()
        _version, _settings, source = lines
        found = json.loads(source)
    except (ObjectNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and "reservoirVersion" in found else None


PARALLEL_REQUESTS: Final = 16
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
        """Yield the versions from one to another (inclusive), in order, that `poll` has seen.

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
        """Tell whether `poll` has seen the commit of a version."""
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
        """Tell whether a version that was seen before has another file now."""
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
