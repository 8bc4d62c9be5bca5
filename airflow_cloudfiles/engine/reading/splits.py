"""Divide files among tasks.

A micro-batch is cut into splits, one task each: small files are packed together by size, large
files that can be cut are cut into byte ranges. A split carries all that a task needs to read it,
so executors open no log, ledger or queue.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from airflow_cloudfiles.engine.files import FileEntry, Offset, is_archive
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

OPEN_COST_BYTES = 32 * 2**10
"""What opening a file is worth in bytes read. Spark says 4 MiB, which is the price of a JVM reader
with a split of its own; here a local file costs 30 microseconds, parsing does 150 MB/s."""
MAX_SPLIT_BYTES = 128 * 2**20
"""About the most bytes one task reads, as Spark's `spark.sql.files.maxPartitionBytes`; up to a
quarter more where that leaves no core idle at the end."""
MIN_SPLIT_BYTES = 4 * 2**20
"""Below this a split is not worth a task of its own."""
COMPRESSED = (".gz", ".bz2", ".zst", ".deflate", ".lz4", ".snappy", ".sz", ".xz")
"""Endings of files that can only be read from their beginning."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """A part of a file: the lines that start in `[start, end)`; `end` None means to its end.

    Attributes:
        file: The file.
        start: The first byte.
        end: Where the part ends.
        place: The entry of the file log and the index there that record the file, if they matter.
    """

    file: FileEntry
    start: int = 0
    end: int | None = None
    place: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        """Bytes of the part."""
        return (self.file.size if self.end is None else self.end) - self.start

    @property
    def is_whole(self) -> bool:
        """Whether the part is the whole file."""
        return self.start == 0 and self.end is None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContext:
    """What all splits of a micro-batch have in common.

    Attributes:
        source_uri: Root that the paths are relative to.
        source_name: What state and schema log know the source by: the root, perhaps with a pattern.
        state_uri: Where the file log is: to find the whole batch again when its schema changes.
            Empty for a batch read, which has no state.
        schema_uri: Where the schema log is; `None` when the user gave the schema.
        schema_version: Number of the schema version the batch is read with; -1 for a given one.
        data_schema: Columns found in the records, as Spark schema JSON.
        partition_schema: Columns found in the paths, as Spark schema JSON.
        start: First file of the batch.
        end: Where the batch ends (exclusive).
        options: The options of the source.
        column_order: Names of all columns, where the user gave the schema; otherwise those of the
            paths follow those of the records, and rescued data is last.
    """

    source_uri: str
    source_name: str
    state_uri: str
    schema_uri: str | None
    schema_version: int
    data_schema: str
    partition_schema: str
    start: Offset
    end: Offset
    options: CloudFilesOptions
    column_order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads."""

    context: BatchContext
    ranges: tuple[FileRange, ...]


def pack(
    files: Iterable[FileEntry],
    *,
    parallelism: int,
    can_cut: bool = True,
    whole: Container[FileEntry] = (),
) -> list[tuple[FileRange, ...]]:
    """Cut files into splits of about equal cost.

    Args:
        files: The files of a micro-batch, in log order.
        parallelism: How many tasks can run at once.
        can_cut: Whether the format of the files can be read in parts.
        whole: Files that are not cut all the same.

    Returns:
        At least one split when there is any file; ranges keep the order of the log.
    """
    batch = list(files)
    cost = sum(file.size + OPEN_COST_BYTES for file in batch)
    target = split_bytes(cost, parallelism)
    splits: dict[int, list[FileRange]] = {}
    before = 0
    sizes = ((file, target if can_cut and file not in whole else 0) for file in batch)
    for part in (part for file, size in sizes for part in _cut(file, size)):
        after = before + part.size + OPEN_COST_BYTES
        # A part is in the split that its middle is in: none is left over for a split of its own.
        splits.setdefault((before + after) // 2 // target, []).append(part)
        before = after
    return [tuple(split) for split in splits.values()]


def with_places(
    splits: Iterable[tuple[FileRange, ...]], places: Iterable[tuple[int, int]]
) -> list[tuple[FileRange, ...]]:
    """Say where each file of some splits is recorded.

    Args:
        splits: What `pack` gives.
        places: Of the files that it was given, in their order.
    """
    rest = iter(places)
    place = None
    found: list[tuple[FileRange, ...]] = []
    for split in splits:
        parts = []
        for part in split:
            place = next(rest) if part.start == 0 else place
            parts.append(FileRange(part.file, part.start, part.end, place))
        found.append(tuple(parts))
    return found


def split_bytes(cost: int, parallelism: int) -> int:
    """About how many bytes each split gets, to keep all tasks busy until the end.

    Args:
        cost: Bytes of all files, with `OPEN_COST_BYTES` for each.
        parallelism: How many tasks can run at once; each gets as many splits.
    """
    at_once = max(1, parallelism)
    wanted = at_once * max(1, -(-cost // (at_once * MAX_SPLIT_BYTES * 5 // 4)))
    return max(MIN_SPLIT_BYTES, cost // wanted + 1)


def _cut(file: FileEntry, target: int) -> Iterator[FileRange]:
    """Cut one file into ranges of about `target` bytes (0: not at all), if it can be cut."""
    pieces = max(1, round(file.size / target)) if target else 1
    if pieces == 1 or file.path.lower().endswith(COMPRESSED) or is_archive(file.path):
        yield FileRange(file)
        return
    step = file.size // pieces + 1
    starts = range(0, file.size, step)
    for start in starts:
        yield FileRange(file, start, min(start + step, file.size))
