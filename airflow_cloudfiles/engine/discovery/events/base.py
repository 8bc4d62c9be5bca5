"""What does a message announce?

A message is untrusted input: whoever may send to the queue wrote it. Reading one never raises. It
ends in one of three ways: files (`FileEvent`), something known that is not about a new file
(`Ignored`), or something that is not understood (`Poison`), which is left in the queue: an event of
a kind that is not known may announce a file.

Everything is bounded and checked before use: the size of a body, its nesting, types, numbers, times
and keys. What is recorded from it is a name and a size; content is never believed, it is read.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeVar

import msgspec

MAX_BODY_BYTES = 1 << 20
MAX_KEY = 1024
"""Bytes that S3 and Cloud Storage allow, and characters that Azure does. A longer one would be
refused by the store in each run, and hold up the stream."""
MAX_SIZE = 1 << 53

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PRINTABLE = frozenset(string.digits + string.ascii_letters + string.punctuation + " ")
_SAMPLE_CHARACTERS = 200
_MAX_SEQUENCER = 128

Struct = TypeVar("Struct")
Part = TypeVar("Part")
EventKind = Literal["created", "renamed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEvent:
    """A message announces a new file, or a new folder full of them.

    Attributes:
        location: URI of the file, as the event names it.
        spellings: Other ways to write the location, for `cloudFiles.pathRewrites`.
        size: In bytes; `None` when the event has none.
        time_us: Modification time, or that of the event.
        etag: The version; empty when the event has none.
        kind: Whether the file was written, or came from another name.
        sequencer: Orders the events of one name, as the service compares it; empty for none.
        is_folder: Whether a whole folder appeared (it was renamed).
        doubtful: Whether the name may be damaged, so that the store must be asked.
        incomplete: Whether the size can be that of an unfinished file, so that the store is asked.
    """

    location: str
    spellings: tuple[str, ...] = ()
    size: int | None
    time_us: int
    etag: str = ""
    kind: EventKind = "created"
    sequencer: str = ""
    is_folder: bool = False
    doubtful: bool = False
    incomplete: bool = False


@dataclass(frozen=True, slots=True)
class Ignored:
    """A message that is understood and is not about a new file; it is deleted.

    Attributes:
        reason: A few words, the same for each message of a kind: it is counted by them.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Poison:
    """A message that is not understood, or a part of it is not; it stays in the queue.

    Attributes:
        reason: What is wrong with it.
        events: The files that the rest of it announces.
    """

    reason: str
    events: tuple[FileEvent, ...] = ()


Parsed = list[FileEvent] | Ignored | Poison


class NotUnderstoodError(ValueError):
    """Part of a message is not what it should be; becomes a `Poison`."""


NOT_UNDERSTOOD = (msgspec.MsgspecError, NotUnderstoodError, UnicodeError)
"""What reading a part of a message raises."""


def guarded(parse: Callable[[bytes], Parsed], body: bytes) -> Parsed:
    """Parse a body; whatever is wrong with it makes it `Poison`."""
    if len(body) > MAX_BODY_BYTES:
        return Poison(f"{len(body)} bytes; notifications have less than {MAX_BODY_BYTES}")
    try:
        return parse(body)
    except NOT_UNDERSTOOD as failure:
        return Poison(str(failure))
    except RecursionError:
        return Poison("too deeply nested")


def fields_of(kind: type[Struct], body: bytes | msgspec.Raw) -> Struct:
    """Decode JSON into a struct; fields it does not name are skipped."""
    return msgspec.json.decode(body, type=kind)


def checked_key(key: str, *, is_azure: bool = False) -> str:
    """Refuse what is no key of an object."""
    size = len(key.encode("utf-8"))  # also refuses what is no text
    if not key or "\0" in key or (len(key) if is_azure else size) > MAX_KEY:
        raise NotUnderstoodError(f"not a key of an object: {key[:_SAMPLE_CHARACTERS]!r}")
    return key


def checked_name(name: str, what: str) -> str:
    """Refuse what is no name of a bucket, container or account."""
    if not name or not name.isprintable() or set("/@?#% ") & set(name):
        raise NotUnderstoodError(f"not the name of {what}: {name[:_SAMPLE_CHARACTERS]!r}")
    return name


def checked_size(size: int | None) -> int | None:
    """Refuse sizes that no object has."""
    if size is not None and not 0 <= size <= MAX_SIZE:
        raise NotUnderstoodError(f"not the size of an object: {size}")
    return size


def time_us(text: str) -> int:
    """Read an ISO 8601 time as microseconds since 1970; UTC where no zone is given."""
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return (time - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise NotUnderstoodError(f"not a time: {text[:_SAMPLE_CHARACTERS]!r}") from None


def unquoted(etag: str | None) -> str:
    """Take the quotes off an etag."""
    return (etag or "").strip('"')


def checked_sequencer(text: str | None) -> str:
    """Refuse what no service orders events by."""
    found = text or ""
    if len(found) > _MAX_SEQUENCER or not (found.isascii() and found.isprintable()):
        raise NotUnderstoodError(f"not a sequencer: {found[:_SAMPLE_CHARACTERS]!r}")
    return found


def folded(parts: Iterable[Part], read: Callable[[Part], FileEvent | Ignored]) -> Parsed:
    """Read each event of a message; one that is not understood hides no other.

    Args:
        parts: The events.
        read: Reads one of them, and raises as the functions here do.
    """
    found: list[FileEvent] = []
    ignored: list[Ignored] = []
    reasons: list[str] = []
    for part in parts:
        try:
            result = read(part)
        except NOT_UNDERSTOOD as failure:
            reasons.append(str(failure))
            continue
        if isinstance(result, Ignored):
            ignored.append(result)
        else:
            found.append(result)
    if reasons:
        return Poison(reasons[0], tuple(found))
    return found or (ignored[0] if ignored else Ignored("no event in it"))


def known_kind(name: str, known: Collection[str]) -> Ignored:
    """Take an event for one that announces no file, if it is of a kind that is known for that.

    Raises:
        NotUnderstoodError: It is of another kind, which may announce a file.
    """
    if name in known:
        return Ignored(name)
    raise NotUnderstoodError(f"an event of an unknown kind: {name[:_SAMPLE_CHARACTERS]!r}")


def sample(body: bytes) -> str:
    """Show the beginning of a body, safe to print: untrusted text does not control a terminal."""
    text = body[: 4 * _SAMPLE_CHARACTERS].decode("utf-8", "replace")
    shown = "".join(char if char in _PRINTABLE else "." for char in text[:_SAMPLE_CHARACTERS])
    return shown + "..." * (len(text) > _SAMPLE_CHARACTERS)
