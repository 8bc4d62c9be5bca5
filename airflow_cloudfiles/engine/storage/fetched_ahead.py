"""How does opening a state cost few round trips?

What a run reads of its state when it opens it is known before: some objects, some folders, and the
newest object of each. So all of that is requested at once, and the code that opens the state, piece
by piece, finds the answers here:

- an object that is created once, as often as it is asked for, until this process writes it;
- an object that others may replace, and a listing, once. Who asks again wants to know what has
  changed.

Numbered logs are listed once and then asked for their next number, and a number that another
process took meanwhile is refused by put-if-absent, so an answer that is a moment old is harmless.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_cloudfiles.engine import storage
from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from airflow_cloudfiles.engine.storage.uri import normalize_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage.base import ObjectStore

_First = TypeVar("_First")
_Second = TypeVar("_Second")
SMALL_BYTES = 65536
"""The newest object of a folder is fetched if it is smaller."""
_AT_ONCE = 16
"""Requests in flight where there are many to make."""


class FetchedAhead:
    """A store that has answers to some requests already; every other one goes to the store.

    Args:
        store: The store.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._objects: dict[str, bytes | None] = {}
        self._folders: dict[str, list[FileEntry]] = {}
        self._once: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked of an object that is just being made
            raise AttributeError(name)
        return getattr(self._store, name)

    def __reduce__(self) -> Any:
        """Another process gets the store as it is."""
        return _itself, (self._store,)

    def fetch(self, keys: Sequence[str], folders: Sequence[str], once: Sequence[str] = ()) -> None:
        """Ask for objects and folders at once; what fails is asked for again when it is needed."""
        self._once |= set(once)
        keys = (*keys, *once)
        at_once = len(keys) + len(folders)
        with ThreadPoolExecutor(at_once, thread_name_prefix="cloudfiles-state") as pool:
            asked = [pool.submit(self._fetch, key) for key in keys]
            asked += [pool.submit(self._list, folder) for folder in folders]
            for each in asked:
                with contextlib.suppress(OSError):
                    each.result()

    def forget(self) -> None:
        """Answer nothing any more."""
        self._objects.clear()
        self._folders.clear()

    def get(self, key: str) -> bytes:
        """Read an object, or what was fetched of it."""
        if key not in self._objects:
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
        self._changed(key)
        self._store.put(key, content)

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create an object, and forget that there was none."""
        self._changed(key)
        return self._store.put_if_absent(key, content)

    def put_if_match(self, key: str, content: bytes, etag: str) -> bool:
        """Replace an object, and forget what was fetched of it."""
        self._changed(key)
        return self._store.put_if_match(key, content, etag)

    def delete(self, key: str) -> None:
        """Remove an object, and forget what was fetched of it."""
        self._changed(key)
        self._store.delete(key)

    def _changed(self, key: str) -> None:
        self._objects.pop(key, None)
        for folder in [each for each in self._folders if key.startswith(each)]:
            del self._folders[folder]

    def _fetch(self, key: str) -> None:
        try:
            self._objects[key] = self._store.get(key)
        except ObjectNotFoundError:
            self._objects[key] = None

    def _list(self, folder: str) -> None:
        """List a folder; its last object is the newest of a log, which is wanted next."""
        found = list(self._store.list(folder))
        newest = found[-1] if found else None
        if newest is not None and newest.size < SMALL_BYTES and newest.path not in self._objects:
            self._fetch(newest.path)
        self._folders[folder] = found


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
    """Whether a request costs too little to make it before it is needed."""
    return isinstance(store, LocalStore | MemoryStore)


def all_at_once(
    store: ObjectStore, call: Callable[[_First], _Second], given: Sequence[_First]
) -> list[_Second]:
    """Make the same call for several values, at once where the store is far away."""
    if is_near(store) or len(given) < 2:  # noqa: PLR2004 - one after the other
        return [call(each) for each in given]
    with ThreadPoolExecutor(min(len(given), _AT_ONCE), "cloudfiles-state") as pool:
        return list(pool.map(call, given))


def _itself(store: ObjectStore) -> ObjectStore:
    return store


@contextlib.contextmanager
def fetched_ahead(
    uri: str, *, keys: Sequence[str], folders: Sequence[str], once: Sequence[str] = ()
) -> Iterator[Callable[[], None]]:
    """Fetch parts of a location that is in an object store; `open_store` gives them meanwhile.

    Args:
        uri: The location, as this process opens it.
        keys: Objects that nobody else changes meanwhile.
        once: Objects that somebody else may change.
        folders: Prefixes to list; of each, the last object is fetched too.

    Yields:
        What ends it before the end of the block.
    """
    canonical = normalize_uri(uri)
    store = storage.open_store(canonical)
    if isinstance(store, LocalStore | MemoryStore | FetchedAhead):
        yield lambda: None
        return
    ahead = FetchedAhead(store)
    ahead.fetch(keys, folders, once)
    storage.FETCHED[canonical] = ahead

    def end() -> None:
        ahead.forget()
        storage.FETCHED.pop(canonical, None)

    try:
        yield end
    finally:
        end()
