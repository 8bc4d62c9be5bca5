"""Pack notes of changed files, so that they stay few objects.

A note of `ledger.changed` says what it says by its name and its time: that a change was noticed,
that somebody reports it, which version was read. So old ones become lines of one object,
`_source/changed/packed`:

1. When a hundred have come together behind the newest hundred, their names and times are added to
   the object, which is replaced as a whole.
2. A day after a note was added, it is removed. Until then both are there, for those who had looked
   for the object before.

Killed between any two steps, each note is there, or in the object, or both; and a note says the
same twice. Nothing expires: a change is reported once, so what was reported is remembered for as
long as the file log has the file. An object that is damaged counts as none; then the changes that
it had are reported once more.
"""

from __future__ import annotations

import json
import logging
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.state.packs import decode_entry, encode_entry
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage import ObjectStore

PREFIX: Final = "_source/changed"
KEY: Final = f"{PREFIX}/packed"
"""Of all names below `PREFIX` it is the last: a listing shows it after the notes that it has."""
FORMAT_VERSION: Final = 1
KEPT: Final = 100
"""The newest notes are not packed."""
LEAST: Final = 100
"""So many notes are packed at once, or more."""
GRACE_SECONDS: Final = 24 * 3600.0
"""A note stays for so long after it was packed, for those who began before."""
MOST_REMOVED: Final = 10_000
"""One sweep removes at most so many notes."""
_GONE_AT_ONCE: Final = 100
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PackedNote:
    """A note that is packed.

    Attributes:
        time_us: When it was written, by the clock of the state, in microseconds since 1970.
        packed_us: When it was packed.
    """

    time_us: int
    packed_us: int


@dataclass(slots=True)
class SweptNotes:
    """What a sweep did, or would do.

    Attributes:
        packed: Notes that were added to the object.
        removed: Notes that were removed, because the object has them.
    """

    packed: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class _Due:
    known: Mapping[str, PackedNote] = field(default_factory=dict)
    pack: Mapping[str, PackedNote] = field(default_factory=dict)
    remove: Sequence[str] = ()


def encode_notes(notes: Mapping[str, PackedNote]) -> bytes:
    """Build the bytes: an entry with a line for each note, in the order of names, compressed."""
    lines = (
        json.dumps([name, note.time_us, note.packed_us], separators=(",", ":"))
        for name, note in sorted(notes.items())
    )
    body = zlib.compress("\n".join(lines).encode("ascii"))
    return encode_entry({"id": uuid.uuid4().hex}, body, format_version=FORMAT_VERSION)


def read_packed(state: ObjectStore) -> dict[str, PackedNote]:
    """Read which notes are packed, by their names; none where the object is damaged.

    Raises:
        IncompatibleStateError: A newer version of this package wrote it.
    """
    name = state.child_uri(KEY)
    try:
        _, body = decode_entry(state.get(KEY), name=name, format_version=FORMAT_VERSION)
        return dict(_note(json.loads(line)) for line in zlib.decompress(body).splitlines())
    except ObjectNotFoundError:
        return {}
    except (CorruptedStateError, ValueError, zlib.error) as damage:
        _log.warning(
            "%s is damaged, so changes of files that it had are reported once more: %s",
            name,
            damage,
        )
        return {}


def sweep_notices(
    state: ObjectStore,
    now_us: int,
    *,
    grace_seconds: float = GRACE_SECONDS,
    may_go_on: Callable[[], None] = lambda: None,
    dry_run: bool = False,
) -> SweptNotes:
    """Pack old notes, and remove those that have been packed for long enough.

    Args:
        state: The checkpoint location.
        now_us: The time by its clock.
        grace_seconds: See `GRACE_SECONDS`.
        may_go_on: Raises when the caller has lost its locks.
        dry_run: Only count.
    """
    due = _due(state, now_us, grace_seconds)
    if not dry_run:
        if due.pack:
            may_go_on()
            crash_point("before-notices-packed")
            state.put(KEY, encode_notes({**due.known, **due.pack}))
            crash_point("after-notices-packed")
        for start in range(0, len(due.remove), _GONE_AT_ONCE):
            some = due.remove[start : start + _GONE_AT_ONCE]
            may_go_on()
            crash_point("before-notices-removal")
            at_once(state, [partial(state.delete, f"{PREFIX}/{name}") for name in some])
            crash_point("after-notices-removal")
    return SweptNotes(len(due.pack), len(due.remove))


def _due(state: ObjectStore, now_us: int, grace_seconds: float) -> _Due:
    """Find what is to be packed and to be removed; one request where there is no note."""
    found = {each.path.removeprefix(f"{PREFIX}/"): each for each in state.list(f"{PREFIX}/")}
    known = read_packed(state) if found.pop(KEY.removeprefix(f"{PREFIX}/"), None) else {}
    before_us = now_us - int(grace_seconds * 1_000_000)
    remove = [name for name in found if name in known and known[name].packed_us <= before_us]
    loose = sorted((each for name, each in found.items() if name not in known), key=_age)[:-KEPT]
    pack = {
        each.path.removeprefix(f"{PREFIX}/"): PackedNote(each.modification_time_us, now_us)
        for each in loose
    }
    return _Due(known, pack if len(pack) >= LEAST else {}, remove[:MOST_REMOVED])


def _age(note: FileEntry) -> tuple[int, str]:
    return note.modification_time_us, note.path


def _note(value: object) -> tuple[str, PackedNote]:
    match value:
        case [str(name), int(time_us), int(packed_us)]:
            return name, PackedNote(time_us, packed_us)
    msg = f"not a note: {value!r}"
    raise ValueError(msg)
