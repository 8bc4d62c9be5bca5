"""Open a state in few round trips.

What a run reads of its state when it opens it is known before: some objects, some folders, and the
newest object of each. So all of that is requested at once, and the code that opens the state, piece
by piece, finds the answers here:

- an object that is created once, as often as it is asked for, also one that this process creates;
- an object that others may replace, and a listing, once. Who asks again wants to know what has
  changed.

Numbered logs are listed once and then asked for their next number, and a number that another
process took meanwhile is refused by put-if-absent, so an answer that is a moment old is harmless.
That is why a later part of the same run may be given these answers, too (`seed`).

What is written and orders against nothing else is written aside: nobody waits for it before the
end (`aside`).
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from airflow_cloudfiles.engine import storage
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.base import Moment, ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.uri import normalize_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_First = TypeVar("_First")
_Second = TypeVar("_Second")
SMALL_BYTES = 65536
"""The newest object of a folder is fetched if it is smaller."""
_AT_ONCE = 16
"""Requests in flight where there are many to make."""
_ASIDE = 4
"""How many objects are written aside at once."""


class PrefetchedStore:
    """A store that has answers to some requests already; every other one goes to the store.

    Args:
        store: The store.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._objects: dict[str, bytes | None] = {}
        self._folders: dict[str, list[FileEntry]] = {}
        self._once: set[str] = set()
        self._etags: dict[str, str | None] = {}
        self._names: dict[str, list[str]] = {}
        self._marks: dict[str, bytes] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._aside: dict[str, Future[None]] = {}
        self._writing = threading.local()
        self._listed: dict[str, list[FileEntry]] = {}
        self.fetched_at: Moment | None = None
        """When the oldest answer was asked for that may be another one by now."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked of an object that is just being made
            raise AttributeError(name)
        return getattr(self._store, name)

    def __reduce__(self) -> Any:
        """Another process gets the store as it is."""
        return _itself, (self._store,)

    def fetch(
        self,
        keys: Sequence[str] = (),
        folders: Sequence[str] = (),
        once: Sequence[str] = (),
        *,
        versions: Sequence[str] = (),
    ) -> None:
        """Ask for objects and folders at once; what fails is asked for again when it is needed.

        Args:
            keys: Objects that are created once.
            folders: Prefixes to list.
            once: Objects that others may replace.
            versions: Objects of which the version is asked for, to be fetched by a later call
                (`put_if_unchanged`).
        """
        self._once |= set(once)
        self.fetched_at = self.fetched_at or Moment.now()
        calls = [partial(self._fetch, key) for key in (*keys, *once)]
        calls += [partial(self._list, folder) for folder in folders]
        calls += [partial(self._head, key) for key in versions]
        if not calls:
            return
        with ThreadPoolExecutor(len(calls), thread_name_prefix="cloudfiles-state") as pool:
            for each in [pool.submit(call) for call in calls]:
                with contextlib.suppress(OSError):
                    each.result()

    @contextlib.contextmanager
    def meanwhile(self, fetch: Callable[[], None]) -> Iterator[None]:
        """Fetch in another thread, which has ended at the end of the block."""
        with ThreadPoolExecutor(1, thread_name_prefix="cloudfiles-state") as pool:
            fetched = pool.submit(fetch)
            yield
            fetched.result()

    def newest(self, folders: Sequence[str]) -> list[str]:
        """Find the newest entry of each listed log, if it is small and not fetched yet."""
        logs = [
            [entry for entry in self._folders.get(each, ()) if "/" not in entry.path[len(each) :]]
            for each in folders
        ]
        # Numbers are padded with zeros, or not at all.
        last = [max(log, key=lambda entry: (len(entry.path), entry.path)) for log in logs if log]
        return [e.path for e in last if e.size < SMALL_BYTES and e.path not in self._objects]

    def names(self, folder: str) -> list[str]:
        """List the objects of a folder that was listed."""
        return self._names.get(folder, [])

    def listed(self, folder: str) -> Sequence[FileEntry]:
        """Return what the listing of a folder gave, with sizes and times."""
        return self._listed.get(folder, ())

    def cut_out(self, folder: str, parent: str) -> None:
        """Give a part of a listing for the listing of that part."""
        if parent in self._folders:
            within = [each for each in self._folders[parent] if each.path.startswith(folder)]
            self._folders[folder] = within

    def seed(self, other: PrefetchedStore, folders: Sequence[str]) -> None:
        """Take what another one has fetched and written, which need not be asked for again.

        Args:
            other: Of the same state.
            folders: Of numbered logs, which grow at their end and nowhere else.
        """
        self._objects |= other._created()
        for key in other._once & set(other._aside):  # which takes no longer than asking again
            other._wait_for(key)
        marks = dict(other._marks)
        self._objects |= marks
        self._once |= set(marks)
        for folder in folders:
            if folder in other._names:
                names = list(other._names[folder])
                self._names[folder] = names
                self._folders[folder] = [FileEntry(name, 0, 0) for name in names]
        self.fetched_at = other.fetched_at or Moment.now()

    def forget(self) -> None:
        """Answer nothing any more but objects that are there, which are created once."""
        self._objects = self._created()
        self._folders.clear()
        self.fetched_at = None

    def _created(self) -> dict[str, bytes | None]:
        """Objects that are there, and are created once."""
        return {
            key: content
            for key, content in dict(self._objects).items()
            if content is not None and key not in self._once
        }

    def put_aside(self, key: str, write: Callable[[], None]) -> None:
        """Begin to write an object, and go on; whoever asks for the object waits for that.

        Args:
            key: Of the object.
            write: Writes it with this store, and deals with what may fail.
        """
        self._wait_for(key)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_ASIDE, thread_name_prefix="cloudfiles-aside")
        self._aside[key] = self._pool.submit(self._write_aside, key, write)

    def end_aside(self) -> None:
        """Wait for what is being written aside."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
        written, self._aside = list(self._aside.values()), {}
        for each in written:
            each.result()

    def get(self, key: str) -> bytes:
        """Read an object, or what was fetched of it."""
        self._wait_for(key)
        if key not in self._objects:
            self._etags.pop(key, None)  # what is read now may be newer
            return self._store.get(key)
        found = self._objects.pop(key) if key in self._once else self._objects[key]
        if found is None:
            raise ObjectNotFoundError(self._store.child_uri(key))
        return found

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Read a part of an object, or of what was fetched of it."""
        found = self._objects.get(key)
        if found is None or etag is not None:
            return self._store.get_range(key, start, length, etag=etag)
        return found[start : start + length]

    def list(self, prefix: str = "", **given: Any) -> Iterator[FileEntry]:
        """List a folder, or give the listing that was fetched, once."""
        found = self._folders.pop(prefix, None)
        if found is None or set(given) - {"start_after"}:
            return self._store.list(prefix, **given)
        after = given.get("start_after", "")
        return iter([entry for entry in found if entry.path > after])

    def put(self, key: str, content: bytes) -> None:
        """Write an object, and forget what was fetched of it."""
        self.forget_object(key)
        self._store.put(key, content)
        if key in self._once:
            self._marks[key] = content

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create an object; in a folder that was listed, it is known then."""
        self.forget_object(key)
        is_mine = self._store.put_if_absent(key, content)
        for folder, names in list(self._names.items()):
            if is_mine and key.startswith(folder):
                names.append(key)
                if len(content) < SMALL_BYTES:
                    self._objects[key] = content
        return is_mine

    def put_if_match(self, key: str, content: bytes, etag: str) -> bool:
        """Replace an object, and forget what was fetched of it."""
        self.forget_object(key)
        return self._store.put_if_match(key, content, etag)

    def put_if_unchanged(self, key: str, content: bytes) -> bool:
        """Replace an object, if it is still as it was fetched.

        Returns:
            Whether it was replaced. If not, it has changed, or its version was not asked for.
        """
        if key not in self._etags:
            return False
        etag = self._etags[key]
        self.forget_object(key)
        if etag is None:
            return self._store.put_if_absent(key, content)
        return self._store.put_if_match(key, content, etag)

    def delete(self, key: str) -> None:
        """Remove an object, and forget what was fetched of it."""
        self.forget_object(key)
        self._store.delete(key)

    def forget_object(self, key: str) -> None:
        """Answer nothing any more of an object, because it is known to have changed."""
        self._wait_for(key)
        self._objects.pop(key, None)
        self._etags.pop(key, None)
        self._marks.pop(key, None)
        for folder in list(self._folders):  # other threads may take some meanwhile
            if key.startswith(folder):
                self._folders.pop(folder, None)

    def _write_aside(self, key: str, write: Callable[[], None]) -> None:
        self._writing.key = key
        write()

    def _wait_for(self, key: str) -> None:
        """Wait until an object is written that is being written by another thread."""
        pending = self._aside.get(key)
        if pending is not None and getattr(self._writing, "key", None) != key:
            pending.result()

    def _fetch(self, key: str) -> None:
        try:
            self._objects[key] = found = self._store.get(key)
        except ObjectNotFoundError:
            self._objects[key] = None
            return
        if key in self._once:
            self._marks[key] = found

    def _head(self, key: str) -> None:
        """Ask for a version before the content: a content that is newer is then not replaced."""
        found = self._store.head(key)
        self._etags[key] = None if found is None else found.etag

    def _list(self, folder: str) -> None:
        self._folders[folder] = found = list(self._store.list(folder))
        self._names[folder] = [entry.path for entry in found]
        self._listed[folder] = found


