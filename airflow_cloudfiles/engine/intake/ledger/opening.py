"""Open the ledger of this process on its own disk, and check that what a state holds fits together.

`<cache>/<stream id>/<slot>/<build>/`, with the lock file `<slot>.lock` beside the slot. Files that
are known by more than their path and time have another index, in `<stream id>-<format>`; one that
may forget old files (`ledger.base`) is in `<stream id>-aged` or `<stream id>-<format>-aged`. The
first process takes slot 0, a second one at the same time slot 1, and so on; each builds its own
index from the newest snapshot and the file log, and finds it again the next time. Whatever is wrong
with an index, it is deleted and built anew, under a new random name: so the cache can be deleted
while a process uses it, and that process cannot write into the index that another one builds in its
place.

Entries of the file log that are gone take their files with them: nothing ingests them, and a new
entry under an old number is one that the stream believes to have ingested. So a state whose file
log has lost entries is refused, every time, before anything is appended to it. What shows it:

- a gap in the numbers of the entries, or of the plans (`NumberedLog`);
- a plan, or the end of what is committed, that points beyond the end of the log;
- a snapshot of the index that covers entries beyond the end;
- the mark `_source/head.json`: how long the log was when a discovery last recorded something;
- the local index of this machine (`catch_up`).

None of these is changed by the refusal.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import uuid
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    IncompatibleStateError,
    LedgerAccessError,
    LedgerError,
)
from airflow_cloudfiles.engine.files import START, FileIdentity, Offset, printable_path
from airflow_cloudfiles.engine.intake.ledger import snapshots
from airflow_cloudfiles.engine.intake.ledger.base import (
    FORMAT_VERSION,
    Ledger,
    catch_up,
    format_of,
    require_fit,
    suffices,
)
from airflow_cloudfiles.engine.intake.ledger.snapshots import fetch_snapshot
from airflow_cloudfiles.engine.state.locks.run_lock import FileLock
from airflow_cloudfiles.engine.state.sink_log import Position, position
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.fetched_ahead import aside
from airflow_cloudfiles.engine.storage.local import make_private
from airflow_cloudfiles.engine.storage.outage import is_transient, reaching_state
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_cloudfiles.engine.intake.ledger.rocksdb import RocksDBLedger
    from airflow_cloudfiles.engine.state.file_log import FileLog
    from airflow_cloudfiles.engine.state.plan_log import PlanLog


_log = logging.getLogger(__name__)

CACHE_DIR = "CLOUDFILES_CACHE_DIR"
"""Environment variable: directory on a local disk for the indexes of seen files."""


def open_ledger(
    stream_id: str, files: FileLog, identity: FileIdentity = "path", *, oldest_us: int | None = None
) -> Ledger:
    """Open this process's index of the file log and bring it up to date.

    Args:
        stream_id: Of the stream's metadata.
        files: The file log it indexes.
        identity: By what files are known.
        oldest_us: Files modified before this (`cloudFiles.maxFileAge`) are not asked for, and may
            be missing in the index; `None` for one that has all.

    Raises:
        LedgerError: No index can be built; the cause is the local disk.
    """
    index_format = format_of(identity)
    name = stream_id if index_format == FORMAT_VERSION else f"{stream_id}-{index_format}"
    folder = cache_folder() / (name if oldest_us is None else f"{name}-aged")
    try:
        make_private(folder)
        lock, slot = _take_slot(folder)
        try:
            return _open_in(slot, lock, files, identity, oldest_us)
        except BaseException:
            lock.release()
            raise
    except OSError as failure:
        msg = (
            f"No index of seen files can be kept in {folder}: {failure}. Set {CACHE_DIR} to a "
            f"directory on a local disk that this user may write in."
        )
        kind = LedgerError if is_transient(failure) else LedgerAccessError
        raise kind(msg) from failure


def cache_folder() -> Path:
    """Give the folder in which indexes are kept.

    `CLOUDFILES_CACHE_DIR`, or else `airflow_cloudfiles` below `XDG_CACHE_HOME` or `~/.cache`; for a
    user without a home that can be written, a directory of this user below the temporary one.
    """
    chosen = os.environ.get(CACHE_DIR)
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        # A link in the user's own home leads where the user wants it.
        folder = (Path(base).expanduser() / "airflow_cloudfiles").resolve()
        make_private(folder)
    except (OSError, RuntimeError):
        return _temporary_folder()
    return folder if os.access(folder, os.W_OK | os.X_OK) else _temporary_folder()


def _temporary_folder() -> Path:
    """Directory below the temporary one that nobody else can have prepared."""
    folder = Path(tempfile.gettempdir()) / f"airflow_cloudfiles-{os.getuid()}"
    try:
        return make_private(folder)
    except OSError as failure:
        msg = f"{failure} Or set {CACHE_DIR} to a directory of this user."
        raise LedgerAccessError(msg) from failure


def _take_slot(folder: Path) -> tuple[FileLock, Path]:
    """Lock the first directory that no other ledger uses."""
    for slot in count():
        lock = FileLock(str(folder / f"{slot}.lock"))
        if lock.try_acquire():
            return lock, folder / str(slot)
    raise AssertionError


def _open_in(
    slot: Path, lock: FileLock, files: FileLog, identity: FileIdentity, oldest_us: int | None
) -> Ledger:
    """Open and catch up; what cannot be used is fetched or built once more."""
    from airflow_cloudfiles.engine.intake.ledger.rocksdb import RocksDBLedger  # noqa: PLC0415 - heavy

    database, directory = _open_build(slot, identity)
    latest = files.known(at_least=-1 if database is None else database.caught_up)
    if database is not None:
        try:
            require_fit(database, files, latest=latest)
        except BaseException:
            database.close()
            raise
    fetched = fetch_snapshot(
        files,
        slot / uuid.uuid4().hex,
        latest=latest,
        beyond=-1 if database is None else database.caught_up,
        identity=identity,
        oldest_us=oldest_us,
    )
    if fetched is not None:
        if database is not None and directory is not None:
            database.close()
            _delete(directory)
        database = fetched
    ledger = database or RocksDBLedger(slot / uuid.uuid4().hex, identity)
    ledger.on_close = lock.release
    try:
        if not suffices(ledger.expired_us, oldest_us):
            ledger.clear()
        _caught_up(ledger, files, latest)
    except BaseException:
        ledger.close()
        raise
    return ledger


def _caught_up(ledger: Ledger, files: FileLog, latest: int) -> None:
    try:
        catch_up(ledger, files, latest=latest)
    except LedgerError as failure:
        _log.warning("%s Rebuilding it from the file log.", failure)
        ledger.clear()
        catch_up(ledger, files)


def _open_build(slot: Path, identity: FileIdentity) -> tuple[RocksDBLedger | None, Path | None]:
    """Open the index that is there, with its directory; what cannot be used is deleted."""
    from airflow_cloudfiles.engine.intake.ledger.rocksdb import RocksDBLedger  # noqa: PLC0415 - heavy

    found: tuple[RocksDBLedger | None, Path | None] = (None, None)
    for directory in _builds(slot):
        if found[0] is None:
            try:
                found = RocksDBLedger(directory, identity), directory
                continue
            except LedgerError as failure:
                _log.warning("%s Rebuilding it.", failure)
        _delete(directory)
    return found


def _builds(slot: Path) -> list[Path]:
    """Directories of the indexes in a slot: one, unless the cache was tampered with."""
    if not slot.is_dir() and os.path.lexists(slot):
        slot.unlink()
    make_private(slot)
    return sorted(slot.iterdir())


def _delete(directory: Path) -> None:
    """Remove an index, be it a directory or a file in its place."""
    if directory.is_dir() and not directory.is_symlink():
        shutil.rmtree(directory, ignore_errors=True)
    else:
        directory.unlink(missing_ok=True)


HEAD = "_source/head.json"
"""The mark. It may be deleted at any time, and then shows nothing."""
HEAD_VERSION = 1


def check_whole(
    state: ObjectStore, files: FileLog, plans: PlanLog, committed: Position | None = None
) -> None:
    """Refuse a state whose file log has lost entries.

    Any number of processes may append meanwhile: what points into the log is read before its end.

    Args:
        state: The checkpoint location.
        files: Its file log.
        plans: Its plan log.
        committed: How far it is committed, if the caller knows.

    Raises:
        CorruptedStateError: Entries are missing; names them, what shows it, and what to do.
    """
    for what, end in _known_ends(state, plans, committed):
        # Asked for again only where what is known of the log does not suffice.
        head = files.known_head() if end <= files.known_head() else files.head()
        if end > head:
            last = end.entry - (end.index == 0)
            missing = [str(head.entry), str(last)] if last > head.entry else [str(head.entry)]
            raise CorruptedStateError(
                f"The file log in {printable_path(state.uri)} has lost its newest entries: "
                f"{what} refers to entry {last}, but the log ends at {head.to_json()}. Missing: "
                f"_source/files/ {' to '.join(missing)}. Their files would never be ingested. "
                "Put them back, or restore the checkpoint location as a whole from a backup. See "
                "docs/how-to/recover.md."
            )


def mark_head(state: ObjectStore, files: FileLog) -> None:
    """Remember how long the file log is. A write that is lost makes the mark show less, not wrong.

    Args:
        state: The checkpoint location.
        files: Its file log.
    """
    content = seal({FIELD: HEAD_VERSION, "entries": files.known_head().entry})

    def write() -> None:
        try:
            state.put(HEAD, content)
        except OSError as failure:
            _log.warning("The mark of the length of the file log could not be written: %s", failure)

    aside(state, HEAD, write)


def _known_ends(
    state: ObjectStore, plans: PlanLog, known: Position | None
) -> Iterator[tuple[str, Offset]]:
    """Yield where the log ends at least, and what shows it."""
    latest = plans.latest()
    if latest is not None:
        yield f"the plan of batch {latest.number}", latest.end
    try:
        committed = (known or position(state, plans)).end
    except (CorruptedStateError, IncompatibleStateError):
        committed = START  # whoever needs it reports what is wrong with it
    yield "the last committed batch", committed
    for entry in snapshots.covered(state):
        yield "a snapshot of the index", Offset(entry + 1, 0)
    yield f"the mark {HEAD}", Offset(_marked(state), 0)


def _marked(state: ObjectStore) -> int:
    name = printable_path(state.child_uri(HEAD))
    try:
        with reaching_state(state):
            content = state.get(HEAD)
        mark = fields_of(unseal(content), name=name, understood=HEAD_VERSION)
        return int(mark["entries"])
    except ObjectNotFoundError:
        return 0
    except (ValueError, KeyError, TypeError) as failure:
        _log.warning("%s cannot be read and is passed over: %s.", name, failure)
        return 0
