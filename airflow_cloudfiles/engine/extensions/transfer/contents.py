"""Tell the objects that are the state of a checkpoint location, and end its file log for a move.

Not its locks, nor what is only a cache or a hint: copies of the index, what listings have shown,
how long the file log was. What else lies there, say a table, is not part of it.

Discoverers need no lock, so one that has opened the state may append at any moment. The log ends
for it with an entry that holds no file, found by `moved`: its number is taken, so nobody appends it
or learns of a later one without meeting it, or the mark beside the log that was put there before.
Who opens the state afterwards knows by the metadata which entry it was, and passes over it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.listing.state import KEY as LISTING
from airflow_cloudfiles.engine.errors import StateError, StateLockedError
from airflow_cloudfiles.engine.extensions.event_log.reading import KEY as EVENTS
from airflow_cloudfiles.engine.extensions.inventory.base import KEY as INVENTORY
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.intake.ledger.opening import HEAD
from airflow_cloudfiles.engine.intake.ledger.snapshots import PREFIX as SNAPSHOTS
from airflow_cloudfiles.engine.state import file_log, metadata
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.state.locks.run_lock import KEY as RUN_KEY
from airflow_cloudfiles.engine.state.numbered_log import FENCE, NumberedLog
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.small_objects import replace_if_same, require_conditional_put

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.state.metadata_format import StreamMetadata
    from airflow_cloudfiles.engine.storage import ObjectStore


def fence(state: ObjectStore, metadata: StreamMetadata, place: str) -> int:
    """End the file log, unless its last entry does.

    The state is not in use: nobody opens it meanwhile.

    Args:
        state: The checkpoint location.
        metadata: Whose it is.
        place: Where state or source are now, for people.

    Returns:
        The number of the entry that ends it.
    """
    log = NumberedLog(
        state, file_log.PREFIX, format_version=file_log.FORMAT_VERSION, has_all=True, is_packed=True
    )
    while True:
        latest = log.latest()
        if latest > metadata.fence and log.header(latest).get("found_by") == "moved":
            return latest
        number = latest + 1
        state.put(f"{file_log.PREFIX}/{FENCE}{number:020}", place.encode("ascii", "replace"))
        crash_point("after-fence-mark")
        header = {"files": 0, "bytes": 0, "found_by": "moved", "position": place}
        if log.append(number, header):
            crash_point("after-fence")
            return number


_FOLDERS: Final = (
    "_reports", "_runs", "_schemas", "_source", "commits", "offsets", "sources", "state",
)  # fmt: skip
_FILES: Final = ("metadata",)
LOCKS: Final = (RUN_KEY, JOB_KEY)
_HINTS: Final = (HEAD, INVENTORY, LISTING, EVENTS, f"{SNAPSHOTS}/")
"""What they say may be of entries that came too late: the next discovery writes them anew."""
_LEFT_OUT: Final = (*LOCKS, *_HINTS, "_source/probe-", f"{file_log.PREFIX}/{FENCE}")
_ENTRY: Final = re.compile(file_log.PREFIX + "/[0-9]{20}")


def is_part(key: str) -> bool:
    """Tell whether an object is part of a state, by its key; false for keys that are not any."""
    parts = key.split("/")
    is_plain = key.isascii() and key.isprintable() and "\\" not in key
    if not is_plain or any(part in {"", ".", ".."} for part in parts):
        return False
    if len(parts) == 1:
        return key in _FILES
    return parts[0] in _FOLDERS and not key.startswith(_LEFT_OUT)


def parts_of(state: ObjectStore, *, entries: int | None = None) -> Iterator[FileEntry]:
    """List the objects of a state but its metadata.

    Args:
        state: The checkpoint location.
        entries: How many entries of the file log belong to it; `None` for all.
    """
    for prefix in (*(f"{folder}/" for folder in _FOLDERS), *_FILES):
        for entry in state.list(prefix, ordered=False):
            if entry.path == metadata.KEY or not is_part(entry.path):
                continue
            is_entry = _ENTRY.fullmatch(entry.path) is not None
            if entries is None or not is_entry or int(entry.path[-20:]) < entries:
                yield entry


def require_empty(store: ObjectStore, what: str) -> None:
    """Refuse a location that has anything but the locks of a state.

    Raises:
        StateError: There is something.
    """
    for entry in store.list(ordered=False):
        if entry.path not in LOCKS:
            raise StateError(
                f"{printable_path(store.uri)} is not empty: there is {printable_path(entry.path)}. "
                f"{what} needs a location that has nothing. Choose another, or empty it."
            )


def no_state(store: ObjectStore) -> StateError:
    """Give the error of a location that has no state."""
    return StateError(
        f"There is no state in {printable_path(store.uri)}. Give the checkpoint location of a "
        "cloudFiles stream."
    )


def claim(store: ObjectStore, content: bytes, what: str) -> bytes:
    """Put a claim into a location that has nothing; gives what is in its place then.

    Raises:
        StateError: There is something, and nothing in the place of the claim; or the store has no
            conditional writes.
    """
    try:
        return store.get(metadata.KEY)
    except ObjectNotFoundError:
        require_empty(store, what)
        if not isinstance(store, LocalStore):
            require_conditional_put(store)
        is_mine = store.put_if_absent(metadata.KEY, content)
        return content if is_mine else store.get(metadata.KEY)


def write_part(
    store: ObjectStore, key: str, content: bytes, *, claimed: bytes, what_to_do: str
) -> None:
    """Write an object of a state, also over what an earlier try has left.

    Args:
        store: Where the state goes.
        key: Of the object.
        content: Of the object.
        claimed: The claim: nothing is written over where it is not there any more.
        what_to_do: The end of the message of an error.

    Raises:
        StateError: Something else is there.
    """
    if not store.put_if_absent(key, content):
        there = store.get(key)
        if there != content and store.get(metadata.KEY) == claimed:
            replace_if_same(store, key, there, content)
    if store.get(key) != content:
        raise StateError(f"{store.child_uri(key)} is not what was written there. {what_to_do}")


@contextmanager
def locked(state: ObjectStore, *, timeout_seconds: float = 0.0) -> Iterator[Callable[[], None]]:
    """Hold both locks of a state; gives what raises when one is lost.

    Args:
        state: The checkpoint location.
        timeout_seconds: How long to wait for each.

    Raises:
        StateLockedError: A run is working on it.
    """
    with ExitStack() as stack:
        locks = [RunLock(state, key) for key in (JOB_KEY, RUN_KEY)]
        for lock in locks:
            lock.acquire(timeout_seconds)
            stack.enter_context(lock)

        def may_go_on() -> None:
            if not all(lock.is_held for lock in locks):
                raise StateLockedError(
                    f"The lock of {printable_path(state.uri)} was lost. Nothing is lost else. "
                    "Run again."
                )

        yield may_go_on
