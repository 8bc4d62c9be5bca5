"""Register the files of a split as data files of the table, and copy the others.

1. Before a run, refuse one whose files cannot be registered, whatever they are. A data file of a
   table is named by its path below the table. Absolute paths are in Delta's protocol, too, but not
   every reader takes them (decision 220). And VACUUM of Delta, of `deltalake` and of this package
   remove what no version names, such as a file that waits to be ingested, except in folders whose
   names begin with `_`. So that is where the source has to lie.
2. Read the footers of the files, and nothing else of them. A footer takes one request, or a second
   one where it is longer than what was asked for: a hundredth of the file, within bounds. Requests
   to a store with etags ask for the version that was discovered, and several of them are under way;
   a local file is looked at before. What cannot be read so is copied, which tells what is wrong
   with it.
3. A file that is just what a data file of the table is becomes one where it lies: an add action
   with its path below the table, and the statistics of its footer.
4. The others are read and written, with evolution and rescued data, as if they were all.

Both go into the one commit of the micro-batch. Before it, each registered file is looked at once
more: one that was overwritten or removed meanwhile fails the batch, and is copied by the next try.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_cloudfiles.engine.batches.file_source import split_up
from airflow_cloudfiles.engine.discovery.globs import split_pattern
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.registration.fit import Copied, FileFit, RegisteredFile
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.messages import counted, plural
from airflow_cloudfiles.engine.options.formats.columnar import ParquetOptions
from airflow_cloudfiles.engine.reading.fetch import FirstRead, fetched_ahead
from airflow_cloudfiles.engine.reading.file_columns import ColumnSources
from airflow_cloudfiles.engine.reading.opened import piece
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange, Split
from airflow_cloudfiles.engine.storage import ObjectStore, normalize_uri, open_store
from airflow_cloudfiles.engine.tables.delta.commit import table_state
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile
from airflow_cloudfiles.engine.tables.delta.lineage import REGISTERED
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.table_state import MODE
from airflow_cloudfiles.engine.target import target_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.intake.intake import Intake
    from airflow_cloudfiles.engine.job.spec import JobSpec
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.state.file_log import FileLog
    from airflow_cloudfiles.engine.tables.delta.write.rows import TableWrite
    from airflow_cloudfiles.engine.tables.table_writer import TaskWritten


_OPTION: Final = "cloudFiles.loadMode=reference"
_COPY: Final = "Leave it out, and the files are copied."
_TAKEN: Final = ("_delta_log", "_delta_index", "_change_data", "_cloudfiles")
"""How the names of folders begin in which a table has files of its own."""
_MATERIALIZED: Final = "materializePartitionColumns"


def _below_table(target: str, source_uri: str) -> str:
    """Give the path of a source below a table.

    Args:
        target: Path or URI of the table.
        source_uri: What the paths of the files are relative to.

    Raises:
        OptionError: Files there cannot be data files of the table.
    """
    location = DeltaLocation.of(target)
    folder = location.store().key_of(source_uri)
    first = (folder or "").partition("/")[0]
    if not folder or not first.startswith("_") or first.startswith(_TAKEN) or "=" in first:
        raise OptionError(
            f"{_OPTION} needs a source in a folder of the table whose name begins with _, such as "
            f"{printable_path(target).rstrip('/')}/_landing, and this one is "
            f"{printable_path(source_uri)}. Readers of tables find data files below the table, and "
            "a vacuum of it passes over such folders. Let the files land there, or use "
            "cloudFiles.loadMode=copy."
        )
    return folder


def check_run(spec: JobSpec, options: CloudFilesOptions) -> None:
    """Refuse a run whose files cannot be registered, whatever they are.

    Args:
        spec: The run.
        options: Of its source.

    Raises:
        OptionError: It is one.
    """
    target = str(spec.target)
    target_of(target).require_delta(f"{_OPTION} is", _COPY)
    if spec.transform is not None:
        raise _refusal("a function makes other rows of those of the files (transform)")
    if spec.table_options.merge_keys:
        raise _refusal("rows are merged into the table (mergeKeys)")
    _below_table(target, normalize_uri(split_pattern(options.path)[0]))
    state = table_state(target)
    mode = (spec.table_options.column_mapping or "none") if state is None else state.mode
    if mode != "none":
        raise _refusal(
            f"{target} has column mapping ({MODE}={mode}), so its files have other names"
        )
    if state is not None and _MATERIALIZED in state.features:
        raise _refusal(f"{target} has the table feature {_MATERIALIZED}")


def _refusal(why: str) -> OptionError:
    return OptionError(f"{_OPTION} cannot be used here: {why}. {_COPY}")


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
    splits = []
    if once or not again:
        splits += split_up(intake.source, once, context, parallelism, can_cut=False)
    if again:
        copied = replace(context, options=replace(context.options, load_mode="copy"))
        splits += split_up(intake.source, again, copied, parallelism)
    return splits


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
    folder = _below_table(target, context.source_uri)
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


_LEAST, _MOST = 2**13, 2**16
"""Bytes that are asked for at the end of a file, and of a large one."""
_LARGEST: Final = 2**24
"""A longer footer is not read here."""
_MAGIC: Final = b"PAR1"
_TAIL: Final = 8
"""Bytes behind the footer: its length, and the magic ones."""
_SIGNATURE: Final = 28
"""Bytes behind the metadata, in the footer, of a file with encrypted columns."""


def _tail_of(size: int) -> tuple[int, int]:
    """Choose what is asked for of a file: where it begins, and how long it is."""
    length = min(size, max(_LEAST, min(_MOST, size // 100)))
    return size - length, length


def footers(
    store: ObjectStore, ranges: Sequence[FileRange]
) -> Iterator[tuple[FileRange, pq.FileMetaData | str]]:
    """Yield the footers of files, in their order; a text says why there is none.

    Args:
        store: The source.
        ranges: The files; of those that are cut no footer is read.
    """
    parts = fetched_ahead(store, ranges, _tail_of)
    with closing(parts):
        for part, first in parts:
            yield part, _footer(store, part, first)


def _footer(store: ObjectStore, part: FileRange, first: FirstRead | None) -> pq.FileMetaData | str:
    if not part.is_whole:
        return "it is cut into parts"
    if part.file.size <= len(_MAGIC) + _TAIL:
        return "it is empty"
    try:
        tail = _end_of(store, part.file) if first is None else first()
        if tail is None:
            return "it has changed since it was discovered"
        return _parsed(store, part.file, tail)
    except LookupError:  # what a store raises where the version is not there
        return "it has changed since it was discovered"
    except (OSError, pa.ArrowException, ValueError) as error:
        return f"its end cannot be read ({type(error).__name__})"


def _end_of(store: ObjectStore, file: FileEntry) -> bytes | None:
    """Read the end of a file whose store has no etags; `None` for another version."""
    found = store.head(file.path)
    if found is None or found.version != file.version:
        return None
    return store.get_range(file.path, *_tail_of(file.size))


def _parsed(store: ObjectStore, file: FileEntry, tail: bytes) -> pq.FileMetaData | str:
    if not tail.endswith(_MAGIC):
        return "it does not end as a Parquet file in plain text does"
    size = int.from_bytes(tail[-_TAIL : -len(_MAGIC)], "little")
    if size > min(_LARGEST, file.size - _TAIL - len(_MAGIC)):
        return f"its footer is {size} bytes long"
    missing = size + _TAIL - len(tail)
    if missing > 0:
        tail = piece(store, file, file.size - size - _TAIL, missing) + tail
    whole = pa.py_buffer(_MAGIC + tail[-_TAIL - size :])
    metadata = pq.read_metadata(pa.BufferReader(whole))
    if size - metadata.serialized_size == _SIGNATURE:
        return "columns of it are encrypted"
    return metadata
