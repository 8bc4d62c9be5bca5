"""Give a worker with an empty disk an index without reading the whole file log.

It fetches a snapshot: a copy of somebody's index, in the state. `_source/snapshots/<n>-<id>/` is a
RocksDB checkpoint that covers the entries up to `n`. Its tables, which RocksDB writes once and
never changes, are in `_source/snapshots/data/`, named by a hash of their bytes. So a later snapshot
uploads the tables that are new, and shares the others. The other files of a checkpoint, a few
kilobytes, are in the snapshot's own folder, and when all of them are there `complete.json`, which
names everything with size and checksum. The file log has the rest.

A snapshot is a copy of a cache. One that is incomplete, damaged, of another version or of another
life of the log is passed over for the next older one, and without any the index is built from the
log; so none of it is ever an error, and a snapshot can be deleted at any time.
"""

from __future__ import annotations

import logging
import shutil
import time
import uuid
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import CloudFilesError
from airflow_cloudfiles.engine.files import FileEntry, FileIdentity, printable_path
from airflow_cloudfiles.engine.intake.ledger.base import Ledger, format_of, suffices
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once
from airflow_cloudfiles.engine.storage.local import make_private, path_below
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import as_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from airflow_cloudfiles.engine.intake.ledger.rocksdb import RocksDBLedger
    from airflow_cloudfiles.engine.state.file_log import FileLog

_log = logging.getLogger(__name__)

PREFIX = "_source/snapshots"
DATA = f"{PREFIX}/data"
"""Folder of the tables, which snapshots share."""
COMPLETE = "complete.json"
FORMAT_VERSION = 2

WORTH_FILES = 100_000
"""A snapshot is made when so many files were recorded since the last one..."""
WORTH_SHARE = 100
"""...and at least a hundredth of all: making one reads the whole index..."""
WORTH_ENTRIES = 500
"""...or so many entries: reading each is a request."""
FAR_BEHIND_ENTRIES = 50
"""An index that lacks fewer entries than this reads them from the log."""

