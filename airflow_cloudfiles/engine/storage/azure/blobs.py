"""How does a container of Azure Blob Storage, or of ADLS Gen2, serve as an object store?

Through the Blob endpoint: what it lists, reads and writes is the same with and without a
hierarchical namespace, and conditional writes are the service's own. Two things differ there
(decision 18):

- Folders are entries of their own, empty and with `hdi_isfolder` in their metadata. So listings
  ask for metadata: the request costs the same, and only blobs that have some answer with more.
- Listings go folder by folder: `a/x` before `a-b`. A listing between bounds has to know that, so
  the account is asked once. An account that does not tell, and OneLake, which starts listings
  nowhere but at the beginning, are listed whole, and cut here.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, DecodeError, HttpResponseError
from azure.storage.blob import BlobServiceClient, ExponentialRetry

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.access import Access, AzureAccess, of_kind
from airflow_cloudfiles.engine.storage.azure.client import (
    CONNECT_SECONDS,
    READ_SECONDS,
    open_account,
)
from airflow_cloudfiles.engine.storage.azure.errors import (
    Call,
    error_code,
    translated,
)
from airflow_cloudfiles.engine.storage.base import (
    ObjectChangedError,
    ObjectNotFoundError,
    RequestCounter,
    SkipRule,
    Wanted,
    read_nothing,
    refuse_version,
)
from airflow_cloudfiles.engine.storage.clock import http_now_us
from airflow_cloudfiles.engine.storage.flat import (
    Fetch,
    Folders,
    Listed,
    Order,
    Page,
    child_uri,
    first_key,
    is_utf8,
    key_below,
    list_flat,
)
from airflow_cloudfiles.engine.storage.uri import bucket_and_path, normalize_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_log = logging.getLogger(__name__)

_TRIES = 3
"""How often a page is asked for whose text breaks off, which the client does not repeat itself."""

_LAST = "\ud7ff"
"""Behind this character, UTF-16 and UTF-8 sort differently; no bound that is sent has a later one.
Whichever of the two Azure sorts by (azurite: UTF-16), nothing before a bound is left out."""
_LATE = re.compile("[\ue000-\U0010ffff]")

FLAT = Order(lambda key: key.encode("utf-16-be", "surrogatepass"), last=_LAST)
"""Accounts without a hierarchical namespace: by the code units of UTF-16."""

TREE = Order(lambda key: FLAT.of(key.replace("/", "\0")), last=_LAST)
"""With one: the same, but what is in a folder comes right behind the folder."""

_NO_BLOB = {"BlobNotFound", "ResourceNotFound", "PathNotFound"}
_NOT_TOLD = object()


class AzureStore:
    """An `ObjectStore` in a container.

    Azure takes a backslash for a slash, and its client resolves `.` and `..`: keys with a backslash
    or such a part cannot be told from others, and are refused. A pickle holds no credentials: where
    it is opened, the environment there decides.

    Args:
        uri: `abfss://container@account.dfs.core.windows.net`, or with a path.
        access: How the account is reached; `None` leaves it to the environment.
        page_size: Objects on a page of a listing, at most 5000.
        retries: How often the client repeats a request that fails for a while; four last half a
            minute.
    """

    def __init__(
        self,
        uri: str,
        access: Access | None = None,
        *,
        page_size: int = 5000,
        retries: int = 4,
    ) -> None:
        self._uri = normalize_uri(uri)
        bucket, path = bucket_and_path(self._uri)
        self._container, _, host = bucket.partition("@")
        self._account, _, self._domain = host.partition(".dfs.")
        self._root = path + "/" if path else ""
        self._access: AzureAccess | None = of_kind(AzureAccess, access)
        self._page_size = page_size
        self._retries = retries
        self._requests = RequestCounter()
        self._lock = threading.Lock()
        self._opened: tuple[int, Any] | None = None
        self._told: Any = _NOT_TOLD

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._uri, self._page_size, self._retries)

    @property
    def uri(self) -> str:
        """Canonical URI of the root."""
        return self._uri

    @property
    def page_size(self) -> int:
        """Objects on a page of a listing."""
        return self._page_size

    @property
    def key_order(self) -> Callable[[str], Any] | None:
        """What two keys are compared by in the order of the account; `None`: it does not tell."""
        order = self._order()
        return order.of if order else None

    @property
    def requests(self) -> Counter[str]:
        """How many requests were made so far; what the client repeated by itself counts once."""
        return self._requests.so_far()

    def is_folder(self) -> bool:
        """Whether the container is there; that it may be listed is seen at the same time."""
        try:
            self._page(self._root, "", None, size=1)
        except FileNotFoundError:
            return False
        return True

    def list(
        self,
        prefix: str = "",
        *,
        start_after: str = "",
        end_before: str = "",
        skip: SkipRule | None = None,
        ordered: bool = True,
    ) -> Iterator[FileEntry]:
        """List the objects, in the order of the account, a page a request."""
        return self._listing(Wanted(prefix, start_after, end_before, skip), ordered=ordered)

    def key_after(self, after: str) -> str | None:
        """Give the first key after a text."""
        order = self._order()
        if order is not None:
            fetch = self._pages("", 2)
            return first_key(fetch, self._root, after, order=order, first_asked=_safe_start)
        found = self._cut(self._pages("", self._page_size), Wanted(start_after=after))
        keys = (entry.path for entry in found)
        return min(keys, key=FLAT.of, default=None)

    def head(self, key: str) -> FileEntry | None:
        """Look at an object; `None` when there is none, or a folder."""
        try:
            with self._calling("head", key) as blob:
                found = blob.get_blob_properties()
        except ObjectNotFoundError:
            return None
        if _is_folder(found):
            return None
        return FileEntry(key, found.size, _microseconds(found.last_modified), _etag(found))

    def clock_us(self) -> int:
        """Tell the time by the clock of the account."""
        dates: list[str | None] = []
        self._requests.add("list")
        with self._readable("list", self._root):
            pages = self._client().list_blobs(
                name_starts_with=self._root or None,
                results_per_page=1,
                raw_response_hook=lambda answer: dates.append(
                    answer.http_response.headers.get("Date")
                ),
            )
            next(pages.by_page(), None)
        return http_now_us(dates[-1] if dates else None, self._uri)

    def arrived_us(self, entry: FileEntry) -> int:
        """Tell when an object was written."""
        return entry.modification_time_us

    def get(self, key: str) -> bytes:
        """Read an object."""
        return self._read(key)

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Read part of an object."""
        if start < 0 or length < 0:
            msg = f"not a range: {start}, {length}"
            raise ValueError(msg)
        if length == 0:  # which Azure has no words for
            return read_nothing(self, key, etag)
        condition: dict[str, Any] = {}
        if etag is not None:
            condition = {"etag": f'"{etag}"', "match_condition": MatchConditions.IfNotModified}
        try:
            return self._read(key, offset=start, length=length, **condition)
        except ObjectChangedError:  # also what Azure says of one that is gone
            refuse_version(self, key)

    def put(self, key: str, content: bytes) -> None:
        """Create or replace an object."""
        with self._calling("put", key) as blob:
            blob.upload_blob(content, overwrite=True)

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create an object unless there is one."""
        return self._put_if(key, content, {"BlobAlreadyExists"}, overwrite=False)

    def put_if_match(self, key: str, content: bytes, etag: str) -> bool:
        """Replace an object if it still is the version that has an etag."""
        condition = {"etag": f'"{etag}"', "match_condition": MatchConditions.IfNotModified}
        return self._put_if(key, content, _NO_BLOB, overwrite=True, **condition)

    def delete(self, key: str) -> None:
        """Remove an object with its snapshots, if there is one."""
        try:
            with self._calling("delete", key) as blob:
                blob.delete_blob(delete_snapshots="include")
        except ObjectNotFoundError:
            return

    def child_uri(self, key: str) -> str:
        """Give the URI of an object."""
        return child_uri(self._uri, key)

    def key_of(self, uri: str) -> str | None:
        """Tell under which key another location appears below this root."""
        return key_below(self._uri, uri)

    def _put_if(self, key: str, content: bytes, refusals: set[str], **condition: Any) -> bool:
        try:
            with self._calling("put", key) as blob:
                try:
                    blob.upload_blob(content, **condition)
                except HttpResponseError as failure:
                    if error_code(failure) in refusals | {"ConditionNotMet"}:
                        return False
                    raise
        except ObjectNotFoundError:
            return False
        return True

    def _read(self, key: str, **part: Any) -> bytes:
        with self._calling("get", key) as blob:
            try:
                stream = blob.download_blob(**part)
                content: bytes = stream.readall()
            except HttpResponseError as failure:
                if error_code(failure) == "InvalidRange":
                    return b""
                if error_code(failure) == "ConditionNotMet":
                    raise ObjectChangedError(self.child_uri(key)) from failure
                raise
        if _is_folder(stream.properties):
            raise ObjectNotFoundError(self.child_uri(key))
        return content

    def _listing(self, wanted: Wanted, *, ordered: bool) -> Iterator[FileEntry]:
        """List; nothing is asked before the first step."""
        fetch = self._pages(wanted.prefix, self._page_size)
        if not (wanted.start_after or wanted.end_before or wanted.skip):
            yield from list_flat(fetch, self._root, wanted, order=None)
            return
        order = self._order() if ordered else None
        if order is None:
            yield from self._cut(fetch, wanted)
            return
        safe = replace(wanted, end_before=_safe_end(wanted.end_before))
        end = None if safe == wanted else order.of(wanted.end_before)
        for entry in list_flat(fetch, self._root, safe, order=order, first_asked=_safe_start):
            if end is None or order.of(entry.path) < end:
                yield entry

    def _cut(self, fetch: Fetch, wanted: Wanted) -> Iterator[FileEntry]:
        """List everything that has a prefix, in whatever order, and leave out the rest here."""
        folders, skip = Folders(wanted.skip), wanted.skip
        first, end = FLAT.of(wanted.start_after), FLAT.of(wanted.end_before)
        for entry in list_flat(fetch, self._root, Wanted(wanted.prefix), order=None):
            place = FLAT.of(entry.path)
            if place <= first or (end and place >= end):
                continue
            if folders.skipped(entry.path) is None and not (skip and skip(entry.path, False)):
                yield entry

    def _pages(self, prefix: str, size: int) -> Fetch:
        full_prefix = self._root + prefix
        return lambda after, mark: self._page(full_prefix, after, mark, size=size)

    def _page(self, prefix: str, start_after: str, mark: str | None, *, size: int) -> Page:
        """Fetch one page; the server's start is inclusive, or (before azurite 3.37) ignored."""
        where: dict[str, str] = {}
        if FLAT.of(start_after) > FLAT.of(prefix):
            where["start_from"] = _safe_start(start_after)
        self._requests.add("list")
        with self._readable("list", prefix):
            for tries_left in reversed(range(_TRIES)):
                pages = (
                    self._client()
                    .list_blobs(
                        name_starts_with=prefix or None,
                        include=["metadata"],
                        results_per_page=size,
                        **where,
                    )
                    .by_page(mark)
                )
                try:
                    blobs = [*next(pages)]
                except (DecodeError, AttributeError) as failure:
                    # The client stumbles over an answer that ends within its headers.
                    if not tries_left:
                        raise DecodeError("the answer broke off") from failure
                    continue
                return Page([_listed(blob) for blob in blobs], pages.continuation_token or None)
        raise AssertionError("unreachable")

    def _order(self) -> Order | None:
        """In which order the account lists; asked once. `None`: it does not tell."""
        if self._told is _NOT_TOLD:
            self._told = self._ask_for_order()
        order: Order | None = self._told
        return order

    def _ask_for_order(self) -> Order | None:
        if self._domain.endswith("fabric.microsoft.com"):
            return None
        self._requests.add("head")
        with self._readable("head", ""):
            try:
                found = self._client().get_account_information()
            except HttpResponseError as failure:
                if (failure.status_code or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                _log.warning(
                    "The Azure account %s does not tell whether it has a hierarchical namespace "
                    "(%s), so listings that start in the middle read everything. The action "
                    "Microsoft.Storage/storageAccounts/blobServices/getInfo/action lets the "
                    "identity ask.",
                    self._account,
                    error_code(failure),
                )
                return None
        return TREE if found.get("is_hns_enabled") else FLAT

    @contextmanager
    def _calling(self, kind: Call, key: str) -> Iterator[Any]:
        """Count a request about one object, and turn what the client raises into our errors."""
        full_key = self._root + key
        parts = full_key.split("/")
        aliased = "\\" in full_key or "." in parts or ".." in parts
        if aliased or not full_key or not is_utf8(full_key):
            raise OSError(
                f"Azure has no object {self.child_uri(key)!r}: a backslash is a slash there, parts "
                f"that are . or .. are resolved, and a name is some text in UTF-8. Give the object "
                f"another name."
            )
        self._requests.add(kind)
        with self._readable(kind, full_key):
            yield self._client().get_blob_client(full_key)

    @contextmanager
    def _readable(self, kind: Call, full_key: str) -> Iterator[None]:
        """Turn what the client raises into what a store raises."""
        try:
            yield
        except AzureError as failure:
            where = f"abfss://{self._container}@{self._account}.dfs.{self._domain}/{full_key}"
            raise translated(failure, kind, where) from failure

    def _client(self) -> Any:
        """The client of the container; threads share it, processes do not."""
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                self._opened = os.getpid(), self._open()
            return self._opened[1]

    def _open(self) -> Any:
        account = open_account(self._account, self._access, "blob", domain=self._domain)
        retries = self._retries
        service = BlobServiceClient(
            account.endpoint,
            account.credential,
            connection_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            permit_redirects=False,  # the service sends none; each would be signed anew
            retry_policy=ExponentialRetry(
                initial_backoff=0,
                increment_base=2,
                random_jitter_range=1,
                retry_total=retries,
                retry_connect=retries,
                retry_read=retries,
                retry_status=retries,
            ),
        )
        return service.get_container_client(self._container)


def _reopen(uri: str, page_size: int, retries: int) -> AzureStore:
    return AzureStore(uri, page_size=page_size, retries=retries)


def _safe_start(text: str) -> str:
    """A text that UTF-16 and UTF-8 sort alike, not behind the given one and close to it."""
    late = _LATE.search(text)
    return text[: late.start()] + _LAST if late else text


def _safe_end(text: str) -> str:
    """A text that both sort alike, not before the given one; empty when there is none."""
    late = _LATE.search(text)
    if late is None:
        return text
    shared = text[: late.start()].rstrip(_LAST)
    return shared[:-1] + chr(ord(shared[-1]) + 1) if shared else ""


def _listed(blob: Any) -> Listed:
    return Listed(
        blob.name, blob.size, _microseconds(blob.last_modified), _etag(blob), _is_folder(blob)
    )


def _is_folder(found: Any) -> bool:
    """Whether an entry is the folder of a hierarchical namespace."""
    if found.size or not found.metadata:
        return False
    return any(
        name.lower() == "hdi_isfolder" and str(value).lower() == "true"
        for name, value in found.metadata.items()
    )


def _microseconds(moment: Any) -> int:
    """Whole seconds, as Azure's are, in microseconds."""
    return int(moment.timestamp()) * 1_000_000


def _etag(found: Any) -> str:
    return str(found.etag or "").strip('"')
