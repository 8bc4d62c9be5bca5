"""Declare what a place that holds objects can do, and tell the time by its clock.

One protocol for landing folders and for state. An object has a key: its path relative to the
root, `/` between the parts. On a local disk no part is empty, `.` or `..`; bytes of a name there
that are not UTF-8 appear in keys as lone surrogates (Python's `surrogateescape`). To an object
store a key is any text. So every name there is can be used.

A store says when a file was modified by its own clock. Whoever compares that with another moment
needs the moment by the same clock, as finely as the store gives modification times.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NoReturn, Protocol, Self

from airflow_cloudfiles.engine.storage.uri import normalize_uri

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry


SkipRule = Callable[[str, bool], bool]
"""`skip(key, is_folder)`: true leaves a file, or a folder with all that is below it, unlisted."""


class ObjectNotFoundError(LookupError):
    """There is no object under the key."""


class ObjectChangedError(LookupError):
    """The object is another version than the one that was asked for."""


class LinkedObjectError(LookupError):
    """The object is a symbolic link: what it is a version of lies elsewhere."""


class UnsupportedRequestError(OSError):
    """A server says that it has no such request, or not with such a condition."""


class UnorderedListingError(OSError):
    """A store does not list its keys in order, or does not start a listing where it was asked to.

    It can still be listed whole: `list(ordered=False)`.
    """


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """By what two objects of one store can be compared without reading them.

    Attributes:
        entry: What `head` gives.
        checksums: Pairs of a kind of checksum and its value. Objects that share one have the same
            content. Objects that share none may have it nevertheless.
    """

    entry: FileEntry
    checksums: frozenset[tuple[str, str]] = frozenset()


class ObjectStore(Protocol):
    """A root under which objects are listed, read and written.

    A store may have further attributes. `key_order` gives what two keys are compared by, `None`
    where it has no order or does not report it; without it, keys are compared by their bytes.
    `is_order_promised` is false where a server may list in another order than it should.
    `is_tree` is true where a root is a folder that has to be there, read folder by folder in one
    go, as on a disk. `tells_time` is false where the server cannot be asked for its time.
    `move_version`, with the arguments of `copy_version`, moves where nothing can be copied.

    Whatever an implementation cannot do raises `OSError`; a call that raises may have happened
    (a lost answer), so callers that write read again before they decide.
    """

    @property
    def uri(self) -> str:
        """Canonical URI of the root, without a trailing slash."""

    def is_folder(self) -> bool:
        """Tell whether the root can be listed: for a local path, that it is a directory.

        Object stores have no folders: for them it is true wherever listing is allowed.
        """

    @property
    def requests(self) -> Counter[str]:
        """How many requests were made so far: `list`, `head`, `get`, `put`, `delete`.

        A page of a listing is one `list`; on a local disk, a folder that was read is. What a client
        repeats by itself, because a try failed, counts once.
        """

    def list(
        self,
        prefix: str = "",
        *,
        start_after: str = "",
        end_before: str = "",
        skip: SkipRule | None = None,
        ordered: bool = True,
    ) -> Iterator[FileEntry]:
        """List the objects below the root, in the order of the store.

        That is the byte order of the keys; Azure alone sorts characters beyond the Basic
        Multilingual Plane elsewhere. The listing is lazy. An object that is there from the first to
        the last step is listed exactly once; one that comes or goes meanwhile may or may not be.

        Args:
            prefix: Only keys that start with this text.
            start_after: Only keys that come after this one.
            end_before: Only keys that come before this one; empty for no end.
            skip: Leaves out files, and whole folders, without listing them.
            ordered: Whether the order matters. If not, there is no `start_after` or `end_before`, a
                store without an order can be listed too, and folders that `skip` leaves out cost
                their pages.

        Yields:
            The objects; their `path` is the key.

        Raises:
            UnorderedListingError: The order matters, and the store does not keep it.
            OSError: Something below the root cannot be listed. Nothing is skipped silently.
        """

    def key_after(self, after: str) -> str | None:
        """Give the first key after a text, with one request; `None` when there is none.

        The key may be one that a listing leaves out (a hidden file, the mark of a folder).
        """

    def head(self, key: str) -> FileEntry | None:
        """Inspect an object without reading it; `None` when there is none."""

    def clock_us(self) -> int:
        """Read the clock of modification times, as finely as they are given.

        In a cloud it is a request for a page of a listing.

        Returns:
            Microseconds since 1970.
        """

    def arrived_us(self, entry: FileEntry) -> int:
        """Give the time at which an object came to be under its key, as far as the store knows.

        In a cloud that is the modification time. On a disk a file keeps it when it is moved; there
        it is the time of the last change of its name, rights or content.

        Args:
            entry: From `list` or `head`.

        Returns:
            Microseconds since 1970, by the clock of `clock_us`.
        """

    def get(self, key: str) -> bytes:
        """Read an object.

        Raises:
            ObjectNotFoundError: There is no such object.
        """

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Read part of an object; shorter, or empty, where the object ends before.

        Args:
            key: Of an object.
            start: Its first byte to read.
            length: How many bytes.
            etag: Read this version or none: the same request asks for it. Local disks have no
                etags and pay no attention to it.

        Raises:
            ObjectNotFoundError: There is no such object.
            ObjectChangedError: It is another version than the one asked for.
        """

    def put(self, key: str, content: bytes) -> None:
        """Create or replace an object: readers see the old or the new one, never a mixture."""

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create an object unless there is one: of any number of callers, one creates it.

        When it returns, the object survives a power failure. A crash leaves the whole object or
        none.

        Returns:
            Whether this call created the object.
        """

    def put_if_match(self, key: str, content: bytes, etag: str) -> bool:
        """Replace an object if it still is the version that has an etag.

        Args:
            key: Of an object.
            content: Its new content.
            etag: From `head`. Local disks have no etags and refuse the call.

        Returns:
            Whether this call replaced it; false when it is another version, or gone.

        Raises:
            NotImplementedError: The store has no etags.
        """

    def delete(self, key: str) -> None:
        """Remove an object; nothing happens when there is none."""

    def delete_version(self, entry: FileEntry) -> None:
        """Remove an object if it still is a version; another version is never removed.

        Where the store has conditional deletions, one request compares and removes. On a local disk
        the file is first renamed to a hidden name beside it, which takes one version and no other;
        one that is not the version is put back. Killed in between, the next call for this file puts
        it back.

        Args:
            entry: From `head`, `fingerprint` or `list`. What counts is the etag, or size and
                modification time where the store has none.

        Raises:
            ObjectNotFoundError: There is no such object.
            ObjectChangedError: It is another version.
            LinkedObjectError: It is a symbolic link.
        """

    def copy_version(self, entry: FileEntry, to: ObjectStore, key: str) -> bool:
        """Copy a version of an object, within the store, unless there is an object already.

        On a local disk the copy is another name of the same file where the file system has hard
        links.

        Args:
            entry: As in `delete_version`.
            to: Another root of the same bucket, container or disk.
            key: Of the copy.

        Returns:
            Whether this call made the copy; false where there is an object under the key.

        Raises:
            ObjectNotFoundError: There is no such object to copy.
            ObjectChangedError: It is another version.
            LinkedObjectError: It is a symbolic link.
        """

    def fingerprint(self, key: str) -> Fingerprint | None:
        """Inspect an object and its checksums, with one request; `None` when there is none."""

    def child_uri(self, key: str) -> str:
        r"""Give the URI of an object, for people to read: not UTF-8 becomes `\xNN`."""

    def key_of(self, uri: str) -> str | None:
        """Give the key under which another location appears below this root.

        Returns:
            The key; `""` when it is the root itself; `None` when it is not below the root.
        """


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Which objects a listing is asked for: the arguments of `ObjectStore.list`."""

    prefix: str = ""
    start_after: str = ""
    end_before: str = ""
    skip: SkipRule | None = None


