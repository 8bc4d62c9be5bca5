"""Read the rows of a split.

Runs in a task: opens the files of a split, has their format parse them, adds the columns that are
in their paths (`file_columns`), and hands out Arrow record batches with exactly the stream's
schema. Lines of small files are parsed together; small batches are put together. A field that the
schema does not have is raised as `UnknownFields`; what follows is decided in `stream`.

An archive is ingested as a whole or not at all. Where a damaged file is given up
(`ignoreCorruptFiles`), an archive is read once for that: only one that can be read to its end, with
every member, is read for its rows.

With `badRecordsPath` a task writes records that are not valid, before its micro-batch is committed,
as JSON Lines to

```
<badRecordsPath>/<stream>-<start of the batch>/bad_records/<file>-<first byte>-<end>-<part>.json
```

The names say which bytes of which version of which file the records come from, so reading
these bytes again, because a task or the whole batch is repeated, replaces what it wrote before. A
repeated batch may be cut into other ranges: those an earlier try wrote, and that this one reads
too, are removed. So when a batch is in the table, each of its bad records is here once (B76); a
batch that was given up may have left some here, which its next try replaces. Spark's readers match
`<badRecordsPath>/*/bad_records/`, as with Databricks.

A library that crashes, or a machine without memory, leaves no error. So the files of a split are
noted on the local disk while it is read, and whoever misses the process finds their names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import pyarrow as pa

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    FileChangedError,
    FileMissingError,
    TargetAccessError,
    TargetUnreachableError,
)
from airflow_cloudfiles.engine.files import FileEntry, archive_of, printable_path
from airflow_cloudfiles.engine.formats.base import (
    BadRecord,
    BlockReader,
    FileReader,
    LinePiece,
    OpenedFile,
    line_blocks,
)
from airflow_cloudfiles.engine.intake.ledger.changed import note_overwritten, note_read, was_refused
from airflow_cloudfiles.engine.messages import few
from airflow_cloudfiles.engine.options.formats.json import JsonOptions
from airflow_cloudfiles.engine.processes import is_alive
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
from airflow_cloudfiles.engine.reading.file_columns import ColumnSources, FileCounts, check_members
from airflow_cloudfiles.engine.reading.missing_files import SameContent, check_deleted, check_root
from airflow_cloudfiles.engine.reading.opened import BLOCK_BYTES, TEXT_BYTES
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange, Split
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.storage.local import make_private
from airflow_cloudfiles.engine.storage.outage import is_transient

FOLDER = "bad_records"
PART_BYTES = 8 * 2**20
"""Records are written when so many bytes of them wait."""
_NAME = re.compile(r"(?P<file>[0-9a-f]{32})-(?P<start>\d+)-(?P<end>\d+|end)-(?P<part>\d{5})\.json")


@dataclass(slots=True)
class _Source:
    """The part of one file that a split reads, and what it had so far.

    Attributes:
        name: What the names of its objects begin with: the version of the file.
        start: First byte.
        end: Where the part ends; `None` for the end of the file.
        lines: Records that wait to be written.
        parts: Objects written.
    """

    name: str
    start: int
    end: int | None
    lines: list[bytes] = field(default_factory=list)
    parts: int = 0

    def key(self, part: int) -> str:
        """Name one object."""
        end = "end" if self.end is None else self.end
        return f"{self.name}-{self.start}-{end}-{part:05}.json"


class BadRecordWriter:
    """Writes the bad records of one split; use once, and call `finish`.

    Nothing is opened, and nothing is written, before the first record.

    Args:
        split: What is read; its options name the `badRecordsPath`.
    """

    def __init__(self, split: Split) -> None:
        self._split = split
        self._context = split.context
        self._store: ObjectStore | None = None
        self._folder = ""
        self._waiting = 0
        self._sources: dict[str, _Source] = {}

    def write(self, records: Iterable[BadRecord]) -> None:
        """Take records; they are durable when `finish` returns.

        Raises:
            TargetUnreachableError: The place does not answer, or fails for the moment.
            TargetAccessError: It refused us.
            CorruptedStateError: The stream's state is gone.
        """
        if not self._sources:
            self._sources = _sources(self._split)
        for record in records:
            line = json.dumps(
                {"path": record.file_uri, "record": record.record, "reason": record.reason}
            ).encode("ascii")
            uri = (
                record.file_uri if record.file_uri in self._sources else archive_of(record.file_uri)
            )
            self._sources[uri].lines.append(line + b"\n")
            self._waiting += len(line)
            if self._waiting > PART_BYTES:
                self._flush()

    def finish(self) -> None:
        """Write what waits, and remove what an earlier try has left of the same bytes.

        Raises:
            TargetUnreachableError: The place does not answer, or fails for the moment.
            TargetAccessError: It refused us.
            CorruptedStateError: The stream's state is gone.
        """
        self._flush()
        if self._store is None:
            return
        with _translate_errors(self._context):
            for key in [entry.path for entry in self._store.list(self._folder)]:
                if self._is_left(key.removeprefix(self._folder)):
                    self._store.delete(key)

    def _flush(self) -> None:
        self._waiting = 0
        for source in self._sources.values():
            if not source.lines:
                continue
            store = self._open()
            with _translate_errors(self._context):
                store.put(self._folder + source.key(source.parts), b"".join(source.lines))
            source.parts += 1
            source.lines.clear()

    def _open(self) -> ObjectStore:
        if self._store is None:
            stream = read_metadata(open_store(self._context.state_uri))
            if stream is None:
                raise CorruptedStateError(
                    f"The checkpoint location {self._context.state_uri} has lost its metadata "
                    "while the stream runs. Restore it from a backup."
                )
            start = self._context.start
            self._folder = f"{stream.stream_id}-{start.entry}-{start.index}/{FOLDER}/"
            self._store = open_store(str(self._context.options.bad_records_path))
        return self._store

    def _is_left(self, name: str) -> bool:
        """Tell whether another object has the records of this one by now, or they became good."""
        found = _NAME.fullmatch(name)
        if found is None:
            return False
        for source in self._sources.values():
            if source.name != found["file"]:
                continue
            if name.startswith(source.key(0).removesuffix("00000.json")):
                return int(found["part"]) >= source.parts
            begins_before = source.end is None or int(found["start"]) < source.end
            return begins_before and (found["end"] == "end" or int(found["end"]) > source.start)
        return False


def _sources(split: Split) -> dict[str, _Source]:
    """Map the URI that records are reported with to what a split reads of the file."""
    store = open_store(split.context.source_uri)
    found: dict[str, _Source] = {}
    for part in split.ranges:
        uri = store.child_uri(part.file.path)
        known = found.setdefault(uri, _Source(_name(part.file), part.start, part.end))
        known.start = min(known.start, part.start)
        is_open = known.end is None or part.end is None
        known.end = None if is_open else max(known.end or 0, part.end or 0)
    return found


def _name(file: FileEntry) -> str:
    """Name one version of one file."""
    version = f"{file.path}\n{file.size}\n{file.modification_time_us}\n{file.etag}"
    digest = hashlib.sha256(version.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


@contextmanager
def _translate_errors(context: BatchContext) -> Iterator[None]:
    """Raise errors that name the location, and whether running again may help."""
    try:
        yield
    except OSError as error:
        place = f"badRecordsPath {context.options.bad_records_path}"
        failed = f"Records that are not valid cannot be written to {place}: "
        if is_transient(error):
            raise TargetUnreachableError(f"{failed}{error}. Run again.") from error
        raise TargetAccessError(
            f"{failed}{error}. Grant this identity permission to list, write and delete there."
        ) from error


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
    """Complete lines of one part of a file, in the version that was read."""

    part: FileRange
    uri: str
    data: bytes


class SplitReader:
    """Reads one split; use once.

    Args:
        split: What to read.
        by_file: Whether to count by file, too. Then lines of several files are not parsed together.

    Attributes:
        by_file: What was read of each file, by its path; empty unless that is counted.
        missing: URIs of files that were gone and skipped; of `MOST_MISSING` at most.
    """

    def __init__(self, split: Split, *, by_file: bool = False) -> None:
        context = split.context
        self._counts_files = by_file
        self.by_file: dict[str, FileCounts] = {}
        self._told = FileCounts()
        self.missing: list[str] = []
        self._given_up: list[FileEntry] = []
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
                for found, batch in self._fetch(part, first, self._rows_in, range_of):
                    yield self._rows(batch, found)
                self._count(part)

    def _rows_in(
        self, part: FileRange, file: OpenedFile
    ) -> Iterator[tuple[FileRange, pa.RecordBatch]]:
        reader = cast("FileReader", self._columns.of(part.file.path).reader)
        found = replace(part, file=file.container)
        for batch in reader.read_file(file, part.start, part.end):
            yield found, batch

    # Lines of many files ------------------------------------------------------------------

    def _from_lines(self) -> Iterator[pa.RecordBatch]:
        for blocks in self._packed():
            part = blocks[0].part
            reader = cast("BlockReader", self._columns.of(part.file.path).reader)
            pieces = [LinePiece(block.uri, block.data) for block in blocks]
            batch = reader.read(pieces)
            self._count(part)
            yield self._rows(batch, part)

    def _packed(self) -> Iterator[list[_Block]]:
        """Blocks in groups of some size; one file a group where a column says of which it is."""
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
        """Tell whether lines of two parts may be read together: no column says which one it is."""
        if one == other or self._options.metadata_columns or self._counts_files:
            return one == other
        if one.file == other.file:
            return True
        columns = self._columns.of(one.file.path)
        return columns is self._columns.of(other.file.path) and not columns.partitions.fields

    def _blocks(self) -> Iterator[_Block]:
        own = cast("JsonOptions", self._options.format_options)
        parts = fetched_ahead(self._store, self._split.ranges)
        with closing(parts):
            for part, first in parts:
                yield from self._fetch(part, first, partial(_lines_of, own))

    # Both ---------------------------------------------------------------------------------

    def _count(self, part: FileRange) -> None:
        """Count for a file what was read since the one before."""
        if self._counts_files:
            path, now = part.file.path, self._columns.totals()
            self.by_file[path] = self.by_file.get(path, FileCounts()) + now.since(self._told)
            self._told = now

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

        before = self.counts.fetched.missing_files
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
        if self.counts.fetched.missing_files > before:
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
        if not self._was_refused(file):
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

    def _rows(self, batch: pa.RecordBatch, part: FileRange) -> pa.RecordBatch:
        return self._columns.rows(batch, part, self._store.child_uri(part.file.path))


def _leaves(kind: pa.DataType) -> int:
    """Count the leaves of a column."""
    inside = range(kind.num_fields)
    return sum(_leaves(kind.field(each).type) for each in inside) if inside else 1


def _lines_of(own: JsonOptions, part: FileRange, file: OpenedFile) -> Iterator[_Block]:
    found = replace(part, file=file.container)
    for data in line_blocks(file, own, part.start, part.end):
        yield _Block(found, file.uri, data)


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
