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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.storage.base import UnorderedListingError
from airflow_cloudfiles.engine.storage.uri import normalize_uri

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.base import ListRequest, SkipRule


UNKNOWN = -1
"""Size of an object whose listing lacks something; nothing gives it to `list_flat`."""


class Listed(NamedTuple):
    """One object on a page.

    Attributes:
        key: Its full key: with the root.
        size: In bytes.
        modification_time_us: As in `FileEntry`.
        etag: As in `FileEntry`.
        is_folder: The store itself marks this as a folder. An empty object whose
            key ends with a slash is one in any case.
    """

    key: str
    size: int
    modification_time_us: int
    etag: str
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """What one request for a part of a listing gives.

    Attributes:
        objects: May be empty, even before the last page.
        mark: Where the next page begins, as the store names it; `None` on the last page.
    """

    objects: Iterable[Listed]
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
                yield FileEntry(path, found.size, found.modification_time_us, found.etag)

    def behind_the_folder(self) -> str | None:
        """Find where to go on if the last object was in a folder that is left out."""
        if self._left_out is None or not self._is_ordered:
            return None
        jump = self._root + self._left_out + self._order.last
        place = self._order.of(jump)
        self._behind = self._last = place  # what comes before it now would be lost
        return jump

    def _is_file(self, found: Listed, path: str) -> bool:
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
