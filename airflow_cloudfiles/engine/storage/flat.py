"""List a flat name space.

Object stores have keys, pages and no folders. What is the same in all of them is here; a store
brings one function that fetches one page, `fetch(start_after, mark)`. Its contract:

- It makes one request and gives a `Page`: objects in the order of the store, whose full keys (with
  the root) start with the full prefix of the listing; it has that prefix from its closure.
- With `mark` (what the page before gave) it continues, and `start_after` is as before. Without, it
  starts. Objects up to and including the first `start_after` need not be there, and do no harm.
  But a first page that ends before it shows a store that does not start where it is asked to: then
  each start in the middle would read everything before it, so `UnorderedListingError` is raised.
- It raises `OSError` when a page cannot be had whole. Nothing is left out silently.

A store that lists in another order than it promises would lose files wherever a listing starts or
ends between two keys: `list_flat` raises `UnorderedListingError` when it sees that.

`list_flat` then gives the entries of a listing: keys relative to the root, no marks of folders,
only between `start_after` and `end_before`, nothing that `skip` leaves out. When a page ends inside
a folder that `skip` leaves out, the next page starts behind that folder, so a large folder of no
interest costs one request.

List a tree of folders in order, and cheaply.

In byte order of the full keys, as object stores list. A folder `a` sorts as `a/`, that is between
the files `a-b` and `a0`. So each folder's names are sorted once, folders with their slash, and
folders are entered where they stand: memory holds the names of the folders on the way down only.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.storage.base import (
    ListedStore,
    ListRequest,
    RequestCounter,
    SkipRule,
    UnorderedListingError,
    key_bytes,
    key_text,
)
from airflow_cloudfiles.engine.storage.uri import normalize_uri

UNKNOWN = -1
"""Size of an object whose listing lacks something; nothing gives it to `list_flat`."""


class ListedObject(NamedTuple):
    """One object on a page.

    Attributes:
        key: Its full key: with the root.
        size: In bytes.
        modification_time_us: As in `FileEntry`.
        etag: As in `FileEntry`.
        is_folder: The store itself marks this as a folder. An empty object whose
            key ends with a slash is one in any case.
        archived_in: As in `FileEntry`.
    """

    key: str
    size: int
    modification_time_us: int
    etag: str
    is_folder: bool = False
    archived_in: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """What one request for a part of a listing gives.

    Attributes:
        objects: May be empty, even before the last page.
        mark: Where the next page begins, as the store names it; `None` on the last page.
    """

    objects: Iterable[ListedObject]
    mark: Any = None


Fetch = Callable[[str, Any], Page]
"""`fetch(start_after, mark)`: see the top of this module."""

LAST_CHARACTER = "\U0010ffff"
"""No character sorts behind it in the byte order of UTF-8."""


class Order:
    """In which order a store lists keys.

    Args:
        of: Gives what two keys are compared by. Texts themselves compare like their UTF-8.
        last: A character behind all others.
    """

    def __init__(
        self, of: Callable[[str], Any] | None = None, *, last: str = LAST_CHARACTER
    ) -> None:
        self.of: Callable[[str], Any] = of or str
        self.last = last


UTF8 = Order()
"""S3 and Cloud Storage."""


def list_flat(
    fetch: Fetch,
    root: str,
    wanted: ListRequest,
    *,
    order: Order | None = UTF8,
    first_asked: Callable[[str], str] = str,
) -> Iterator[FileEntry]:
    """List what is below a root, page by page, lazily.

    Args:
        fetch: Fetches one page of the keys that start with `root + wanted.prefix`.
        root: What the keys of this root start with: empty, or with a slash at the end.
        wanted: What the caller of `ObjectStore.list` asked for.
        order: Of the store; `None` when it is not known, for listings that neither start nor end
            between keys. They do not jump.
        first_asked: Gives the text from which `fetch` lists for a `start_after`, where that is an
            earlier one.
    """
    listing = _Listing(root, wanted, order)
    if listing.folders.skipped(wanted.prefix) is not None:
        return
    after, mark = root + wanted.start_after, None
    while not listing.is_at_the_end:
        page = fetch(after, mark)
        if order is not None and mark is None:
            page = _checked_start(page, first_asked(after), order)
        yield from listing.files(page)
        if page.mark is None:
            return
        jump = listing.behind_the_folder()
        after, mark = (after, page.mark) if jump is None else (jump, None)


def first_key(
    fetch: Fetch,
    root: str,
    after: str,
    *,
    order: Order = UTF8,
    first_asked: Callable[[str], str] = str,
) -> str | None:
    """Give the first key after a text, relative to the root; one request, if a page is not empty.

    Args:
        fetch: Fetches one page, which may be as small as two objects, of what starts with `root`.
        root: As in `list_flat`.
        after: Exclusive.
        order: Of the store.
        first_asked: As in `list_flat`.
    """
    start, mark = root + after, None
    while True:
        page = fetch(start, mark)
        if mark is None:
            page = _checked_start(page, first_asked(start), order)
        for found in page.objects:
            if order.of(found.key) > order.of(start):
                return found.key[len(root) :]
        if page.mark is None:
            return None
        mark = page.mark


class Folders:
    """Asks a rule about each folder once, as a listing enters it.

    Args:
        skip: The rule; `None` leaves nothing out.
    """

    def __init__(self, skip: SkipRule | None) -> None:
        self._skip = skip
        self._entered: list[str] = []
        self._left_out: str | None = None

    def skipped(self, path: str) -> str | None:
        """Give the outermost folder above a path that is left out, with its slash; else `None`."""
        if self._skip is None:
            return None
        if self._left_out is not None:
            if path.startswith(self._left_out):
                return self._left_out
            self._left_out = None
        while self._entered and not path.startswith(self._entered[-1]):
            self._entered.pop()
        slash = path.find("/", len(self._entered[-1]) if self._entered else 0)
        while slash >= 0:
            folder = path[: slash + 1]
            if slash > 0 and self._skip(path[:slash], True):
                self._left_out = folder
                return folder
            self._entered.append(folder)
            slash = path.find("/", slash + 1)
        return None


def key_below(root_uri: str, uri: str) -> str | None:
    """Give the key of another location below a root; `None` when it is not below."""
    other = normalize_uri(uri)
    if other == root_uri:
        return ""
    return other[len(root_uri) + 1 :] if other.startswith(root_uri + "/") else None


def is_utf8(key: str) -> bool:
    """Tell whether a key is text: names on a disk need not be, names in a cloud are."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Listing:
    """Where one listing stands, and what of a page it gives."""

    def __init__(self, root: str, wanted: ListRequest, given_order: Order | None) -> None:
        if given_order is None and (wanted.start_after or wanted.end_before):
            msg = "a listing that starts or ends between keys needs to know their order"
            raise ValueError(msg)
        self._root = root
        self._skip = wanted.skip
        self._is_ordered = given_order is not None
        self._order = order = given_order or UTF8
        self._behind = order.of(root + wanted.start_after)
        self._end = order.of(root + wanted.end_before) if wanted.end_before else None
        self._last: Any = None
        self._left_out: str | None = None
        self.folders = Folders(wanted.skip)
        self.is_at_the_end = False

    def files(self, page: Page) -> Iterator[FileEntry]:
        """Give the entries of a page that are wanted."""
        order_of, cut, behind = self._order.of, len(self._root), self._behind
        for found in page.objects:
            place = order_of(found.key)
            if self._is_ordered and self._last is not None and place < self._last:
                raise _out_of_order(found.key)
            self._last = place
            if self._end is not None and place >= self._end:
                self.is_at_the_end = True  # the rest of the page still shows whether it is in order
                continue
            path = found.key[cut:]
            self._left_out = self.folders.skipped(path)
            if self._left_out is None and place > behind and self._is_file(found, path):
                time_us, archived_in = found.modification_time_us, found.archived_in
                yield FileEntry(path, found.size, time_us, found.etag, archived_in=archived_in)

    def behind_the_folder(self) -> str | None:
        """Find where to go on if the last object was in a folder that is left out."""
        if self._left_out is None or not self._is_ordered:
            return None
        jump = self._root + self._left_out + self._order.last
        place = self._order.of(jump)
        self._behind = self._last = place  # what comes before it now would be lost
        return jump

    def _is_file(self, found: ListedObject, path: str) -> bool:
        """Tell whether a key is of a file that is wanted; the root itself is not."""
        if not path or found.is_folder or (found.size == 0 and path.endswith("/")):
            return False
        return self._skip is None or not self._skip(path, False)


