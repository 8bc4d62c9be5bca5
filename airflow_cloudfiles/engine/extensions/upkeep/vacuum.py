"""Remove the files of a table that no version needs any more.

1. All files below the table are listed. Those younger than the retention are left alone: a running
   task may have written them for a commit that is still to come.
2. The log is read after that, so that it names whatever was committed during the listing.
3. Of the old files, those stay that a version within the retention names: data files, deletion
   vectors and files of the change data feed.
4. The rest is removed. Before each part of it the log is read on: a commit that takes an old file
   back, such as RESTORE, keeps it.

A version is within the retention if it was the newest at some moment of it. Its files are those of
the newest version, and those that a commit of that time has removed. Ages are taken from the clock
of the store. Where the log has the time of a writer's clock only, `CLOCK_SKEW` is added. Killed at
any point, this leaves a table that is whole; the next call goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import OptionError, TargetCorruptedError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage import ObjectStore
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once
from airflow_cloudfiles.engine.tables.delta.read.actions import (
    Action,
    DeletionVector,
    Metadata,
    require_vacuumable,
)
from airflow_cloudfiles.engine.tables.delta.read.deletion_vectors import (
    DamagedVectorError,
    vector_file,
)
from airflow_cloudfiles.engine.tables.delta.read.log import STAGED, list_log_after, relative_key
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog

CLOCK_SKEW: Final = timedelta(hours=1)
"""By how much a writer's clock may differ from the store's."""
_PART: Final = 500
"""Files that are removed before the log is read on."""
_CHANGES: Final = "_change_data/"
_HIDDEN_OF_OURS: Final = (_CHANGES, STAGED)
_VECTOR: Final = re.compile(r"deletion_vector_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin")
_KINDS: Final = ("data_files", "deletion_vectors", "change_data", "staged_rows")
_RETENTION: Final = "delta.deletedFileRetentionDuration"
_DEFAULT_RETENTION: Final = timedelta(days=7)
_UNITS: Final = {"week": 604800, "day": 86400, "hour": 3600, "minute": 60, "second": 1}
_DURATION: Final = re.compile(r"(?:interval )?(\d{1,9}) (week|day|hour|minute|second)s?")


@dataclass(slots=True)
class VacuumReport:
    """What a vacuum has removed, or would remove.

    Attributes:
        version: The version of the table that was the newest.
        retention: How far back versions can still be read.
        is_dry_run: Whether nothing was removed.
        paths: The files, relative to the table, in order.
        bytes: Their bytes.
        kinds: How many are data files, deletion vectors, change data, and rows that a killed run
            has left before they were merged.
        young: Files that no version within the retention names, but that are younger than it.
        nested_tables: Folders below the table that are tables themselves; nothing in them was
            looked at.
    """

    version: int
    retention: timedelta
    is_dry_run: bool
    paths: list[str] = field(default_factory=list)
    bytes: int = 0
    kinds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_KINDS, 0))
    young: int = 0
    nested_tables: list[str] = field(default_factory=list)

    def add(self, file: FileEntry) -> None:
        """Count a file."""
        self.paths.append(file.path)
        self.bytes += file.size
        self.kinds[_kind(file.path)] += 1

    def as_record(self) -> dict[str, Any]:
        """Return the result for JSON, as the command line and the operator report it."""
        return {
            "version": self.version,
            "retention_hours": self.retention / timedelta(hours=1),
            "removed": not self.is_dry_run,
            "files": len(self.paths),
            "bytes": self.bytes,
            **self.kinds,
            "unnamed_but_young": self.young,
            "nested_tables": self.nested_tables,
            "paths": self.paths,
        }


def vacuum(
    log: TableLog,
    *,
    retention: timedelta | None = None,
    dry_run: bool = True,
    allow_short_retention: bool = False,
) -> VacuumReport:
    """Remove the files that no version within a retention names.

    Args:
        log: Of the table.
        retention: How far back versions stay readable; `None` for the table's own
            (`delta.deletedFileRetentionDuration`, a week unless it is set).
        dry_run: Only say what would be removed.
        allow_short_retention: Whether the retention may be shorter than the table's own. Queries
            that still read an older version then fail, and so do commits of tasks that have been
            running for longer.

    Raises:
        TargetNotDeltaError: There is no Delta table.
        UnsupportedTableError: It has a feature that may name files elsewhere.
        OptionError: The retention is too short.
        TargetCorruptedError: The log is damaged.
        TargetUnreachableError: The storage failed, or refused us; what is removed is removed.
    """
    snapshot = log.snapshot()
    require_vacuumable(snapshot.protocol, log.target)
    kept = _retention(snapshot.metadata, retention, log.target, may_be_short=allow_short_retention)
    report = VacuumReport(snapshot.version, kept, dry_run)
    with log.location.translate_store_errors("cannot be vacuumed"):
        cutoff_us = log.store.clock_us() - kept // timedelta(microseconds=1)
        is_partitioned = bool(snapshot.metadata.partition_columns)
        files, nested = _listed(log.store, is_partitioned=is_partitioned)
        report.nested_tables = sorted(nested)
        named = _NamedFiles(log, cutoff_us)
        unnamed = [file for file in files if file.path not in named.keys]
        # There before the retention began, also where a file keeps its time.
        past = [file for file in unnamed if file.modification_time_us < cutoff_us]
        old = [file for file in past if log.store.arrived_us(file) < cutoff_us]
        report.young, report.version = len(unnamed) - len(old), named.version
        for first in range(0, len(old), _PART):
            _remove_part(log, old[first : first + _PART], named, report)
    return report


def _remove_part(
    log: TableLog, part: Iterable[FileEntry], named: _NamedFiles, report: VacuumReport
) -> None:
    """Remove some files, unless a commit has named them meanwhile."""
    if not report.is_dry_run:
        named.read_on()
        report.version = named.version
    gone = [file for file in part if file.path not in named.keys]
    if not report.is_dry_run:
        at_once(log.store, [partial(log.store.delete, file.path) for file in gone])
        crash_point("after-part-of-vacuum")
    for file in gone:
        report.add(file)


def _listed(store: ObjectStore, *, is_partitioned: bool) -> tuple[list[FileEntry], set[str]]:
    """List the files below a table that its versions may name, and staged rows.

    Args:
        store: The table's files.
        is_partitioned: Whether folders are named after partition columns.

    Returns:
        The files, none of them of a table inside this one, and the folders that are such tables.
    """
    nested: set[str] = set()

    def skip(key: str, is_folder: bool) -> bool:  # noqa: FBT001 - a SkipRule
        """Leave out hidden files and folders, as Delta does."""
        folder, _, name = key.rstrip("/").rpartition("/")
        if is_folder and name == "_delta_log" and folder:
            nested.add(folder)
        if is_folder and not folder and f"{name}/" in _HIDDEN_OF_OURS:
            return False
        is_partition = is_folder and is_partitioned and "=" in name
        return name.startswith((".", "_")) and not is_partition

    found = [
        file
        for file in store.list(skip=skip, ordered=False)
        if file.path.endswith(".parquet") or _VECTOR.fullmatch(file.path.rpartition("/")[2])
    ]
    inside = tuple(f"{folder}/" for folder in nested)
    return [file for file in found if not file.path.startswith(inside)], nested


class _NamedFiles:
    """The files that versions within the retention name.

    Args:
        log: Of the table.
        cutoff_us: When the retention begins, by the clock of the store.

    Attributes:
        keys: The files, as the store lists them.
        version: The newest version that was read.
    """

    def __init__(self, log: TableLog, cutoff_us: int) -> None:
        self._log = log
        self.keys: set[str] = set()
        listing = log.listing(whole=True)
        snapshot = log.snapshot_of(listing.segment(log.target))
        self.version = snapshot.version
        for added in snapshot.files:
            self._add(added.path, added.deletion_vector)
        since_us = cutoff_us - CLOCK_SKEW // timedelta(microseconds=1)
        for removed in snapshot.removed:
            time_ms = removed.deletion_timestamp
            if time_ms is None or time_ms * 1000 >= since_us:
                self._add(removed.path, removed.deletion_vector)
        commits = [
            file for file in listing.commits.values() if file.modification_time_us >= since_us
        ]
        for actions in at_once(log.store, [partial(log.actions, each) for each in commits]):
            self._add_all(actions)

    def read_on(self) -> None:
        """Add what was committed since.

        Raises:
            TargetCorruptedError: A commit is not there any more.
            UnsupportedTableError: The table has got a feature that is not known here.
        """
        listing = list_log_after(self._log.store, self.version)
        for version in range(self.version + 1, listing.latest + 1):
            if version not in listing.commits:
                raise TargetCorruptedError(
                    f"Commit {version} of the Delta table {self._log.target} was removed while the "
                    "table was vacuumed, so what it names is unknown. Run the vacuum again."
                )
            actions = self._log.actions(listing.commits[version])
            for each in actions:
                if each.protocol is not None:
                    require_vacuumable(each.protocol, self._log.target)
            self._add_all(actions)
            self.version = version

    def _add_all(self, actions: Iterable[Action]) -> None:
        for action in actions:
            for file in (action.add, action.remove):
                if file is not None:
                    self._add(file.path, file.deletion_vector)
            if action.cdc is not None:
                self._add(action.cdc.path, None)

    def _add(self, path: str, vector: DeletionVector | None) -> None:
        key = relative_key(self._log.store, path)
        if key is not None:
            self.keys.add(key)
        if vector is not None:
            self._add_vector(vector)

    def _add_vector(self, vector: DeletionVector) -> None:
        try:
            path = vector_file(vector)
        except DamagedVectorError as error:
            raise TargetCorruptedError(
                f"The log of the Delta table {self._log.target} names a deletion vector that is "
                f"damaged: {error}. Nothing is removed: restore the log from a backup."
            ) from error
        if path is not None and vector.storage_type == "p":
            path = relative_key(self._log.store, path)
        if path is not None:
            self.keys.add(path)


def _retention(
    metadata: Metadata, asked: timedelta | None, target: str, *, may_be_short: bool
) -> timedelta:
    """Decide the retention to keep.

    Raises:
        OptionError: It is shorter than the table's own, or the table's own cannot be read.
    """
    own = _own_retention(metadata, target) if asked is None or not may_be_short else asked
    if asked is not None and asked < own:
        raise OptionError(
            f"A retention of {_hours(asked)} hours is shorter than that of the Delta table "
            f"{target} ({_RETENTION}), which is {_hours(own)}. A vacuum would remove files that a "
            "query or a running task still needs. Allow it explicitly if nothing uses the table."
        )
    return own if asked is None else asked


def _own_retention(metadata: Metadata, target: str) -> timedelta:
    text = metadata.property(_RETENTION)
    if not text:
        return _DEFAULT_RETENTION
    found = _DURATION.fullmatch(" ".join(text.lower().split()))
    if found is None:
        raise OptionError(
            f"{_RETENTION} of the Delta table {target} is {text!r}, which is not read here: it is "
            "written as 'interval 7 days'. Give a retention, and allow it to be a short one."
        )
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def _hours(duration: timedelta) -> str:
    return f"{duration / timedelta(hours=1):g}"


def _kind(path: str) -> str:
    if path.startswith(_CHANGES):
        return "change_data"
    if path.startswith(STAGED):
        return "staged_rows"
    return "data_files" if path.endswith(".parquet") else "deletion_vectors"
