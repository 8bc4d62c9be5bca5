"""Pack old entries, and remove them when their time has come.

What is packed is a folder: a log with its numbered entries, the notes of batches, or those of
changed files (`ledger.changed`). What its packs are and hold, the folder says; this decides when,
writes, verifies and removes. A pass over a folder does what is due, in this order. Each step can be
killed and repeated, and after each one everything is an object or in a pack that is whole.

1. A pack of which a copy is missing gets it from the other one.
2. Where a pack is there for longer than `GRACE_SECONDS`, it is read again. If it is whole, what it
   holds is removed: objects, the oldest first, and smaller packs. A copy that is damaged is written
   anew instead, and the time begins again.
3. Ten neighbors of one size become one pack.
4. Objects become packs when `PACK_ENTRIES` of them can, without the newest `KEPT`.

Every copy of a pack is written, read back, and compared.

The caller has the locks of the state. Should it lose them, two passes at once over a log still
write the same bytes under the same names, and remove only what both copies of a pack hold.
"""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import CorruptedStateError, IncompatibleStateError
from airflow_cloudfiles.engine.state.packs import (
    COPIES,
    Pack,
    decode_entry,
    decode_pack,
    encode_pack,
    parse_name,
    read_pack,
    widest,
)
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry

KEPT = 100
"""The newest entries are never packed: among them is what a run reads when it begins."""
PACK_ENTRIES = 100
"""How many entries a new pack of a log holds, and how many are packed at once at least."""
MERGED_PACKS = 10
"""So many packs of one size become one."""
MAX_ENTRIES = 10_000
"""The most entries of a pack of a log."""
MAX_BYTES = 8 * 2**20
"""About the most bytes of a pack of a log: who reads one of its entries reads all of it."""
MAX_ENTRY_BYTES = 2**20
"""A larger entry stays an object of its own."""
GRACE_SECONDS = 24 * 3600.0
"""What a pack holds stays for so long after the pack is there, for those who began before."""
REMOVED_AT_ONCE = 100
"""So many objects are removed before it is asked whether the locks are still held."""
_log = logging.getLogger(__name__)


_Pack = TypeVar("_Pack", bound=Sized)
"""What a folder calls a pack; its length is the number of entries that it packs."""


@dataclass(frozen=True, slots=True)
class Work(Generic[_Pack]):
    """What is due in a folder.

    Attributes:
        restore: Packs of which a copy is missing.
        remove: Packs that have been there for long enough, with what they hold beside them.
        merge: Packs to be made of others.
        create: Packs to be made of objects.
    """

    restore: tuple[_Pack, ...] = ()
    remove: tuple[_Pack, ...] = ()
    merge: tuple[tuple[_Pack, ...], ...] = ()
    create: tuple[_Pack, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.restore or self.remove or self.merge or self.create)


@dataclass(slots=True)
class CompactionResult:
    """What was done, or would be.

    Attributes:
        packed: Entries that were copied into packs.
        merged: Packs that became larger ones.
        restored: Copies of packs that were written anew.
        removed: Objects that were removed, because packs hold what they held.
        expired: Specifications, reports and notes of runs that were removed for their age.
    """

    packed: int = 0
    merged: int = 0
    restored: int = 0
    removed: int = 0
    expired: int = 0


class PackedFolder(ABC, Generic[_Pack]):
    """A folder, as a listing shows it: which packs its entries can be in, and what these hold."""

    @abstractmethod
    def to_create(self) -> Iterable[_Pack]:
        """Give the packs that objects can become, without the newest ones."""

    @abstractmethod
    def to_remove(self, before_us: int) -> Iterable[_Pack]:
        """Give the whole packs that were there at a time, and hold what is there beside them."""

    def to_restore(self) -> Iterable[_Pack]:
        """Give the packs of which a copy is missing."""
        return ()

    def to_merge(self) -> Iterable[tuple[_Pack, ...]]:
        """Give the packs that can be one."""
        return ()

    @abstractmethod
    def keys(self, pack: _Pack) -> Sequence[str]:
        """Name the copies of a pack."""

    @abstractmethod
    def beside(self, pack: _Pack) -> Sequence[str]:
        """Name the objects that hold what a pack holds as well, the oldest first."""

    @abstractmethod
    def packed(self, state: ObjectStore, pack: _Pack) -> bytes:
        """Build the bytes of a pack of objects, which are read if need be."""

    @abstractmethod
    def removable(self, state: ObjectStore, pack: _Pack) -> Sequence[str] | None:
        """Name what can be removed of what is beside a pack; `None` where a copy is damaged."""

    @abstractmethod
    def restored(self, state: ObjectStore, pack: _Pack) -> bytes:
        """Build the bytes of a pack of which a copy is missing or damaged."""

    @abstractmethod
    def merged(self, state: ObjectStore, packs: Sequence[_Pack]) -> tuple[_Pack, bytes]:
        """Build the bytes of a pack of packs."""


