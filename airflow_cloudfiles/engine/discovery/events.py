"""Read what a message announces, and which files below the source that may be.

A message is untrusted input: whoever may send to the queue wrote it. Reading one never raises. It
ends in one of three ways: files (`FileEvent`), something known that is not about a new file
(`IgnoredMessage`), or something that is not understood (`Poison`), which is left in the queue: an
event of a kind that is not known may announce a file.

Everything is bounded and checked before use: the size of a body, its nesting, types, numbers, times
and keys. What is recorded from it is a name and a size; content is never believed, it is read.

An event names a place in a bucket. It is a candidate when that place, rewritten by
`cloudFiles.pathRewrites`, is below the source. A queue may carry the events of a whole bucket, so
others are no mistake.

Whoever may send to a queue can announce what never existed, and a message may be older than the
deletion of its file. So the store is asked for each file before it is recorded, as a listing does;
one that is not there is counted and named. (A mounted bucket may show a file late: then the message
is left in the queue.)
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.storage.base import ObjectStore, check_key
from airflow_cloudfiles.engine.storage.outage import absence
from airflow_cloudfiles.engine.storage.uri import normalize_uri
from airflow_cloudfiles.engine.storage.vendors import VENDORS

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.filters import CompletionMarker
    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions

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
EventKind = Literal["created", "renamed", "deleted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEvent:
    """A message announces a new file, or a new folder full of them; or that they are gone.

    Attributes:
        location: URI of the file, as the event names it.
        spellings: Other ways to write the location, for `cloudFiles.pathRewrites`.
        size: In bytes; `None` when the event has none.
        time_us: Modification time, or that of the event.
        etag: The version; empty when the event has none.
        kind: Whether the file was written, came from another name, or is gone.
        sequencer: Orders the events of one name, as the service compares it; empty for none.
        former: URI of what was renamed, which is gone; empty where that is not known.
        is_folder: Whether a whole folder appeared (it was renamed), or is gone.
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
    former: str = ""
    is_folder: bool = False
    doubtful: bool = False
    incomplete: bool = False


