"""What does an entry of an event log hold?

One line an event: `["created","path",size,time in microseconds,"etag","sequencer"]`, in ASCII. The
path is below the source of the log. The etag is the generation on Google Cloud; the sequencer is
what the service orders the events of one name by.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.events.base import EventKind
    from airflow_cloudfiles.engine.discovery.events.candidates import AnnouncedFile

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
        """What a log holds of a file that a message announced."""
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
