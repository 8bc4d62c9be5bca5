"""Open Delta tables, or find out that there is none, and put their logs on the disk.

`deltalake` reads each entry of a table's log since its last checkpoint, twice or more, whenever it
opens the table. A run opens its table several times. So in a cloud, where each of that is a
request, a run opens it once (`opened_once`), and then lists what is new of its log: none as a rule.

Commits to a table on a disk survive a power failure, although `deltalake` (1.6) syncs nothing that
it writes: neither an entry of the log, nor a checkpoint of it, nor a folder. Every commit of this
package goes through `durable_commit`:

1. The names of the data files are put on the disk. (Their bytes are there since they were closed.)
2. `deltalake` commits, but removes no entry of the log yet.
3. All entries and checkpoints that this process has not synced yet are, whichever process wrote
   them: a table is whole only with all of them. Then their folder is.
4. Entries that a checkpoint covers, and that are older than the table keeps them, are removed.

Only then is the commit acknowledged. A power failure before may leave an entry, or a checkpoint,
without content. To `deltalake` an empty entry is a commit that did nothing, and it would append
behind it; so `refuse_torn` checks first, and `set_aside_torn` mends what can be mended.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import PostCommitHookProperties
from pyspark.sql.types import StructType  # noqa: TC002 - read when the module is

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    SinkError,
    TargetCorruptedError,
    TargetNotDeltaError,
)
from airflow_cloudfiles.engine.storage.local import make_folders, sync_file, sync_folder
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.columns import physical_name
from airflow_cloudfiles.engine.tables.delta.read.log import (
    LAST_CHECKPOINT,
    LOG,
    list_log,
    noted_checkpoint,
)
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableColumns

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog


_COMMIT: Final = re.compile(re.escape(LOG) + r"(\d{20})\.json")
_NOT_SEEN: Final = re.compile(
    r"No (table metadata|protocol)\b.* found|Path does not exist|is not a directory"
)
"""What `deltalake` says of a table that is there where its looks at the disk fail."""
_opened = threading.local()
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _OpenedTable:
    """A table in a cloud, as this thread has opened it.

    Attributes:
        table: The table, at whatever version.
        options: What it was opened with; credentials end.
        version: A version by whose commit its log is known again.
        etag: Of that commit.
    """

    table: DeltaTable
    options: Mapping[str, str]
    version: int
    etag: str


@contextmanager
def opened_once() -> Iterator[None]:
    """Have this thread open the newest version of a table in a cloud once.

    Opened again, it is the same object, which has then loaded what was committed meanwhile. It is
    opened anew where its log or the credentials are others.
    """
    before = getattr(_opened, "tables", None)
    _opened.tables = {}
    try:
        yield
    finally:
        _opened.tables = before


def open_table(target: str, version: int | None = None) -> DeltaTable | None:
    """Open a table; `None` when there is nothing yet.

    Args:
        target: Path or URI of the table.
        version: One of its versions; the newest, unless one is named.

    Raises:
        TargetNotDeltaError: The folder holds something else, or is not a folder.
        TargetUnreachableError: Its storage failed, or refused us.
    """
    location = DeltaLocation.of(target)
    tables = getattr(_opened, "tables", None)
    if tables is None or version is not None or location.folder is not None:
        return _open(location, version)
    kept = _loaded_again(tables.pop(location.uri, None), location)
    if kept is None:
        table = _open(location)
        kept = None if table is None else _opened_now(table, location)
        if kept is None:
            return table
    tables[location.uri] = kept
    return kept.table


def _open(location: DeltaLocation, version: int | None = None) -> DeltaTable | None:
    with location.translate_store_errors("cannot be opened"):
        if not _has_log(location):
            return None
    try:
        return load_table(location, version)
    except TableNotFoundError:
        return None


def _loaded_again(kept: _OpenedTable | None, location: DeltaLocation) -> _OpenedTable | None:
    """Give a table that was opened before with its newest version; `None` to open it anew."""
    if kept is None or kept.options != location.storage_options():
        return None
    with location.translate_store_errors("cannot be opened"):
        commits = list(_commits(location, kept.version))
    if not commits or (kept.version, kept.etag) != commits[0]:
        return None  # another table by now, or a log whose old entries are gone
    newest, etag = commits[-1]
    if newest > kept.table.version():
        with location.translate_errors("cannot be opened"):
            kept.table.update_incremental()
    return replace(kept, version=newest, etag=etag)


def _opened_now(table: DeltaTable, location: DeltaLocation) -> _OpenedTable | None:
    """Give a table with the mark that identifies it; `None` where it has no such mark."""
    with location.translate_store_errors("cannot be opened"):
        version, etag = next(_commits(location, table.version()), (-1, ""))
    is_known = version == table.version() and etag
    return _OpenedTable(table, location.storage_options(), version, etag) if is_known else None


def _commits(location: DeltaLocation, version: int) -> Iterator[tuple[int, str]]:
    """List the commits of a log from a version on, with their etags."""
    # In the order of bytes `.` follows the end of a text, and `:` the digits.
    first, end = f"{LOG}{version:020}", f"{LOG}:"
    for found in location.store().list(LOG, start_after=first, end_before=end):
        if commit := _COMMIT.fullmatch(found.path):
            yield int(commit[1]), found.etag


def open_to_write(target: str) -> DeltaTable | None:
    """Open a table as `open_table` does; a log that a power failure has torn is mended first."""
    try:
        return open_table(target)
    except TargetCorruptedError:
        location = DeltaLocation.of(target)
        with location.translate_errors("cannot be mended"):
            is_whole = set_aside_torn(location)
            damaged = _damaged_checkpoints(location)
            for path in damaged:
                _set_aside(location, path)
        if not is_whole and not damaged:
            raise
        return open_table(target)


def _damaged_checkpoints(location: DeltaLocation) -> list[str]:
    """List checkpoints that cannot be read, if all commits they repeat exist; and their note.

    Such a note makes `deltalake` (1.6) look for a checkpoint that is not there.
    """
    log = _log_of(location)
    try:
        damaged = log.damaged_checkpoints()
        listing = log.listing(whole=True).without(damaged)
    except CloudFilesError:
        return []
    files = [file.path for each in damaged for file in each.files]
    there = {each.version for each in listing.checkpoints}
    if noted_checkpoint(log.store) not in there and log.store.head(LAST_CHECKPOINT) is not None:
        files.append(LAST_CHECKPOINT)
    return files


def _set_aside(location: DeltaLocation, path: str) -> None:
    """Rename a file of a log."""
    store = location.store()
    aside = f"{LOG}_torn-{path.removeprefix(LOG)}-{uuid.uuid4().hex[:8]}"
    store.put(aside, store.get(path))
    store.delete(path)
    _log.warning("%s of %s is damaged; it was renamed to %s", path, location.target, aside)


def open_existing(target: str, version: int | None = None) -> DeltaTable:
    """Open a table that must be there.

    Raises:
        TargetNotDeltaError: There is no Delta table.
    """
    table = open_table(target, version)
    if table is None:
        raise TargetNotDeltaError(f"There is no Delta table at {target}. Check the path.")
    return table


def table_schema(target: str) -> StructType:
    """Read the columns of the newest version of a table.

    Raises:
        TargetNotDeltaError: There is no Delta table.
        UnsupportedTableError: It needs a feature that is not supported.
    """
    log = _log_of(DeltaLocation.to_read(target))
    return TableColumns.of(log.snapshot()).public_schema


def _log_of(location: DeltaLocation) -> TableLog:
    """Open the log of a table, where `deltalake` does not say enough of it."""
    from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog  # noqa: PLC0415 - few runs

    return TableLog(location)


def load_table(location: DeltaLocation, version: int | None = None) -> DeltaTable:
    """Load a table that has a log; a log that a power failure has torn is refused."""
    with location.translate_store_errors("cannot be read"):
        refuse_torn(location)
    options = location.storage_options()
    with location.translate_errors("cannot be opened"):
        try:
            return DeltaTable(location.table_uri, version=version, storage_options=options)
        except DeltaError as error:
            refuse_unreadable(location)
            if damaged := _damaged_checkpoints(location):
                raise TargetCorruptedError(
                    f"The log of the Delta table {location.target} is damaged: {damaged[0]} cannot "
                    "be read. It repeats entries of the log, which are all there: the next run of "
                    "a stream, or the next write, renames it."
                ) from None
            if isinstance(error, TableNotFoundError) and list_log(location.store()).latest < 0:
                raise
        except ValueError as error:
            raise _null_partition(location) or error from error
        try:  # a flaky disk hides an entry from one look, which `deltalake` takes for a gap
            return DeltaTable(location.table_uri, version=version, storage_options=options)
        except DeltaError as error:
            if isinstance(error, TableNotFoundError) or _NOT_SEEN.search(str(error)):
                _log_of(location).snapshot()  # names what is wrong, if it is not the disk
                raise OSError(errno.EAGAIN, str(error)) from None
            raise


def _null_partition(location: DeltaLocation) -> SinkError | None:
    """Build the error for a table with a null partition value where none may be null."""
    snapshot = _log_of(location).snapshot()
    columns = TableColumns.of(snapshot)
    names = {
        physical_name(each, columns.mode): each.name
        for each in columns.schema.fields
        if not each.nullable and each.name in columns.partition_columns
    }
    for file in snapshot.files:
        for physical, name in names.items():
            if not file.partition_value(physical):
                return SinkError(
                    f"{location.target} has null in its partition column {name}, which is "
                    "NOT NULL (an empty text is null in Delta's log), so that the deltalake "
                    "library cannot open it. Let the column be null: cloudfiles table "
                    f"drop-not-null --target {location.target} {name}"
                )
    return None


def _has_log(location: DeltaLocation) -> bool:
    """Check for a Delta log; refuse a place that has something else."""
    if location.folder is None:
        store = location.store()
        if next(store.list(LOG), None) is not None:
            return True
        keys = (file.path for file in store.list(skip=lambda key, _: _is_ours(key)))
        foreign = next(keys, None)
    else:
        folder = Path(location.folder)
        if folder.exists() and not folder.is_dir():
            raise TargetNotDeltaError(
                f"The target {location.target} is a file, not a folder. Choose another target."
            )
        if not folder.is_dir() or (folder / LOG).is_dir():
            return folder.is_dir()
        foreign = next((path.name for path in folder.iterdir() if not _is_ours(path.name)), None)
    if foreign is not None:
        raise TargetNotDeltaError(
            f"The target {location.target} is not a Delta table: it has no _delta_log but holds "
            f"{foreign!r}. Choose an empty folder or a Delta table."
        )
    return False


def _is_ours(key: str) -> bool:
    """Tell whether a key is hidden, or a data file that a killed task left before any commit."""
    name = key.partition("/")[0]
    return name.startswith((".", "_")) or (
        name.startswith("part-") and name.endswith(".parquet") and name == key
    )


_match = re.compile(r"(\d{20})\.(json|checkpoint\..*)").fullmatch
_synced: dict[tuple[str, int], int] = {}
"""By path and inode of a log: the version up to which this process has synced it."""
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def durable_commit(
    location: DeltaLocation, what: str, table: DeltaTable | None = None, synced: str = ""
) -> Iterator[PostCommitHookProperties | None]:
    """Surround a commit, which is on the disk when this returns.

    Args:
        location: Of the table.
        what: For the error, as in `DeltaLocation.translate_errors`.
        table: The table, unless it is being created.
        synced: As for `make_durable`.

    Yields:
        What the commit is to be given as `post_commithook_properties`.

    Raises:
        TargetUnreachableError: Its storage failed; the commit may be there or not.
        SinkError: The table did.
    """
    with location.translate_errors(what):
        hooks = None
        if location.folder is not None:
            make_folders(os.fsencode(location.folder))
            sync_folder(os.fsencode(location.folder))
            # On a disk, `deltalake` removes nothing behind a commit (step 4).
            hooks = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
        yield hooks
        if make_durable(location, synced) and table is not None:
            remove_expired(table)


def make_durable(location: DeltaLocation, synced: str = "") -> bool:
    """Put a table's log on the disk, as far as this process has not done so.

    A commit that is found there, rather than made, may be of a process that was killed before it
    could do so: the process that acknowledges that commit calls this, too.

    Args:
        location: Of the table.
        synced: An entry that is on the disk already, with its name, because our store wrote it.

    Returns:
        Whether the newest version has a checkpoint, and this call has synced it.

    Raises:
        OSError: It cannot be synced.
    """
    if location.folder is None:
        return False
    folder = Path(location.folder, LOG)
    make_folders(os.fsencode(folder))
    key = (str(folder), folder.stat().st_ino)
    names = {path.name: _version(path.name) for path in folder.iterdir() if _match(path.name)}
    latest = max(names.values(), default=-1)
    known = _synced.get(key, -1)
    if known > latest:  # another table, in a folder that was removed and created again
        known = -1
    if known < 0:
        known = _newest_checkpoint(names) - 1
    new = sorted(name for name, version in names.items() if version > known and name != synced)
    if not new:
        _synced[key] = latest
        return False
    checkpoints = {name: names[name] for name in new if not name.endswith(".json")}
    hint = Path(location.folder, LAST_CHECKPOINT)
    if checkpoints and hint.exists():
        new.append(hint.name)
    for name in new:
        with contextlib.suppress(FileNotFoundError):  # another writer has cleaned the log up
            sync_file(os.fsencode(folder / name))
    sync_folder(os.fsencode(folder))
    _synced[key] = latest
    return latest in checkpoints.values()


def refuse_torn(location: DeltaLocation) -> None:
    """Refuse a table whose log has entries or checkpoints that a power failure left empty.

    Checks sizes only: that is what a commit costs that was never synced, and the one kind of
    damage that `deltalake` does not see.

    Raises:
        TargetCorruptedError: There is one; the message says which, and what to do.
    """
    if location.folder is None:
        return
    folder = Path(location.folder, LOG)
    sizes: dict[str, int] = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as found:
        for entry in found:
            if _match(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    sizes[entry.name] = entry.stat().st_size
    versions = {name: _version(name) for name in sizes}
    covered = _newest_checkpoint({name: versions[name] for name in sizes if sizes[name]})
    last = max(
        (v for name, v in versions.items() if name.endswith(".json") and sizes[name]), default=-1
    )
    for name in sorted(sizes):
        if not sizes[name] and (versions[name] > covered or not name.endswith(".json")):
            raise _torn(location, folder / name, is_last=versions[name] > last)


def refuse_unreadable(location: DeltaLocation) -> None:
    """Name what makes a log unreadable that `deltalake` could not open.

    Raises:
        TargetCorruptedError: An entry is not what a writer of Delta writes.
    """
    if location.folder is None:
        return
    folder = Path(location.folder, LOG)
    names = sorted(path.name for path in folder.iterdir() if _match(path.name))
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            if not _is_whole(folder / name):
                raise _torn(location, folder / name, is_last=name == names[-1])


def set_aside_torn(location: DeltaLocation) -> bool:
    """Rename what a power failure has left without content, where nothing that counted is lost.

    That are the newest entry, or entries, with none behind them that is whole: the process
    that acknowledges a commit has synced all before it. And a checkpoint, if all entries that it
    repeats are there.
    (A table that lacks a batch nevertheless is found by what the stream's state knows.)

    Returns:
        Whether the log is whole now; if not, nothing was renamed.
    """
    if location.folder is None:
        return False
    folder = Path(location.folder, LOG)
    paths = [path for path in folder.iterdir() if _match(path.name)]
    whole = {path.name: _version(path.name) for path in paths if _is_whole(path)}
    entries = {version for name, version in whole.items() if name.endswith(".json")}
    start = _newest_checkpoint(whole) + 1
    last = max(entries, default=start - 1)
    torn = [path for path in paths if path.name not in whole and _version(path.name) >= start]
    torn.sort(reverse=True)  # killed in between, this leaves no gap
    if not entries.issuperset(range(start, last + 1)):
        return False
    hint = Path(location.folder, LAST_CHECKPOINT)
    if any(path.suffix != ".json" for path in torn) and hint.exists():
        torn.append(hint)
    for path in torn:
        aside = path.with_name(f"_torn-{path.name}-{uuid.uuid4().hex[:8]}")
        with contextlib.suppress(FileNotFoundError):  # another stream of the table was faster
            path.rename(aside)
        _log.warning(
            "%s of the Delta table %s was empty or cut off, as a power failure leaves it; it was "
            "renamed to %s. A run that misses a batch because of it is refused.",
            path.name,
            location.target,
            aside.name,
        )
    sync_folder(os.fsencode(folder))
    return True


def _is_whole(path: Path) -> bool:
    """Check that a file ends as its kind does, and not in zeros where its bytes were lost."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4096))
        end = file.read()
    if path.suffix == ".parquet":
        return end.endswith(b"PAR1")
    return end.rstrip().endswith(b"}")


def _torn(location: DeltaLocation, path: Path, *, is_last: bool) -> TargetCorruptedError:
    if path.suffix == ".json" and is_last:
        advice = (
            "It is the newest entry, so its commit was never acknowledged: run the stream, which "
            "renames it and repeats the batch, or move the file away."
        )
    elif path.suffix == ".json":
        advice = (
            "Its commit is lost. Restore the file, or the table and the checkpoint location "
            "together, from a backup, or start over (docs/how-to/recover.md)."
        )
    else:
        advice = (
            "A checkpoint repeats entries of the log. If they are all there, the next run of the "
            "stream renames it; otherwise restore it."
        )
    return TargetCorruptedError(
        f"The log of the Delta table {location.target} is damaged: {path.name} in _delta_log is "
        f"empty or cut off, as a power failure leaves it. {advice}"
    )


def remove_expired(table: DeltaTable) -> None:
    """Remove old entries that a checkpoint covers, unless the table keeps them."""
    keep = table.metadata().configuration.get("delta.enableExpiredLogCleanup", "true")
    if keep.lower() == "false":
        return
    try:
        table.cleanup_metadata()
    except (DeltaError, OSError) as error:
        _log.warning("Old entries of the log of a Delta table could not be removed: %s", error)


def _newest_checkpoint(versions: dict[str, int]) -> int:
    return max((v for name, v in versions.items() if not name.endswith(".json")), default=-1)


def _version(name: str) -> int:
    return int(name[:20])
