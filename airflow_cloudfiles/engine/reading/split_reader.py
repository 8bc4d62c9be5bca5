"""Read the rows of a split.

Runs in a task: opens the files of a split, has their format parse them, adds the columns that are
in their paths (`file_columns`), and hands out Arrow record batches with exactly the stream's
schema. Lines of small files are parsed together; small batches are put together. A field that the
schema does not have is raised as `UnknownFields`; what follows is decided in `stream`.

An archive is ingested as a whole or not at all. Where a damaged file is given up
(`ignoreCorruptFiles`), an archive is read once for that: only one that can be read to its end, with
every member, is read for its rows.

A library that crashes, or a machine without memory, leaves no error. So the files of a split are
noted on the local disk while it is read, and whoever misses the process finds their names.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, cast

import pyarrow as pa

from airflow_cloudfiles.engine.errors import (
    FileChangedError,
    FileMissingError,
)
from airflow_cloudfiles.engine.files import (
    MEMBER,
    FileCounts,
    FileEntry,
    RecordError,
    archive_of,
    printable_path,
)
from airflow_cloudfiles.engine.formats.base import (
    BlockReader,
    FileReader,
    LinePiece,
    OpenedFile,
    count_lines,
    line_begin,
    line_blocks,
)
from airflow_cloudfiles.engine.intake.ledger.changed import note_overwritten, note_read, was_refused
from airflow_cloudfiles.engine.messages import few
from airflow_cloudfiles.engine.options.formats.nested import JsonOptions
from airflow_cloudfiles.engine.processes import is_alive
from airflow_cloudfiles.engine.reading.bad_records import BadRecordWriter
from airflow_cloudfiles.engine.reading.fetch import (
    FetchCounts,
    FirstRange,
    FirstRead,
    fetch,
    fetched_ahead,
    files_in,
    first_range,
    has_members,
)
from airflow_cloudfiles.engine.reading.file_columns import ColumnSources, RowsOfPart, check_members
from airflow_cloudfiles.engine.reading.missing_files import SameContent, check_deleted, check_root
from airflow_cloudfiles.engine.reading.opened import BLOCK_BYTES, TEXT_BYTES
from airflow_cloudfiles.engine.reading.splits import FileRange, Split
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.storage.local import make_private

MOST_NAMES = 20


@contextmanager
def in_hand(split: Split) -> Iterator[None]:
    """Note the files of a split as long as the block lasts; that it cannot be noted is no error."""
    context = split.context
    root = printable_path(context.source_uri).rstrip("/")
    names = [f"{root}/{printable_path(part.file.path)}" for part in split.ranges]
    path = _folder() / f"{_mark(context.state_uri)}-{os.getpid()}"
    with suppress(OSError):
        make_private(path.parent)
        path.write_text(few(names, most=MOST_NAMES, characters=4000), encoding="utf-8")
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()


def names_of_the_dead(state_uri: str) -> list[str]:
    """Give the files that processes of this machine had which are gone, and forget them.

    Args:
        state_uri: Of the stream whose files they are.

    Returns:
        For each process, its files as text.
    """
    found = []
    with suppress(OSError):
        for path in sorted(_folder().glob(f"{_mark(state_uri)}-*")):
            number = path.name.rpartition("-")[2]
            if number.isdecimal() and not is_alive(int(number)):
                found.append(path.read_text(encoding="utf-8"))
                path.unlink()
    return found


def _folder() -> Path:
    return Path(tempfile.gettempdir(), f"cloudfiles-in-hand-{os.getuid()}")


def _mark(state_uri: str) -> str:
    return hashlib.sha256(state_uri.encode("utf-8", "surrogateescape")).hexdigest()[:16]


SMALL_BATCH_BYTES = 4 * 2**20
"""Batches are put together up to about this size."""
SMALL_BATCHES = 1000
"""And up to this many."""
COLUMN_BYTES = 128 * 2**10
"""Lines are parsed in groups of about so many bytes for each column, and at least one block of
text: a column of a group costs some time however few its values are."""
MOST_MISSING = 20
"""Files that were gone, of which a split has the names."""
_Made = TypeVar("_Made")


@dataclass(slots=True)
class SplitCounts:
    """What reading a split amounted to."""

    fetched: FetchCounts = field(default_factory=FetchCounts)
    rows: int = 0
    rescued_rows: int = 0
    corrupt_records: int = 0
    dropped_records: int = 0
    error_cells: int = 0


@dataclass(frozen=True, slots=True)
class _Block:
    """Complete lines of one part of a file, in the version that was read.

    Attributes:
        part: The part, of that version.
        uri: The file.
        data: The lines.
        asked: The part as the split has it.
        line: How many lines of the file come before; `None` where the part begins later.
        begin: Where in the file they begin, where the part begins later.
        separator: What ends a line; `None` for any line break.
        member: Which member of an archive the file is; empty where it is none.
    """

    part: FileRange
    uri: str
    data: bytes
    asked: FileRange
    line: int | None
    begin: int
    separator: bytes | None
    member: str

    def placed(self, counts: FileCounts) -> FileCounts:
        """Say where in the file the error is that has its line within the block."""
        error = counts.error
        if error is None or error.line is None:
            return counts
        if self.line is not None:
            placed = replace(error, line=self.line + error.line)
        else:
            begin = line_begin(self.data, error.line, self.separator)
            placed = replace(error, line=None, byte=self.begin + begin)
        return replace(counts, error=_within(self.member, placed))


class SplitReader:
    """Reads one split; use once.

    Args:
        split: What to read.

    Attributes:
        missing: URIs of files that were gone and skipped; of `MOST_MISSING` at most.
    """

    def __init__(self, split: Split) -> None:
        context = split.context
        self._read: dict[int, FileCounts] = {}  # by identity: a part has a costly hash
        self._told = 0, 0, 0, 0
        self.missing: list[str] = []
        self._given_up: list[FileEntry] = []
        self._deleted: set[str] | None = None
        self._split = split
        self._store: ObjectStore = open_store(context.source_uri)
        self._options = context.options
        self._columns = ColumnSources(context)
        self._bad_records = BadRecordWriter(split)
        discovery = context.options.discovery
        self._superseded: Callable[[FileEntry], None] | None = None
        if discovery.sees_overwrites:
            # The version that is there becomes an entry, before the batch is done.
            self._superseded = lambda found: note_overwritten(open_store(context.state_uri), found)
        elif discovery.waits and not context.state_uri:
            self._superseded = self._refuse_changed
        self._accepted: Callable[[FileEntry], None] | None = None
        if context.state_uri:
            # Nobody takes the version that was read for a later change.
            self._accepted = lambda found: note_read(open_store(context.state_uri), found)
        self._same_content = (
            SameContent(self._store, context.state_uri, context.start.entry)
            if discovery.identity == "content"
            else None
        )
        self.arrow_schema: pa.Schema = self._columns.arrow_schema
        self.counts = SplitCounts()

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the split.

        Raises:
            UnknownFields: A record has a new field, in the modes that fail on it.
            ReadError: A file cannot be read (see `fetch`), or a record is not valid (`FAILFAST`).
        """
        with in_hand(self._split):
            for batch in _together(self._batches()):
                self._put_bad_records_apart()
                yield batch
        if self._given_up:
            check_deleted(self._store, self._given_up, self._files_of_batch)
        self._put_bad_records_apart()
        self._bad_records.finish()
        counted = self._columns.counts()
        for each in fields(SplitCounts)[1:]:
            setattr(self.counts, each.name, getattr(counted, each.name))

    def by_part(self) -> Iterator[tuple[FileRange, FileCounts]]:
        """Yield what was read of each part of a file, when all is read."""
        for part in self._split.ranges:
            yield part, self._read.get(id(part), _NOTHING)

    def read_files(self) -> dict[tuple[int, int], int | FileCounts]:
        """Return what was read of each file whose place is known, when all is read.

        Of a file of which all records are rows, how many these are.
        """
        found: dict[tuple[int, int], FileCounts] = {}
        for part, counts in self.by_part():
            if part.place is not None:
                known = found.get(part.place)
                found[part.place] = counts if known is None else known + counts
        return {
            place: counts.rows if counts.is_clean else counts for place, counts in found.items()
        }

    @property
    def corrupt_by_file(self) -> Counter[str]:
        """How many corrupt records the files have that have any, by URI."""
        found: Counter[str] = Counter()
        for uri, count in self._columns.counts().corrupt_by_file.items():
            found[archive_of(uri)] += count
        return found

    def _put_bad_records_apart(self) -> None:
        taken = self._columns.take_bad_records()
        if taken:
            self._bad_records.write(taken)

    def _refuse_changed(self, found: FileEntry) -> None:
        """Refuse a version of which nobody has seen that it is whole.

        Raises:
            FileChangedError: Always.
        """
        raise FileChangedError(
            f"{self._store.child_uri(found.path)} has changed since it was listed, and may not be "
            "whole. Nothing was read of it: make the DataFrame anew, which lists the files again."
        )

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if not self._split.ranges:
            return iter(())
        first = self._columns.of(self._split.ranges[0].file.path)
        # All readers of a format are of one kind.
        return self._from_files() if isinstance(first.reader, FileReader) else self._from_lines()

    # File by file -------------------------------------------------------------------------

    def _from_files(self) -> Iterator[pa.RecordBatch]:
        range_of = first_range(self._options)
        parts = fetched_ahead(self._store, self._split.ranges, range_of)
        with closing(parts):
            for part, first in parts:
                reader = cast("FileReader", self._columns.of(part.file.path).reader)
                reader.first_error = None
                for rows, batch in self._fetch(part, first, self._rows_in, range_of):
                    yield self._with_columns(batch, [rows])
                self._count(part, reader)

    def _rows_in(
        self, part: FileRange, file: OpenedFile
    ) -> Iterator[tuple[RowsOfPart, pa.RecordBatch]]:
        reader = cast("FileReader", self._columns.of(part.file.path).reader)
        found, member = replace(part, file=file.container), _member(file)
        is_first = reader.first_error is None
        for batch in reader.read_file(file, part.start, part.end):
            yield RowsOfPart(found, batch.num_rows, member), batch
        if is_first:
            reader.first_error = _within(member, reader.first_error)

    # Lines of many files ------------------------------------------------------------------

    def _from_lines(self) -> Iterator[pa.RecordBatch]:
        for blocks in self._packed():
            part = blocks[0].part
            reader = cast("BlockReader", self._columns.of(part.file.path).reader)
            pieces = [LinePiece(block.uri, block.data) for block in blocks]
            batch = reader.read(pieces)
            for block, counts in zip(blocks, reader.pieces, strict=True):
                self._add(block.asked, block.placed(counts))
            before = self._columns.rescued_for_paths
            of_blocks = zip(blocks, reader.pieces, strict=True)
            parts = [RowsOfPart(each.part, found.rows, each.member) for each, found in of_blocks]
            rows = self._with_columns(batch, parts)
            if (rescued := self._columns.rescued_for_paths - before) or self._columns.path_error:
                # Where a path has columns, the blocks of a group are of one file.
                counts = FileCounts(rescued_rows=rescued, error=self._path_error())
                self._add(blocks[0].asked, counts)
            yield rows

    def _packed(self) -> Iterator[list[_Block]]:
        """Blocks in groups of some size; one file a group where its path has columns."""
        group: list[_Block] = []
        size = 0
        columns = sum(map(_leaves, self.arrow_schema.types))
        limit = min(BLOCK_BYTES, max(TEXT_BYTES, COLUMN_BYTES * columns))
        for block in self._blocks():
            apart = bool(group) and not self._are_alike(group[-1].part, block.part)
            if group and (size + len(block.data) > limit or apart):
                yield group
                group, size = [], 0
            group.append(block)
            size += len(block.data)
        if group:
            yield group

    def _are_alike(self, one: FileRange, other: FileRange) -> bool:
        """Tell whether lines of two parts may be read together: their paths have no columns."""
        if one.file == other.file:
            return True
        columns = self._columns.of(one.file.path)
        return columns is self._columns.of(other.file.path) and not columns.partitions.fields

    def _blocks(self) -> Iterator[_Block]:
        own = cast("JsonOptions", self._options.format_options)
        parts = fetched_ahead(self._store, self._split.ranges)
        with closing(parts):
            for part, first in parts:
                yield from self._fetch(part, first, partial(_lines_of, own, part))

    # Both ---------------------------------------------------------------------------------

    def _count(self, part: FileRange, reader: FileReader) -> None:
        """Count for a part of a file what was read since the one before."""
        now = self._columns.totals()
        rows, rescued, corrupt, dropped = (
            after - before for after, before in zip(now, self._told, strict=True)
        )
        self._told = now
        error = self._path_error() or reader.first_error
        self._add(part, FileCounts(rows, rescued, corrupt, dropped, error=error))

    def _path_error(self) -> RecordError | None:
        """Give what does not fit of the path of a file, once."""
        error, self._columns.path_error = self._columns.path_error, None
        return error

    def _add(self, part: FileRange, counts: FileCounts) -> None:
        known = self._read.get(id(part))
        if known is not None and known.error and has_members(part.file.path, self._options):
            counts = replace(counts, error=None)  # the lines of members cannot be compared
        self._read[id(part)] = counts if known is None else known + counts

    def _fetch(
        self,
        part: FileRange,
        first: FirstRead | None,
        use: Callable[[FileRange, OpenedFile], Iterator[_Made]],
        range_of: FirstRange | None = None,
    ) -> Iterator[_Made]:
        """Open a part of a file, and give what `use` makes of it."""
        same_content, ignore_missing = self._same_content, self._options.ignore_missing_files

        def fetch_part(part: FileRange, first: FirstRead | None) -> Iterator[_Made]:
            return fetch(
                self._store,
                part,
                self.counts.fetched,
                partial(self._in_files, part, use),
                ignore_missing=ignore_missing and same_content is None,
                ignore_corrupt=self._options.ignore_corrupt_files,
                was_refused=self._was_refused,
                first=first,
                superseded=self._superseded,
                accepted=self._accepted,
                range_of=range_of,
            )

        before = _skips(self.counts.fetched)
        try:
            if same_content is None:
                yield from fetch_part(part, first)
            else:
                yield from same_content.fetch(
                    part, first, fetch_part, self.counts.fetched, ignore_missing=ignore_missing
                )
        except FileMissingError:
            check_root(self._store)
            raise
        if (after := _skips(self.counts.fetched)) != before:
            kinds = zip(_SKIPPED, after, before, strict=True)
            skipped = next(kind for kind, now, then in kinds if now > then)
            self._add(part, FileCounts(skipped=skipped))
            if skipped == "missing":
                self._give_up(part.file)

    def _in_files(
        self,
        part: FileRange,
        use: Callable[[FileRange, OpenedFile], Iterator[_Made]],
        file: OpenedFile,
    ) -> Iterator[_Made]:
        """Give what `use` makes of a file, or of an archive's members: of all of them, or none."""
        if self._options.ignore_corrupt_files and has_members(file.entry.path, self._options):
            check_members(self._split.context, file)
        for each in files_in(file, self._options):
            yield from use(part, each)

    def _give_up(self, file: FileEntry) -> None:
        """Note a file that was skipped because it is gone."""
        if len(self.missing) < MOST_MISSING:
            self.missing.append(self._store.child_uri(file.path))
        if not (self._was_refused(file) or self._was_deleted(file)):
            self._given_up.append(file)

    def _files_of_batch(self) -> Iterable[FileEntry]:
        """Give the files of the micro-batch; of a batch read, those of the split."""
        context = self._split.context
        if not context.state_uri:
            return [part.file for part in self._split.ranges]
        files = FileLog(open_store(context.state_uri))
        files.meet_packs()
        return files.slice(context.start, context.end)

    def _was_refused(self, file: FileEntry) -> bool:
        state = self._split.context.state_uri
        return bool(state) and was_refused(state, file)

    def _was_deleted(self, file: FileEntry) -> bool:
        """Tell whether a discovery has recorded since that a file is gone."""
        context = self._split.context
        if not self._options.discovery.deletes or not context.state_uri:
            return False
        if self._deleted is None:
            files = FileLog(open_store(context.state_uri))
            later = files.operations.after(context.end.entry - 1)
            numbers = [each.number for each in later if each.action == "delete"]
            self._deleted = {each.path for number in numbers for each in files.read(number).files}
        return file.path in self._deleted

    def _with_columns(self, batch: pa.RecordBatch, parts: Sequence[RowsOfPart]) -> pa.RecordBatch:
        return self._columns.rows(batch, parts, self._store.child_uri(parts[0].part.file.path))


