"""Write small data files of a table together, or all of its files anew.

Files are grouped, those of each partition for themselves. The rows of each group are written to new
files, and one commit a group puts these in their place. No row changes: streams that read the table
skip the commit. Other writers append meanwhile; where one has removed a file of a group, the group
is left for the next call. Killed at any point, the table has the same rows; files of no version go
with its vacuum.

`deltalake` (1.6) has an `optimize` of its own, which is not used: it tries its commit again by
itself, whatever `max_commit_retries` says, removes files that another optimizer has replaced
meanwhile, and so doubles their rows (decision 88).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import CloudFilesError, SinkError
from airflow_cloudfiles.engine.messages import counted, few, plural
from airflow_cloudfiles.engine.tables.delta import data_files
from airflow_cloudfiles.engine.tables.delta.data_files import FileSettings, grouped
from airflow_cloudfiles.engine.tables.delta.lineage import COMPACTED
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import open_existing
from airflow_cloudfiles.engine.tables.delta.read.actions import NOT_REWRITTEN
from airflow_cloudfiles.engine.tables.delta.write.log_commit import refreshed, write_unescaped
from airflow_cloudfiles.engine.tables.delta.write.rewrite import TableFile, TableFiles
from airflow_cloudfiles.engine.tables.delta.write.rows import write_again

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from airflow_cloudfiles.engine.options.sink import TableOptions

OPTIMIZE_NOTE: Final = "cloudfilesOptimize"
"""Key of what was done in the commit's own metadata."""
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
    """Group the small files; one by itself is left, unless some of its rows are deleted."""
    small = [file for file in files if file.size < size * _FULL]
    groups = grouped(small, lambda file: file.size, size)
    return (each for each in groups if len(each) > 1 or each[0].vector is not None)


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
