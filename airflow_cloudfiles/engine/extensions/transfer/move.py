"""Move a state to another location, so that never two of them work.

1. Claim the new location: its metadata say that a state is incoming.
2. Copy, while the old state can still be used: what fails here has changed nothing.
3. Seal the old state: its metadata say where it goes. No run begins there any more.
4. End its file log (`fences`): whoever has opened it before appends nothing more.
5. Copy what has changed since, and compare.
6. Write the metadata of the new state. From now on it works.

The locks of the old state are held all the time. Killed before step 3, the old state works; after
step 6, the new one; in between neither does, and both say to repeat the command, which goes on.

Tell the objects that are the state of a checkpoint location, and end its file log for a move.

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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.discovery.listing.state import KEY as LISTING
from airflow_cloudfiles.engine.errors import (
    OptionError,
    StateError,
    StateMovedError,
)
from airflow_cloudfiles.engine.extensions.event_log.reading import KEY as EVENTS
from airflow_cloudfiles.engine.extensions.inventory.base import KEY as INVENTORY
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.intake.ledger.opening import HEAD
from airflow_cloudfiles.engine.intake.ledger.snapshots import PREFIX as SNAPSHOTS
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.state import file_log, metadata
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, locked
from airflow_cloudfiles.engine.state.locks.run_lock import KEY as RUN_KEY
from airflow_cloudfiles.engine.state.metadata import KEY, read_metadata
from airflow_cloudfiles.engine.state.metadata_format import (
    StreamMetadata,
    decode_standing,
    encode_metadata,
    encode_standing,
)
from airflow_cloudfiles.engine.state.numbered_log import FENCE, NumberedLog
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore, open_store
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import replace_if_same, require_conditional_put

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access


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


@dataclass(frozen=True, slots=True)
class MoveResult:
    """What moving a state did.

    Attributes:
        moved_from: The old location.
        moved_to: The new one.
        objects: How many objects it has, but for the metadata.
        bytes: Their size.
        was_moved: Whether it was there already, whole: this call changed nothing.
    """

    moved_from: str
    moved_to: str
    objects: int
    bytes: int
    was_moved: bool = False


def move_state(
    checkpoint_location: str,
    to: str,
    *,
    access: Access | None = None,
    to_access: Access | None = None,
) -> MoveResult:
    """Move the state of a stream to another location; repeat the call until it succeeds.

    The old location stays as it is, but refuses every run. Delete it when nobody needs it.

    Args:
        checkpoint_location: The state.
        to: Where it is to be: a location that has nothing.
        access: How the old store is reached; `None` for the environment's own chain.
        to_access: How the new store is reached.

    Raises:
        StateLockedError: A run is working on it.
        StateMovedError: It was moved elsewhere, or is incomplete itself.
        StateError: There is no state; the new location is not empty, or cannot be written.
        OptionError: One location is within the other.
    """
    old, new = open_store(checkpoint_location, access), open_store(to, to_access)
    if old.key_of(new.uri) is not None or new.key_of(old.uri) is not None:
        raise OptionError(
            f"{printable_path(old.uri)} and {printable_path(new.uri)} are not apart. Move the "
            "state to a location that is neither within the old one nor around it."
        )
    with reaching_state(old), reaching_state(new):
        return _Move(old, new).run()


class _Move:
    """One try to move a state."""

    def __init__(self, old: ObjectStore, new: ObjectStore) -> None:
        self._old = old
        self._new = new
        self._compared: set[tuple[str, int, int, str]] = set()
        self._claim = encode_standing("incoming", None, old.uri)

    def run(self) -> MoveResult:
        if (metadata := self._sealed()) is not None and self._is_there(metadata):
            return MoveResult(self._old.uri, self._new.uri, 0, 0, was_moved=True)
        if metadata is None and read_metadata(self._old) is None:
            raise no_state(self._old)
        with locked(self._old) as may_go_on:
            self._take()
            crash_point("after-move-claim")
            if self._sealed() is None:
                self._copy(None, may_go_on)
                crash_point("after-move-copy")
            may_go_on()
            metadata = self._seal()
            crash_point("after-move-seal")
            entries = fence(self._old, metadata, self._new.uri)
            copied = self._copy(entries, may_go_on)
            self._require_log(entries)
            crash_point("after-second-copy")
            may_go_on()
            whole = encode_metadata(metadata)
            replace_if_same(self._new, KEY, self._claim, whole)
            if self._new.get(KEY) != whole:
                raise StateError(
                    f"{self._new.child_uri(KEY)} was changed by somebody else while the state was "
                    "moved there. Run again."
                )
            crash_point("after-move")
        sizes = [entry.size for entry in copied]
        return MoveResult(self._old.uri, self._new.uri, len(sizes), sum(sizes))

    def _sealed(self) -> StreamMetadata | None:
        """Whose the old state is, if it is sealed for this move; `None` if it is in use."""
        try:
            content = self._old.get(KEY)
        except ObjectNotFoundError:
            return None
        name = self._old.child_uri(KEY)
        standing, place, found = decode_standing(content, name=name)
        if standing != "moved":
            read_metadata(self._old)  # raises for one that is incoming
            return None
        if place != self._new.uri:
            raise StateMovedError(
                f"{name} is of a state that was moved to {printable_path(place)}, or is to be. "
                "Move it there, and then from there."
            )
        return found

    def _is_there(self, metadata: StreamMetadata) -> bool:
        try:
            content = self._new.get(KEY)
        except ObjectNotFoundError:
            return False
        standing, _, found = decode_standing(content, name=self._new.child_uri(KEY))
        is_whole = standing != "incoming" and found is not None
        return is_whole and found is not None and found.stream_id == metadata.stream_id

    def _take(self) -> None:
        """Claim the new location, unless this move has."""
        if claim(self._new, self._claim, "Moving a state") != self._claim:
            raise StateError(
                f"{printable_path(self._new.uri)} is not empty: there is {KEY}. Moving a state "
                "needs a location that has nothing. Choose another, or empty it."
            )

    def _seal(self) -> StreamMetadata:
        while True:
            if (found := self._sealed()) is not None:
                return found
            before = self._old.get(KEY)
            metadata = read_metadata(self._old)
            sealed = encode_standing("moved", metadata, self._new.uri)
            replace_if_same(self._old, KEY, before, sealed)

    def _copy(self, entries: int | None, may_go_on: Callable[[], None]) -> list[FileEntry]:
        """Make the new location hold what the old one does; gives what that is."""
        beside = {entry.path: entry for entry in parts_of(self._new)}
        found = list(parts_of(self._old, entries=entries))
        for entry in found:
            is_there = beside.pop(entry.path, None) is not None
            version = (entry.path, entry.size, entry.modification_time_us, entry.etag)
            if is_there and version in self._compared:
                continue
            may_go_on()
            self._copy_one(entry.path)
            self._compared.add(version)
            crash_point("after-part-of-copy")
        for entry in beside.values():  # of an earlier try, and gone since
            may_go_on()
            self._new.delete_version(entry)
        return found

    def _copy_one(self, key: str) -> None:
        try:
            content = self._old.get(key)
        except ObjectNotFoundError:
            return  # a note that a discoverer has dealt with; the log is looked at in the end
        hint = "The old state works as before, or says what to do. Run again."
        write_part(self._new, key, content, claimed=self._claim, what_to_do=hint)

    def _require_log(self, entries: int) -> None:
        """Refuse a copy whose file log is not whole."""
        latest = FileLog(self._new).latest()
        if latest + 1 != entries:
            raise StateError(
                f"The copy in {printable_path(self._new.uri)} has {counted(latest + 1, 'entry')} "
                f"of the file log instead of {entries}. Run again."
            )
