"""Give all stores with a flat name space what they have in common.

`FlatStore` is an `ObjectStore` over keys and pages: it builds keys, lists, and translates between
keys and URIs. `CloudStore` adds what comes with a service behind a network: it counts requests,
repeats those whose answer breaks off, translates errors, and is pickled without credentials.
A leaf for a cloud holds the calls of its client and nothing else. The options
of `deltalake` that all clouds share are here, too.
"""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, NamedTuple

from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.storage.access import CONNECTIONS, version_of_file
from airflow_cloudfiles.engine.storage.base import (
    Fingerprint,
    ListedStore,
    ListRequest,
    ObjectChangedError,
    ObjectNotFoundError,
    ObjectStore,
    check_range,
    http_now_us,
    read_nothing,
    refuse_version,
)
from airflow_cloudfiles.engine.storage.flat import (
    UNKNOWN,
    UTF8,
    Fetch,
    ListedObject,
    Order,
    Page,
    first_key,
    is_utf8,
    key_below,
    list_flat,
)
from airflow_cloudfiles.engine.storage.outage import (
    BrokenOffError,
    Call,
    IncompleteError,
    broken_off,
)
from airflow_cloudfiles.engine.storage.uri import bucket_and_path

TRIES = 5
"""How often a request is made whose answer breaks off, which clients do not repeat themselves."""


class FlatStore(ListedStore):
    """An `ObjectStore` over keys and pages.

    Args:
        uri: Of the root.
        page_size: Objects on a page of a listing.

    Attributes:
        uri: Canonical URI of the root.
        page_size: The same.
    """

    _order: ClassVar[Order] = UTF8
    """In which order the store lists."""

    def __init__(self, uri: str, *, page_size: int) -> None:
        super().__init__(uri)
        self._bucket, path = bucket_and_path(self.uri)
        self._root = path + "/" if path else ""
        self.page_size = page_size

    def key_after(self, after: str) -> str | None:
        """Give the first key after a text."""
        return first_key(self._first_pages(), self._root, after, order=self._order)

    def arrived_us(self, entry: FileEntry) -> int:
        """Give the time at which an object was written."""
        return entry.modification_time_us

    def child_uri(self, key: str) -> str:
        """Give the URI of an object."""
        return f"{self.uri}/{printable_path(key)}"

    def key_of(self, uri: str) -> str | None:
        """Give the key under which another location appears below this root."""
        return key_below(self.uri, uri)

    def _listing(self, wanted: ListRequest, *, ordered: bool) -> Iterator[FileEntry]:
        fetch = self._pages(wanted.prefix, self.page_size, wanted.end_before)
        return list_flat(fetch, self._root, wanted, order=self._order if ordered else None)

    def _first_pages(self) -> Fetch:
        """Give the function that fetches the pages in which a first key is searched."""
        return self._pages("", self.page_size)

    @abstractmethod
    def _pages(self, prefix: str, size: int, end_before: str = "") -> Fetch:
        """Give the function that fetches the pages of a listing."""


class PageRequest(NamedTuple):
    """One page of a listing that a cloud is asked for.

    Attributes:
        prefix: What full keys start with.
        start_after: Full key; keys up to it need not be on the page.
        mark: Where the page begins, as the page before gave it.
        size: Objects on the page, at most.
        end_before: Full key; keys from it on need not be on the page. Empty for no end.
    """

    prefix: str
    start_after: str = ""
    mark: str | None = None
    size: int = 1
    end_before: str = ""


