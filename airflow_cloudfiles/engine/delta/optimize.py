"""Write small data files of a table together, or all of its files anew.

Files are grouped, those of each partition for themselves. The rows of each group are written to new
files, and one commit a group puts these in their place. No row changes: streams that read the table
skip the commit. Other writers append meanwhile; where one has removed a file of a group, the group
is left for the next call. Killed at any point, the table has the same rows; files of no version go
with its vacuum.

`deltalake` (1.6) has an `optimize` of its own, which is not used: it tries its commit again by
itself, whatever `max_commit_retries` says, removes files that another optimizer has replaced
meanwhile, and so doubles their rows (decision 88).

Remove the files of a table that no version needs any more.

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

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.delta import data_files
from airflow_cloudfiles.engine.delta.data_files import FileSettings, grouped
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.opening import open_existing
from airflow_cloudfiles.engine.delta.read.actions import (
    NOT_REWRITTEN,
    Action,
    DeletionVector,
    Metadata,
    require_vacuumable,
)
from airflow_cloudfiles.engine.delta.read.deletion_vectors import DamagedVectorError, vector_file
from airflow_cloudfiles.engine.delta.read.log import STAGED, list_log_after, relative_key
from airflow_cloudfiles.engine.delta.read.snapshot import PARALLEL_REQUESTS, TableLog
from airflow_cloudfiles.engine.delta.write.log_commit import refreshed, write_unescaped
from airflow_cloudfiles.engine.delta.write.rewrite import TableFile, TableFiles
from airflow_cloudfiles.engine.delta.write.rows import write_again
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    OptionError,
    SinkError,
    TargetCorruptedError,
)
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.messages import counted, few, plural
from airflow_cloudfiles.engine.storage import ObjectStore

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from airflow_cloudfiles.engine.options.sink import TableOptions


OPTIMIZE_NOTE: Final = "cloudfilesOptimize"
"""Key of what was done in the commit's own metadata."""
COMPACTED: Final = ("compacted_files", "compacted_into_files")
"""What an automatic compaction counts."""
_FULL: Final = 0.75
"""A file of this share of the target size is left as it is."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class OptimizeReport:
    """What optimizing a table has done, or would do.

    Attributes:
        version: The version of the table after it.
        is_dry_run: Whether nothing was changed.
        target_bytes: The size that files were to have.
        removed_files: Files that were replaced.
        removed_bytes: Their bytes.
        added_files: Files in their place; of a dry run, how many groups there are.
        added_bytes: Their bytes.
        skipped_groups: Groups of files that another writer has changed meanwhile.
    """

    version: int
    is_dry_run: bool
    target_bytes: int
    removed_files: int = 0
    removed_bytes: int = 0
    added_files: int = 0
    added_bytes: int = 0
    skipped_groups: int = 0


def optimize(
    target: str,
    *,
    all_files: bool = False,
    target_bytes: int | None = None,
    dry_run: bool = False,
) -> OptimizeReport:
    """Write the small files of a table together, or all of its files anew.

    Repeating it is harmless: what is done needs not be done again, unless all files are asked for.

    Args:
        target: Path or URI of the table.
        all_files: Whether files of the target size are written anew, too: with the table's own
            spelling of its columns, its compression, and bounds of all that can be bounded.
        target_bytes: Size of a file; default: `delta.targetFileSize` of the table, or else 256 MiB
            on a disk and 64 MiB in a cloud.
        dry_run: Only count what would be done.

    Raises:
        TargetNotDeltaError: There is no Delta table.
        SinkError: The table has features with which its files cannot be replaced
            here.
        TargetUnreachableError: Its storage failed; what is committed is committed.
    """
    table = open_existing(target)
    size = _target_bytes(table, target_bytes, target)
    report = OptimizeReport(table.version(), dry_run, size)
    _refuse(table, target)
    if not dry_run:
        with suppress(CommitFailedError):  # another writer's: the next call does it
            write_unescaped(table, DeltaLocation.of(target))
    snapshot = _files(table, target)
    # A group is written to one file, even where it is a little larger than its parts.
    settings = FileSettings.of(table.metadata().configuration, 2 * size)
    for files in _partitions(snapshot):
        in_order = grouped(files, lambda file: file.size, size)
        for group in in_order if all_files else _small_groups(files, size):
            _rewrite(snapshot, group, settings, report)
    refreshed(table, snapshot.location)
    report.version = table.version()
    return report


def auto_compact(target: str, options: TableOptions) -> dict[str, int]:
    """Compact a table after a batch, where that is asked for and it has many small files.

    It never fails the batch, which is committed: what goes wrong is logged.

    Args:
        target: Path or URI of the table.
        options: Of the sink.

    Returns:
        Files that were replaced and files in their place, as a report counts them; empty where
        nothing was done.
    """
    if options.auto_compact is False:
        return {}
    try:
        table = open_existing(target)
        if not options.auto_compact and not data_files.is_compacted(table.metadata().configuration):
            return {}
        size = _target_bytes(table, options.target_file_size, target)
        if _small_files(table, target, size) < options.auto_compact_min_files:
            return {}
        report = optimize(target, target_bytes=options.target_file_size)
    except (CloudFilesError, CommitFailedError, OSError) as error:
        _log.warning("%s was not compacted, which loses nothing: %s", target, error)
        return {}
    removed, added = report.removed_files, report.added_files
    _log.info(
        "%s of %s %s %s now", counted(removed, "file"), target, plural(removed, "is", "are"), added
    )
    return dict(zip(COMPACTED, (removed, added), strict=True)) if removed else {}


def _target_bytes(table: DeltaTable, given: int | None, target: str) -> int:
    asked = FileSettings.of(table.metadata().configuration, given).target_bytes
    is_local = DeltaLocation.of(target).folder is not None
    return asked or (data_files.TARGET_FILE_BYTES if is_local else data_files.CLOUD_FILE_BYTES)


def _refuse(table: DeltaTable, target: str) -> None:
    """Refuse tables that the library reads or writes wrongly."""
    features = {
        *(table.protocol().reader_features or ()),
        *(table.protocol().writer_features or ()),
    }
    found = sorted(features & NOT_REWRITTEN)
    if found:
        raise SinkError(
            f"{target} cannot be optimized in this version, because it has {few(found)}. Optimize "
            "it with the program that uses these features, such as OPTIMIZE of Spark."
        )


def _files(table: DeltaTable, target: str) -> TableFiles:
    return TableFiles(table, DeltaLocation.of(target), "optimized", takes_all=True)


def _small_files(table: DeltaTable, target: str, size: int) -> int:
    """Count the small files; in a partitioned table, those that have a neighbor."""
    if not table.metadata().partition_columns:
        sizes = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
        return sum(each < size * _FULL for each in sizes)
    _refuse(table, target)
    partitions = _partitions(_files(table, target))
    return sum(len(group) for files in partitions for group in _small_groups(files, size))


def _partitions(snapshot: TableFiles) -> list[list[TableFile]]:
    """Group the files by partition; those of a table without partitions are together."""
    found: dict[tuple[tuple[str, str | None], ...], list[TableFile]] = {}
    for file in snapshot.files.values():
        found.setdefault(file.partition_values, []).append(file)
    return list(found.values())


def _small_groups(files: Sequence[TableFile], size: int) -> Iterator[list[TableFile]]:
    small = [file for file in files if file.size < size * _FULL]
    return (each for each in grouped(small, lambda file: file.size, size) if len(each) > 1)


def _rewrite(
    snapshot: TableFiles,
    group: Sequence[TableFile],
    settings: FileSettings,
    report: OptimizeReport,
) -> None:
    """Write the rows of some files to new ones."""
    before = sum(each.size for each in group)
    if report.is_dry_run:
        _count(report, len(group), before, max(1, before // report.target_bytes), before)
        return
    rows = (batch for file in group for batch in snapshot.batches(file))
    new = write_again(snapshot, rows, settings, group[0].partition_values)
    crash_point("before-optimize-commit")
    note = {OPTIMIZE_NOTE: {"removed": len(group), "added": len(new)}}
    try:
        snapshot.replace(group, new, note, operation="OPTIMIZE", data_change=False)
    except CommitFailedError as error:
        target = snapshot.location.target
        _log.info("In %s, %s stay as before: %s", target, counted(len(group), "file"), error)
        data_files.remove(snapshot.location, [each.name for each in new])
        report.skipped_groups += 1
        return
    crash_point("after-optimize-commit")
    _count(report, len(group), before, len(new), sum(each.size for each in new))


def _count(report: OptimizeReport, removed: int, before: int, added: int, after: int) -> None:
    report.removed_files += removed
    report.removed_bytes += before
    report.added_files += added
    report.added_bytes += after


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
        named = _Named(log, cutoff_us)
        unnamed = [file for file in files if file.path not in named.keys]
        # There before the retention began, also where a file keeps its time.
        past = [file for file in unnamed if file.modification_time_us < cutoff_us]
        old = [file for file in past if log.store.arrived_us(file) < cutoff_us]
        report.young, report.version = len(unnamed) - len(old), named.version
        for first in range(0, len(old), _PART):
            _remove_part(log, old[first : first + _PART], named, report)
    return report


def _remove_part(
    log: TableLog, part: Iterable[FileEntry], named: _Named, report: VacuumReport
) -> None:
    """Remove some files, unless a commit has named them meanwhile."""
    if not report.is_dry_run:
        named.read_on()
        report.version = named.version
    gone = [file for file in part if file.path not in named.keys]
    if not report.is_dry_run:
        with ThreadPoolExecutor(PARALLEL_REQUESTS, thread_name_prefix="cloudfiles-vacuum") as pool:
            list(pool.map(lambda file: log.store.delete(file.path), gone))
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


class _Named:
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
        with ThreadPoolExecutor(PARALLEL_REQUESTS, thread_name_prefix="cloudfiles-vacuum") as pool:
            for actions in pool.map(log.actions, commits):
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
