"""Read what a version of a Delta table is made of.

The actions of the log (`log`) are applied in their order: the last word on a data file, on the
columns and on the protocol counts. Deleted rows are part of a file's identity: a file whose
deletion vector changes is removed and added in one commit.

A reader may ask for a version by its number or by a time.

By number, or by a moment: then it is the newest version that was committed at or before it. A
commit's time is the one it carries, where the table has in-commit timestamps, and otherwise the
modification time of its file, made to increase from version to version as Delta does. Where commits
carry times only from some version on, a moment is searched among these or among the versions before
them, as the protocol has it.

References:
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#in-commit-timestamps
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property, partial
from typing import IO, Final, TypeVar, cast

import msgspec
import pyarrow as pa

from airflow_cloudfiles.engine.errors import (
    OptionError,
    TargetCorruptedError,
    TargetNotDeltaError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.formats.content import WatchedBytes
from airflow_cloudfiles.engine.reading.opened import StoreFile
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.actions import (
    Action,
    AddFile,
    CheckpointPart,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    decode,
    require_readable,
)
from airflow_cloudfiles.engine.tables.delta.read.log import (
    LOG,
    Checkpoint,
    LogListing,
    LogSegment,
    damaged_log,
    decoded,
    is_compacted,
    list_log,
    relative_key,
)

_SIDECARS: Final = LOG + "_sidecars/"
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """One version of a table; its files are put together when they are first asked for.

    Attributes:
        target: The table, for messages.
        version: Its number.
        metadata: Its columns and properties.
        protocol: What a program must support.
        checkpoint: Parts of the state that the log begins with.
        commits: Actions of the commits after it, in their order.
    """

    target: str
    version: int
    metadata: Metadata
    protocol: Protocol
    checkpoint: Sequence[CheckpointPart]
    commits: Sequence[Sequence[Action]]

    @property
    def files(self) -> tuple[AddFile, ...]:
        """Its data files."""
        return self._files[0]

    @property
    def removed(self) -> tuple[RemoveFile, ...]:
        """Files that earlier versions have, as far as the log still lists them."""
        return self._files[1]

    @cached_property
    def _files(self) -> tuple[tuple[AddFile, ...], tuple[RemoveFile, ...]]:
        """Apply the commits to the checkpoint, in which every file has its last word."""
        files: dict[FileKey, AddFile] = {}
        removed: dict[FileKey, RemoveFile] = {}
        for part in self.checkpoint:
            files.update((each.key, each) for each in part.files())
            removed.update((each.key, each) for each in part.gone())
        for key in removed.keys() & files.keys():
            del removed[key]
        for commit in self.commits:
            # The order of actions within a commit does not matter.
            for gone in (each.remove for each in commit if each.remove is not None):
                files.pop(gone.key, None)
                removed[gone.key] = gone
            for added in (each.add for each in commit if each.add is not None):
                files[added.key] = added
                removed.pop(added.key, None)
        return tuple(files.values()), tuple(removed.values())


class TableLog:
    """The log of one table.

    Args:
        location: Of the table.
        store: Its files; opened for `location`, unless given.
    """

    def __init__(self, location: DeltaLocation, store: ObjectStore | None = None) -> None:
        self.target = location.target
        self.location = location
        self.store = location.store() if store is None else store

    def listing(self, *, whole: bool = False) -> LogListing:
        """List the log; see `list_log`.

        Raises:
            TargetNotDeltaError: There is no Delta table.
            TargetUnreachableError: Its storage failed, or refused us.
        """
        with self.location.translate_store_errors("cannot be read"):
            found = list_log(self.store, whole=whole)
        if found.latest < 0:
            raise TargetNotDeltaError(
                f"There is no Delta table at {self.target}. Check the path: the folder of a table "
                "has a folder _delta_log with at least one commit."
            )
        return found

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Read a version of the table; the newest, unless one is named.

        Raises:
            TargetNotDeltaError: There is no Delta table.
            UnsupportedTableError: The table needs a feature that is not supported.
            TargetCorruptedError: The log is damaged.
            OptionError: The version does not exist, or no longer does.
            TargetUnreachableError: Its storage failed, or refused us.
        """
        return self.snapshot_of(
            self.listing(whole=version is not None).segment(self.target, version)
        )

    def snapshot_of(self, segment: LogSegment) -> Snapshot:
        """Read the version that some files of the log make up; see `snapshot`.

        A checkpoint repeats commits: where one is damaged, they are read, if they are all there.
        """
        segment, parts = self._whole(segment)
        commits: list[Sequence[Action]] = []
        read = at_once(self.store, [partial(self.actions, file) for file in segment.commits])
        for file, actions in zip(segment.commits, read, strict=True):
            # What a writer has put together, but not reconciled, counts line by line.
            commits += [[each] for each in actions] if is_compacted(file) else [actions]
        said = [*(part.others for part in parts), *commits]
        metadata = _last(each.meta_data for part in said for each in part)
        protocol = _last(each.protocol for part in said for each in part)
        if metadata is None or protocol is None:
            what = "columns (metaData)" if metadata is None else "protocol"
            raise damaged_log(self.target, f"version {segment.version} has no {what}")
        require_readable(protocol, self.target)
        return Snapshot(self.target, segment.version, metadata, protocol, parts, commits)

    def damaged_checkpoints(self) -> list[Checkpoint]:
        """Find the checkpoints that a reader of the newest version passes over; normally none."""
        damaged: list[Checkpoint] = []
        self._whole(self.listing().segment(self.target), damaged)
        return damaged

    def _whole(
        self, segment: LogSegment, damaged: list[Checkpoint] | None = None
    ) -> tuple[LogSegment, list[CheckpointPart]]:
        """Return a version's files without damaged checkpoints, and what its own checkpoint has.

        Raises:
            TargetCorruptedError: There is none, and commits that it repeats are gone.
        """
        passed = [] if damaged is None else damaged
        version, failure = segment.version, None
        while segment.checkpoint is not None:
            try:
                return segment, self._parts(segment.checkpoint)
            except TargetCorruptedError as error:
                failure = failure or error
                passed.append(segment.checkpoint)
            try:
                listing = self.listing(whole=True).without(passed)
                segment = listing.segment(self.target, version)
            except (OptionError, TargetCorruptedError):
                raise failure from None
            _log.warning("%s Its commits are read instead.", failure.message)
        return segment, []

    def _parts(self, checkpoint: Checkpoint) -> list[CheckpointPart]:
        """Read a checkpoint with its sidecars; errors as `actions`."""
        parts = at_once(self.store, [partial(self._part, file) for file in checkpoint.files])
        said = [each for part in parts for each in part.others]
        if not (any(each.meta_data for each in said) and any(each.protocol for each in said)):
            raise self._damaged(checkpoint.files[0].path, "it lacks the table's metadata")
        sidecars = [each.sidecar.path for each in said if each.sidecar is not None]
        return [*parts, *at_once(self.store, [partial(self._sidecar, path) for path in sidecars])]

    def actions(self, file: FileEntry) -> Sequence[Action]:
        """Read a commit, a compacted log or a checkpoint in JSON.

        Raises:
            TargetCorruptedError: It is damaged, or gone.
            TargetUnreachableError: The storage failed.
        """
        with self._reading(file):
            content = self.store.get(file.path)
            if not content.strip():
                raise self._damaged(file.path, "it is empty")
            return decode(content)

    def _part(self, file: FileEntry) -> CheckpointPart:
        """Read a checkpoint, or a part of one; errors as `actions`."""
        if file.path.endswith(".json"):
            return CheckpointPart(self.actions(file))
        with self._reading(file), StoreFile(self.store, file).random_access() as content:
            watched = WatchedBytes(content)
            try:
                return CheckpointPart.read(cast("IO[bytes]", watched))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                if watched.failure is not None:  # of the storage, not of the file
                    raise watched.failure from error
                raise self._damaged(file.path, str(error)) from error

    @contextmanager
    def _reading(self, file: FileEntry) -> Iterator[None]:
        """Put into a sentence why a file of the log cannot be read."""
        try:
            with self.location.translate_store_errors("cannot be read"):
                yield
        except ObjectNotFoundError as error:
            raise self._damaged(file.path, "it is gone") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, pa.ArrowException) as error:
            raise self._damaged(file.path, str(error)) from error

    def _sidecar(self, path: str) -> CheckpointPart:
        """Read a file that holds part of a checkpoint."""
        key = relative_key(self.store, path)
        if key == decoded(path):  # not an absolute one
            key = _SIDECARS + key
        if key is None or not key.startswith(_SIDECARS) or ".." in key.split("/"):
            raise self._damaged(path, "it is outside the folder of sidecars")
        with self.location.translate_store_errors("cannot be read"):
            found = self.store.head(key)
        if found is None:
            raise self._damaged(key, "it is gone")
        return self._part(found)

    def _damaged(self, path: str, why: str) -> TargetCorruptedError:
        return TargetCorruptedError(
            f"The log of the Delta table {self.target} is damaged: {path} cannot be read, because "
            f"{why}. Restore it, or the table, from a backup."
        )


