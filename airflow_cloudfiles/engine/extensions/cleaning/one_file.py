"""Remove or move one file without losing it, and remember how far the source is cleaned.

1. Inspect it. Gone: done before. Another version than the one that was ingested: it stays.
2. To move it: copy this very version to where there is no object yet, under its path below the
   source. Where that name is taken by something else (an earlier version of the file, say), the
   copy's name has a hash of the version in it, the same each time.
3. Inspect the copy: its size, its checksum where the store knows one, else its bytes.
4. Remove this very version. It takes a condition that the store checks itself.

Where a store cannot copy and can rename (an SFTP server), this very version is renamed to its new
name, in place of 2 to 4.

Killed anywhere, the next try finds what is done: a copy that is the file counts as this one's.

How far the source is cleaned is one small object of the state, `_source/cleaned`: the position of
the file log up to which files were cleaned, or were left for good, and the few files before it that
are tried again. So each cleaning reads what has become due since, and nothing else. It is replaced
under the lock of jobs. Without it cleaning begins anew, which costs requests and loses nothing.

The bytes are those of an entry of a numbered log. The body has a line for each file to try again:
`["path",size,modification time,"etag",commit time]`, times in microseconds since 1970.

Find what the other streams of the same source have not committed yet.

A stream knows nothing of others that read its source, unless it is given their checkpoint locations
(`cloudFiles.cleanSource.otherCheckpoints`). Of each, three things are read, in this order: its
index of the file log; how far it is committed; the files in between. A file is done with when the
index has this version of it and it is not in between. So a file that the other stream has not
discovered stays, too. Whatever cannot be read, or does not fit together, stops the cleaning.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.globs import SourcePattern, split_pattern
from airflow_cloudfiles.engine.errors import CorruptedStateError, OptionError, StateError
from airflow_cloudfiles.engine.files import START, FileEntry, Offset, printable_path
from airflow_cloudfiles.engine.intake.file_states import FileQuery, FileStates, StateSnapshot
from airflow_cloudfiles.engine.intake.ledger.opening import open_ledger
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.packs import decode_entry, encode_entry
from airflow_cloudfiles.engine.state.sink_log import position
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.storage.base import (
    Fingerprint,
    LinkedObjectError,
    ObjectChangedError,
    ObjectNotFoundError,
    is_version,
)
from airflow_cloudfiles.engine.storage.outage import reaching_state, read_if_there

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.intake.ledger.base import Ledger


KEY: Final = "_source/cleaned"
FORMAT_VERSION: Final = 1
MAX_TRIED_AGAIN: Final = 1000
"""So many files are tried again at most; the position stays where it is while there are more."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DueFile:
    """A file that is due.

    Attributes:
        file: The version of it that was ingested.
        committed: When its micro-batch was committed.
    """

    file: FileEntry
    committed: datetime


@dataclass(frozen=True, slots=True)
class CleaningProgress:
    """How far a source is cleaned.

    Attributes:
        position: Everything before it in the file log was cleaned, left for good, or is in `again`.
        batch: The last micro-batch before it; -1 for none.
        again: Files that could not be cleaned yet.
    """

    position: Offset = START
    batch: int = -1
    again: tuple[DueFile, ...] = ()


def read_cleaned(state: ObjectStore) -> CleaningProgress:
    """Read how far the source of a stream is cleaned.

    Raises:
        CorruptedStateError: It cannot be read.
        IncompatibleStateError: A newer version of this package wrote it.
    """
    content = read_if_there(state, KEY)
    if content is None:
        return CleaningProgress()
    name = state.child_uri(KEY)
    try:
        header, body = decode_entry(content, name=name, format_version=FORMAT_VERSION)
        position = Offset.from_json(header["position"])
        return CleaningProgress(position, int(header["batch"]), _decode(body))
    except (CorruptedStateError, KeyError, TypeError, ValueError) as failure:
        raise CorruptedStateError(
            f"{name} cannot be read: it does not say how far the source is cleaned. Delete it; "
            "cleaning then begins anew, and skips what is gone."
        ) from failure


