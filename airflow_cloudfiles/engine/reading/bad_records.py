"""Write records that are not valid to `badRecordsPath`.

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
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    TargetAccessError,
    TargetUnreachableError,
)
from airflow_cloudfiles.engine.files import FileEntry, archive_of
from airflow_cloudfiles.engine.formats.base import BadRecord
from airflow_cloudfiles.engine.reading.splits import BatchContext, Split
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
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
            uri = record.file_uri
            uri = uri if uri in self._sources else archive_of(uri)
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