class CloudStore(FlatStore):
    """An `ObjectStore` in a bucket or container of a cloud.

    A pickle holds no credentials: where it is opened, the environment there decides.

    Args:
        uri: Of the root.
        page_size: Objects on a page of a listing.
        settings: Further arguments of the class, for the copy that a pickle opens.
    """

    _failures: ClassVar[tuple[type[Exception], ...]]
    """What the client of the cloud raises."""

    _key_rule: ClassVar[str] = "A name is text in UTF-8 there."
    """Which keys the cloud takes, in a sentence."""

    _smallest_page: ClassVar[int] = 2
    """Objects on a page that holds the key after another one: two where a start is inclusive."""

    def __init__(self, uri: str, *, page_size: int, **settings: Any) -> None:
        super().__init__(uri, page_size=page_size)
        self._settings = {"page_size": page_size, **settings}

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self.uri, **self._settings), ()

    def is_folder(self) -> bool:
        """Tell whether the bucket exists; the same request shows whether it may be listed."""
        try:
            self._page(PageRequest(self._root))
        except FileNotFoundError:
            return False
        return True

    def head(self, key: str) -> FileEntry | None:
        """Inspect an object; `None` when there is none."""
        try:
            with self._call("head", key) as full_key:
                return self._describe(key, full_key)
        except ObjectNotFoundError:
            return None

    def clock_us(self) -> int:
        """Read the clock of the service."""
        with self._request("list", self._root):
            date = self._server_date()
        return http_now_us(date, self.uri)

    def get(self, key: str) -> bytes:
        """Read an object."""
        return self._read(key)

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Read part of an object."""
        check_range(start, length)
        if length == 0:  # no cloud has a request for it
            return read_nothing(self, key, etag)
        return self._read_range(key, start, length, etag)

    def put(self, key: str, content: bytes) -> None:
        """Create or replace an object."""
        self._put(key, content)

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create an object unless there is one."""
        return self._put_if(key, content, None)

    def put_if_match(self, key: str, content: bytes, etag: str) -> bool:
        """Replace an object if it still is the version that has an etag."""
        return self._put_if(key, content, etag)

    def delete(self, key: str) -> None:
        """Remove an object, if there is one."""
        try:
            with self._call("delete", key) as full_key:
                self._remove(full_key)
        except ObjectNotFoundError:
            return

    def delete_version(self, entry: FileEntry) -> None:
        """Remove an object if it still has an etag."""
        try:
            with self._call("delete", entry.path) as full_key:
                self._remove_version(full_key, entry)
        except ObjectChangedError:  # the answer may be the same when it is gone
            refuse_version(self, entry.path)

    def copy_version(self, entry: FileEntry, to: ObjectStore, key: str) -> bool:
        """Copy a version of an object, unless there is an object already."""
        if not isinstance(to, type(self)) or to._bucket != self._bucket:  # noqa: SLF001 - of this class, too
            msg = f"{to.uri} is not in the bucket or container of {self.uri}"
            raise ValueError(msg)
        try:
            with to._call("put", key) as full_key:  # noqa: SLF001 - of this class, too
                self._copy(self._root + entry.path, entry, full_key)
        except (ObjectChangedError, ObjectNotFoundError):  # of the two objects, either
            if to.head(key) is not None:
                return False
            refuse_version(self, entry.path)
        return True

    def fingerprint(self, key: str) -> Fingerprint | None:
        """Inspect an object and its checksums."""
        try:
            with self._call("head", key) as full_key:
                return self._describe_content(key, full_key)
        except ObjectNotFoundError:
            return None

    @abstractmethod
    def _fetch_page(self, asked: PageRequest) -> Page:
        """Make one request for a page.

        Raises:
            BrokenOffError: The answer ended before it was complete.
        """

    @abstractmethod
    def _describe(self, key: str, full_key: str) -> FileEntry:
        """Ask for what `head` gives."""

    @abstractmethod
    def _server_date(self) -> str | None:
        """List one object for the header `Date` of the answer."""

    @abstractmethod
    def _read(self, key: str) -> bytes:
        """Read a whole object."""

    @abstractmethod
    def _read_range(self, key: str, start: int, length: int, etag: str | None) -> bytes:
        """Read at least one byte, of one version if an etag is given."""

    @abstractmethod
    def _put(self, key: str, content: bytes, **condition: Any) -> None:
        """Create or replace an object; with a condition, only as long as that holds."""

    @abstractmethod
    def _put_if(self, key: str, content: bytes, etag: str | None) -> bool:
        """Write if the object has this etag; with none, if there is no object."""

    @abstractmethod
    def _remove(self, full_key: str) -> None:
        """Delete an object."""

    @abstractmethod
    def _remove_version(self, full_key: str, entry: FileEntry) -> None:
        """Delete an object if it has the etag of an entry.

        Raises:
            ObjectChangedError: It has another, or there is none.
        """

    @abstractmethod
    def _copy(self, source_key: str, entry: FileEntry, full_key: str) -> None:
        """Copy an object, if it has the etag of an entry and there is no object at the new key.

        Raises:
            ObjectChangedError: Either is not so.
            ObjectNotFoundError: There is nothing to copy.
        """

    @abstractmethod
    def _describe_content(self, key: str, full_key: str) -> Fingerprint:
        """Ask for what `fingerprint` gives."""

    @abstractmethod
    def _translated(self, failure: Any, kind: Call, where: str) -> Exception:
        """Give the error of a store for an error of the client."""

    def _listed(  # noqa: PLR0913 - what a page says of an object
        self,
        key: str,
        size: int | None,
        time_us: int | None,
        etag: str,
        *,
        is_folder: bool = False,
        archived_in: str = "",
    ) -> ListedObject:
        """Give an object of a page, whatever a server tells of it.

        Some list marks of folders without size and time, or objects before they know.
        """
        if size is not None and time_us is not None:
            return ListedObject(key, size, time_us, etag, is_folder, archived_in)
        is_mark = is_folder or (key.endswith("/") and not size)
        return ListedObject(key, 0 if is_mark else UNKNOWN, 0, etag, is_mark)

    def _completed(self, listed: ListedObject) -> ListedObject:
        """Ask an object itself for what its listing lacks; one that is gone is none."""
        entry = self.head(listed.key[len(self._root) :])
        if entry is None:
            return listed._replace(is_folder=True)
        return ListedObject(
            listed.key,
            entry.size,
            entry.modification_time_us,
            entry.etag,
            archived_in=entry.archived_in,
        )

    def _entry(
        self, key: str, size: int | None, time_us: int | None, etag: str, archived_in: str = ""
    ) -> FileEntry:
        """Give the entry of an object that was inspected.

        Raises:
            IncompleteError: The server does not tell what a file is known by.
        """
        if size is None or time_us is None:
            lacks = "size" if size is None else "modification time"
            raise IncompleteError(
                f"{self.child_uri(key)} could not be inspected: the server gives no {lacks} of it, "
                f"by which a file differs from its next version. Correct the server, or what is "
                f"between here and it."
            )
        return FileEntry(key, size, time_us, etag, archived_in=archived_in)

    def _takes(self, full_key: str) -> bool:
        """Tell whether an object can have a name."""
        return bool(full_key) and is_utf8(full_key)

    def _first_pages(self) -> Fetch:
        return self._pages("", self._smallest_page)

    def _pages(self, prefix: str, size: int, end_before: str = "") -> Fetch:
        full_prefix = self._root + prefix
        end = self._root + end_before if end_before else ""
        return lambda after, mark: self._page(PageRequest(full_prefix, after, mark, size, end))

    def _page(self, asked: PageRequest) -> Page:
        """Fetch one page; an answer that breaks off is asked for again."""
        page = self._page_as_it_is(asked)
        objects = (self._completed(one) if one.size == UNKNOWN else one for one in page.objects)
        return Page(objects, page.mark)

    def _page_as_it_is(self, asked: PageRequest) -> Page:
        with self._request("list", asked.prefix):
            for _ in range(TRIES):
                with suppress(BrokenOffError):
                    return self._fetch_page(asked)
        raise broken_off(self._where(asked.prefix), "list")

    @contextmanager
    def _call(self, kind: Call, key: str) -> Iterator[str]:
        """Make a request about one object: count it, and translate its errors."""
        full_key = self._root + key
        if not self._takes(full_key):
            raise OSError(
                f"{self.child_uri(key)!r} cannot be an object. {self._key_rule} Give the object "
                f"another name."
            )
        with self._request(kind, full_key):
            yield full_key

    @contextmanager
    def _request(self, kind: Call, full_key: str) -> Iterator[None]:
        """Count a request, and raise what the client raises as an error of a store."""
        self._requests.add(kind)
        try:
            yield
        except IncompleteError:
            raise
        except self._failures as failure:
            raise self._translated(failure, kind, self._where(full_key)) from failure

    def _where(self, full_key: str) -> str:
        """Give the URI of a full key, for messages."""
        return f"{self.uri.partition('://')[0]}://{self._bucket}/{printable_path(full_key)}"


