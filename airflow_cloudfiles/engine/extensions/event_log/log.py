"""Keep the events of a bucket in the order in which they were received.

A numbered log below `events/`, with the entries and packs of the logs of a state, but for two
things: the oldest entries go after a time, and a reader knows its place. So a reader asks one
question, a listing from its place on, and learns what is there, whether its place is gone, and when
the queue was drained last: the object `events/collected` is written after each draining.

The newest entries are never packed and never dropped. So the newest number is always an object, and
numbers are never given out twice. Whoever drains the queue, and holds the lease for it, drops and
packs old entries whenever the log has another hundred.

An event is appended after its file came. So the events of all files since a time are in the entries
that were appended since then, if none of these was dropped, the log was there already, and the
queue was drained before it could drop a message.

An entry has a line for each event: `["created","path",size,time in
microseconds,"etag","sequencer"]`, in ASCII. The path is below the source of the log. The etag is
the generation on Google Cloud; the sequencer is what the service orders the events of one name by.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import CorruptedStateError, OptionError
from airflow_cloudfiles.engine.extensions.event_log.description import KEY as DESCRIPTION
from airflow_cloudfiles.engine.extensions.event_log.description import (
    EventLogDescription,
    read_description,
    renew_log,
)
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.state.compaction import (
    KEPT,
    PACK_ENTRIES,
    Compaction,
    Folder,
    work_of,
)
from airflow_cloudfiles.engine.state.numbered_log import MET_SECONDS, NumberedLog
from airflow_cloudfiles.engine.state.packs import FOLDER, parse_name, widest
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.storage.base import SKEW_SECONDS, Moment
from airflow_cloudfiles.engine.storage.outage import reaching_state, read_if_there
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.events import AnnouncedFile, EventKind
    from airflow_cloudfiles.engine.storage.access import Access

_KINDS = frozenset({"created", "renamed", "deleted"})
_lines = msgspec.json.Decoder(tuple[str, str, int, int, str, str])


class LoggedEvent(NamedTuple):
    """A file was written, came from another name, or is gone.

    Attributes:
        kind: Which of these.
        path: Of the file, below the source of the log; of a folder that is gone, with a slash at
            its end.
        size: In bytes.
        time_us: Its modification time, or that of the event, in microseconds since 1970.
        etag: Its version; the generation on Google Cloud.
        sequencer: Orders the events of one path; empty for none.
    """

    kind: EventKind
    path: str
    size: int
    time_us: int
    etag: str
    sequencer: str

    @classmethod
    def of(cls, found: AnnouncedFile) -> LoggedEvent:
        """Build what a log holds of a file that a message announced."""
        event, file = found
        sequencer = "" if event.is_folder else event.sequencer
        times = (file.size, file.modification_time_us, file.etag)
        return cls(event.kind, file.path, *times, sequencer)

    @classmethod
    def of_gone(cls, path: str) -> LoggedEvent:
        """Build what a log holds of a file or a folder that is gone."""
        return cls("deleted", path, 0, time.time_ns() // 1000, "", "")


def encode_events(events: Sequence[LoggedEvent]) -> bytes:
    """Build the body of an entry."""
    quote = json.encoder.encode_basestring_ascii
    lines = [
        f'["{each.kind}",{quote(each.path)},{each.size},{each.time_us},{quote(each.etag)},'
        f"{quote(each.sequencer)}]\n"
        for each in events
    ]
    return "".join(lines).encode("ascii")


def decode_events(body: bytes, *, below: str = "") -> Iterator[LoggedEvent]:
    """Read what `encode_events` wrote, line by line.

    Args:
        body: Of an entry.
        below: Only the events whose path begins so.

    Raises:
        ValueError: A line is no event.
    """
    for line in body.splitlines():
        kind, path, size, time_us, etag, sequencer = _lines.decode(line)
        if kind not in _KINDS:
            msg = f"not a kind of event: {kind[:50]!r}"
            raise ValueError(msg)
        if path.startswith(below):
            yield LoggedEvent(kind, path, size, time_us, etag, sequencer)  # type: ignore[arg-type]


def distinct(events: Sequence[LoggedEvent]) -> list[LoggedEvent]:
    """Leave out what was delivered twice within a batch (B93)."""
    return list(dict.fromkeys(events))


PREFIX = "events"
COLLECTED = f"{PREFIX}/collected"
"""A mark, written after each draining: its time says when that was. It comes behind all numbers in
a listing, and before the packs."""
FORMAT_VERSION = 1
MARK_VERSION = 1
_NUMBER = re.compile(r"[0-9]{20}", re.ASCII)
_log = logging.getLogger(__name__)


class EventsGoneError(LookupError):
    """A place in an event log is older than what the log keeps; a listing finds the files."""


@dataclass(frozen=True, slots=True)
class LogView:
    """What a listing of a log shows, from a place on.

    Attributes:
        start: The place.
        first: The first entry from there on that is there; `end` where there is none.
        end: The number behind the newest entry.
        collected_us: When the queue was drained last, by the clock of the store, in microseconds
            since 1970; 0 for never.
    """

    start: int
    first: int
    end: int
    collected_us: int

    @property
    def is_gone(self) -> bool:
        """Whether entries from the place on are not kept any more."""
        return self.first > self.start


class EventLog:
    """The events of a bucket; any number of processes may read and append.

    Args:
        store: Where the log lives.
        description: What it is of.
    """

    def __init__(self, store: ObjectStore, description: EventLogDescription) -> None:
        self.store = store
        self.description = description
        self._log = NumberedLog(store, PREFIX, format_version=FORMAT_VERSION, is_packed=True)
        self._met: Moment | None = None

    @classmethod
    def open(cls, location: str, access: Access | None = None) -> EventLog:
        """Open the log at a location.

        Raises:
            OptionError: There is none.
            StateError: It cannot be read.
        """
        store = open_store(location, access)
        found = read_description(store)
        if found is None:
            raise OptionError(
                f"There is no event log in {printable_path(store.uri)}. Correct "
                "cloudFiles.fileEventsLocation, or make one with `cloudfiles notifications set-up "
                "--events-location`."
            )
        return cls(store, found)

    def renew(self) -> None:
        """Note that events may be missing: the log gets another id (`renew_log`)."""
        self.description = renew_log(self.store, self.description)

    def look(self, start: int) -> LogView:
        """List the log from a place on; one request where the reader is not far behind.

        Raises:
            StateError: It cannot be listed.
        """
        with reaching_state(self.store):
            return self._look(start)

    def _look(self, start: int) -> LogView:
        first, end, collected_us, packs = None, start, 0, []
        after = f"{PREFIX}/{start - 1:020}" if start > 0 else ""
        for entry in self.store.list(f"{PREFIX}/", start_after=after):
            name = entry.path.removeprefix(f"{PREFIX}/")
            if _NUMBER.fullmatch(name):
                number = int(name)
                first, end = number if first is None else first, number + 1
            elif entry.path == COLLECTED:
                collected_us = entry.modification_time_us
            elif name.startswith(f"{FOLDER}/"):
                if first is None or first == start:
                    break  # packs hold nothing from here on that is not an object
                found = parse_name(name)
                packs += [] if found is None else [found[0]]
        for pack in widest(packs):
            if first is not None and pack.last >= start:
                first = min(first, max(pack.first, start))
        return LogView(start, end if first is None else first, end, collected_us)

    def end(self) -> int:
        """Give the number behind the newest entry; lists no more than it must."""
        return self.look(self.hint()).end

    def hint(self) -> int:
        """Give an entry that was the newest a while ago; 0 where nobody knows."""
        content = read_if_there(self.store, COLLECTED)
        if content is None:
            return 0
        try:
            value = unseal(content)
        except ValueError as damage:
            _log.warning("%s is damaged: %s", self.store.child_uri(COLLECTED), damage)
            return 0
        end = value.get("end")
        return end - 1 if value.get(FIELD) == MARK_VERSION and type(end) is int and end > 0 else 0

    def append(self, events: Sequence[LoggedEvent]) -> int:
        """Append events; when it returns, they are durable.

        Returns:
            The number of their entry.

        Raises:
            StateError: They may not be in the log; appending them again does no harm.
        """
        header = {"events": len(events), "bytes": sum(each.size for each in events)}
        body = encode_events(events)
        while True:
            met = self._meet_end()
            number = self._log.known_latest + 1
            crash_point("before-event-log-append")
            won = self._log.append(number, header, body)
            if won and met.seconds_ago() < MET_SECONDS:
                crash_point("after-event-log-append")
                self._met = Moment.now()
                return number
            if won:  # suspended in between: the number may be one that was dropped since
                self._met = None

    def _meet_end(self) -> Moment:
        """Know the newest entry, not too long ago: who was away for long would reuse a number."""
        if self._met is None or self._met.seconds_ago() > MET_SECONDS / 2:
            met = Moment.now()
            self._log.begin_behind(self.end() - 1)
            self._met = met
        return self._met

    def mark_collected(self) -> None:
        """Note that the queue was drained just now, and how far the log goes.

        Raises:
            StateError: It cannot be written.
        """
        self._meet_end()
        with reaching_state(self.store):
            end = self._log.known_latest + 1
            self.store.put(COLLECTED, seal({FIELD: MARK_VERSION, "end": end}))

    def read(self, number: int, *, below: str = "") -> Iterator[LoggedEvent]:
        """Read the events of an entry, in the order in which they were received.

        Args:
            number: Of an entry.
            below: Only those whose path begins so.

        Raises:
            EventsGoneError: The entry is not kept any more.
            CorruptedStateError: It is damaged.
            IncompatibleStateError: A newer version of this package wrote it.
        """
        with reaching_state(self.store):
            entry = self._log.find(number)
            if entry is None:
                self._log.meet_packs()
                entry = self._log.find(number)
        if entry is None:
            raise EventsGoneError(self._log.name(number))
        try:
            yield from decode_events(entry.body, below=below)
        except (ValueError, msgspec.MsgspecError) as failure:
            raise CorruptedStateError(
                f"{self._log.name(number)} cannot be read: {failure}. Remove the event log's "
                f"{COLLECTED.partition('/')[0]} folder and event-log.json, and set the log up "
                f"again: each of its streams lists its source once then."
            ) from failure


MOST_PACKS = 20
"""How many packs are made, and cleared, at a time: as many as a busy hour fills."""


def is_due(before: int, after: int) -> bool:
    """Tell whether a log that grew from one number to another has another hundred entries."""
    return before // PACK_ENTRIES != after // PACK_ENTRIES


def tidy(log: EventLog, may_go_on: Callable[[], None] = lambda: None) -> int:
    """Drop what is too old or too much, the oldest first, and pack what is old.

    Killed anywhere, it leaves a log that is whole and has no gap, and the next call goes on. A pack
    is as old as its writing, so events are kept a little longer than asked for, never shorter.

    Args:
        log: The log; the caller has the lease for its queue.
        may_go_on: Raises when the caller has lost the lease.

    Returns:
        How many entries were dropped.

    Raises:
        StateError: The store fails.
    """
    with reaching_state(log.store):
        folder = Folder.of(PREFIX, log.store.list(f"{PREFIX}/"))
        now_us = log.store.clock_us()
        end = _kept_from(folder, log.description, now_us)
        packs = [pack for pack in folder.packs if pack.last < end]
        numbers = [number for number in folder.loose if number < end]
        keys = [(pack.last, copy.path) for pack in packs for copy in folder.packs[pack].values()]
        keys += [(number, folder.loose[number].path) for number in numbers]
        left = Folder(
            PREFIX,
            {number: each for number, each in folder.loose.items() if number >= end},
            {pack: copies for pack, copies in folder.packs.items() if pack.last >= end},
        )
        compaction = Compaction(log.store, left, may_go_on)
        compaction.remove([key for _, key in sorted(keys)], in_order=True)
        dropped = len({*numbers, *(number for pack in packs for number in pack.numbers)})
        if dropped:
            _log.info("%s: %d entries of events are not kept any more", log.store.uri, dropped)
        work = replace(work_of(left, now_us), merge=())  # a merged pack would count as young
        compaction.run(work, most=MOST_PACKS)
    return dropped


def _kept_from(folder: Folder, kept: EventLogDescription, now_us: int) -> int:
    """Find the first number that is kept: a pack is kept with all its numbers, or not at all."""
    parts = parts_of(folder)
    oldest_us = now_us - int(kept.keep_seconds * 1_000_000)
    too_much = sum(size for _, _, size in parts) - kept.keep_bytes
    newest, end = sorted(folder.loose)[-KEPT:], 0
    for last, written_us, size in parts:
        is_too_much = written_us < oldest_us or too_much > 0
        if not is_too_much or not newest or last >= newest[0]:
            break
        end, too_much = last + 1, too_much - size
    return end


def parts_of(folder: Folder) -> list[tuple[int, int, int]]:
    """Packs, and entries that are in none, the oldest first: last number, time, bytes.

    The time of a pack is that of its writing, when its entries had long been appended. The bytes
    are those that go with it: of its copies, and of the objects that it holds.
    """
    held = {pack: folder.loose_of(pack) for pack in widest(folder.packs)}
    in_packs = {number for numbers in held.values() for number in numbers}
    parts = [
        (number, entry.modification_time_us, entry.size)
        for number, entry in folder.loose.items()
        if number not in in_packs
    ]
    for pack, numbers in held.items():
        entries = [*folder.packs[pack].values(), *(folder.loose[number] for number in numbers)]
        parts.append((pack.last, folder.written_us(pack), sum(each.size for each in entries)))
    return sorted(parts)


UNDRAINED_SECONDS = 4 * 86400
"""How long a queue keeps messages that nobody receives, at least: SQS by default."""
_UNDRAINED_US = UNDRAINED_SECONDS * 1_000_000
_SKEW_US = SKEW_SECONDS * 1_000_000


@dataclass(frozen=True, slots=True)
class LogReach:
    """How far back an event log goes; times are microseconds since 1970.

    The clock of the log's store may be another one than that of the bucket: both answers leave a
    few minutes for that.

    Attributes:
        since_us: Every file that came since then is in the log.
        first: The oldest entry that is kept.
        appended: Numbers of entries, each with a time by which it had been appended.
    """

    since_us: int
    first: int
    appended: tuple[tuple[int, int], ...]

    def start(self, since_us: int) -> int:
        """Give the entry to read from: none before it has a file that came since a time.

        Args:
            since_us: The time; not before `Reach.since_us`.
        """
        before = (number for number, time_us in self.appended if time_us < since_us - _SKEW_US)
        return max(before, default=self.first - 1) + 1


def reach_of(log: EventLog) -> LogReach:
    """List a log whose queue was drained just now.

    Raises:
        StateError: It cannot be listed.
    """
    with reaching_state(log.store):
        described = log.store.head(DESCRIPTION)
        folder = Folder.of(PREFIX, log.store.list(f"{PREFIX}/"))
        now_us = log.store.clock_us()
    appended = tuple((last, time_us) for last, time_us, _ in parts_of(folder))
    first = min((*folder.loose, *(pack.first for pack in folder.packs)), default=0)
    since_us = now_us if described is None else described.modification_time_us
    if first > 0:  # what was dropped had been appended before what is kept
        since_us = max(since_us, min(time_us for _, time_us in appended))
    drained = sorted(time_us for _, time_us in appended if time_us > since_us)
    pauses = pairwise((since_us, *drained, now_us))
    since_us = max((end for start, end in pauses if end - start > _UNDRAINED_US), default=since_us)
    return LogReach(since_us + _SKEW_US, first, appended)