def _last(values: Iterable[_T | None]) -> _T | None:
    """Return the last value that is set."""
    found = None
    for value in values:
        found = value or found
    return found


VERSION, TIMESTAMP = "versionAsOf", "timestampAsOf"
_CHANGE_FEED: Final = ("readChangeFeed", "readChangeData")
_ENABLED: Final = "delta.enableInCommitTimestamps"
_SINCE: Final = "delta.inCommitTimestampEnablementVersion"
_SINCE_MS: Final = "delta.inCommitTimestampEnablementTimestamp"
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")


def requested_snapshot(log: TableLog, options: Mapping[str, str]) -> Snapshot:
    """Read the version that the options of a batch read ask for; the newest, if they do not.

    Args:
        log: Of the table.
        options: As the user gave them; the case of their names does not matter.

    Raises:
        UnsupportedOptionError: The change data feed is asked for.
        OptionError: An option is not valid, or there is no such version.
    """
    given = {key.lower(): value for key, value in options.items()}
    for name in _CHANGE_FEED:
        if given.get(name.lower(), "false").lower() == "true":
            raise UnsupportedOptionError(
                f"The option {name} is not supported: the change data feed of a Delta table is "
                "not read. Read it with Delta's own jars, or with deltalake's "
                "DeltaTable.load_cdf."
            )
    version, moment = given.get(VERSION.lower()), given.get(TIMESTAMP.lower())
    if version is not None and moment is not None:
        raise OptionError(f"Set {VERSION} or {TIMESTAMP}, not both.")
    if version is not None:
        return log.snapshot(_number(version))
    if moment is not None:
        return log.snapshot(version_at(log, milliseconds(TIMESTAMP, moment), moment))
    return log.snapshot()


