"""Have commits to a table on a disk survive a power failure.

`deltalake` (1.6) syncs nothing that it writes: neither an entry of the log, nor a checkpoint of it,
nor a folder. So every commit of this package goes through `durable_commit`:

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
import logging
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from deltalake.transaction import PostCommitHookProperties

from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.errors import TargetCorruptedError
from airflow_cloudfiles.engine.storage.local import make_folders, sync_file, sync_folder

if TYPE_CHECKING:
    from deltalake import DeltaTable

LOG = "_delta_log"
_match = re.compile(r"(\d{20})\.(json|checkpoint\..*)").fullmatch
_LAST_CHECKPOINT = "_last_checkpoint"
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
    if checkpoints and (folder / _LAST_CHECKPOINT).exists():
        new.append(_LAST_CHECKPOINT)
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
    if any(path.suffix != ".json" for path in torn) and (folder / _LAST_CHECKPOINT).exists():
        torn.append(folder / _LAST_CHECKPOINT)
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
        f"The log of the Delta table {location.target} is damaged: {path.name} in {LOG} is empty "
        f"or cut off, as a power failure leaves it. {advice}"
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