def write_cleaned(state: ObjectStore, cleaned: CleaningProgress) -> None:
    """Write how far the source of a stream is cleaned."""
    with reaching_state(state):
        state.put(KEY, encode_cleaned(cleaned))


def encode_cleaned(cleaned: CleaningProgress) -> bytes:
    """Build the bytes of the record."""
    header: dict[str, Any] = {
        "id": uuid.uuid4().hex,
        "created": datetime.now(UTC).isoformat(timespec="microseconds"),
        "position": cleaned.position.to_json(),
        "batch": cleaned.batch,
    }
    return encode_entry(header, _encode(cleaned.again), format_version=FORMAT_VERSION)


def _encode(again: tuple[DueFile, ...]) -> bytes:
    rows = (
        [
            each.file.path,
            each.file.size,
            each.file.modification_time_us,
            each.file.etag,
            (each.committed - _EPOCH) // timedelta(microseconds=1),
        ]
        for each in again
    )
    return "".join(json.dumps(row) + "\n" for row in rows).encode("ascii")


def _decode(body: bytes) -> tuple[DueFile, ...]:
    return tuple(_due(json.loads(line)) for line in body.splitlines())


def _due(value: object) -> DueFile:
    match value:
        case [str(path), int(size), int(time_us), str(etag), int(committed_us)]:
            committed = _EPOCH + timedelta(microseconds=committed_us)
            return DueFile(FileEntry(path, size, time_us, etag), committed)
    msg = f"not a file: {value!r}"
    raise ValueError(msg)


Result = Literal["cleaned", "gone", "changed", "linked", "taken"]
"""What became of a file. `gone`: it was not there any more. Those that stay: `changed`, it is
another version; `linked`, it is a symbolic link; `taken`, other objects have both names that its
copy could have."""

_BLOCK: Final = 8 * 2**20


class FileCleaner:
    """Removes or moves files of one source. Several threads may use it.

    Args:
        source: Where the files are.
        destination: Where they are moved to; `None` to remove them.
        is_exact: Whether a file that was written anew with the same content is another version.

    Attributes:
        renamed: Paths of moved files whose copy has a name of its own, with its key.
    """

    def __init__(
        self, source: ObjectStore, destination: ObjectStore | None, *, is_exact: bool = False
    ) -> None:
        self._source = source
        self._destination = destination
        self._is_exact = is_exact
        self.renamed: dict[str, str] = {}

    def inspect(self, file: FileEntry) -> Fingerprint | Result:
        """Find a file, in the version that was ingested; or why it is not to be cleaned.

        Raises:
            OSError: The store did not answer.
        """
        found = self._source.fingerprint(file.path)
        if found is None:
            return "gone"
        is_same = is_version(found.entry, file)
        if self._is_exact:
            is_same &= found.entry.modification_time_us == file.modification_time_us
        return found if is_same else "changed"

    def clean(self, file: FileEntry) -> Result:
        """Remove or move a file.

        Raises:
            OSError: The store did not answer, or not as it should.
        """
        found = self.inspect(file)
        if isinstance(found, str):
            return found
        try:
            if self._destination is None:
                self._remove(found)
            elif not self._bring(found, self._destination):
                return "taken"
        except ObjectNotFoundError:
            return "gone"
        except ObjectChangedError:
            return "changed"
        except LinkedObjectError:
            return "linked"
        crash_point("after-clean-delete")
        return "cleaned"

    def _bring(self, found: Fingerprint, to: ObjectStore) -> bool:
        """Move a file; false where other objects have the names that it could have."""
        if hasattr(self._source, "move_version"):
            return self._moved(found, to)
        if not self._copied(found, to):
            return False
        self._remove(found)
        return True

    def _remove(self, found: Fingerprint) -> None:
        crash_point("before-clean-delete")
        self._source.delete_version(found.entry)

    def _copied(self, found: Fingerprint, to: ObjectStore) -> bool:
        """Build a name that only this version of a file has: its path, a hash before the ending."""
        path = found.entry.path
        for key in (path, own_name(found.entry)):
            there = to.fingerprint(key)
            if there is None:
                crash_point("before-clean-copy")
                is_made = self._source.copy_version(found.entry, to, key)
                crash_point("after-clean-copy")
                there = to.fingerprint(key)
                if there is None:
                    raise ConnectionError(
                        f"{to.child_uri(key)} was copied and is not there. Its source stays."
                    )
                if is_made and there.entry.size == found.entry.size and _agree(found, there):
                    return self._is_at(path, key)
            if self._is_copy(found, there, to, key):
                return self._is_at(path, key)
        return False

    def _moved(self, found: Fingerprint, to: ObjectStore) -> bool:
        """Rename a file, or remove it where it is already; false where both names are taken."""
        path = found.entry.path
        for key in (path, own_name(found.entry)):
            there = to.fingerprint(key)
            if there is None:
                crash_point("before-clean-copy")
                if self._source.move_version(found.entry, to, key):  # type: ignore[attr-defined]
                    crash_point("after-clean-copy")
                    return self._is_at(path, key)
                there = to.fingerprint(key)
            if there is not None and self._is_copy(found, there, to, key):
                self._remove(found)
                return self._is_at(path, key)
        return False

    def _is_at(self, path: str, key: str) -> bool:
        """Note where the copy of a file is."""
        if key != path:
            self.renamed[path] = key
        return True

    def _is_copy(self, found: Fingerprint, there: Fingerprint, to: ObjectStore, key: str) -> bool:
        """Tell whether an object has the content of a file."""
        if there.entry.size != found.entry.size:
            return False
        if found.checksums & there.checksums:
            return True
        etag = found.entry.etag or None
        for start in range(0, found.entry.size, _BLOCK):
            ours = self._source.get_range(found.entry.path, start, _BLOCK, etag=etag)
            try:
                theirs = to.get_range(key, start, _BLOCK)
            except ObjectNotFoundError:  # that the copy went is not that the file did
                return False
            if ours != theirs:
                return False
        return True