def work_of(
    folder: PackedFolder[_Pack],
    now_us: int,
    *,
    least: int = PACK_ENTRIES,
    grace_seconds: float = GRACE_SECONDS,
) -> Work[_Pack]:
    """Find out what is due; asks nobody.

    Args:
        folder: What is there.
        now_us: The time by the clock of the store, or an earlier one.
        least: Objects become packs when so many of them can.
        grace_seconds: See `GRACE_SECONDS`.
    """
    create = tuple(folder.to_create())
    return Work(
        tuple(folder.to_restore()),
        tuple(folder.to_remove(now_us - int(grace_seconds * 1_000_000))),
        tuple(folder.to_merge()),
        create if sum(map(len, create)) >= least else (),
    )


@dataclass(eq=False)
class Compaction(Generic[_Pack]):
    """Carries out what is due in one folder.

    Attributes:
        state: The checkpoint location, or another place of a log.
        folder: What is there.
        may_go_on: Raises when the caller has lost its locks.
        done: What was done; is added to.
    """

    state: ObjectStore
    folder: PackedFolder[_Pack]
    may_go_on: Callable[[], None] = lambda: None
    done: CompactionResult = field(default_factory=CompactionResult)

    def run(self, work: Work[_Pack], *, most: int | None = None) -> None:
        """Do what is due.

        Args:
            work: What is due.
            most: How many packs of each kind of work are seen to; `None` for all.

        Raises:
            CorruptedStateError: An entry, or both copies of a pack, are damaged.
            OSError: The store fails.
        """
        for pack in work.restore[:most]:
            self._restore(pack)
        for pack in work.remove[:most]:
            keys = self.folder.removable(self.state, pack)
            if keys is None:
                self._restore(pack)
            else:
                self.remove(keys)
        for packs in work.merge[:most]:
            self._write(*self.folder.merged(self.state, packs))
            self.done.merged += len(packs)
        for pack in work.create[:most]:
            self._write(pack, self.folder.packed(self.state, pack))
            self.done.packed += len(pack)

    def tell(self, work: Work[_Pack]) -> None:
        """Count what would be done."""
        self.done.packed += sum(map(len, work.create))
        self.done.merged += sum(map(len, work.merge))
        self.done.restored += len(work.restore)
        self.done.removed += sum(len(self.folder.beside(pack)) for pack in work.remove)

    def remove(self, keys: Sequence[str], *, in_order: bool = False) -> None:
        """Remove objects, some at once, or each when the one before it is gone."""
        for start in range(0, len(keys), REMOVED_AT_ONCE):
            calls = [partial(self.state.delete, key) for key in keys[start:][:REMOVED_AT_ONCE]]
            self.may_go_on()
            crash_point("before-packed-removal")
            if in_order:
                for call in calls:
                    call()
            else:
                at_once(self.state, calls)
            crash_point("after-packed-removal")
            self.done.removed += len(calls)

    def _restore(self, pack: _Pack) -> None:
        """Write the copy of a pack that is missing or damaged."""
        self._write(pack, self.folder.restored(self.state, pack))
        self.done.restored += 1

    def _write(self, pack: _Pack, content: bytes) -> None:
        """Write the copies of a pack, each read back; one that is there and whole stays."""
        self.may_go_on()
        crash_point("before-pack")
        for key in self.folder.keys(pack):
            if not self.state.put_if_absent(key, content) and self.state.get(key) != content:
                self.state.put(key, content)
            if self.state.get(key) != content:
                raise CorruptedStateError(
                    f"{self.state.child_uri(key)} is not what was written there. Nothing was "
                    "removed. The store of the checkpoint location does not keep what it is given."
                )
            crash_point("after-pack-copy")


