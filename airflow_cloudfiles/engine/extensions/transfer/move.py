"""Move a state to another location, so that never two of them work.

1. Claim the new location: its metadata say that a state is incoming.
2. Copy, while the old state can still be used: what fails here has changed nothing.
3. Seal the old state: its metadata say where it goes. No run begins there any more.
4. End its file log (`fences`): whoever has opened it before appends nothing more.
5. Copy what has changed since, and compare.
6. Write the metadata of the new state. From now on it works.

The locks of the old state are held all the time. Killed before step 3, the old state works; after
step 6, the new one; in between neither does, and both say to repeat the command, which goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import OptionError, StateError, StateMovedError
from airflow_cloudfiles.engine.extensions.transfer.contents import (
    claim,
    fence,
    locked,
    no_state,
    parts_of,
    write_part,
)
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import KEY, read_metadata
from airflow_cloudfiles.engine.state.metadata_format import (
    StreamMetadata,
    decode_standing,
    encode_metadata,
    encode_standing,
)
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, open_store
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import replace_if_same

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access


@dataclass(frozen=True, slots=True)
class Moved:
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
) -> Moved:
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

    def run(self) -> Moved:
        if (metadata := self._sealed()) is not None and self._is_there(metadata):
            return Moved(self._old.uri, self._new.uri, 0, 0, was_moved=True)
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
        return Moved(self._old.uri, self._new.uri, len(sizes), sum(sizes))

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
