"""Pack old entries of the logs, and remove them when their time has come.

A pass over a folder does what is due, in this order. Each step can be killed and repeated, and
after each one every number is an object or in a pack that is whole.

1. A pack of which a copy is missing gets it from the other one.
2. Where both copies of a pack are there, for longer than `GRACE_SECONDS`, both are read again. If
   they are the same, what they hold is removed: objects, the oldest first, and smaller packs.
   A copy that is damaged is written anew instead, and the time begins again.
3. Ten neighbors of one size become one pack.
4. The objects of `PACK_ENTRIES` consecutive numbers become a pack, without the newest `KEPT`.

A pack is written copy by copy, each with put-if-absent, read back, and compared.

The caller has the locks of the state. Should it lose them, two passes at once still write the same
bytes under the same names, and remove only what both copies of a pack hold.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

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
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage import ObjectStore

KEPT = 100
"""The newest entries of a log are never packed: among them is what a run reads when it begins."""
PACK_ENTRIES = 100
"""How many entries a new pack holds."""
MERGED_PACKS = 10
"""So many packs of one size become one."""
MAX_ENTRIES = 10_000
"""The most entries of a pack."""
MAX_BYTES = 8 * 2**20
"""About the most bytes of a pack: who reads one of its entries reads all of it."""
MAX_ENTRY_BYTES = 2**20
"""A larger entry stays an object of its own."""
GRACE_SECONDS = 24 * 3600.0
"""What a pack holds stays for so long after the pack is there, for those who began before."""
_GONE_AT_ONCE = 100
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Folder:
    """What a listing of a log shows.

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

    def size(self, pack: Pack) -> int:
        """Return how many bytes a copy of a pack has."""
        return max(copy.size for copy in self.packs[pack].values())

    def written_us(self, pack: Pack) -> int:
        """Return when the later copy of a pack was written."""
        return max(copy.modification_time_us for copy in self.packs[pack].values())

    def beside(self, pack: Pack) -> list[int]:
        """List the numbers of a pack that are objects as well, in order."""
        if pack.count < len(self.loose):
            return [number for number in pack.numbers if number in self.loose]
        return sorted(number for number in self.loose if pack.first <= number <= pack.last)

    def held_beside(self, pack: Pack) -> int:
        """Count the objects that hold what a pack holds as well."""
        smaller = (copies for other, copies in self.packs.items() if pack.has(other))
        return len(self.beside(pack)) + sum(len(copies) for copies in smaller)


@dataclass(frozen=True, slots=True)
class Work:
    """What is due in a folder.

    Attributes:
        restore: Packs of which a copy is missing.
        remove: Packs that have been there for long enough, with what they hold beside them.
        merge: Packs to be made of others.
        create: Packs to be made of objects.
    """

    restore: tuple[Pack, ...] = ()
    remove: tuple[Pack, ...] = ()
    merge: tuple[tuple[Pack, ...], ...] = ()
    create: tuple[Pack, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.restore or self.remove or self.merge or self.create)


@dataclass(slots=True)
class Compacted:
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


def work_of(
    folder: Folder, now_us: int, *, least: int = PACK_ENTRIES, grace_seconds: float = GRACE_SECONDS
) -> Work:
    """Find out what is due; asks nobody.

    Args:
        folder: What is there.
        now_us: The time by the clock of the store, or an earlier one.
        least: Objects become packs when so many of them can.
        grace_seconds: See `GRACE_SECONDS`.
    """
    whole = widest(folder.packs)
    restore = tuple(pack for pack in whole if len(folder.packs[pack]) < len(COPIES))
    grace_us = int(grace_seconds * 1_000_000)
    remove = tuple(
        pack
        for pack in whole
        if pack not in restore
        and now_us - folder.written_us(pack) >= grace_us
        and (_has_removable(folder, pack) or any(pack.has(other) for other in folder.packs))
    )
    create = tuple(_new_packs(folder, whole))
    if sum(pack.count for pack in create) < least:
        create = ()
    return Work(restore, remove, tuple(_merges(folder, whole)), create)


def _has_removable(folder: Folder, pack: Pack) -> bool:
    """Tell whether there are objects that a pack holds; of notes, those older than it."""
    written_us = folder.written_us(pack)
    return any(
        folder.is_log or folder.loose[number].modification_time_us < written_us
        for number in folder.beside(pack)
    )


def _new_packs(folder: Folder, whole: Sequence[Pack]) -> Iterator[Pack]:
    """Packs of the objects behind the last pack, without the newest ones.

    They are of consecutive numbers. One that is not full is made only where no object can join it.
    """
    last = max((pack.last for pack in whole), default=-1)
    numbers = [number for number in sorted(folder.loose)[:-KEPT] if number > last]
    group: list[int] = []
    size = 0
    for number in numbers:
        entry = folder.loose[number]
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


def _merges(folder: Folder, whole: Sequence[Pack]) -> Iterator[tuple[Pack, ...]]:
    """Neighbors of one size that can be one pack."""
    group: list[Pack] = []
    for pack in whole:
        is_next = bool(group) and pack.first == group[-1].last + 1
        if not (is_next and len(str(pack.count)) == len(str(group[-1].count))):
            group = []
        group.append(pack)
        if len(group) == MERGED_PACKS:
            is_small = sum(folder.size(each) for each in group) <= MAX_BYTES
            if is_small and sum(each.count for each in group) <= MAX_ENTRIES:
                yield tuple(group)
                group = []
            else:
                group = group[1:]