@dataclass(frozen=True, slots=True)
class Folder(PackedFolder[Pack]):
    """What a listing of numbered objects shows: each pack is there twice.

    Attributes:
        prefix: The folder.
        loose: The objects of numbers.
        packs: The copies that are there of each pack.
        is_log: Whether they are entries with checksums; notes are not.
    """

    prefix: str
    loose: Mapping[int, FileEntry]
    packs: Mapping[Pack, Mapping[str, FileEntry]]
    is_log: bool = True

    @classmethod
    def of(
        cls, prefix: str, entries: Iterable[FileEntry], *, width: int = 20, is_log: bool = True
    ) -> Folder:
        """Read a listing of the folder."""
        loose: dict[int, FileEntry] = {}
        packs: dict[Pack, dict[str, FileEntry]] = {}
        for entry in entries:
            name = entry.path.removeprefix(f"{prefix}/")
            found = parse_name(name)
            if found is not None:
                packs.setdefault(found[0], {})[found[1]] = entry
            elif name.isascii() and name.isdigit() and f"{int(name):0{width or 1}d}" == name:
                loose[int(name)] = entry
        return cls(prefix, loose, packs, is_log)

    def written_us(self, pack: Pack) -> int:
        """Return when the later copy of a pack was written."""
        return max(copy.modification_time_us for copy in self.packs[pack].values())

    def loose_of(self, pack: Pack) -> list[int]:
        """List the numbers of a pack that are objects as well, in order."""
        if len(pack) < len(self.loose):
            return [number for number in pack.numbers if number in self.loose]
        return sorted(number for number in self.loose if number in pack.numbers)

    def _smaller(self, pack: Pack) -> list[Pack]:
        """List the packs that hold a part of what a pack holds."""
        return sorted(other for other in self.packs if pack.has(other))

    def to_restore(self) -> Iterator[Pack]:
        """Give the packs of which a copy is missing."""
        return (pack for pack in widest(self.packs) if len(self.packs[pack]) < len(COPIES))

    def to_remove(self, before_us: int) -> Iterator[Pack]:
        """Give the packs with both copies that hold what is there beside them."""
        for pack in widest(self.packs):
            written_us = self.written_us(pack)
            if len(self.packs[pack]) < len(COPIES) or written_us > before_us:
                continue
            loose = (self.loose[number] for number in self.loose_of(pack))
            # A note that is newer than its pack may have been written again.
            has_loose = any(self.is_log or each.modification_time_us < written_us for each in loose)
            if has_loose or self._smaller(pack):
                yield pack

    def to_merge(self) -> Iterator[tuple[Pack, ...]]:
        """Give neighbors of one size."""
        group: list[Pack] = []
        for pack in widest(self.packs):
            is_next = bool(group) and pack.first == group[-1].last + 1
            if not (is_next and len(str(len(pack))) == len(str(len(group[-1])))):
                group = []
            group.append(pack)
            if len(group) == MERGED_PACKS:
                copies = (self.packs[each].values() for each in group)
                size = sum(max(copy.size for copy in each) for each in copies)
                if size <= MAX_BYTES and sum(map(len, group)) <= MAX_ENTRIES:
                    yield tuple(group)
                    group = []
                else:
                    group = group[1:]

    def to_create(self) -> Iterator[Pack]:
        """Give packs of consecutive numbers behind the last pack.

        One that is not full is made only where no object can join it.
        """
        last = max((pack.last for pack in self.packs), default=-1)
        group: list[int] = []
        size = 0
        for number in sorted(self.loose)[:-KEPT]:
            if number <= last:
                continue
            entry = self.loose[number]
            is_large = entry.size > MAX_ENTRY_BYTES
            is_apart = bool(group) and number != group[-1] + 1
            is_full = len(group) == PACK_ENTRIES or size + entry.size > MAX_BYTES
            if group and (is_large or is_apart or is_full):
                if len(group) > 1:
                    yield Pack(group[0], group[-1])
                group, size = [], 0
            if not is_large:
                group.append(number)
                size += entry.size
        if len(group) == PACK_ENTRIES:
            yield Pack(group[0], group[-1])

    def keys(self, pack: Pack) -> list[str]:
        """Name the copies of a pack."""
        return [f"{self.prefix}/{pack.key(copy)}" for copy in COPIES]

    def beside(self, pack: Pack) -> list[str]:
        """Name the objects and smaller packs that hold what a pack holds as well."""
        loose = [self.loose[number].path for number in self.loose_of(pack)]
        smaller = self._smaller(pack)
        return loose + [copy.path for each in smaller for copy in self.packs[each].values()]

    def packed(self, state: ObjectStore, pack: Pack) -> bytes:
        """Build the bytes of a pack of objects, and see that each is whole."""
        calls = [partial(self._object, state, number) for number in pack.numbers]
        return encode_pack(pack, at_once(state, calls))

    def merged(self, state: ObjectStore, packs: Sequence[Pack]) -> tuple[Pack, bytes]:
        """Build the bytes of a pack of packs."""
        parts = [self._objects(state, pack) for pack in packs]
        whole = Pack(packs[0].first, packs[-1].last)
        return whole, encode_pack(whole, list(itertools.chain.from_iterable(parts)))

    def restored(self, state: ObjectStore, pack: Pack) -> bytes:
        """Build the bytes of a pack from a whole copy, or from what is still there beside it."""
        try:
            return encode_pack(pack, self._objects(state, pack))
        except CorruptedStateError:
            held: dict[int, bytes] = {}
            for other in self._smaller(pack):
                held |= zip(other.numbers, self._objects(state, other), strict=True)
            held |= {number: self._object(state, number) for number in self.loose_of(pack)}
            if len(held) < len(pack):
                raise
        return encode_pack(pack, [held[number] for number in pack.numbers])

    def removable(self, state: ObjectStore, pack: Pack) -> list[str] | None:
        """Name what both copies of a pack hold, having read them again."""
        contents = [_copy(state, key, pack) for key in self.keys(pack)]
        if contents[0] is None or contents[0] != contents[1]:
            return None
        objects = dict(zip(pack.numbers, contents[0], strict=True))
        stay = {
            self.loose[number].path
            for number in self.loose_of(pack)
            if not self._may_go(state, pack, number, objects[number])
        }
        return [key for key in self.beside(pack) if key not in stay]

    def _may_go(self, state: ObjectStore, pack: Pack, number: int, packed: bytes) -> bool:
        """Tell whether an object can be removed: it is in its pack.

        A note may have been written again since. An entry never is: where it is another one than
        in the pack, a writer has left it that came too late for its number (`numbered_log`).
        """
        entry = self.loose[number]
        if self.is_log or entry.modification_time_us < self.written_us(pack):
            return True
        try:
            return state.get(entry.path) == packed
        except ObjectNotFoundError:
            return True

    def _object(self, state: ObjectStore, number: int) -> bytes:
        """Read an object, and see that it is whole."""
        key = self.loose[number].path
        content = state.get(key)
        if self.is_log:
            decode_entry(content, name=state.child_uri(key), format_version=1)
        return content

    def _objects(self, state: ObjectStore, pack: Pack) -> list[bytes]:
        objects = read_pack(state, self.prefix, pack)
        if objects is None:
            raise ObjectNotFoundError(state.child_uri(self.keys(pack)[0]))
        return objects


def _copy(state: ObjectStore, key: str, pack: Pack) -> list[bytes] | None:
    """Read what a copy of a pack holds; `None` where it is damaged or gone."""
    try:
        return decode_pack(state.get(key), pack, name=state.child_uri(key))
    except (ObjectNotFoundError, CorruptedStateError, IncompatibleStateError) as damage:
        _log.warning("A copy of a pack is written anew: %s", damage)
        return None
