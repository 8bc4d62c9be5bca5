"""Register the files of a split as data files of the table, and copy the others.

1. Read the footers of the files.
2. A file that is just what a data file of the table is becomes one where it lies: an add action
   with its path below the table, and the statistics of its footer.
3. The others are read and written, with evolution and rescued data, as if they were all.

Both go into the one commit of the micro-batch. Before it, each registered file is looked at once
more: one that was overwritten or removed meanwhile fails the batch, and is copied by the next try.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from airflow_cloudfiles.engine.batches.file_source import split_up
from airflow_cloudfiles.engine.extensions.registration.check import below_table
from airflow_cloudfiles.engine.extensions.registration.fit import Copied, FileFit, RegisteredFile
from airflow_cloudfiles.engine.extensions.registration.footers import footers
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.messages import counted, plural
from airflow_cloudfiles.engine.options.formats.columnar import ParquetOptions
from airflow_cloudfiles.engine.reading.fetch import packed
from airflow_cloudfiles.engine.reading.file_columns import ColumnSources
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange, Split, with_places
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile
from airflow_cloudfiles.engine.tables.delta.lineage import REGISTERED

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from airflow_cloudfiles.engine.intake.intake import Intake
    from airflow_cloudfiles.engine.state.file_log import FileLog
    from airflow_cloudfiles.engine.tables.delta.write.rows import TableWrite
    from airflow_cloudfiles.engine.tables.table_writer import TaskWritten

_REASONS: Final = 3
"""Why files are copied: the log names so many of the reasons, each with an example."""
_log = logging.getLogger(__name__)


def splits_to_register(
    intake: Intake,
    placed: Sequence[tuple[tuple[int, int], FileEntry]],
    context: BatchContext,
    parallelism: int,
) -> list[Split]:
    """Cut the files of a micro-batch into splits, but none into parts.

    A file that was asked to be ingested again is copied: the table may have it as a data file, and
    has each of these once.

    Args:
        intake: The state.
        placed: The files of the micro-batch, each with its place in the file log.
        context: Of the micro-batch.
        parallelism: How many tasks can run at a time.
    """
    repeated = _repeated(intake.files)
    once = [each for each in placed if each[1].path not in repeated]
    again = [each for each in placed if each[1].path in repeated]
    files = [file for _, file in once]
    found = packed(intake.source, files, parallelism=parallelism, can_cut=False)
    found = with_places(found, [place for place, _ in once])
    splits = [Split(context, ranges) for ranges in found]
    if again:
        copied = replace(context, options=replace(context.options, load_mode="copy"))
        places, files = [place for place, _ in again], [file for _, file in again]
        splits += split_up(intake.source, files, copied, parallelism, places)
    return splits or [Split(context, ())]


def _repeated(files: FileLog) -> frozenset[str]:
    """Find the files that were asked to be ingested once more, or were forgotten, by path."""
    asked = (each for each in files.operations.after() if each.action in {"replay", "forget"})
    return frozenset(file.path for each in asked for file in files.read(each.number).files)


def register(
    split: Split,
    write: TableWrite,
    target: str,
    required: Sequence[str],
    copy: Callable[[Split], TaskWritten],
) -> TaskWritten:
    """Register the files of a split that can be data files of a table; copy the others.

    Args:
        split: What a task has to load.
        write: The table.
        target: Its path or URI.
        required: Columns whose values are counted.
        copy: Reads and writes a split.

    Raises:
        CloudFilesError: What copying raises.
    """
    context = split.context
    options = context.options
    source = open_store(context.source_uri)
    folder = below_table(target, context.source_uri)
    own = cast("ParquetOptions", options.format_options)
    columns = ColumnSources(context)
    fit = FileFit(columns, write, target, options.rescued_data_column, own, required)
    registered: list[tuple[FileRange, RegisteredFile]] = []
    rest: list[FileRange] = []
    reasons: dict[str, list[FileRange]] = {}
    for part, footer in footers(source, split.ranges):
        try:
            found = _registered(fit, part.file.path, footer)
            registered.append((part, found))
        except Copied as reason:
            rest.append(part)
            reasons.setdefault(str(reason), []).append(part)
    _tell(len(registered), reasons)
    written = copy(replace(split, ranges=tuple(rest)))
    written.files += [_data_file(folder, part.file, found) for part, found in registered
                      if found.rows]  # fmt: skip
    _add_counts(written, registered, len(rest))
    return written


def _registered(fit: FileFit, path: str, footer: pq.FileMetaData | str) -> RegisteredFile:
    """Describe a file as a data file.

    Raises:
        Copied: It cannot be one.
    """
    # Not all readers find a file with another name.
    if not path.isprintable() or set(path.split("/")) & {"", ".", ".."}:
        raise Copied("not all readers find a file of its name")
    if isinstance(footer, str):
        raise Copied(footer)
    return fit.of(path, footer)


def _data_file(folder: str, file: FileEntry, found: RegisteredFile) -> DataFile:
    return DataFile(
        name=f"{folder}/{file.path}",
        size=file.size,
        rows=found.rows,
        modification_time_ms=file.modification_time_us // 1000,
        statistics=found.statistics,
        partition_values=found.partition_values,
        source=file,
    )


def _add_counts(
    written: TaskWritten, registered: Sequence[tuple[FileRange, RegisteredFile]], copied: int
) -> None:
    """Count the registered files as if they had been read, and how many they are."""
    counts, values = Counter(written.counts), written.observed.values
    for part, found in registered:
        counts["files"] += 1
        counts["bytes"] += part.file.size
        counts["rows"] += found.rows
        values.update(found.values)
    read = {part.place: found.rows for part, found in registered if part.place is not None}
    written.read = {**written.read, **read}
    written.counts = {**counts, **dict(zip(REGISTERED, (len(registered), copied), strict=True))}


def _tell(registered: int, reasons: dict[str, list[FileRange]]) -> None:
    """Log what becomes of the files of a split."""
    copied = sum(map(len, reasons.values()))
    _log.info("%s registered, %d copied", counted(registered, "file"), copied)
    most = sorted(reasons.items(), key=lambda each: len(each[1]), reverse=True)
    for reason, parts in most[:_REASONS]:
        first = printable_path(parts[0].file.path)
        count = len(parts)
        _log.info(
            "%s %s copied because %s: %s", counted(count, "file"), plural(count, "is", "are"),
            reason, first,
        )  # fmt: skip