@dataclass(frozen=True, slots=True)
class IgnoredMessage:
    """A message that is understood and is not about a new file; it is deleted.

    Attributes:
        reason: A few words, the same for each message of a kind: it is counted by them.
        gone: The files of which it says that they are gone.
    """

    reason: str
    gone: tuple[FileEvent, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Poison:
    """A message that is not understood, or a part of it is not; it stays in the queue.

    Attributes:
        reason: What is wrong with it.
        events: The files that the rest of it announces.
    """

    reason: str
    events: tuple[FileEvent, ...] = ()


Parsed = list[FileEvent] | IgnoredMessage | Poison


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


def folded(parts: Iterable[Part], read: Callable[[Part], FileEvent | IgnoredMessage]) -> Parsed:
    """Read each event of a message; one that is not understood hides no other.

    Args:
        parts: The events.
        read: Reads one of them, and raises as the functions here do.
    """
    found: list[FileEvent] = []
    gone: list[FileEvent] = []
    ignored: list[IgnoredMessage] = []
    reasons: list[str] = []
    for part in parts:
        try:
            result = read(part)
        except NOT_UNDERSTOOD as failure:
            reasons.append(str(failure))
            continue
        if isinstance(result, IgnoredMessage):
            ignored.append(result)
            gone += result.gone
        else:
            found.append(result)
    if reasons:
        return Poison(reasons[0], (*found, *gone))
    if found:
        return [*found, *gone]
    return replace(ignored[0], gone=tuple(gone)) if ignored else IgnoredMessage("no event in it")


def removed(reason: str, read: Callable[[], FileEvent]) -> IgnoredMessage:
    """Build what an event comes to that says that a file is gone.

    One whose name cannot be read is left to the next full listing.

    Args:
        reason: As in `IgnoredMessage`.
        read: Reads the event as if the file had been written.
    """
    try:
        return IgnoredMessage(reason, (replace(read(), kind="deleted"),))
    except NOT_UNDERSTOOD:
        return IgnoredMessage(reason)


def known_kind(name: str, known: Collection[str]) -> IgnoredMessage:
    """Take an event for one that announces no file, if it is of a kind that is known for that.

    Raises:
        NotUnderstoodError: It is of another kind, which may announce a file.
    """
    if name in known:
        return IgnoredMessage(name)
    raise NotUnderstoodError(f"an event of an unknown kind: {name[:_SAMPLE_CHARACTERS]!r}")


def sample(body: bytes) -> str:
    """Show the beginning of a body, safe to print: untrusted text does not control a terminal."""
    text = body[: 4 * _SAMPLE_CHARACTERS].decode("utf-8", "replace")
    shown = "".join(char if char in _PRINTABLE else "." for char in text[:_SAMPLE_CHARACTERS])
    return shown + "..." * (len(text) > _SAMPLE_CHARACTERS)


_CLOUDS = tuple(f"{each.scheme}://" for each in VENDORS if each.queue)
NO_FILE = "no such file"
NAMED = 5
"""Files that are not there, of which a report has the names."""


class WantedFiles(Protocol):
    """Which files are wanted."""

    @property
    def marker(self) -> CompletionMarker | None:
        """What says that a file is whole, if that is asked for."""

    def accepts(self, entry: FileEntry) -> bool:
        """Tell whether a file is input."""


class AnnouncedFile(NamedTuple):
    """A wanted file, and the event that announced it, or the folder it is in."""

    event: FileEvent
    file: FileEntry


class Candidates:
    """Turns events into files of a source.

    Args:
        source: The source.
        filter: Which of its files are wanted.
        options: `path_rewrites` and `identity`.
        looks: Whether the store is asked for each file. If not, it is where the event does not
            suffice: a rename has no size, some servers send no etag; another version is recognized
            by the values of the store; a mounted bucket has its own.

    Attributes:
        source_name: URI of the source.
        outside: How many events were of places that are not below the source.
        rejected: How many files were not wanted.
        ignored: How many events were of no file after all, by reason.
        missing: URIs of files that were announced and are not there, of some at most.
        late: Events of files that are not there, where that may be because a mount lags behind.
        gone: Files of which events say that they are gone; folders with a slash at their end.
    """

    def __init__(
        self,
        source: ObjectStore,
        filter: WantedFiles,  # noqa: A002 - what it is
        options: DiscoveryOptions,
        *,
        looks: bool = True,
    ) -> None:
        self._source = source
        self._filter = filter
        self.source_name = source.uri
        self._root = source.uri.rstrip("/") + "/"
        self._in_cloud = source.uri.startswith(_CLOUDS)
        self._looks = looks
        self._believes = self._in_cloud and not options.sees_overwrites
        # Who does not look for files keeps what is announced for others.
        self._sees_gone = options.deletes or not looks
        self._rewrites = sorted(
            ((old.rstrip("/"), normalize_uri(new)) for old, new in options.path_rewrites),
            key=lambda each: len(each[0]),
            reverse=True,
        )
        self.outside = 0
        self.rejected = 0
        self.ignored: Counter[str] = Counter()
        self.missing: list[str] = []
        self.late: list[FileEvent] = []
        self.gone: list[str] = []

    def found(self, events: Sequence[FileEvent], pool: Executor) -> Iterator[AnnouncedFile]:
        """Give the wanted files that events announce; lazy, as a folder may hold millions.

        Args:
            events: In any order; a file may occur more than once.
            pool: Inspects several files at once.

        Raises:
            OSError: The store did not answer.
        """
        placed: list[tuple[str, FileEvent]] = []
        gone = self.ignored[NO_FILE]
        for event in self._there(events):
            location = self._rewritten(event)
            if event.is_folder:
                yield from self._wanted((event, file) for file in self._in_folder(location))
                continue
            key = self._key(location)
            if key is None:
                self.outside += 1
            elif key.endswith("/") and event.size == 0:
                self.ignored["mark of a folder"] += 1
            elif self._filter.marker is not None and self._filter.marker.is_marker(key):
                marked = self._marked(key, self._filter.marker)
                yield from self._wanted((event, file) for file in marked)
            else:
                placed.append((key, event))
        entries = pool.map(self._entry, placed)
        inspected = zip((event for _, event in placed), entries, strict=True)
        yield from self._wanted(inspected, may_be_late=not self._in_cloud)
        if self.ignored[NO_FILE] > gone and (why := absence(self._source)):
            raise ConnectionError(f"{why}.")

    def _there(self, events: Iterable[FileEvent]) -> Iterator[FileEvent]:
        """Pass on the events of what came, and remember what they say to be gone."""
        for event in events:
            if event.former:
                self._see_gone(replace(event, location=event.former, spellings=()))
            if event.kind == "deleted":
                self._see_gone(event)
            else:
                yield event

    def _see_gone(self, event: FileEvent) -> None:
        """Remember a place below the source where there may be nothing any more."""
        location = self._rewritten(event)
        key = self._key(location.rstrip("/") + "/" if event.is_folder else location)
        if key is None or not self._sees_gone:
            return
        if self._looks or self._filter.accepts(FileEntry(key, 0, event.time_us, "")):
            self.gone.append(key)

    def _marked(self, key: str, marker: CompletionMarker) -> Iterator[FileEntry | None]:
        """Give the files that a completion marker stands for, as the store has them."""
        if marker.is_of_folder:
            return self._source.list(key[: len(key) - len(marker.pattern)], ordered=False)
        return iter((self._source.head(marker.file_of(key)),))

    def _wanted(
        self, files: Iterable[tuple[FileEvent, FileEntry | None]], *, may_be_late: bool = False
    ) -> Iterator[AnnouncedFile]:
        for event, file in files:
            if file is None:
                self._miss(event)
                if may_be_late and not event.doubtful:
                    self.late.append(event)
            elif self._filter.accepts(file):
                yield AnnouncedFile(event, file)
            else:
                self.rejected += 1

    def _rewritten(self, event: FileEvent) -> str:
        """Replace the longest prefix that one of the rewrites names; a prefix ends with a name."""
        for old, new in self._rewrites:
            for spelling in (event.location, *event.spellings):
                if spelling == old or spelling.startswith(f"{old}/"):
                    return new + spelling[len(old) :]
        return event.location

    def _key(self, location: str) -> str | None:
        """Give the key below the source, or none. The text is compared: keys are opaque."""
        key = location.removeprefix(self._root)
        if not key or key == location:
            return None
        if not self._in_cloud:  # a mount: a key must not climb out of it
            try:
                check_key(key)
            except ValueError:
                return None
        return key

    def _in_folder(self, location: str) -> Iterator[FileEntry]:
        """List a folder that was renamed: the source, a part of it, or what the source is in."""
        folder = location.rstrip("/") + "/"
        if self._root.startswith(folder):
            return self._source.list()
        key = self._key(folder)
        if key is None:
            self.outside += 1
            return iter(())
        return self._source.list(key)

    def _miss(self, event: FileEvent) -> None:
        """Count and name a file that is announced and not there."""
        self.ignored[NO_FILE] += 1
        if len(self.missing) < NAMED:
            self.missing.append(printable_path(self._rewritten(event)))

    def _entry(self, placed: tuple[str, FileEvent]) -> FileEntry | None:
        key, event = placed
        etag = event.etag if self._in_cloud else ""
        announced = FileEntry(key, event.size or 0, event.time_us, etag)
        is_whole = event.size is not None and etag and not event.incomplete and not event.doubtful
        if self._believes and is_whole and not (self._looks and self._filter.accepts(announced)):
            return announced  # nobody records it, or whoever does looks at it
        found = self._source.head(key)
        return found if self._looks or event.doubtful else found or announced
