"""Keep the events of a bucket in the order in which they were received.

A numbered log below `events/`, with the entries and packs of the logs of a state, but for two
things: the oldest entries go after a time, and a reader knows its place. So a reader asks one
question, a listing from its place on, and learns what is there, whether its place is gone, and when
the queue was drained last: the object `events/collected` is written after each draining.

The newest entries are never packed and never dropped. So the newest number is always an object, and
numbers are never given out twice.

An entry has a line for each event: `["created","path",size,time in
microseconds,"etag","sequencer"]`, in ASCII. The path is below the source of the log. The etag is
the generation on Google Cloud; the sequencer is what the service orders the events of one name by.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import CorruptedStateError, OptionError
from airflow_cloudfiles.engine.extensions.event_log.description import (
    EventLogDescription,
    read_description,
    renew_log,
)
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.state.numbered_log import MET_SECONDS, NumberedLog
from airflow_cloudfiles.engine.state.packs import FOLDER, parse_name, widest
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.base import Moment
from airflow_cloudfiles.engine.storage.outage import reaching_state, read_if_there
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.events import AnnouncedFile, EventKind
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access

_KINDS = frozenset({"created", "renamed"})
_lines = msgspec.json.Decoder(tuple[str, str, int, int, str, str])


class LoggedEvent(NamedTuple):
    """A file was written, or came from another name.

    Attributes:
        kind: Which of the two.
        path: Of the file, below the source of the log.
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
class Look:
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

    def look(self, start: int) -> Look:
        """List the log from a place on; one request where the reader is not far behind.

        Raises:
            StateError: It cannot be listed.
        """
        with reaching_state(self.store):
            return self._look(start)

    def _look(self, start: int) -> Look:
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
        return Look(start, end if first is None else first, end, collected_us)

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
