"""Keep the files that were discovered, in their order.

The file log is the truth about discovery: a file is ingested if it is in an entry, once, however
often it is listed. Everything else (the ledger, Spark's offsets) refers to it.

The baseline of a stream with `cloudFiles.includeExistingFiles=false`, the files that were there
before its first start, is in entries of its own, found by `existing`: known, and never ingested.
Operations on single files are entries, too (`operations`).

Where files are known by their content, those whose content another file has are in entries of
their own, too, found by `duplicate`: known, and never ingested.

An entry found by `moved` has no files: it ends the log for those who opened the state before it.

The body of an entry has one line a file: `["path",size,modification time in microseconds,"etag"]`;
where files are known by their content, its SHA-256 is the fifth value.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import CorruptedStateError, StateMovedError
from airflow_cloudfiles.engine.files import FileEntry, Offset, printable_path
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.state.metadata import as_header, require_owner
from airflow_cloudfiles.engine.state.metadata_format import StreamMetadata
from airflow_cloudfiles.engine.state.numbered_log import LogEntry, NumberedLog
from airflow_cloudfiles.engine.state.operations import (
    ACTIONS,
    INGESTING,
    MIRRORED,
    Action,
    MirrorAction,
    Operation,
    Operations,
    read_operation,
)
from airflow_cloudfiles.engine.state.packs import beyond_repair
from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from airflow_cloudfiles.engine.storage import ObjectStore

PREFIX = "_source/files"
FORMAT_VERSION = 1
MAX_ENTRY_FILES = 100_000
"""How many files one entry may hold, so that an entry is read in a fraction of a second."""

_Listed = Literal["listing", "notification", "backfill", "existing", "duplicate", "moved"]
FoundBy = _Listed | Action | MirrorAction
_FOUND_BY: Final = frozenset({*get_args(_Listed), *ACTIONS, *MIRRORED})
NOT_INGESTED: Final = frozenset({"existing", "duplicate", "moved", *ACTIONS}) - INGESTING
"""Entries whose files, if any, are known, and never ingested."""

COMPLETE = "complete"
"""The position of the entry that ends the baseline."""

BASELINE = "_source/baseline"
"""A hint: the number of the entry that ends the baseline, in digits."""

_SEARCHED_ENTRIES = 10
_DIGITS = 20
_CACHED_ENTRIES = 2
_CACHED_SUMMARIES = 10_000
_lines = msgspec.json.Decoder(tuple[str, int, int, str])
_lines_with_content = msgspec.json.Decoder(tuple[str, int, int, str, str])


@dataclass(frozen=True, slots=True)
class FileBatch:
    """The files of one entry.

    Attributes:
        files: In the order in which they are ingested.
        found_by: How they were discovered.
        position: How far the listing had come; `None` for a full listing. `COMPLETE` where it is
            the end of the baseline.
        operation: What the entry does to files, if it is an operation.
    """

    files: tuple[FileEntry, ...]
    found_by: FoundBy = "listing"
    position: str | None = None
    operation: Operation | None = None

    def ingested_contents(self) -> Iterator[str]:
        """Yield the contents of ingested files, where files are known by content."""
        if self.found_by in NOT_INGESTED:
            return iter(())
        return (file.content for file in self.files if file.content)


@dataclass(frozen=True, slots=True)
class EntrySummary:
    """What the header of an entry holds.

    Attributes:
        number: The number of the entry.
        id: The id of its writing.
        created: When it was written (ISO 8601, UTC).
        files: How many files it holds.
        bytes: Their size.
        found_by: How they were discovered.
        position: How far the listing had come.
        operation: What the entry does to files, if it is an operation.
    """

    number: int
    id: str
    created: str
    files: int
    bytes: int
    found_by: FoundBy
    position: str | None
    operation: Operation | None = None

    @property
    def is_ingested(self) -> bool:
        """Whether its files are ingested, or only known."""
        return self.found_by not in NOT_INGESTED


class FileLog:
    """The discovered files of one source, in numbered batches.

    Args:
        store: The checkpoint location.
        unbound: The metadata of a stream that has no file yet: its first entry binds it. `None`
            for one that is bound, and for whoever only reads.
        fence: The newest entry that ends the log for those who have opened the state before it
            (`transfer.move`), by the metadata that were read; `None` for whoever only reads.
        has_operations: Whether there may be operations on single files among its entries; a word
            that may be a moment old (`Operations.meet`).

    Attributes:
        store: The checkpoint location.
        operations: The operations on single files among its entries.
    """

    def __init__(
        self,
        store: ObjectStore,
        unbound: StreamMetadata | None = None,
        *,
        fence: int | None = None,
        has_operations: bool = True,
    ) -> None:
        self.store = store
        self._unbound = unbound
        self._fence = fence
        self.operations = Operations(store, self._operation, has_any=has_operations)
        self._log = NumberedLog(
            store, PREFIX, format_version=FORMAT_VERSION, has_all=True, is_packed=True
        )
        self._cache: OrderedDict[int, tuple[EntrySummary, FileBatch]] = OrderedDict()
        self._summaries: OrderedDict[int, EntrySummary] = OrderedDict()
        self._baseline_end = -1

    def append(self, number: int, batch: FileBatch) -> bool:
        """Record a batch as entry `number`.

        Args:
            number: One more than `latest()`, with the batch deduplicated against all before it.
            batch: At least one and at most `MAX_ENTRY_FILES` files, none twice. `existing` files
                and those of an operation may be none.

        Returns:
            Whether the entry is this batch. False: another discoverer has the number.

        Raises:
            StateConflictError: Another source has recorded the first file.
        """
        least = 0 if batch.found_by in NOT_INGESTED else 1
        if not least <= len(batch.files) <= MAX_ENTRY_FILES:
            msg = f"an entry holds 1 to {MAX_ENTRY_FILES} files, not {len(batch.files)}"
            raise ValueError(msg)
        header: dict[str, Any] = {
            "files": len(batch.files),
            "bytes": sum(file.size for file in batch.files),
            "found_by": batch.found_by,
            "position": batch.position,
        }
        if batch.operation is not None:
            header["operation"] = batch.operation.to_header()
        body = encode_files(batch.files)
        if self._unbound is not None:
            if number == 0:
                header |= as_header(self._unbound)
            else:
                self._bind()
        crash_point("before-file-log-append")
        won = self._log.append(number, header, body)
        if won:
            crash_point("after-file-log-append")
        self._bind(is_mine=won and number == 0)
        if won and self._log.written is not None:
            self._remember(self._log.written)
        return won

    def read(self, number: int) -> FileBatch:
        """Read an entry.

        Raises:
            CorruptedStateError: It is missing or damaged.
            IncompatibleStateError: A newer version of this package wrote it.
        """
        return self._read(number)[1]

    def count(self, number: int) -> int:
        """Read all of an entry, and count its files; keeps nothing, so several threads may.

        Raises:
            CorruptedStateError: It is missing or damaged.
            IncompatibleStateError: A newer version of this package wrote it.
        """
        entry = self._log.read(number)
        return len(self._files(entry, self._summary(number, entry.header)))

    def summary(self, number: int) -> EntrySummary:
        """Read an entry's header, without its files."""
        found = self._summaries.get(number)
        if found is None:
            part = self._log.peek(number)
            if isinstance(part, LogEntry):
                return self._remember(part)[0]
            found = self._keep(number, self._summary(number, part))
        return found

    def look(self, number: int) -> tuple[EntrySummary, FileBatch | None]:
        """Read an entry's header, and its files where one small request gives them too.

        Keeps nothing, so several threads may look at entries.
        """
        with reaching_state(self.store):
            part = self._log.peek(number)
        if not isinstance(part, LogEntry):
            return self._summary(number, part), None
        summary = self._summary(number, part.header)
        files = self._files(part, summary)
        return summary, _batch(summary, files)

    def meet_packs(self) -> None:
        """Learn which entries are in packs, before many old ones are read."""
        with reaching_state(self.store):
            self._log.meet_packs()

    def latest(self) -> int:
        """Give the number of the newest entry; -1 when there is none.

        Raises:
            StateConflictError: Another source has recorded the first file.
            StateMovedError: State or source were moved since the metadata were read.
        """
        return self._mine(self._log.latest())

    def _mine(self, latest: int) -> int:
        """Give the newest entry, when it is sure that the log still is this stream's, and here."""
        if latest >= 0:
            self._bind()
        if self._fence is not None and max(self._log.fences, default=-1) > self._fence:
            raise self._moved()
        return latest

    def _moved(self) -> StateMovedError:
        return StateMovedError(
            f"The state in {printable_path(self.store.uri)}, or its source, was moved after this "
            "process had opened the state. Nothing was recorded since. Open it again, where it is "
            "now and with the source that it has now."
        )

    def _bind(self, *, is_mine: bool = False) -> None:
        """Find out whose the log is, which began without an entry and has one now."""
        if self._unbound is not None:
            header = as_header(self._unbound) if is_mine else self._log.header(0)
            require_owner(self.store, self._unbound, header)
            self._unbound = None

    def known(self, at_least: int = -1) -> int:
        """Return the newest entry that this object has met; ask if it has met none, or too few.

        Args:
            at_least: The newest entry that the caller has met.
        """
        found = self._mine(self._log.known())
        return found if found >= at_least else self.latest()

    def known_head(self) -> Offset:
        """Give the position behind what this object knows to be recorded; asks nobody."""
        return Offset(self._log.known_latest + 1, 0)

    def head(self) -> Offset:
        """Give the position behind everything that is recorded now."""
        return Offset(self.latest() + 1, 0)

    def baseline_complete(self) -> bool:
        """Tell whether all files that were there before the first start are known."""
        if self._baseline_end < 0:
            self._baseline_end = self._find_baseline_end()
        return self._baseline_end >= 0

    def _find_baseline_end(self) -> int:
        """Find the entry that ends the baseline; -1 while there is none.

        It is searched from the beginning. Of a long baseline a hint says where it ends.
        """
        latest = self.latest()
        found = self._end_among(range(min(latest + 1, _SEARCHED_ENTRIES)))
        if found >= 0 or latest < _SEARCHED_ENTRIES:
            return found
        with reaching_state(self.store):
            try:
                hint = self.store.get(BASELINE)
            except ObjectNotFoundError:
                hint = b""
        number = int(hint) if hint.isdigit() and len(hint) < _DIGITS else -1
        if 0 <= number <= latest and self._end_among((number,)) >= 0:
            return number
        found = self._end_among(range(_SEARCHED_ENTRIES, latest + 1))
        if found >= 0:
            with reaching_state(self.store):
                self.store.put(BASELINE, b"%d" % found)
        return found

    def _end_among(self, numbers: Iterable[int]) -> int:
        """Find the first of some entries that ends the baseline; -1 for none."""
        for number in numbers:
            summary = self.summary(number)
            if not summary.is_ingested and summary.position == COMPLETE:
                return number
        return -1

    def slice(self, start: Offset, end: Offset) -> Iterator[FileEntry]:
        """Give the files to ingest from one position (inclusive) to another (exclusive).

        Files that an operation has excluded are left out, and so is what the micro-batch is to
        remove: files that are gone, and versions behind which it has a newer one.

        Raises:
            CorruptedStateError: The log does not reach that far, or is damaged.
        """
        for _, _, files in self._slices(start, end):
            yield from files

    def placed(self, start: Offset, end: Offset) -> Iterator[tuple[tuple[int, int], FileEntry]]:
        """Give the same files, each with the number of its entry and its index there."""
        for number, indexes, files in self._slices(start, end):
            yield from (((number, at), file) for at, file in zip(indexes, files, strict=True))

    def _slices(
        self, start: Offset, end: Offset
    ) -> Iterator[tuple[int, Iterable[int], Sequence[FileEntry]]]:
        """Give the files of each entry that `slice` is about, with their indexes."""
        excluded = self.operations.excluded(start.entry) if start < end else {}
        followed = self._followed(start, end)
        for number in range(start.entry, end.entry + 1):
            first = start.index if number == start.entry else 0
            stop = end.index if number == end.entry else None
            if stop == 0:
                return
            summary = self.summary(number)
            if not summary.is_ingested or summary.found_by == "delete":
                continue
            files = self.read(number).files
            if max(first, stop or 0) > len(files):
                raise beyond_repair(
                    f"{self._log.name(number)} has {counted(len(files), 'file')}, but the "
                    f"stream's checkpoint refers to file {max(first, stop or 0)}. Checkpoint and "
                    "file log do not belong together."
                )
            out = excluded.get(number, ())
            indexes: Sequence[int] = range(first, len(files) if stop is None else stop)
            if out or followed:
                indexes = [
                    index
                    for index in indexes
                    if index not in out and followed.get(files[index].path, -1) <= number
                ]
                yield number, indexes, [files[index] for index in indexes]
            else:
                yield number, indexes, files[first:stop]

    def _followed(self, start: Offset, end: Offset) -> dict[str, int]:
        """Find the newest entry of a micro-batch that replaces or deletes a file, by its path.

        What the batch has of the file before that is not read. Depends on nothing but the range, so
        a batch that is read again has the same files.
        """
        found: dict[str, int] = {}
        for each in self.operations.mirrored(start, end):
            first = start.index if each.number == start.entry else 0
            stop = end.index if each.number == end.entry else None
            found.update(
                (file.path, each.number) for file in self.read(each.number).files[first:stop]
            )
        return found

    def _operation(self, number: int) -> Operation | None:
        """Read the operation that an entry is; `None` where it is not one, or is not there."""
        return self.summary(number).operation if self.known(at_least=number) >= number else None

    def _read(self, number: int) -> tuple[EntrySummary, FileBatch]:
        """Read an entry through the cache; entries never change."""
        if number in self._cache:
            self._cache.move_to_end(number)
            return self._cache[number]
        return self._remember(self._log.read(number))

    def _remember(self, entry: LogEntry) -> tuple[EntrySummary, FileBatch]:
        """Parse an entry, and keep it until others were read."""
        number, summary = entry.number, self._summary(entry.number, entry.header)
        batch = _batch(summary, self._files(entry, summary))
        self._keep(number, summary)
        self._cache[number] = (summary, batch)
        while len(self._cache) > _CACHED_ENTRIES:
            self._cache.popitem(last=False)
        return summary, batch

    def _keep(self, number: int, summary: EntrySummary) -> EntrySummary:
        """Remember a summary, and forget one when there are many."""
        self._summaries[number] = summary
        while len(self._summaries) > _CACHED_SUMMARIES:
            self._summaries.popitem(last=False)
        return summary

    def _summary(self, number: int, header: Any) -> EntrySummary:
        """Check the fields of a header."""
        files, size = header.get("files"), header.get("bytes")
        found_by, position = header.get("found_by"), header.get("position")
        if found_by == "moved" and self._fence is not None and number > self._fence:
            raise self._moved()
        valid = (
            isinstance(files, int)
            and isinstance(size, int)
            and found_by in _FOUND_BY
            and isinstance(position, str | None)
        )
        if not valid:
            raise self._corrupted(number, "its header does not describe files")
        created = str(header.get("created"))
        try:
            operation = read_operation(header, number)
        except ValueError as failure:
            raise self._corrupted(number, str(failure)) from failure
        return EntrySummary(
            number, header["id"], created, files, size, found_by, position, operation
        )

    def _files(self, entry: LogEntry, summary: EntrySummary) -> tuple[FileEntry, ...]:
        """Parse the files of an entry and check them against its header."""
        try:
            files = decode_files(entry.body)
        except (ValueError, TypeError) as failure:
            raise self._corrupted(entry.number, "a line does not describe a file") from failure
        if len(files) != summary.files or sum(file.size for file in files) != summary.bytes:
            what = f"it announces {counted(summary.files, 'file')} and holds {len(files)}"
            raise self._corrupted(entry.number, what)
        return files

    def _corrupted(self, number: int, what: str) -> CorruptedStateError:
        return beyond_repair(
            f"{self._log.name(number)} cannot be read: {what}.",
            anew=True,
        )


