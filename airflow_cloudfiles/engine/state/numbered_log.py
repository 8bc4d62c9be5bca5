"""Write something down so that it happened exactly once.

A numbered log: immutable entries `<prefix>/<n>`, each created with put-if-absent. Whoever creates
number `n` wins; the others read it and try `n + 1`. The answer to a put can be lost, and a client's
own retry is then refused because of its own object; so every writing carries an
id, and after anything but a plain yes the entry is read back and the id decides.

Old entries may be in packs instead of objects of their own (`packs`); readers find them there. So a
number whose object is gone was given out nevertheless: a writer that has not met the end of the log
for long asks whether a pack goes as far, after it has created an entry. If so, it was left behind.
Its entry is nobody's, and the number another one's.
"""

from __future__ import annotations

import functools
import logging
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.state.packs import (
    Pack,
    Packs,
    beyond_repair,
    decode_entry,
    encode_entry,
    parse_header,
    split_entry,
)
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.base import Moment
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.uri import refuse_source_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


FENCE = "fence-"
"""How the name of a mark begins that an entry with that number ends the log, for those who have
opened it before (`FileLog`)."""
_FENCE = re.compile(FENCE + "[0-9]{20}")
_HEADER_BYTES = 65536
MET_SECONDS = 3600.0
"""So long after it has met the end of the log, a writer takes the next number without asking. Much
less than the time for which a packed entry stays (`compaction.GRACE_SECONDS`)."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a numbered log.

    Attributes:
        number: Its number, from 0.
        header: What its writer put on the header line, with `id` and `created`.
        body: The rest.
    """

    number: int
    header: Mapping[str, Any]
    body: bytes

    @property
    def id(self) -> str:
        """The id of the writing: no two writings have the same."""
        return str(self.header["id"])


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _reaching(
    call: Callable[Concatenate[NumberedLog, _P], _T],
) -> Callable[Concatenate[NumberedLog, _P], _T]:
    """Let a method raise a `StateError` for what its store raises."""

    @functools.wraps(call)
    def reaching(log: NumberedLog, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with reaching_state(log._store):  # noqa: SLF001 - a method of it
            return call(log, *args, **kwargs)

    return reaching


class NumberedLog:
    """An append-only log of numbered entries in a store.

    Args:
        store: Where it lives.
        prefix: Folder of the entries.
        format_version: The version written, and the newest that is understood.
        width: Numbers are padded with zeros to this width; 0 for plain numbers.
        has_all: Whether every entry from 0 to the newest must be there, which `latest` sees to.
        is_packed: Whether old entries may be in packs.

    Attributes:
        written: The entry that this object appended last, if its store has said so at once.
        fences: The numbers of the marks (`FENCE`) that listings of this object have shown.
        known_latest: The newest number that `latest` or `append` has met; -1 for none.
    """

    def __init__(  # noqa: PLR0913 - what tells logs apart
        self,
        store: ObjectStore,
        prefix: str,
        *,
        format_version: int = 1,
        width: int = 20,
        has_all: bool = False,
        is_packed: bool = False,
    ) -> None:
        refuse_source_only(store.uri)
        self._store = store
        self._prefix = prefix
        self._format_version = format_version
        self._width = width
        self._has_all = has_all
        self._packs = Packs(store, prefix) if is_packed else None
        self.known_latest = -1
        self._met: Moment | None = None
        self.written: LogEntry | None = None
        self.fences: set[int] = set()

    @_reaching
    def append(self, number: int, header: Mapping[str, Any], body: bytes = b"") -> bool:
        """Create entry `number`, unless it is there.

        Args:
            number: One more than `latest()`.
            header: JSON values; `id`, `created` and `crc32` are added.
            body: Any bytes.

        Returns:
            Whether the entry is this writing. False: another writer has the number.

        Raises:
            StateError: What the store raised, when the entry is not there afterwards. Nothing is
                known to have happened; reading the log again shows it.
        """
        writing = uuid.uuid4().hex
        stamp = {"id": writing, "created": datetime.now(UTC).isoformat(timespec="microseconds")}
        header = {**stamp, **header}
        content = encode_entry(header, body, format_version=self._format_version)
        before = Moment.now()
        try:
            created = self._store.put_if_absent(self._key(number), content)
        except Exception:
            if not self._exists(number):
                raise
            created = False
        if not created:
            self._sync_names()
        # An object that is gone was packed meanwhile.
        won = created or (self.find_recent(number) or self.read(number)).id == writing
        if self._was_left_behind(number, won=won):
            return False
        self.written = LogEntry(number, header, body) if created else None
        self.known_latest = max(self.known_latest, number)
        self._met = before
        return won

    def _was_left_behind(self, number: int, *, won: bool) -> bool:
        """Tell whether a number was given out long ago, and its entry packed.

        Asked when the entry has been created. An object of a packed entry was removed before that,
        and the pack was there before it was removed.
        """
        is_sure = self._met is not None and self._met.seconds_ago() < MET_SECONDS
        if self._packs is None or not self._has_all or is_sure:
            return False
        if not self._packs.goes_to(number):
            return False
        if won:
            self._store.delete(self._key(number))
        _log.warning("%s was packed long ago; the log is read again", self.name(number))
        self.written, self.known_latest = None, -1
        return True

    @_reaching
    def read(self, number: int) -> LogEntry:
        """Read an entry.

        Raises:
            CorruptedStateError: It is missing, damaged, or not an entry.
            IncompatibleStateError: A newer version of this package wrote it.
        """
        found = self.find(number) or self._found_in_new_packs(number)
        if found is None:
            raise self._missing(number)
        return found

    def find(self, number: int) -> LogEntry | None:
        """Read an entry, with one request if it is an object; `None` when it is not there.

        It is read out of its pack, if that was met, or its object, or else a pack.

        Raises:
            CorruptedStateError: It is damaged, or not an entry.
            IncompatibleStateError: A newer version of this package wrote it.
        """
        if self._packs is None:
            return self.find_recent(number)
        if not self._packs.has(number):
            found = self.find_recent(number)
            if found is not None:
                return found
            content = self._packs.read(number)
            return None if content is None else self._entry(number, content)
        try:
            content = self._packs.read(number)
        except CorruptedStateError:
            found = self.find_recent(number)
            if found is None:
                raise
            return found
        return self.find_recent(number) if content is None else self._entry(number, content)

    def find_recent(self, number: int) -> LogEntry | None:
        """Read an entry that is among the newest, with one request; `None` when it is not there.

        An older one is found only if it was not packed.
        """
        try:
            return self._entry(number, self._store.get(self._key(number)))
        except ObjectNotFoundError:
            return None

    def _entry(self, number: int, content: bytes) -> LogEntry:
        name, version = self.name(number), self._format_version
        return LogEntry(number, *decode_entry(content, name=name, format_version=version))

    def _found_in_new_packs(self, number: int) -> LogEntry | None:
        """Look once more for an entry that must be there: it may have been packed just now."""
        if self._packs is None:
            return None
        self._packs.refresh()
        return self.find(number)

    @_reaching
    def header(self, number: int) -> Mapping[str, Any]:
        """Read only the header of an entry; the checksum is not checked.

        Raises:
            CorruptedStateError: The entry is missing or has no header.
            IncompatibleStateError: A newer version of this package wrote it.
        """
        header = self.peek(number)
        return header.header if isinstance(header, LogEntry) else header

    def peek(self, number: int) -> LogEntry | Mapping[str, Any]:
        """Read what one small request gives of an entry: all of it, or the header of a large one.

        Raises:
            CorruptedStateError: The entry is missing or damaged, or has no header. The checksum of
                a large one is not checked.
            IncompatibleStateError: A newer version of this package wrote it.
        """
        if self._packs is not None and self._packs.has(number):
            return self.read(number)
        try:
            start = self._store.get_range(self._key(number), 0, _HEADER_BYTES)
        except ObjectNotFoundError as failure:
            found = None if self._packs is None else self._found_in_new_packs(number)
            if found is None:
                raise self._missing(number) from failure
            return found
        if len(start) < _HEADER_BYTES:
            return self._entry(number, start)
        name = self.name(number)
        line, _ = split_entry(start, name=name, format_version=self._format_version)
        return parse_header(line, name=name)

    @_reaching
    def latest(self) -> int:
        """Give the number of the newest entry; -1 when the log is empty.

        The first call lists the log. Later calls only ask for the numbers that would follow,
        for entries are added at the end and nowhere else; after a long time, they list it again.

        Raises:
            CorruptedStateError: An entry before the newest is gone.
        """
        before = self.known_latest
        if self.known_latest < 0 or self._is_long_ago():
            self._met = getattr(self._store, "fetched_at", None) or Moment.now()
            numbers, packed = self._list()
            if self._has_all:
                self._refuse_gaps(numbers, packed)
            self.known_latest = max([packed.last, *numbers[-1:]])
        else:
            met = Moment.now()
            while self._exists(self.known_latest + 1):
                self.known_latest += 1
            self._met = met
        if self.known_latest > before:
            self._sync_names()
        return self.known_latest

    def begin_behind(self, number: int) -> None:
        """Take an entry for the newest: the caller has just seen that it is, in a listing."""
        self.known_latest = max(self.known_latest, number)
        self._met = Moment.now()

    @property
    def unpacked(self) -> int:
        """How many entries are in no pack that was met."""
        packs = () if self._packs is None else self._packs.known
        return self.known_latest + 1 - sum(map(len, packs))

    def known(self) -> int:
        """Return the newest number that this object has met; ask only if it has met none."""
        return self.known_latest if self.known_latest >= 0 else self.latest()

    @_reaching
    def numbers(self, after: int = -1) -> list[int]:
        """List the numbers of the entries after a number, in order; other files are no entries."""
        numbers, packed = self._list(after)
        return sorted({*numbers, *(number for number in packed if number > after)})

    @_reaching
    def newest(self) -> int:
        """List the log, and give the number of the newest entry; -1 when it is empty."""
        numbers, packed = self._list()
        return max([packed.last, *numbers[-1:]])

    def _list(self, after: int = -1) -> tuple[list[int], _PackedNumbers]:
        """Give the numbers that are objects, and what is in packs."""
        prefix = self._prefix + "/"
        from_name = self._key(after) if self._width and after >= 0 else ""
        names = [
            entry.path.removeprefix(prefix)
            for entry in self._store.list(prefix, start_after=from_name)
        ]
        if self._packs is not None:
            self._packs.meet(names)
        self.fences |= {int(name[len(FENCE) :]) for name in names if _FENCE.fullmatch(name)}
        found = (int(name) for name in names if self._is_number(name))
        numbers = sorted(number for number in found if number > after)
        return numbers, _PackedNumbers(() if self._packs is None else self._packs.known)

    def meet_packs(self) -> None:
        """Learn which entries are in packs, before many old ones are read."""
        if self._packs is not None:
            self._packs.refresh()

    def name(self, number: int) -> str:
        """Give the URI of an entry, for messages."""
        return self._store.child_uri(self._key(number))

    def _key(self, number: int) -> str:
        return f"{self._prefix}/{number:0{self._width or 1}d}"

    def _sync_names(self) -> None:
        """Make durable what others have appended, before anything is built on it.

        On a disk, whoever created an entry may have been killed before its name was synced.
        """
        if isinstance(self._store, LocalStore):
            self._store.sync_folder(self._prefix)

    def _is_number(self, name: str) -> bool:
        digits = name.isascii() and name.isdigit()
        return digits and f"{int(name):0{self._width or 1}d}" == name

    def _exists(self, number: int) -> bool:
        return self._store.head(self._key(number)) is not None

    def _is_long_ago(self) -> bool:
        """Tell whether entries behind those that this object has met may be packed by now."""
        return self._packs is not None and (
            self._met is None or self._met.seconds_ago() > MET_SECONDS
        )

    def _refuse_gaps(self, numbers: Sequence[int], packed: _PackedNumbers) -> None:
        """Refuse a log of which an entry is gone.

        A listing that went on while entries were added may lack one that is there, and have one
        that came later; so each is asked for.
        """
        for number in packed.lacks(numbers):
            if not self._exists(number) and self._found_in_new_packs(number) is None:
                raise self._missing(number)

    def _missing(self, number: int) -> CorruptedStateError:
        return beyond_repair(
            f"{self.name(number)} is missing, though other entries or the stream's own checkpoint "
            "refer to it.",
            anew=True,
        )


class _PackedNumbers:
    """The numbers in some packs, as ranges."""

    def __init__(self, packs: Iterable[Pack]) -> None:
        self._packs = list(packs)

    def __iter__(self) -> Iterator[int]:
        for pack in self._packs:
            yield from pack.numbers

    @property
    def last(self) -> int:
        """The newest one; -1 for none."""
        return max((pack.last for pack in self._packs), default=-1)

    def lacks(self, numbers: Sequence[int]) -> Iterator[int]:
        """Give what is missing up to the newest number, beside others that are there."""
        if not self._packs and len(numbers) == max(numbers, default=-1) + 1:
            return
        parts = [range(number, number + 1) for number in numbers]
        parts += [pack.numbers for pack in self._packs]
        behind = 0
        for part in sorted(parts, key=lambda each: each.start):
            yield from range(behind, part.start)
            behind = max(behind, part.stop)
