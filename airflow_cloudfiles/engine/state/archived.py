"""When, and how, was a file of the source removed or moved?

One small object, `_source/archived`, for `cloud_files_state`; nothing is decided by it, and it may
be deleted. The source is cleaned in the order of the file log, so what was cleaned together is one
*mark*: the position behind it, the time, and how. The files before a mark that were not cleaned are
named one by one, as are those whose copy has a name of its own.

It stays small: of many marks the oldest are joined with their neighbors, which have a little later
time; and where too many files have to be named, nothing is said of the oldest part of the log.

The bytes are those of an entry of a numbered log. The body has a line for each file that is named:
`["path",size,modification time in microseconds,"etag","key of the copy, or empty"]`.
"""

from __future__ import annotations

import json
import logging
import uuid
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.errors import CorruptedStateError, IncompatibleStateError
from airflow_cloudfiles.engine.files import START, Offset
from airflow_cloudfiles.engine.state.packs import decode_entry, encode_entry
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage import ObjectStore

KEY: Final = "_source/archived"
FORMAT_VERSION: Final = 1
MAX_MARKS: Final = 1000
MAX_NAMED: Final = 2000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CleanedFiles:
    """What was cleaned together.

    Attributes:
        end: The position of the file log behind it.
        time: When.
        mode: `DELETE` or `MOVE`.
        destination: URI of the folder that files were moved to; empty where they were removed.
    """

    end: Offset
    time: datetime
    mode: str
    destination: str = ""


Version = tuple[str, int, int, str]
"""A version of a file: path, size, modification time and etag."""


@dataclass(frozen=True, slots=True)
class CleaningHistory:
    """What is known of the files that were cleaned.

    Attributes:
        start: Nothing is known of what lies before this position.
        marks: In the order of the file log.
        named: Files that were not cleaned, with an empty text, and those whose copy has a name of
            its own, with the key of the copy.
    """

    start: Offset = START
    marks: tuple[CleanedFiles, ...] = ()
    named: Mapping[Version, str] = field(default_factory=dict)

    def of(self, file: FileEntry, position: Offset) -> tuple[CleanedFiles, str] | None:
        """How a committed file was cleaned, and the key of its copy; `None` if it was not."""
        if position < self.start:
            return None
        at = bisect_right(self.marks, position, key=lambda mark: mark.end)
        if at == len(self.marks):
            return None
        key = self.named.get(version_of(file), file.path)
        return (self.marks[at], key) if key else None

    def after(
        self,
        mark: CleanedFiles,
        cleaned: Mapping[FileEntry, str],
        left: Iterable[FileEntry],
        gone: Iterable[FileEntry] = (),
    ) -> CleaningHistory:
        """What is known after a cleaning.

        Args:
            mark: How far it came. One that is not as far as others began anew, and is forgotten.
            cleaned: Files that were cleaned, each with the key of its copy if that is its own.
            left: Files that were looked at and stay, or wait to be tried again.
            gone: Files that were not there any more. In a part of the log that was cleaned before,
                that is what is known already.
        """
        if self.marks and mark.end < self.marks[-1].end:
            return self
        is_further = not self.marks or mark.end > self.marks[-1].end
        stay = {version_of(file): "" for file in (*left, *(gone if is_further else ()))}
        done = {version_of(file) for file in cleaned}
        named = {each: key for each, key in self.named.items() if each not in done}
        named |= {version_of(file): key for file, key in cleaned.items() if key}
        named |= stay
        if len(named) > MAX_NAMED:
            return CleaningHistory(mark.end, (), stay if len(stay) <= MAX_NAMED else {})
        marks = _joined((*self.marks, mark)) if is_further else self.marks
        return CleaningHistory(self.start, marks, named)


NOTHING: Final = CleaningHistory()
"""Nothing was cleaned, or nothing is known of it."""


def version_of(file: FileEntry) -> Version:
    """By what a file is named."""
    return file.path, file.size, file.modification_time_us, file.etag


def read_archived(state: ObjectStore) -> CleaningHistory:
    """Read what is known; nothing where there is no object, or it is damaged."""
    try:
        with reaching_state(state):
            content = state.get(KEY)
    except ObjectNotFoundError:
        return NOTHING
    name = state.child_uri(KEY)
    try:
        header, body = decode_entry(content, name=name, format_version=FORMAT_VERSION)
        marks = tuple(_mark(each) for each in header["marks"])
        named = dict(_named(json.loads(line)) for line in body.splitlines())
        return CleaningHistory(Offset.from_json(header["start"]), marks, named)
    except (
        CorruptedStateError,
        IncompatibleStateError,
        KeyError,
        TypeError,
        ValueError,
    ) as failure:
        _log.warning("Which files were archived is not shown: %s", failure)
        return NOTHING


def known_from(state: ObjectStore, position: Offset) -> CleaningHistory:
    """Read what is known, by a cleaning that begins at a position.

    Where nothing is, of what lies before it nothing is known.
    """
    found = read_archived(state)
    return found if found.marks else replace(found, start=max(found.start, position))


def write_archived(state: ObjectStore, archived: CleaningHistory) -> None:
    """Write what is known."""
    header: dict[str, Any] = {
        "id": uuid.uuid4().hex,
        "created": datetime.now(UTC).isoformat(timespec="microseconds"),
        "start": archived.start.to_json(),
        "marks": [
            [mark.end.entry, mark.end.index, _us(mark.time), mark.mode, mark.destination]
            for mark in archived.marks
        ],
    }
    lines = (json.dumps([*version, key]) + "\n" for version, key in archived.named.items())
    content = encode_entry(header, "".join(lines).encode("ascii"), format_version=FORMAT_VERSION)
    with reaching_state(state):
        state.put(KEY, content)


def _joined(marks: tuple[CleanedFiles, ...]) -> tuple[CleanedFiles, ...]:
    """Join neighbors of the older half that were cleaned alike, when there are many."""
    if len(marks) <= MAX_MARKS:
        return marks
    half = len(marks) // 2
    older: list[CleanedFiles] = []
    for at, mark in enumerate(marks[:half]):
        before = marks[at - 1] if at % 2 else None
        if before and (before.mode, before.destination) == (mark.mode, mark.destination):
            older.pop()
        older.append(mark)
    return (*older, *marks[half:])


def _us(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _mark(value: object) -> CleanedFiles:
    match value:
        case [int(entry), int(index), int(time_us), str(mode), str(destination)]:
            time = _EPOCH + timedelta(microseconds=time_us)
            return CleanedFiles(Offset(entry, index), time, mode, destination)
    msg = f"not a mark: {value!r}"
    raise ValueError(msg)


def _named(value: object) -> tuple[Version, str]:
    match value:
        case [str(path), int(size), int(time_us), str(etag), str(key)]:
            return (path, size, time_us, etag), key
    msg = f"not a file: {value!r}"
    raise ValueError(msg)