def side_by_side(
    store: ObjectStore, first: Callable[[], _First], second: Callable[[], _Second]
) -> tuple[_First, _Second]:
    """Make two calls at once where the store is far away."""
    if is_near(store):
        return first(), second()
    with ThreadPoolExecutor(1, thread_name_prefix="cloudfiles-state") as pool:
        other = pool.submit(second)
        return first(), other.result()


def is_near(store: ObjectStore) -> bool:
    """Tell whether a request costs too little to make it before it is needed."""
    return isinstance(store, LocalStore) or store.uri.startswith("memory:")


def at_once(store: ObjectStore, calls: Sequence[Callable[[], _First]]) -> list[_First]:
    """Make calls at once, a few at a time, where the store is far away."""
    if is_near(store) or len(calls) < 2:  # noqa: PLR2004
        return [call() for call in calls]
    with ThreadPoolExecutor(
        min(_AT_ONCE, len(calls)), thread_name_prefix="cloudfiles-state"
    ) as pool:
        return [each.result() for each in [pool.submit(call) for call in calls]]


def aside(store: ObjectStore, key: str, write: Callable[[], None]) -> None:
    """Write an object; where the store is far away, without waiting for it.

    For what orders against nothing but itself and the end of the run.

    Args:
        store: The store.
        key: Of the object.
        write: Writes it, and deals with what may fail.
    """
    if isinstance(store, PrefetchedStore):
        store.put_aside(key, write)
    else:
        write()


@dataclass(frozen=True, slots=True)
class OpenedState:
    """A state as one run has it open, passed on to all that read it.

    Attributes:
        ahead: What was fetched of it; `None` where it is not far away.
    """

    ahead: PrefetchedStore | None = None

    @classmethod
    def at(cls, uri: str) -> OpenedState:
        """Open the state at a location; nothing is fetched yet."""
        store = storage.open_store(uri)
        return cls(None if is_near(store) else PrefetchedStore(store))

    def open(self, uri: str) -> ObjectStore:
        """Open a store (`open_store`); that of the state has the answers that were fetched."""
        if self.ahead is not None and normalize_uri(uri) == self.ahead.uri:
            return cast("ObjectStore", self.ahead)
        return storage.open_store(uri)

    def end_reads(self) -> None:
        """Give nothing old any more: from now on it would mislead."""
        if self.ahead is not None:
            self.ahead.forget()

    @contextlib.contextmanager
    def until_written(self) -> Iterator[OpenedState]:
        """Wait at the end of the block for what is written aside; nothing old is given then."""
        try:
            yield self
        finally:
            self.end_reads()
            if self.ahead is not None:
                self.ahead.end_aside()


def _itself(store: ObjectStore) -> ObjectStore:
    return store
