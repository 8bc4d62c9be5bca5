"""Write records that are not valid to `badRecordsPath`, and find what stands in for a missing file.

With `badRecordsPath` a task writes them, before its micro-batch is committed, as JSON Lines to

```
<badRecordsPath>/<stream>-<start of the batch>/bad_records/<file>-<first byte>-<end>-<part>.json
```

The names say which bytes of which version of which file the records come from, so a reader
these bytes again, because a task or the whole batch is repeated, replaces what it wrote before. A
repeated batch may be cut into other ranges: those an earlier try wrote, and that this one reads
too, are removed. So when a batch is in the table, each of its bad records is here once (B76); a
batch that was given up may have left some here, which its next try replaces.

Spark's readers match `<badRecordsPath>/*/bad_records/`, as with Databricks.

Where files are known by their content, the entry of a file stands for these bytes, and whichever
file has them serves. The file may have been touched, or written anew with the same bytes; or other
files with the same bytes were recorded as duplicates of it, and are ingested only here. Without
this, a content would be lost that still lies in the source.

`ignoreMissingFiles` gives up files that were deleted. Before a task does, it looks at what is
around them: a batch that is gone as a whole is an outage (`storage.outage`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TypeVar

from airflow_cloudfiles.engine.discovery.filters import is_hidden
from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    FileChangedError,
    FileMissingError,
    FileUnreachableError,
    TargetAccessError,
    TargetUnreachableError,
)
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.formats.base import BadRecord
from airflow_cloudfiles.engine.reading.fetch import FetchCounts, FirstRead
from airflow_cloudfiles.engine.reading.splits import BatchContext, FileRange, Split
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore, open_store
from airflow_cloudfiles.engine.storage.base import ObjectChangedError, is_tree, is_version
from airflow_cloudfiles.engine.storage.content import content_of
from airflow_cloudfiles.engine.storage.outage import absence, is_transient

LOOKS = 16
"""Files that are looked for side by side."""
MOST_FOLDERS = 100
"""Folders of a batch in which another file is looked for."""


def check_root(store: ObjectStore, *, is_in_use: bool = False) -> None:
    """Check that the root of a source is there.

    Args:
        store: The source.
        is_in_use: Whether it must hold a file, too, that may be input.

    Raises:
        FileUnreachableError: It is not, or cannot be listed.
    """
    why = absence(store, holds=_may_be_input if is_in_use else None)
    if why is not None:
        raise _away(why)


def check_deleted(
    store: ObjectStore, gone: Sequence[FileEntry], batch: Callable[[], Iterable[FileEntry]]
) -> None:
    """Check that files which are about to be given up were deleted.

    Args:
        store: The source.
        gone: The files.
        batch: Gives all files of their micro-batch.

    Raises:
        FileUnreachableError: Their storage is away, or was; nothing tells that they were deleted.
    """
    check_root(store, is_in_use=True)
    try:
        with ThreadPoolExecutor(LOOKS, thread_name_prefix="cloudfiles-head") as pool:
            back = any(pool.map(partial(_is_there, store), gone))
        if back:
            raise _away(f"{store.child_uri(gone[0].path)} and others were gone for a moment")
        if is_tree(store) and not any(_is_there(store, file) for file in batch()):
            _check_folders(store, gone)
    except OSError as failure:
        raise _away(f"{printable_path(store.uri)} does not answer ({failure})") from failure


def _check_folders(store: ObjectStore, gone: Sequence[FileEntry]) -> None:
    """Check that some folder of a batch that is gone as a whole holds another file.

    Raises:
        FileUnreachableError: None does, as where a disk below the source is not mounted.
    """
    folders = dict.fromkeys(file.path.rpartition("/")[0] for file in gone)
    for folder in islice(folders, MOST_FOLDERS):
        prefix = f"{folder}/" if folder else ""
        if any(_may_be_input(each.path) for each in store.list(prefix, ordered=False)):
            return
    first = store.child_uri(gone[0].path)
    raise _away(f"All files of a micro-batch are gone, such as {first}, and so is all beside them")


def _may_be_input(key: str) -> bool:
    """Whether a file shows that the source is there: a mount point may hold a hidden mark."""
    return not any(map(is_hidden, key.split("/")))


def _is_there(store: ObjectStore, file: FileEntry) -> bool:
    """Whether there is something to read: of a file that is known by it, the same content."""
    found = store.head(file.path)
    return found is not None and (not file.content or is_version(found, file))


def _away(what: str) -> FileUnreachableError:
    return FileUnreachableError(
        f"{what}, as where a disk is not mounted or a server is not ready. No file was given up, "
        "and nothing was committed: run again when the storage is back. If the files were deleted, "
        "set ignoreMissingFiles=true and leave them out with cloudfiles file skip, or run again "
        "when another file has arrived beside them."
    )


FetchPart = Callable[[FileRange, FirstRead | None], Iterator["_Made"]]
"""Reads a part of a file; raises `FileMissingError` where none of it is there."""
_Made = TypeVar("_Made")
_log = logging.getLogger(__name__)


class SameContent:
    """Finds files by their content; reads nothing before it is asked.

    Args:
        source: Where the files are.
        state_uri: Where the file log is.
        first_entry: The entry of the file log with the first file that is asked for: duplicates of
            a file are in later entries.
    """

    def __init__(self, source: ObjectStore, state_uri: str, first_entry: int) -> None:
        self._source = source
        self._state_uri = state_uri
        self._first_entry = first_entry

    def fetch(
        self,
        part: FileRange,
        first: FirstRead | None,
        fetch_part: FetchPart[_Made],
        counts: FetchCounts,
        *,
        ignore_missing: bool,
    ) -> Iterator[_Made]:
        """Read a part of a file, or another file with the same content.

        Raises:
            FileMissingError: No file has the content, and `ignore_missing` is false.
            FileChangedError: A file that was cut into ranges is gone; the next try does not cut it.
        """
        try:
            yield from fetch_part(part, first)
        except FileMissingError as error:
            if not part.is_whole:
                raise FileChangedError(
                    f"{self._source.child_uri(part.file.path)} was deleted after it was split into "
                    "ranges. Nothing of it was committed: run again."
                ) from error
            other = self.of(part.file) if part.file.content else None
            if other is None and not ignore_missing:
                raise FileMissingError(
                    f"{self._source.child_uri(part.file.path)} was discovered with the content "
                    f"(SHA-256) {part.file.content}, and no recorded file has it any more. Put a "
                    "file with this content back, under any name below the source, or set "
                    "ignoreMissingFiles=true to go on without it."
                ) from error
            if other is None:
                _log.warning("Skipped: %s", error)
                counts.missing_files += 1
                return
        else:
            return
        _log.warning(
            "%s is gone or was overwritten; %s, which has the same content, is read in its place",
            self._source.child_uri(part.file.path),
            self._source.child_uri(other.path),
        )
        yield from fetch_part(FileRange(other), None)

    def of(self, lost: FileEntry) -> FileEntry | None:
        """Give a file, as it is now, with the content that another one had.

        Args:
            lost: The file, in the version that was recorded.

        Raises:
            OSError: The source does not answer.
        """
        with suppress(ObjectNotFoundError, ObjectChangedError):
            found = self._source.head(lost.path)
            if found is not None and found.size == lost.size:
                content = content_of(self._source, found)
                if content == lost.content:
                    return replace(found, content=content)
        files = FileLog(open_store(self._state_uri))
        files.meet_packs()
        for number in range(self._first_entry, files.latest() + 1):
            if files.summary(number).found_by != "duplicate":
                continue
            for file in files.read(number).files:
                if file.content == lost.content and self._is_there(file):
                    return file
        return None

    def _is_there(self, file: FileEntry) -> bool:
        found = self._source.head(file.path)
        return found is not None and is_version(found, file)


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
        """The name of one object."""
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
            self._sources[record.file_uri].lines.append(line + b"\n")
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
            self._store = open_store(_location(self._context))
        return self._store

    def _is_left(self, name: str) -> bool:
        """Whether an object holds records that are in another one by now, or are bad no more."""
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
    """What a split reads of each file, by the URI that records are reported with."""
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
    """A name for one version of one file."""
    version = f"{file.path}\n{file.size}\n{file.modification_time_us}\n{file.etag}"
    digest = hashlib.sha256(version.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


def _location(context: BatchContext) -> str:
    location = context.options.bad_records_path
    if location is None:
        msg = "a reader gave bad records without badRecordsPath"
        raise ValueError(msg)
    return location


@contextmanager
def _translate_errors(context: BatchContext) -> Iterator[None]:
    """Raise errors that name the location, and whether running again may help."""
    try:
        yield
    except OSError as error:
        place = f"badRecordsPath {_location(context)}"
        failed = f"Records that are not valid cannot be written to {place}: "
        if is_transient(error):
            raise TargetUnreachableError(f"{failed}{error}. Run again.") from error
        raise TargetAccessError(
            f"{failed}{error}. Grant this identity permission to list, write and delete there."
        ) from error