_KEPT = 2
_TABLE = ".sst"
_HASH_BYTES = 20
_PART_BYTES = 2**20
_FETCHED_AT_ONCE = 4
_ABANDONED_US = 24 * 3600 * 1_000_000
_FAILURES = (CloudFilesError, OSError, ObjectNotFoundError, ValueError, TypeError, KeyError)


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One file of a snapshot.

    Attributes:
        name: Without a folder.
        size: In bytes.
        crc32: Of its content.
        data: The name of its object in the shared folder, which is the hash of its content; empty
            for a file in the folder of the snapshot.
    """

    name: str
    size: int
    crc32: int
    data: str = ""


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """What `complete.json` holds.

    Attributes:
        folder: Key of its folder.
        entry: The last entry of the file log that is in it.
        entry_id: The id of that entry's writing.
        files: How many files these entries hold.
        objects: The files of the checkpoint.
        expired_us: Files modified before this may be missing (`ledger.base`); 0: none is.
        index_format: Of the index.
    """

    folder: str
    entry: int
    entry_id: str
    files: int
    objects: tuple[SnapshotFile, ...]
    expired_us: int
    index_format: int


def maybe_snapshot(
    ledger: Ledger,
    files: FileLog,
    state: ObjectStore,
    *,
    worth_files: int | None = None,
    worth_entries: int = WORTH_ENTRIES,
) -> bool:
    """Make a snapshot of a ledger when doing without it would be expensive.

    Any number of processes may do so at once. Only the newest two are kept.

    Args:
        ledger: Caught up; nobody records meanwhile.
        files: The file log it indexes.
        state: The checkpoint location.
        worth_files: After how many files; `None` for `WORTH_FILES` and `WORTH_SHARE`.
        worth_entries: See `WORTH_ENTRIES`.

    Returns:
        Whether one was made.
    """
    entry, count = ledger.caught_up, ledger.files
    if worth_files is None:
        worth_files = max(WORTH_FILES, ledger.files // WORTH_SHARE)
    if entry + 1 < worth_entries and count < worth_files:
        return False
    copy: Path | None = None
    try:
        last = next(_fitting(files, state, ledger.index_format, up_to=entry), None)
        if last is not None:
            entry, count = entry - last.entry - 1, count - last.files
        if entry + 1 < worth_entries and count < worth_files:
            return False
        copy = ledger.save()
        if copy is None:
            return False
        _upload(copy, ledger, state)
        _clean(state)
    except _FAILURES as failure:
        _log.warning("No snapshot of the index of seen files was made: %s", failure)
        return False
    finally:
        if copy is not None:
            shutil.rmtree(copy, ignore_errors=True)
    return True


def fetch_snapshot(  # noqa: PLR0913 - which index, and for whom
    files: FileLog,
    directory: Path,
    *,
    latest: int,
    beyond: int,
    identity: FileIdentity = "path",
    oldest_us: int | None = None,
) -> RocksDBLedger | None:
    """Fetch the newest usable snapshot, when it saves much work.

    Args:
        files: The file log that it must fit.
        directory: Where to put it; does not exist.
        latest: The newest entry of the file log.
        beyond: The last entry of the index that is there; -1 for none.
        identity: By what files are known; a snapshot for another format is of no use.
        oldest_us: Files modified before this are not input; `None` if all are.

    Returns:
        The opened index; `None` when there is no snapshot to use.
    """
    least = beyond + FAR_BEHIND_ENTRIES if beyond >= 0 else 0
    if latest < least:
        return None
    try:
        for snapshot in _fitting(files, files.store, format_of(identity), up_to=latest):
            if snapshot.entry < least:
                break
            if not suffices(snapshot.expired_us, oldest_us):
                continue
            fetched = _fetch(snapshot, files.store, directory, identity)
            if fetched is not None:
                return fetched
    except _FAILURES as failure:
        _log.warning("Snapshots of the index of seen files cannot be used: %s", failure)
    return None


def covered(state: ObjectStore) -> list[int]:
    """Give the entry up to which each complete snapshot goes, from the names of their folders."""
    numbers = (
        folder.rpartition("/")[2].partition("-")[0]
        for folder, objects in _folders(state).items()
        if COMPLETE in objects
    )
    return [int(number) for number in numbers if number.isascii() and number.isdigit()]


def _fitting(
    files: FileLog, state: ObjectStore, index_format: int, *, up_to: int
) -> Iterator[IndexSnapshot]:
    """Read the descriptions of the complete snapshots of this log, the newest first."""
    for folder, objects in sorted(_folders(state).items(), reverse=True):
        if COMPLETE not in objects:
            continue
        name = state.child_uri(folder)
        try:
            snapshot = _decode(folder, state.get(f"{folder}/{COMPLETE}"), index_format)
            fits = snapshot.entry <= up_to and files.summary(snapshot.entry).id == snapshot.entry_id
        except _FAILURES as failure:
            _log.warning("The snapshot %s is skipped: %s", name, failure)
            continue
        if fits:
            yield snapshot
        else:
            _log.info("The snapshot %s belongs to another file log", name)


def _folders(state: ObjectStore) -> dict[str, dict[str, FileEntry]]:
    """Group the objects by snapshot, complete or not, and shared ones under `DATA`."""
    found: dict[str, dict[str, FileEntry]] = {DATA: {}}
    for entry in state.list(PREFIX + "/"):
        folder, _, name = entry.path.rpartition("/")
        found.setdefault(folder, {})[name] = entry
    return found


def _upload(copy: Path, ledger: Ledger, state: ObjectStore) -> None:
    """Put the files of a checkpoint into the state, and at last what makes them a snapshot."""
    started = time.monotonic()
    folder = f"{PREFIX}/{ledger.caught_up:020d}-{uuid.uuid4().hex}"
    there = {name: entry.size for name, entry in _folders(state)[DATA].items()}
    objects, uploaded = [], 0
    for path in sorted(copy.iterdir()):
        size, crc32, digest = _sums(path)
        item = SnapshotFile(path.name, size, crc32, digest if path.suffix == _TABLE else "")
        if not item.data or there.get(item.data) != size:
            state.put(_key(folder, item), path.read_bytes())
            uploaded += size
        objects.append(item)
    snapshot = IndexSnapshot(
        folder=folder,
        entry=ledger.caught_up,
        entry_id=ledger.caught_up_id,
        files=ledger.files,
        objects=tuple(objects),
        expired_us=ledger.expired_us,
        index_format=ledger.index_format,
    )
    state.put(f"{folder}/{COMPLETE}", _encode(snapshot))
    _log.info(
        "Made a snapshot of the index of seen files: %s, %s, %s, of which %d were uploaded, %.1f s",
        counted(ledger.caught_up + 1, "entry"),
        counted(ledger.files, "file"),
        counted(sum(item.size for item in objects), "byte"),
        uploaded,
        time.monotonic() - started,
    )


def _sums(path: Path) -> tuple[int, int, str]:
    """Size, CRC-32 and hash of a file, which may be large."""
    size, crc32, digest = 0, 0, blake2b(digest_size=_HASH_BYTES)
    with path.open("rb") as file:
        while part := file.read(_PART_BYTES):
            size, crc32 = size + len(part), zlib.crc32(part, crc32)
            digest.update(part)
    return size, crc32, digest.hexdigest()


def _key(folder: str, item: SnapshotFile) -> str:
    """Build the key of a file of a snapshot."""
    return f"{DATA}/{item.data}" if item.data else f"{folder}/{item.name}"


def _clean(state: ObjectStore) -> None:
    """Remove all but the newest complete snapshots, and beginnings that nobody will end.

    Ages are measured by the store's clock alone: by the time of the newest object that is there. A
    table goes with the last snapshot that has it; one that no snapshot has may be part of one that
    is being made, and goes after a day.
    """
    folders = _folders(state)
    data = folders.pop(DATA)
    complete = sorted(folder for folder, objects in folders.items() if COMPLETE in objects)
    now_us = max(
        entry.modification_time_us
        for objects in (*folders.values(), data)
        for entry in objects.values()
    )
    kept = _tables(state, complete[-_KEPT:])
    gone = _tables(state, complete[:-_KEPT])
    for folder, objects in folders.items():
        if folder in complete:
            is_old = folder not in complete[-_KEPT:]
        else:
            newest_us = max(entry.modification_time_us for entry in objects.values())
            is_old = now_us - newest_us > _ABANDONED_US
        if is_old:
            # From here on nobody begins to fetch it.
            state.delete(f"{folder}/{COMPLETE}")
            for name in objects:
                state.delete(f"{folder}/{name}")
    if kept is None:
        return
    for name, entry in data.items():
        is_abandoned = now_us - entry.modification_time_us > _ABANDONED_US
        if name not in kept and (name in (gone or ()) or is_abandoned):
            state.delete(entry.path)


def _tables(state: ObjectStore, complete: Iterable[str]) -> set[str] | None:
    """Names of the tables that complete snapshots have; `None` when one of them cannot be read."""
    found: set[str] = set()
    for folder in complete:
        try:
            snapshot = _decode(folder, state.get(f"{folder}/{COMPLETE}"))
        except _FAILURES:
            return None  # perhaps a newer version can
        found.update(item.data for item in snapshot.objects if item.data)
    return found


def _fetch(
    snapshot: IndexSnapshot, state: ObjectStore, directory: Path, identity: FileIdentity
) -> RocksDBLedger | None:
    """Fetch, check and open a snapshot; `None` when something is wrong with it."""
    from airflow_cloudfiles.engine.intake.ledger.rocksdb import RocksDBLedger  # noqa: PLC0415 - heavy

    started = time.monotonic()
    ledger = None
    try:
        make_private(directory)
        for start in range(0, len(snapshot.objects), _FETCHED_AT_ONCE):
            some = snapshot.objects[start : start + _FETCHED_AT_ONCE]
            at_once(
                state, [partial(_fetch_file, snapshot, item, state, directory) for item in some]
            )
        ledger = RocksDBLedger(directory, identity)
        noted = (snapshot.entry, snapshot.entry_id, snapshot.expired_us)
        if (ledger.caught_up, ledger.caught_up_id, ledger.expired_us) != noted:
            msg = f"it covers the entries up to {ledger.caught_up}, not {snapshot.entry}"
            raise ValueError(msg)
    except _FAILURES as failure:
        name = printable_path(state.child_uri(snapshot.folder))
        _log.warning("The snapshot %s is skipped: %s", name, failure)
        if ledger is not None:
            ledger.close()
        shutil.rmtree(directory, ignore_errors=True)
        return None
    _log.info(
        "Fetched a snapshot of the index of seen files: %s, %s, %.1f s",
        counted(snapshot.entry + 1, "entry"),
        counted(snapshot.files, "file"),
        time.monotonic() - started,
    )
    return ledger


def _fetch_file(
    snapshot: IndexSnapshot, item: SnapshotFile, state: ObjectStore, directory: Path
) -> None:
    """Fetch one file of a snapshot.

    A damaged table is removed: as long as it is there, later snapshots share it.
    """
    key = _key(snapshot.folder, item)
    content = state.get(key)
    if not _is_whole(item, content):
        if item.data:
            state.delete(key)
        msg = f"{item.name} does not match its checksum"
        raise ValueError(msg)
    path_below(directory, item.name).write_bytes(content)


def _is_whole(item: SnapshotFile, content: bytes) -> bool:
    digest = blake2b(content, digest_size=_HASH_BYTES).hexdigest() if item.data else ""
    return (len(content), zlib.crc32(content), digest) == (item.size, item.crc32, item.data)


def files_of_all(state: ObjectStore) -> dict[str, SnapshotFile]:
    """Collect the files of all complete snapshots by their keys; a shared one is there once."""
    found: dict[str, SnapshotFile] = {}
    for folder, names in _folders(state).items():
        if COMPLETE in names:
            with suppress(ValueError, ObjectNotFoundError):  # whoever uses it passes it over, too
                snapshot = _decode(folder, state.get(f"{folder}/{COMPLETE}"))
                found |= {_key(folder, item): item for item in snapshot.objects}
    return found


def require_whole(state: ObjectStore, key: str, item: SnapshotFile) -> None:
    """Read a file of a snapshot.

    Raises:
        ValueError: It is missing, or not as it was written.
    """
    try:
        content = state.get(key)
    except ObjectNotFoundError as failure:
        msg = "it is missing"
        raise ValueError(msg) from failure
    if not _is_whole(item, content):
        msg = "its content does not match its checksum"
        raise ValueError(msg)


def _encode(snapshot: IndexSnapshot) -> bytes:
    """Build the bytes of `complete.json`."""
    fields = asdict(snapshot)
    del fields["folder"], fields["index_format"]
    versions = {"version": FORMAT_VERSION, "index_version": snapshot.index_format}
    return seal({**versions, **fields})


def _decode(folder: str, content: bytes, index_format: int | None = None) -> IndexSnapshot:
    """Read the bytes of `complete.json`; of an index in one format only, unless none is named.

    Raises:
        ValueError: It is none, or of another version.
    """
    value = unseal(content)
    version, index_version = value.get("version"), value.get("index_version")
    if version != FORMAT_VERSION or index_format not in {None, index_version}:
        understood = f"{FORMAT_VERSION}.{index_format}"
        msg = f"it has version {version}.{index_version}, not {understood}"
        raise ValueError(msg)
    found = as_record({**value, "folder": folder, "index_format": index_version}, IndexSnapshot)
    names = [name for each in found.objects for name in (each.name, each.data)]
    if any("/" in name or name.startswith(".") for name in names):
        msg = "a name in it is not that of a file"
        raise ValueError(msg)
    return found