def keep_connections(session: Any) -> None:
    """Have a session of requests keep as many connections as threads use, not ten."""
    for adapter in session.adapters.values():
        adapter.init_poolmanager(len(session.adapters), CONNECTIONS)


class ClientPerProcess:
    """Keeps a client that the threads of a process share, and other processes do not.

    Args:
        open_client: Opens one; nothing is contacted.
        key_file: Gives the path of the file that its credentials are in, if they are in one: with
            another file there, the client is another one.
    """

    def __init__(
        self, open_client: Callable[[], Any], key_file: Callable[[], str | None] = lambda: None
    ) -> None:
        self._open = open_client
        self._key_file = key_file
        self._lock = threading.Lock()
        self._opened: tuple[tuple[int, str], Any] | None = None

    def get(self) -> Any:
        """Give the client of this process."""
        key = os.getpid(), version_of_file(self._key_file())
        with self._lock:
            if self._opened is None or self._opened[0] != key:
                self._opened = key, self._open()
            return self._opened[1]


def proxy_options(proxies: Mapping[str, str]) -> dict[str, str]:
    """Find the option for a proxy."""
    address = proxies.get("https") or proxies.get("http")
    return {"proxy_url": address} if address else {}


def address_options(key: str, allow_key: str, endpoint: str) -> dict[str, str]:
    """Give the options for an address, and that it may be without encryption."""
    allowed = {allow_key: "true"} if endpoint.startswith("http:") else {}
    return {key: endpoint.rstrip("/"), **allowed}