def _checked_start(page: Page, start: str, order: Order) -> Page:
    """Raise if a first page that is not the last one ends before the text it was to start from."""
    objects = list(page.objects)
    if objects and page.mark is not None and order.of(objects[-1].key) < order.of(start):
        raise UnorderedListingError(
            f"The store was asked for the keys after {printable_path(start)}, and began with "
            f"{printable_path(objects[0].key)}: it does not start a listing where it is asked to, "
            f"as S3 and Cloud Storage do."
        )
    return Page(objects, page.mark)


def _out_of_order(key: str) -> OSError:
    return UnorderedListingError(
        f"The store does not list keys in order ({printable_path(key)} came too late), as S3 and "
        f"Cloud Storage do. Some compatible servers list folder by folder."
    )


TEMPORARY = b".cloudfiles-"
"""Start of the names of unfinished writes, which no listing shows."""

_Identity = tuple[int, int]


def hidden_name(path: bytes) -> bytes:
    """Give the name under which a file is inspected for the last time; no listing shows it."""
    folder, _, name = path.rpartition(b"/")
    return folder + b"/" + TEMPORARY + b"clean-" + hashlib.sha256(name).hexdigest().encode()


def file_entry(key: str, found: os.stat_result) -> FileEntry:
    """Describe a local file; local disks have no etags."""
    return FileEntry(key, found.st_size, found.st_mtime_ns // 1000)


class TreeStore(ListedStore):
    """What stores have in common that are a tree of folders."""

    is_tree = True
    """A folder that is not there does not look like an empty one."""

    def key_after(self, after: str) -> str | None:
        """Give the first key after a text; reads the folders on the way to it."""
        with contextlib.closing(self.list(start_after=after)) as listing:  # type: ignore[type-var]
            found = next(listing, None)
        return None if found is None else found.path

    def _listing(self, wanted: ListRequest, *, ordered: bool) -> Iterator[FileEntry]:
        """Yield the files in byte order of their keys; hold the names of one folder at a time."""
        del ordered
        return self._walk(wanted).files()

    @abstractmethod
    def _walk(self, wanted: ListRequest) -> TreeWalk:
        """Begin to list; nothing is read before the first file is asked for."""


class TreeWalk(ABC):
    """One listing of a tree of folders, wherever it is.

    Args:
        wanted: Which keys are asked for.
        requests: Counts the folders that are read.
    """

    def __init__(self, wanted: ListRequest, requests: RequestCounter) -> None:
        self._prefix = key_bytes(wanted.prefix)
        self._start_after = key_bytes(wanted.start_after)
        self._end_before = key_bytes(wanted.end_before)
        self._skip = wanted.skip
        self._requests = requests

    def files(self) -> Iterator[FileEntry]:
        """List the files in byte order of their keys.

        Raises:
            OSError: A folder or file is there but cannot be inspected.
        """
        top, _, _ = self._prefix.rpartition(b"/")
        stack: list[Iterator[bytes]] = []
        if self._skips_above(top):
            return
        self._enter(top + b"/" if top else b"", stack)
        while stack:
            key = next(stack[-1], None)
            if key is None:
                stack.pop()
                self._left()
            elif key.endswith(b"/"):
                self._enter(key, stack)
            elif (found := self._file(key)) is not None:
                yield found

    @abstractmethod
    def _enter(self, folder: bytes, stack: list[Iterator[bytes]]) -> None:
        """Put a folder's keys on the stack: sorted, those of folders with a slash at the end."""

    @abstractmethod
    def _file(self, key: bytes) -> FileEntry | None:
        """Describe a file; `None` where there is none."""

    @abstractmethod
    def _left(self) -> None:
        """Take note that the last folder of the stack is done."""

    def _skips_above(self, top: bytes) -> bool:
        """Tell whether the rule leaves out a folder above everything that has the prefix."""
        if self._skip is None or not top:
            return False
        parts = key_text(top).split("/")
        folders = ("/".join(parts[: depth + 1]) for depth in range(len(parts)))
        return any(self._skip(folder, True) for folder in folders)

    def _wanted(self, key: bytes, name: bytes, *, is_folder: bool) -> bool:
        """Tell whether a key, or anything below it, may be listed."""
        prefix, after, end = self._prefix, self._start_after, self._end_before
        if end and key >= end:
            return False
        if not (key.startswith(prefix) or (is_folder and prefix.startswith(key))):
            return False
        if key <= after and not (is_folder and after.startswith(key)):
            return False
        if name.startswith(TEMPORARY):
            return False
        skip = self._skip
        return skip is None or not skip(key_text(key.removesuffix(b"/")), is_folder)


class Walk(TreeWalk):
    """One listing of a local tree.

    Args:
        root: Absolute path of the tree.
        wanted: Which keys are asked for.
        requests: Counts the folders that are read.
    """

    def __init__(self, root: bytes, wanted: ListRequest, requests: RequestCounter) -> None:
        super().__init__(wanted, requests)
        self._root = root.rstrip(b"/")
        self._above: list[_Identity] = []

    def _enter(self, folder: bytes, stack: list[Iterator[bytes]]) -> None:
        """Put a folder's keys on the stack, unless it is one of those it was reached through."""
        path = self._root + b"/" + folder
        found = _stat(path)
        if found is None or not stat.S_ISDIR(found.st_mode):
            return
        identity = (found.st_dev, found.st_ino)
        if identity in self._above:
            return
        self._above.append(identity)
        stack.append(iter(self._keys(path, folder)))

    def _left(self) -> None:
        self._above.pop()

    def _file(self, key: bytes) -> FileEntry | None:
        found = _stat(self._root + b"/" + key)
        if found is None or not stat.S_ISREG(found.st_mode):
            return None
        return file_entry(key_text(key), found)

    def _keys(self, path: bytes, folder: bytes) -> list[bytes]:
        """Sorted keys in one folder, those of folders with a slash at the end."""
        keys = []
        self._requests.add("list")
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    is_folder = _is_folder(entry)
                    key = folder + entry.name + (b"/" if is_folder else b"")
                    if self._wanted(key, entry.name, is_folder=is_folder):
                        keys.append(key)
        except FileNotFoundError:
            return []
        keys.sort()
        return keys


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    """Tell whether a name is a folder, links followed; a link to itself is not."""
    try:
        return entry.is_dir()
    except OSError as failure:
        if failure.errno == errno.ELOOP:
            return False
        raise


def _stat(path: bytes) -> os.stat_result | None:
    """Stat, links followed; `None` when it is gone, or a link that leads nowhere."""
    try:
        return os.stat(path)  # noqa: PTH116 - bytes path
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as failure:
        if failure.errno == errno.ELOOP:
            return None
        raise