@dataclass(eq=False)
class Compaction:
    """Carries out what is due in one folder.

    Attributes:
        state: The checkpoint location.
        folder: What is there.
        may_go_on: Raises when the caller has lost its locks.
        done: What was done; is added to.
    """

    state: ObjectStore
    folder: Folder
    may_go_on: Callable[[], None] = lambda: None
    done: Compacted = field(default_factory=Compacted)

    def run(self, work: Work, *, most: int | None = None) -> None:
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
            self._remove(pack)
        for packs in work.merge[:most]:
            self._merge(packs)
        for pack in work.create[:most]:
            self._create(pack)

    def _create(self, pack: Pack) -> None:
        """Copy objects into a pack."""
        self.may_go_on()
        keys = [self.folder.loose[number].path for number in pack.numbers]
        objects = at_once(self.state, [partial(self._object, key) for key in keys])
        self._write(pack, objects)
        self.done.packed += pack.count

    def _object(self, key: str) -> bytes:
        """Read an object, and see that it is whole."""
        content = self.state.get(key)
        if self.folder.is_log:
            name = self.state.child_uri(key)
            decode_entry(content, name=name, format_version=1)
        return content

    def _merge(self, packs: Sequence[Pack]) -> None:
        """Copy packs into a larger one."""
        self.may_go_on()
        parts = [self._objects(pack) for pack in packs]
        objects = list(itertools.chain.from_iterable(parts))
        self._write(Pack(packs[0].first, packs[-1].last), objects)
        self.done.merged += len(packs)

    def _objects(self, pack: Pack) -> list[bytes]:
        objects = read_pack(self.state, self.folder.prefix, pack)
        if objects is None:
            raise ObjectNotFoundError(self.state.child_uri(self._key(pack, COPIES[0])))
        return objects

    def _restore(self, pack: Pack) -> None:
        """Write the copy of a pack that is missing or damaged."""
        self.may_go_on()
        try:
            objects = self._objects(pack)
        except CorruptedStateError:
            found = self._beside(pack)
            if found is None:
                raise
            objects = found
        self._write(pack, objects)
        self.done.restored += 1

    def _beside(self, pack: Pack) -> list[bytes] | None:
        """Read what a pack holds from the smaller packs and objects that are still there."""
        held: dict[int, bytes] = {}
        for other in (each for each in self.folder.packs if pack.has(each)):
            held |= zip(other.numbers, self._objects(other), strict=True)
        for number in self.folder.beside(pack):
            held[number] = self._object(self.folder.loose[number].path)
        is_all = len(held) == pack.count
        return [held[number] for number in pack.numbers] if is_all else None

    def _write(self, pack: Pack, objects: Sequence[bytes]) -> None:
        """Write both copies of a pack, each read back; one that is there and whole stays."""
        content = encode_pack(pack, objects)
        crash_point("before-pack")
        for copy in COPIES:
            key = self._key(pack, copy)
            if not self.state.put_if_absent(key, content) and self.state.get(key) != content:
                self.state.put(key, content)
            if self.state.get(key) != content:
                raise CorruptedStateError(
                    f"{self.state.child_uri(key)} is not what was written there. Nothing was "
                    "removed. The store of the checkpoint location does not keep what it is given."
                )
            crash_point("after-pack-copy")

    def _remove(self, pack: Pack) -> None:
        """Remove what both copies of a pack hold, having read them again."""
        contents = [self._copy(pack, copy) for copy in COPIES]
        if contents[0] is None or contents[0] != contents[1]:
            self._restore(pack)
            return
        objects = decode_pack(contents[0], pack, name=self._key(pack, COPIES[0]))
        beside = self.folder.beside(pack)
        held = [number for number in beside if self._may_go(pack, number, objects)]
        keys = [self.folder.loose[number].path for number in held]
        smaller = (other for other in self.folder.packs if pack.has(other))
        keys += [self._key(other, copy) for other in sorted(smaller) for copy in COPIES]
        for start in range(0, len(keys), _GONE_AT_ONCE):
            some = keys[start : start + _GONE_AT_ONCE]
            self.may_go_on()
            crash_point("before-packed-removal")
            at_once(self.state, [partial(self.state.delete, key) for key in some])
            crash_point("after-packed-removal")
            self.done.removed += len(some)

    def _copy(self, pack: Pack, copy: str) -> bytes | None:
        """Read a copy of a pack; `None` where it is damaged or gone."""
        key = self._key(pack, copy)
        try:
            content = self.state.get(key)
            decode_pack(content, pack, name=self.state.child_uri(key))
        except (ObjectNotFoundError, CorruptedStateError, IncompatibleStateError) as damage:
            _log.warning("A copy of a pack is written anew: %s", damage)
            return None
        return content

    def _may_go(self, pack: Pack, number: int, objects: Sequence[bytes]) -> bool:
        """Tell whether an object can be removed: it is in its pack.

        A note may have been written again since. An entry never is: where it is another one than
        in the pack, a writer has left it that came too late for its number (`numbered_log`).
        """
        entry = self.folder.loose[number]
        is_older = entry.modification_time_us < self.folder.written_us(pack)
        if self.folder.is_log or is_older:
            return True
        try:
            return self.state.get(entry.path) == objects[number - pack.first]
        except ObjectNotFoundError:
            return True

    def _key(self, pack: Pack, copy: str) -> str:
        return f"{self.folder.prefix}/{pack.key(copy)}"