def version_at(log: TableLog, moment_ms: int, text: str) -> int:
    """Find the newest version that was committed at or before a moment.

    Args:
        log: Of the table.
        moment_ms: Milliseconds since 1970.
        text: The moment as the user wrote it, for errors.

    Raises:
        OptionError: The table has none, or its last commit is older: what the table will be at that
            moment is not known yet.
    """
    listing = log.listing(whole=True)
    times = CommitTimes(log, listing)
    low, high = times.searched(moment_ms)
    if low > high or moment_ms < times.of(low):
        raise OptionError(
            f"The Delta table {log.target} has no version as old as {TIMESTAMP}={text}: the oldest "
            f"that can be read is {low}, of {_shown(times.of(low))}."
        )
    if high == listing.latest and moment_ms > times.of(high):
        raise OptionError(
            f"{TIMESTAMP}={text} is after the last commit of the Delta table {log.target}: version "
            f"{high}, of {_shown(times.of(high))}. Leave the option out to read that."
        )
    versions = range(high, low, -1)
    return high - bisect_left(versions, True, key=lambda each: times.of(each) <= moment_ms)


class CommitTimes:
    """When the versions of a table were committed.

    Args:
        log: Of the table.
        listing: The whole of it.

    Attributes:
        first: The oldest version that can be read.
    """

    def __init__(self, log: TableLog, listing: LogListing) -> None:
        self._log, self._listing = log, listing
        self.first = _first_readable(listing)
        metadata = log.snapshot_of(listing.segment(log.target)).metadata
        self._latest = listing.latest
        self._noted_since: int | None = None
        self._noted_from_ms: int | None = None
        if metadata.property(_ENABLED).lower() == "true":
            self._noted_since = int(metadata.property(_SINCE, "0"))
            self._noted_from_ms = int(metadata.property(_SINCE_MS, "0"))
        self._by_file: dict[int, int] = {}
        last = 0
        for version, file in sorted(listing.commits.items()):
            last = max(last + 1, file.modification_time_us // 1000)
            self._by_file[version] = last

    def searched(self, moment_ms: int) -> tuple[int, int]:
        """Return the first and last version to search for a moment; an empty range if it is behind.

        Times that commits note and those of files are of two clocks, and are never compared.
        """
        since = self._noted_since
        if since is None or since <= self.first:
            return self.first, self._latest
        if moment_ms >= (self._noted_from_ms or self.of(since)):
            return since, self._latest
        return self.first, since - 1

    def of(self, version: int) -> int:
        """Return when a version was committed, in milliseconds since 1970."""
        if self._noted_since is not None and version >= self._noted_since:
            for action in self._log.actions(self._listing.commits[version]):
                if action.commit_info and action.commit_info.in_commit_timestamp is not None:
                    return action.commit_info.in_commit_timestamp
        return self._by_file[version]


def _first_readable(listing: LogListing) -> int:
    """Find the oldest version whose commit exists, and after which none is missing."""
    checkpoints = [each.version for each in listing.checkpoints if each.version in listing.commits]
    first = min(listing.commits, default=0)
    return first if first == 0 or not checkpoints else min(checkpoints)


def _number(text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text.strip()):
        raise OptionError(f"{VERSION}={text} is not valid: give the number of a version.")
    return int(text)


def milliseconds(option: str, text: str) -> int:
    """Convert a moment that an option gives to milliseconds since 1970.

    Args:
        option: Its name, for errors.
        text: Its value.

    Raises:
        OptionError: It is not a time, or names no time zone.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise OptionError(
            f"{option}={text} is not valid: give a time such as 2026-01-31T12:00:00Z."
        ) from error
    if found.tzinfo is None:
        what = f"{date.isoformat(found)}T00:00:00Z" if _DATE.fullmatch(text.strip()) else f"{text}Z"
        raise OptionError(
            f"{option}={text} names no time zone, and the session's is not known to a Python "
            f"data source. Give an offset: {what} for UTC."
        )
    return int(found.timestamp() * 1000)


def _shown(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds")
