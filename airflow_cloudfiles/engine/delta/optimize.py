"""Write small data files of a table together, or bring rows near that belong together.

Files are grouped, those of each partition for themselves. The rows of each group are written to new
files, and one commit a group puts these in their place. No row changes: streams that read the table
skip the commit. Other writers append meanwhile; where one has removed a file of a group, the group
is left for the next call. Killed at any point, the table has the same rows; files of no version go
with its vacuum.

`deltalake` (1.6) has an `optimize` of its own, which is not used: it tries its commit again by
itself, whatever `max_commit_retries` says, removes files that another optimizer has replaced
meanwhile, and so doubles their rows (decision 88).

In which order are rows near that are near in several columns?

Of each column the values get their rank among all rows, spread over as many bits as the columns
share of 64. The bits of the ranks, taken in turns, make one number, by which the rows are sorted: a
curve that fills the space of the columns. Nulls come last.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.delta import data_files, rewrite
from airflow_cloudfiles.engine.delta.data_files import FileSettings, grouped
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.opening import open_existing
from airflow_cloudfiles.engine.delta.read.table_state import TableState
from airflow_cloudfiles.engine.delta.rewrite import TableFile, TableSnapshot
from airflow_cloudfiles.engine.delta.write.log_commit import refreshed, write_unescaped
from airflow_cloudfiles.engine.delta.write.partitioned import (
    PartitionedSnapshot,
    replace_partitioned,
)
from airflow_cloudfiles.engine.delta.write.rows import in_partition
from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError, SinkError
from airflow_cloudfiles.engine.messages import counted, few, plural
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from airflow_cloudfiles.engine.options.sink import TableOptions

OPTIMIZE_NOTE: Final = "cloudfilesOptimize"
"""Key of what was done in the commit's own metadata."""
SORTED_BYTES: Final = 128 * 2**20
"""Files whose rows are sorted at once, in bytes of the files."""
COMPACTED: Final = ("compacted_files", "compacted_into_files")
"""What an automatic compaction counts."""
_UNSUPPORTED: Final = frozenset(
    {
        "clustering",
        "deletionVectors",
        "icebergCompatV1",
        "icebergCompatV2",
        "rowTracking",
        "typeWidening",
        "typeWidening-preview",
    }
)
"""Features whose tables the library does not rewrite, or loses what they promise."""
_MOST_COLUMNS: Final = 16
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
    z_order: Sequence[str] = (),
    target_bytes: int | None = None,
    dry_run: bool = False,
) -> OptimizeReport:
    """Write the small files of a table together, or sort its rows by several columns at once.

    Repeating it is harmless: what is done needs not be done again, except for a z-order, which
    rewrites the table each time.

    Args:
        target: Path or URI of the table.
        z_order: Columns by which rows that are near in all of them get near in the files, so that
            readers with filters on any of them skip files; none: files are only written together.
            The rows of files of `SORTED_BYTES` are sorted at a time, in memory.
        target_bytes: Size of a file; default: `delta.targetFileSize` of the table, or else 256 MiB
            on a disk and 64 MiB in a cloud.
        dry_run: Only count what would be done.

    Raises:
        TargetNotDeltaError: There is no Delta table.
        OptionError: A column of the z-order is missing, is one of the partition, or has values
            without an order.
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
    snapshot = _snapshot(table, target)
    columns = _columns(snapshot, z_order)
    # A group is written to one file, even where it is a little larger than its parts.
    into = size if columns else 2 * size
    settings = FileSettings.of(table.metadata().configuration, into)
    for files in _partitions(snapshot):
        in_order = grouped(files, lambda file: file.size, SORTED_BYTES)
        groups = in_order if columns else _small_groups(files, size)
        for group in groups:
            _rewrite(snapshot, group, columns, settings, report)
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
    found = sorted(features & _UNSUPPORTED)
    if found:
        raise SinkError(
            f"{target} cannot be optimized in this version, because it has {few(found)}. Optimize "
            "it with the program that uses these features, such as OPTIMIZE of Spark."
        )


def _snapshot(table: DeltaTable, target: str) -> TableSnapshot:
    state = TableState.of(table, target)
    is_plain = state.mode == "none" and not state.partition_columns
    return (TableSnapshot if is_plain else PartitionedSnapshot)(table, DeltaLocation.of(target))


def _small_files(table: DeltaTable, target: str, size: int) -> int:
    """How many files are small; in a partitioned table, those that have a neighbour."""
    if not table.metadata().partition_columns:
        sizes = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
        return sum(each < size * _FULL for each in sizes)
    _refuse(table, target)
    partitions = _partitions(_snapshot(table, target))
    return sum(len(group) for files in partitions for group in _small_groups(files, size))


def _partitions(snapshot: TableSnapshot) -> list[list[TableFile]]:
    """The files of each partition; those of a table without partitions are together."""
    found: dict[tuple[tuple[str, str | None], ...], list[TableFile]] = {}
    for file in snapshot.files.values():
        found.setdefault(file.partition_values, []).append(file)
    return list(found.values())


def _small_groups(files: Sequence[TableFile], size: int) -> Iterator[list[TableFile]]:
    small = [file for file in files if file.size < size * _FULL]
    return (each for each in grouped(small, lambda file: file.size, size) if len(each) > 1)


def _rewrite(
    snapshot: TableSnapshot,
    group: Sequence[TableFile],
    columns: Sequence[str],
    settings: FileSettings,
    report: OptimizeReport,
) -> None:
    """Write the rows of some files to new ones, sorted if there are columns to sort by."""
    before = sum(each.size for each in group)
    if report.is_dry_run:
        _count(report, len(group), before, max(1, before // report.target_bytes), before)
        return
    rows = (batch for file in group for batch in snapshot.batches(file))
    ordered = z_ordered(rows, snapshot.schema, columns) if columns else rows
    new = snapshot.write(ordered, in_partition(settings, group[0].partition_values))
    crash_point("before-optimize-commit")
    counts = {"removed": len(group), "added": len(new)}
    note = {OPTIMIZE_NOTE: {**counts, "z_order": list(columns)}}
    try:
        if isinstance(snapshot, PartitionedSnapshot):
            replace_partitioned(snapshot, group, new, note)
        else:
            rewrite.replace(snapshot, group, new, note, data_change=False)
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


def _columns(snapshot: TableSnapshot, names: Sequence[str]) -> list[str]:
    """The columns of a z-order, as the table spells them."""
    key = CASE_INSENSITIVE.key
    partitions = {key(name) for name in snapshot.table.metadata().partition_columns}
    constant = [name for name in names if key(name) in partitions]
    if constant:
        raise OptionError(
            f"The z-order names {few(constant)}, by which {snapshot.location.target} is "
            "partitioned: all rows of a file have one value. Leave it out."
        )
    known = {key(each.name): each.name for each in snapshot.schema if can_z_order(each.type)}
    found = [known.get(key(name)) for name in names]
    wrong = [name for name, there in zip(names, found, strict=True) if there is None]
    columns = [name for name in found if name is not None]
    if wrong or len(set(columns)) < len(columns) or len(columns) > _MOST_COLUMNS:
        raise OptionError(
            f"The z-order names {few(wrong or columns)}, but takes columns of the table whose "
            f"values have an order, each once and {_MOST_COLUMNS} at most: "
            f"{few(list(known.values()))}. Name some of these."
        )
    return columns


_BITS: Final = 64
_BATCH_ROWS: Final = 64 * 1024
_KINDS: Final = (
    pa.types.is_signed_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_date,
    pa.types.is_timestamp,
)


def can_z_order(kind: pa.DataType) -> bool:
    """Whether values of a type have an order here."""
    return any(is_kind(kind) for is_kind in _KINDS)


def z_ordered(
    rows: Iterable[pa.RecordBatch], schema: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Sort rows, which are all in memory for that.

    Args:
        rows: The rows.
        schema: Their columns.
        columns: Those to sort by; a row is as near to another as it is in all of them.
    """
    table = pa.Table.from_batches(rows, schema)
    bits = min(16, _BITS // len(columns))
    ranks = [_rank(table[name], bits) for name in columns]
    order = np.argsort(_interleaved(ranks, bits), kind="stable")
    for first in range(0, table.num_rows, _BATCH_ROWS):
        part = table.take(pa.array(order[first : first + _BATCH_ROWS])).combine_chunks()
        yield from part.to_batches()


def _rank(column: pa.ChunkedArray, bits: int) -> npt.NDArray[np.uint64]:
    """The rank of each value, from 0 to the largest number of so many bits."""
    found = pc.rank(column, tiebreaker="dense").to_numpy() - 1
    most = int(found.max(initial=0))
    scaled: npt.NDArray[np.uint64] = (found * ((2**bits - 1) / max(1, most))).astype(np.uint64)
    return scaled


def _interleaved(ranks: Sequence[npt.NDArray[np.uint64]], bits: int) -> npt.NDArray[np.uint64]:
    found = np.zeros(len(ranks[0]), dtype=np.uint64)
    for bit in range(bits):
        for place, rank in enumerate(ranks):
            one = (rank >> np.uint64(bit)) & np.uint64(1)
            found |= one << np.uint64(bit * len(ranks) + len(ranks) - 1 - place)
    return found