def log_of(state: ObjectStore, metadata: StreamMetadata) -> FileLog:
    """Open the file log of a stream that discovers, by the metadata that it has opened."""
    return FileLog(
        state,
        None if metadata.is_bound else metadata,
        fence=metadata.fence,
        has_operations=metadata.has_operations,
    )


def _batch(summary: EntrySummary, files: tuple[FileEntry, ...]) -> FileBatch:
    return FileBatch(files, summary.found_by, summary.position, summary.operation)


def encode_files(files: Sequence[FileEntry]) -> bytes:
    """Build the body of an entry: one JSON array a line, in ASCII."""
    quote = json.encoder.encode_basestring_ascii
    lines = [
        f"[{quote(file.path)},{file.size},{file.modification_time_us},{quote(file.etag)}"
        + (f",{quote(file.content)}]\n" if file.content else "]\n")
        for file in files
    ]
    return "".join(lines).encode("ascii")


def decode_files(body: bytes) -> tuple[FileEntry, ...]:
    """Read what `encode_files` wrote.

    Raises:
        ValueError: A line is not an array of path, size, time, etag and perhaps content.
    """
    # The lines of an entry are alike. A name that is not UTF-8 is a lone surrogate, which msgspec
    # refuses and json takes.
    for decoder in (_lines, _lines_with_content):
        try:
            return tuple([FileEntry(*row) for row in decoder.decode_lines(body)])
        except msgspec.DecodeError:
            continue
    return tuple([_lines_item(json.loads(line)) for line in body.splitlines()])


def _lines_item(value: object) -> FileEntry:
    """Check one line's value."""
    match value:
        case [str(path), int(size), int(time_us), str(etag)]:
            return FileEntry(path, size, time_us, etag)
        case [str(path), int(size), int(time_us), str(etag), str(content)]:
            return FileEntry(path, size, time_us, etag, content)
    msg = f"not a file: {value!r}"
    raise ValueError(msg)