class RequestCounter:
    """Counts requests, from several threads; a copy in another process starts at nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def __reduce__(self) -> tuple[type[RequestCounter], tuple[()]]:
        return RequestCounter, ()

    def add(self, kind: str) -> None:
        """Count one request."""
        with self._lock:
            self._counts[kind] += 1

    def so_far(self) -> Counter[str]:
        """Give the counts; they do not change any more."""
        with self._lock:
            return self._counts.copy()


class ListedStore(ABC):
    """What the stores of this package have in common.

    Args:
        uri: Of the root.
    """

    def __init__(self, uri: str) -> None:
        self.uri = normalize_uri(uri)
        self._requests = RequestCounter()

    @property
    def requests(self) -> Counter[str]:
        """How many requests were made so far; see `ObjectStore`."""
        return self._requests.so_far()

    def list(
        self,
        prefix: str = "",
        *,
        start_after: str = "",
        end_before: str = "",
        skip: SkipRule | None = None,
        ordered: bool = True,
    ) -> Iterator[FileEntry]:
        """List the objects below the root; see `ObjectStore`."""
        return self._listing(ListRequest(prefix, start_after, end_before, skip), ordered=ordered)

    @abstractmethod
    def _listing(self, wanted: ListRequest, *, ordered: bool) -> Iterator[FileEntry]:
        """Begin to list; nothing is read before the first object is asked for."""


def is_tree(store: ObjectStore) -> bool:
    """Tell whether a store is a tree of folders, whose root has to be there."""
    return bool(getattr(store, "is_tree", False))


def check_range(start: int, length: int) -> None:
    """Refuse a part of an object that begins or extends before it."""
    if start < 0 or length < 0:
        msg = f"The range has the start {start} and the length {length}; neither may be negative."
        raise ValueError(msg)


def check_key(key: str) -> str:
    """Refuse keys that do not name one object on a disk below the root."""
    parts = key.split("/")
    if "\0" in key or any(part in {"", ".", ".."} for part in parts):
        msg = f"{key!r} is not a key: no part of it may be empty, . or .., or hold a zero byte."
        raise ValueError(msg)
    return key


def is_version(found: FileEntry, entry: FileEntry) -> bool:
    """Tell whether an object is a version, as far as its store knows."""
    if entry.etag:
        return (found.size, found.etag) == (entry.size, entry.etag)
    return (found.size, found.modification_time_us) == (entry.size, entry.modification_time_us)


def key_bytes(key: str) -> bytes:
    """Encode a key; the order of the result is the order of listings."""
    return key.encode("utf-8", "surrogateescape")


def key_text(name: bytes) -> str:
    """Decode what `key_bytes` encodes, and any file name."""
    return name.decode("utf-8", "surrogateescape")


def refuse_version(store: ObjectStore, key: str) -> NoReturn:
    """Raise why the version that was asked for cannot be read.

    Raises:
        ObjectNotFoundError: There is no such object.
        ObjectChangedError: There is another version.
    """
    if store.head(key) is None:
        raise ObjectNotFoundError(store.child_uri(key))
    raise ObjectChangedError(store.child_uri(key))


def read_nothing(store: ObjectStore, key: str, etag: str | None) -> bytes:
    """Read no byte of an object, for which clouds have no request; it must be there.

    Raises:
        ObjectNotFoundError: There is no such object.
        ObjectChangedError: It is another version than the one asked for.
    """
    found = store.head(key)
    if found is None:
        raise ObjectNotFoundError(store.child_uri(key))
    if etag is not None and found.etag != etag:
        raise ObjectChangedError(store.child_uri(key))
    return b""


SKEW_SECONDS = 300
"""How far this machine's clock is taken to be ahead of a store that does not report the time."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was seen, for whoever asks how long ago that was.

    Of the clocks of this machine, each may miss some time: the one that counts from its start does
    not count the sleep of some systems, the other one may be set back.

    Attributes:
        wall: Seconds since 1970.
        running: Seconds since the machine was started.
    """

    wall: float
    running: float

    @classmethod
    def now(cls) -> Self:
        """Return this moment."""
        clock = getattr(time, "CLOCK_BOOTTIME", None)  # counts sleep; Linux has it
        return cls(time.time(), time.monotonic() if clock is None else time.clock_gettime(clock))

    def seconds_ago(self) -> float:
        """Compute how long ago it was, by the clock that says more."""
        now = self.now()
        return max(now.wall - self.wall, now.running - self.running)


def now_us() -> int:
    """Read this machine's clock, in microseconds since 1970."""
    return time.time_ns() // 1000


def disk_now_us() -> int:
    """Read the clock by which a disk of this machine notes changes, in microseconds since 1970.

    Linux notes the time of its last tick, up to ten milliseconds ago.
    """
    coarse = getattr(time, "CLOCK_REALTIME_COARSE", None)
    return now_us() if coarse is None else time.clock_gettime_ns(coarse) // 1000


def http_now_us(date: str | None, store: str) -> int:
    """Read the clock of a server, in microseconds since 1970: a whole second.

    Args:
        date: The header `Date` of an answer it gave just now; `None` when there was none.
        store: What to call it in the log.

    Returns:
        Its time; without a date that can be read, this machine's, `SKEW_SECONDS` earlier.
    """
    try:
        return int(parsedate_to_datetime(date or "").timestamp()) * 1_000_000
    except ValueError:
        _log.warning(
            "%s does not report the time (its answer has the date %r). Its clock is assumed to be "
            "%d seconds behind the one of this machine.",
            store,
            date,
            SKEW_SECONDS,
        )
        return now_us() - SKEW_SECONDS * 1_000_000