def _agree(one: Fingerprint, other: Fingerprint) -> bool:
    """Tell whether the store knows no checksum by which a copy that it made would differ."""
    if one.checksums & other.checksums:
        return True
    kinds = {kind for kind, _ in one.checksums} & {kind for kind, _ in other.checksums}
    return not kinds


def own_name(file: FileEntry) -> str:
    """Make sure of a copy of the file; return false where other objects have the names."""
    version = f"{file.size} {file.modification_time_us} {file.etag}"
    mark = hashlib.sha256(version.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    folder, slash, name = file.path.rpartition("/")
    stem, dot, ending = name.partition(".")
    return f"{folder}{slash}{stem}.{mark}{dot}{ending}"


_HELD: Final = FileQuery(status=("skipped", "quarantined"))
VerifyState = Callable[["ObjectStore"], None]
"""Raises when the table of a state's stream lacks batches that are committed."""


class OtherStream:
    """Another stream that reads the source.

    Args:
        location: Its checkpoint location.
        root: URI of the folder that paths are relative to in the stream that is cleaned.
        verify: Whether its table has its batches.

    Raises:
        StateError: There is no state, or it cannot be read.
        CorruptedStateError: It is damaged.
        LostBatchesError: Its table has lost batches, for which their files are needed.
    """

    def __init__(self, location: str, root: str, verify: VerifyState) -> None:
        state = open_store(location)
        metadata = read_metadata(state)
        if metadata is None:
            raise StateError(
                f"There is no state in {printable_path(state.uri)}, which "
                "cloudFiles.cleanSource.otherCheckpoints names. Name the checkpoint location of a "
                "cloudFiles stream that has been started, or remove it."
            )
        verify(state)
        self.source = metadata.source
        folder, pattern = _parts(metadata.source)
        self._folder = open_store(folder)
        self._below = open_store(root).key_of(folder)
        self._above = self._folder.key_of(root)
        if self._below is None and self._above is None:
            raise OptionError(
                f"The stream in {printable_path(state.uri)}, which "
                "cloudFiles.cleanSource.otherCheckpoints names, does not read this source: its own "
                f"is {printable_path(metadata.source)}. Remove it, or name the checkpoint location "
                "that was meant."
            )
        self._patterns = (
            [SourcePattern(pattern, strict=each) for each in (True, False)] if pattern else []
        )
        self._files = FileLog(state)
        self._ledger: Ledger = open_ledger(metadata.stream_id, self._files)
        try:
            committed = position(state).end
            end = Offset(self._ledger.caught_up + 1, 0)
            between = self._files.slice(committed, end) if committed < end else ()
            self._outstanding = {file.path for file in between}
            if metadata.has_operations:  # what is put aside there may be released
                held = FileStates(StateSnapshot.take(location), _HELD).operated()
                self._outstanding |= {file.path for group in held for file in group.files}
        except BaseException:
            self.close()
            raise

    def may_hold(self, location: str) -> bool:
        """Tell whether the stream might ingest what is below a location."""
        folder = self._folder.key_of(location)
        if folder is None:
            return open_store(location).key_of(self._folder.uri) is not None
        return (
            not folder
            or not self._patterns
            or any(each.may_hold(folder) for each in self._patterns)
        )

    def not_done(self, files: Sequence[FileEntry]) -> set[FileEntry]:
        """Give those of some files that the stream reads, and has not committed."""
        theirs = {self._theirs(file): file for file in files}
        concerned = {entry: file for entry, file in theirs.items() if entry is not None}
        # A time may differ where one stream lists the files and the other is notified of them.
        unseen = self._not_recorded(list(self._ledger.unseen(concerned, versions=True)))
        waits = unseen | {each for each in concerned if each.path in self._outstanding}
        return {concerned[each] for each in waits}

    def _not_recorded(self, files: Sequence[FileEntry]) -> set[FileEntry]:
        """Give those of some files of which the newest record has another size or etag."""
        by_entry: dict[int | None, list[FileEntry]] = {}
        for file in files:
            by_entry.setdefault(self._ledger.entry_of(file.path), []).append(file)
        missing = set(by_entry.pop(None, ()))
        for number, some in by_entry.items():
            recorded = {each.path: each for each in self._files.read(number or 0).files}
            missing |= {each for each in some if not _has_etag(recorded.get(each.path), each)}
        return missing

    def _theirs(self, file: FileEntry) -> FileEntry | None:
        """Give a file as the stream knows it; `None` if it does not read it."""
        path = file.path
        if self._above:
            path = f"{self._above}/{path}"
        elif self._below:
            if not path.startswith(f"{self._below}/"):
                return None
            path = path[len(self._below) + 1 :]
        if self._patterns and not any(each.matches(path) for each in self._patterns):
            return None
        return FileEntry(path, file.size, file.modification_time_us, file.etag)

    def close(self) -> None:
        """Free its index."""
        self._ledger.close()


class OtherStreams:
    """All streams that were named; a context manager.

    Args:
        locations: Their checkpoint locations.
        root: As in `OtherStream`.
        verify: As in `OtherStream`.
    """

    def __init__(self, locations: Sequence[str], root: str, verify: VerifyState) -> None:
        self._opened = ExitStack()
        self._streams: list[OtherStream] = []
        with ExitStack() as opening:
            for location in locations:
                self._streams.append(OtherStream(location, root, verify))
                opening.callback(self._streams[-1].close)
            self._opened = opening.pop_all()

    def refuse_destination(self, destination: str) -> None:
        """Refuse to move files to where one of the streams would ingest them again.

        Raises:
            OptionError: It would.
        """
        for each in self._streams:
            if each.may_hold(destination):
                raise OptionError(
                    f"cloudFiles.cleanSource.moveDestination={destination} is where another stream "
                    f"finds its files: its source is {printable_path(each.source)}. Give a folder "
                    "outside of it."
                )

    def not_done(self, files: Sequence[FileEntry]) -> set[FileEntry]:
        """Give those of some files that one of the streams has not committed."""
        return {file for each in self._streams for file in each.not_done(files)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Free their indexes."""
        self._opened.close()


def _has_etag(recorded: FileEntry | None, file: FileEntry) -> bool:
    """Tell whether a record is of a version, whatever its time."""
    return recorded is not None and bool(file.etag) and is_version(recorded, file)


def _parts(source: str) -> tuple[str, str | None]:
    """Split a source, as its state has it, into its folder and its pattern."""
    try:
        return split_pattern(source)
    except OptionError:  # the name of a folder, which is no pattern
        return source, None