_NOTHING: Final = FileCounts()
_SKIPPED: Final = ("missing", "superseded", "corrupt")


def _skips(counts: FetchCounts) -> tuple[int, int, int]:
    """Count the files that were not read, or not to their end, by the reason (`_SKIPPED`)."""
    return counts.missing_files, counts.superseded_files, counts.corrupt_files


def _member(file: OpenedFile) -> str:
    """Name the member of an archive; empty for a file that is none."""
    prefix = f"{file.container.path}{MEMBER}"
    return file.entry.path.removeprefix(prefix) if file.entry.path.startswith(prefix) else ""


def _within(member: str, error: RecordError | None) -> RecordError | None:
    """Name the member of an archive that an error is in."""
    if error is None or not member:
        return error
    return replace(error, reason=f"{printable_path(member)}: {error.reason}")


def _leaves(kind: pa.DataType) -> int:
    """Count the leaves of a column."""
    inside = range(kind.num_fields)
    return sum(_leaves(kind.field(each).type) for each in inside) if inside else 1


def _lines_of(
    own: JsonOptions, asked: FileRange, part: FileRange, file: OpenedFile
) -> Iterator[_Block]:
    found = replace(part, file=file.container)
    separator = None if own.line_sep is None else own.line_sep.encode()
    line, before = None if part.start else 0, b""
    for data in line_blocks(file, own, part.start, part.end):
        if line is not None and before:
            line += count_lines(before, separator)
        yield _Block(found, file.uri, data, asked, line, file.block_begin, separator, _member(file))
        before = data


def _together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small batches together: each costs the same in Spark and in the table's files."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        grown = size + batch.nbytes
        if waiting and (grown > SMALL_BATCH_BYTES or len(waiting) >= SMALL_BATCHES):
            yield _one(waiting)
            waiting, grown = [], batch.nbytes
        waiting.append(batch)
        size = grown
    if waiting:
        yield _one(waiting)


def _one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
