"""Note the files that have changed since they were ingested, or before they were read.

Notes in the state, `_source/changed/`, named by a hash of the path:

- `<hash>-<entry>.json`: the file that this entry of the file log has was ingested, and is another
  version now. `<hash>-<entry>.reported` beside it: somebody reports that, so nobody else has to.
- `<hash>-<version>.read`: the file had changed before it was read, and was ingested in this
  version, so that its entry names an older one.

The notes are about versions and are never changed. A file that is ingested again has another entry,
and so another note. Their names and times say it all: that a change was noticed, that somebody
reports it, which version was read. So old ones are packed as lines of one object,
`_source/changed/packed`, which is replaced as a whole (`state.compaction`), and a note says the
same twice. Nothing expires: a change is reported once, so what was reported is remembered for as
long as the file log has the file. An object that is damaged counts as none; then the changes that
it had are reported once more.

With `cloudFiles.allowOverwrites` every version of a file is an entry of its own, and an entry never
gives the bytes of another version. A task that meets a newer version than its entry's leaves the
file out. That newer version is somebody's entry already, or will be; so that it does not depend on
a notification that may be lost, or a listing that may be long in coming, the task leaves a note in
the state before its batch can be committed, and the next discovery inspects the file.

A note is a hint: it is deduped as every candidate is, and removed when the file is recorded.

In `failOnNewColumns` the stream goes on when the file that it named is removed (B52). That file is
part of a planned micro-batch, and a planned file that is gone is an error otherwise; so the task
that refuses a file for its new fields notes that in the state, before it fails. The note is for the
version of the file that was discovered, and is only read when a file is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.intake.ledger.base import version_hash
from airflow_cloudfiles.engine.state.compaction import KEPT, PACK_ENTRIES, PackedFolder
from airflow_cloudfiles.engine.state.packs import decode_entry, encode_entry
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore, open_store
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD, as_record, fields_of, read_note

PREFIX: Final = "_source/changed"
PACKED: Final = f"{PREFIX}/packed"
"""Of all names below `PREFIX` it is the last: a listing shows it after the notes that it has."""
PACKED_VERSION: Final = 1
MOST_REMOVED: Final = 10_000
"""One pass removes at most so many notes."""
OVERWRITTEN = "_source/overwritten"
_OVERWRITTEN_VERSION = 1


def note_overwritten(state: ObjectStore, found: FileEntry) -> None:
    """Ask the next discovery to inspect a file; asking twice is asking once.

    Args:
        state: The checkpoint location.
        found: The version that is there. Another version gets a note of its own, so that removing
            one never removes the other.
    """
    key = f"{OVERWRITTEN}/{path_hash(found.path)}-{version_hash(found).hex()}"
    state.put(key, json.dumps({FIELD: _OVERWRITTEN_VERSION, "path": found.path}).encode("ascii"))


def overwritten(state: ObjectStore) -> Iterator[tuple[str, str | None]]:
    """Give the notes: the key of each, and the path of its file; `None` for one that is damaged.

    The key has a digest of the path, which shows that it is the path that was written.

    Raises:
        IncompatibleStateError: A newer version of this package wrote one.
    """
    for note in state.list(OVERWRITTEN + "/"):
        try:
            name = state.child_uri(note.path)
            found = read_note(state.get(note.path), name=name, understood=_OVERWRITTEN_VERSION)
            path = found["path"]
        except ObjectNotFoundError:
            continue  # another discovery was faster
        except (ValueError, KeyError, TypeError):
            path = None
        is_text = isinstance(path, str)
        is_whole = is_text and note.path.startswith(f"{OVERWRITTEN}/{path_hash(path)}-")
        yield note.path, path if is_whole else None


def has_overwritten(state: ObjectStore) -> bool:
    """Tell whether there is a note."""
    return next(state.list(OVERWRITTEN + "/"), None) is not None


NOTE_VERSION = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_log = logging.getLogger(__name__)
_NOTICE = re.compile(re.escape(PREFIX) + r"/([0-9a-f]{32})-(\d+)\.(json|reported)")


@dataclass(frozen=True, slots=True)
class Change:
    """A file that has changed since it was ingested.

    Attributes:
        entry: The entry of the file log with the version that was recorded.
        before: That version.
        now: The one that was found.
    """

    entry: int
    before: FileEntry
    now: FileEntry


@dataclass(frozen=True, slots=True)
class Notices:
    """Which changes are noted.

    Attributes:
        times_us: When each was noted, by the clock of the state, in microseconds since 1970; by the
            hash of the path and the entry.
        reported: Those that somebody reports.
        read: Of which versions it is noted that they were read, as the names of their notes.
    """

    times_us: dict[tuple[str, int], int]
    reported: frozenset[tuple[str, int]]
    read: frozenset[str] = frozenset()


def path_hash(path: str) -> str:
    """Hash a path for the names of notes."""
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _kept(file: FileEntry) -> dict[str, Any]:
    """Give what is written of a file: not whether it is archived, which may be over any time."""
    return {name: value for name, value in asdict(file).items() if name != "archived_in"}


def note_change(state: ObjectStore, change: Change) -> None:
    """Note that a file has changed; noting it twice is noting it once."""
    value = {
        FIELD: NOTE_VERSION,
        "entry": change.entry,
        "before": _kept(change.before),
        "now": _kept(change.now),
    }
    state.put_if_absent(f"{_key(change)}.json", seal(value))


def claim_change(state: ObjectStore, change: Change) -> bool:
    """Take on the report of a change; of any number of callers, one does."""
    return state.put_if_absent(f"{_key(change)}.reported", seal({FIELD: NOTE_VERSION}))


def read_change(state: ObjectStore, path: str, entry: int) -> Change | None:
    """Read a note; `None` where there is none, or it is damaged.

    Raises:
        IncompatibleStateError: A newer version of this package wrote it.
    """
    key = f"{PREFIX}/{path_hash(path)}-{entry}.json"
    try:
        name = state.child_uri(key)
        fields = fields_of(unseal(state.get(key)), name=name, understood=NOTE_VERSION)
        return as_record(fields, Change)
    except (LookupError, ValueError):
        return None


def notices(state: ObjectStore) -> Notices:
    """List which changes are noted; reads no note."""
    times_us: dict[tuple[str, int], int] = {}
    reported, read = set(), set()
    for key, time_us in _noted(state):
        if key.endswith(".read"):
            read.add(key)
        elif found := _NOTICE.fullmatch(key):
            change = found[1], int(found[2])
            if found[3] == "reported":
                reported.add(change)
            else:
                times_us[change] = time_us
    return Notices(times_us, frozenset(reported), frozenset(read))


def _noted(state: ObjectStore) -> Iterator[tuple[str, int]]:
    """Give the key of each note, and when it was written.

    What is packed is read when the notes were listed: one that was removed before is in it.
    """
    is_packed = False
    for note in state.list(f"{PREFIX}/"):
        is_packed |= note.path == PACKED
        yield note.path, note.modification_time_us
    if is_packed:
        for name, packed in read_packed(state).items():
            yield f"{PREFIX}/{name}", packed.time_us


def changed_times(state: ObjectStore) -> dict[int, dict[str, datetime]]:
    """Give when each change was noted, by the entry and the hash of the path."""
    found: dict[int, dict[str, datetime]] = {}
    for (hashed, entry), time_us in notices(state).times_us.items():
        found.setdefault(entry, {})[hashed] = _EPOCH + timedelta(microseconds=time_us)
    return found


def note_read(state: ObjectStore, found: FileEntry) -> None:
    """Note in which version a file is ingested that had changed before it was read."""
    state.put(_read_key(found), seal({FIELD: NOTE_VERSION, "path": found.path}))


def was_read(state: ObjectStore, found: FileEntry, known: Notices | None = None) -> bool:
    """Tell whether a file was ingested in a version although its entry names another one.

    Args:
        state: The checkpoint location.
        found: The version.
        known: What was noted a while ago; saves a request for each version that it has.
    """
    key = _read_key(found)
    if known is not None and key in known.read:
        return True
    return state.head(key) is not None


def _key(change: Change) -> str:
    return f"{PREFIX}/{path_hash(change.before.path)}-{change.entry}"


def _read_key(found: FileEntry) -> str:
    return f"{PREFIX}/{path_hash(found.path)}-{version_hash(found).hex()}.read"


@dataclass(frozen=True, slots=True)
class PackedNote:
    """A note that is packed.

    Attributes:
        time_us: When it was written, by the clock of the state, in microseconds since 1970.
        packed_us: When it was packed.
    """

    time_us: int
    packed_us: int


def encode_notes(notes: Mapping[str, PackedNote]) -> bytes:
    """Build the bytes: an entry with a line for each note, in the order of names, compressed."""
    lines = (
        json.dumps([name, note.time_us, note.packed_us], separators=(",", ":"))
        for name, note in sorted(notes.items())
    )
    body = zlib.compress("\n".join(lines).encode("ascii"))
    return encode_entry({"id": uuid.uuid4().hex}, body, format_version=PACKED_VERSION)


def read_packed(state: ObjectStore) -> dict[str, PackedNote]:
    """Read which notes are packed, by their names; none where the object is damaged.

    Raises:
        IncompatibleStateError: A newer version of this package wrote it.
    """
    name = state.child_uri(PACKED)
    try:
        _, body = decode_entry(state.get(PACKED), name=name, format_version=PACKED_VERSION)
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


def _note(value: object) -> tuple[str, PackedNote]:
    match value:
        case [str(name), int(time_us), int(packed_us)]:
            return name, PackedNote(time_us, packed_us)
    msg = f"not a note: {value!r}"
    raise ValueError(msg)


class ChangedFolder(PackedFolder[Mapping[str, PackedNote]]):
    """The notes of changed files: a pack is what their one object says of some of them, by name.

    Args:
        state: The checkpoint location, which is listed; one request where there is no note.
        now_us: The time by its clock.
    """

    def __init__(self, state: ObjectStore, now_us: int) -> None:
        times = {each.path: each.modification_time_us for each in state.list(f"{PREFIX}/")}
        self._known = read_packed(state) if times.pop(PACKED, None) is not None else {}
        self._loose = {
            path.removeprefix(f"{PREFIX}/"): PackedNote(time_us, now_us)
            for path, time_us in times.items()
        }

    def to_create(self) -> Iterator[Mapping[str, PackedNote]]:
        """Give the notes that are in no pack, the oldest first, if they are many."""
        new = {name: note for name, note in self._loose.items() if name not in self._known}
        old = sorted(new, key=lambda name: (new[name].time_us, name))[:-KEPT]
        if len(old) >= PACK_ENTRIES:
            yield {name: new[name] for name in old}

    def to_remove(self, before_us: int) -> Iterator[Mapping[str, PackedNote]]:
        """Give the notes that were in the object at a time."""
        both = {name: self._known[name] for name in self._loose if name in self._known}
        due = [name for name, note in both.items() if note.packed_us <= before_us]
        if due:
            yield {name: both[name] for name in due[:MOST_REMOVED]}

    def keys(self, pack: Mapping[str, PackedNote]) -> list[str]:  # noqa: ARG002 - there is one
        """Name the object."""
        return [PACKED]

    def beside(self, pack: Mapping[str, PackedNote]) -> list[str]:
        """Name the notes of a pack."""
        return [f"{PREFIX}/{name}" for name in pack]

    def packed(
        self,
        state: ObjectStore,  # noqa: ARG002 - the listing says it all
        pack: Mapping[str, PackedNote],
    ) -> bytes:
        """Build the bytes of the object with more notes."""
        return encode_notes({**self._known, **pack})

    restored = packed

    def merged(
        self, state: ObjectStore, packs: Sequence[Mapping[str, PackedNote]]
    ) -> tuple[Mapping[str, PackedNote], bytes]:
        """Build the bytes of the object with the notes of some packs."""
        whole = {name: note for pack in packs for name, note in pack.items()}
        return whole, self.packed(state, whole)

    def removable(
        self,
        state: ObjectStore,  # noqa: ARG002 - the object was read when the folder was listed
        pack: Mapping[str, PackedNote],
    ) -> list[str]:
        """Name the notes of a pack, all of which are in the object."""
        return self.beside(pack)


REFUSED: Final = "_source/refused"


def note_refused(state: str, files: Iterable[FileEntry], fields: Mapping[str, object]) -> None:
    """Note that files were refused; noting it again changes nothing.

    That it cannot be noted is logged: the stream fails for the new fields in any case, and the file
    then has to be there, or `ignoreMissingFiles` has to be set.

    Args:
        state: URI of the state.
        files: The files, in the versions that were discovered.
        fields: The new fields that they were refused for.
    """
    store = open_store(state)
    for file in files:
        try:
            store.put(_refused_key(file), _encoded_refusal(file, fields))
        except OSError as failure:
            path = printable_path(file.path)
            _log.warning("The note that %s was refused could not be written: %s", path, failure)


def was_refused(state: str, file: FileEntry) -> bool:
    """Tell whether this version of a file was refused, so that the stream goes on without it.

    Raises:
        IncompatibleStateError: A newer version of this package wrote the note.
    """
    store, key = open_store(state), _refused_key(file)
    try:
        content = store.get(key)
    except ObjectNotFoundError:
        return False
    with contextlib.suppress(ValueError):  # a note that was cut off is one, too
        read_note(content, name=store.child_uri(key), understood=NOTE_VERSION)
    return True


def _encoded_refusal(file: FileEntry, fields: Iterable[str]) -> bytes:
    note = {
        FIELD: NOTE_VERSION,
        "path": printable_path(file.path),
        "fields": sorted(fields),
    }
    return (json.dumps(note, indent=1) + "\n").encode("ascii")


def _refused_key(file: FileEntry) -> str:
    """Return where the note of a version of a file is."""
    version = f"\n{file.size}\n{file.modification_time_us}\n{file.etag}"
    name = (file.path + version).encode("utf-8", "surrogatepass")
    return f"{REFUSED}/{hashlib.sha256(name).hexdigest()}"
