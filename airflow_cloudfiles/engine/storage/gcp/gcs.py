"""How does a bucket of Google Cloud Storage serve as an object store?

The etag of an object is its generation: each write gives another, so conditions on it cannot be
met by an older writer. The modification time is that of the generation (`timeCreated`), not
`updated`, which changes with labels and storage classes too: the file is still the same.
Objects are read as they are stored: one with `Content-Encoding: gzip` is not unpacked on the way.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from google.api_core.exceptions import (
    GoogleAPIError,
    PreconditionFailed,
    RequestRangeNotSatisfiable,
)
from google.auth.exceptions import GoogleAuthError
from google.cloud.storage import Client
from google.cloud.storage.exceptions import DataCorruption
from google.cloud.storage.retry import DEFAULT_RETRY

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.access import Access, GcpAccess, of_kind
from airflow_cloudfiles.engine.storage.base import (
    ObjectNotFoundError,
    RequestCounter,
    SkipRule,
    Wanted,
    read_nothing,
    refuse_version,
)
from airflow_cloudfiles.engine.storage.clock import http_now_us
from airflow_cloudfiles.engine.storage.flat import (
    UTF8,
    Fetch,
    Listed,
    Page,
    child_uri,
    first_key,
    is_utf8,
    key_below,
    list_flat,
)
from airflow_cloudfiles.engine.storage.gcp.client import google_credentials
from airflow_cloudfiles.engine.storage.gcp.errors import Call, translated
from airflow_cloudfiles.engine.storage.uri import bucket_and_path, normalize_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_TRIES = 3
"""How often a page is asked for whose text breaks off, which the client does not repeat itself."""

_TIMEOUTS = (10, 60)
"""Seconds to connect, and to wait for the next bytes."""

_FAILURES = (GoogleAPIError, GoogleAuthError, DataCorruption, OSError)
"""What Google's client raises; the errors of what it speaks HTTP with are `OSError`."""

_FIELDS = "items(name,size,timeCreated,generation),nextPageToken"


class GcsStore:
    """An `ObjectStore` in a bucket.

    A pickle holds no credentials: where it is opened, the environment there decides.

    Args:
        uri: `gs://bucket` or `gs://bucket/path`.
        access: How Cloud Storage is reached; `None` leaves it to the environment.
        page_size: Objects on a page of a listing, at most 1000.
        retry_seconds: How long the client repeats a request that fails for a while.
    """

    def __init__(
        self,
        uri: str,
        access: Access | None = None,
        *,
        page_size: int = 1000,
        retry_seconds: float = 60,
    ) -> None:
        self._uri = normalize_uri(uri)
        self._bucket, path = bucket_and_path(self._uri)
        self._root = path + "/" if path else ""
        self._access: GcpAccess | None = of_kind(GcpAccess, access)
        self._page_size = page_size
        self._retry_seconds = retry_seconds
        self._often: dict[str, Any] = {
            "retry": DEFAULT_RETRY.with_timeout(retry_seconds),
            "timeout": _TIMEOUTS,
        }
        self._requests = RequestCounter()
        self._lock = threading.Lock()
        self._opened: tuple[int, Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._uri, self._page_size, self._retry_seconds)

    @property
    def uri(self) -> str:
        """Canonical URI of the root."""
        return self._uri

    @property
    def page_size(self) -> int:
        """Objects on a page of a listing."""
        return self._page_size

    @property
    def requests(self) -> Counter[str]:
        """How many requests were made so far; what the client repeated by itself counts once."""
        return self._requests.so_far()

    def is_folder(self) -> bool:
        """Whether the bucket is there; that it may be listed is seen at the same time."""
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
        """List the objects, in byte order of their keys, a page a request."""
        wanted = Wanted(prefix, start_after, end_before, skip)
        fetch = self._pages(prefix, self._page_size, end_before)
        return list_flat(fetch, self._root, wanted, order=UTF8 if ordered else None)

    def key_after(self, after: str) -> str | None:
        """Give the first key after a text."""
        return first_key(self._pages("", 2), self._root, after)

    def head(self, key: str) -> FileEntry | None:
        """Look at an object; `None` when there is none."""
        try:
            with self._calling("head", key) as blob:
                blob.reload(**self._often)
        except ObjectNotFoundError:
            return None
        return FileEntry(key, blob.size, _microseconds(blob.time_created), str(blob.generation))

    def clock_us(self) -> int:
        """Tell the time by Cloud Storage's clock."""
        dates: list[str | None] = []

        def note(answer: Any, **_: Any) -> None:
            dates.append(answer.headers.get("Date"))

        client = self._open()  # one of its own, whose session may be listened to
        client._http.hooks["response"].append(note)  # noqa: SLF001 - its only way to a header
        self._requests.add("list")
        with self._readable("list", self._root):
            listing = client.list_blobs(
                self._bucket, prefix=self._root or None, page_size=1, **self._often
            )
            next(listing.pages, None)
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
        if length == 0:  # which Cloud Storage has no words for
            return read_nothing(self, key, etag)
        if etag is None:
            return self._read(key, start=start, end=start + length - 1)
        try:  # a bucket that keeps old versions gives the one that is asked for
            return self._read(key, int(etag), start=start, end=start + length - 1)
        except ObjectNotFoundError:
            refuse_version(self, key)

    def put(self, key: str, content: bytes) -> None:
        """Create or replace an object."""
        with self._calling("put", key) as blob:
            self._upload(blob, content)

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create an object unless there is one."""
        return self._put_if(key, content, 0)

    def put_if_match(self, key: str, content: bytes, etag: str) -> bool:
        """Replace an object if it still is the version that has an etag: its generation."""
        return self._put_if(key, content, int(etag))

    def delete(self, key: str) -> None:
        """Remove an object, if there is one."""
        try:
            with self._calling("delete", key) as blob:
                blob.delete(**self._often)
        except ObjectNotFoundError:
            return

    def child_uri(self, key: str) -> str:
        """Give the URI of an object."""
        return child_uri(self._uri, key)

    def key_of(self, uri: str) -> str | None:
        """Tell under which key another location appears below this root."""
        return key_below(self._uri, uri)

    def _put_if(self, key: str, content: bytes, generation: int) -> bool:
        with self._calling("put", key) as blob:
            try:
                self._upload(blob, content, if_generation_match=generation)
            except PreconditionFailed:
                return False
        return True

    def _upload(self, blob: Any, content: bytes, **condition: int) -> None:
        """Upload; to repeat it is safe, for it says the same each time."""
        kind = "application/octet-stream"
        blob.upload_from_string(bytes(content), content_type=kind, **condition, **self._often)

    def _read(self, key: str, generation: int | None = None, **part: int) -> bytes:
        with self._calling("get", key, generation) as blob:
            try:
                content: bytes = blob.download_as_bytes(raw_download=True, **part, **self._often)
            except RequestRangeNotSatisfiable:
                return b""
        return content

    def _pages(self, prefix: str, size: int, end_before: str = "") -> Fetch:
        full_prefix = self._root + prefix
        end = self._root + end_before if end_before else None
        return lambda after, mark: self._page(full_prefix, after, mark, size=size, end=end)

    def _page(
        self, prefix: str, start_after: str, mark: str | None, *, size: int, end: str | None = None
    ) -> Page:
        """Fetch one page; where it starts is inclusive, where it ends is not."""
        self._requests.add("list")
        with self._readable("list", prefix):
            for tries_left in reversed(range(_TRIES)):
                listing = self._client().list_blobs(
                    self._bucket,
                    prefix=prefix or None,
                    start_offset=start_after if start_after > prefix else None,
                    end_offset=end,
                    page_token=mark,
                    page_size=size,
                    fields=_FIELDS,
                    **self._often,
                )
                try:
                    page = next(listing.pages, None)
                except GoogleAuthError:  # some are values that are not valid, too
                    raise
                except ValueError as failure:  # not JSON
                    if tries_left:
                        continue
                    raise ConnectionError from failure
                objects = page.raw_page.get("items", ()) if page else ()
                return Page([_listed(one) for one in objects], listing.next_page_token)
        raise AssertionError("unreachable")

    @contextmanager
    def _calling(self, kind: Call, key: str, generation: int | None = None) -> Iterator[Any]:
        """Count a request about one object, and turn what the client raises into our errors."""
        if not self._root + key or not is_utf8(key):
            raise OSError(
                f"Cloud Storage has no object {self.child_uri(key)!r}: a name is some text in "
                f"UTF-8. Give the object another name."
            )
        self._requests.add(kind)
        with self._readable(kind, self._root + key):
            bucket = self._client().bucket(self._bucket)
            yield bucket.blob(self._root + key, generation=generation)

    @contextmanager
    def _readable(self, kind: Call, full_key: str) -> Iterator[None]:
        """Turn what the client raises into what a store raises."""
        try:
            yield
        except _FAILURES as failure:
            raise translated(failure, kind, f"gs://{self._bucket}/{full_key}") from failure

    def _client(self) -> Any:
        """The client; threads share it, processes do not."""
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                self._opened = os.getpid(), self._open()
            return self._opened[1]

    def _open(self) -> Any:
        access = self._access or GcpAccess()
        options: dict[str, Any] = {}
        if access.storage_endpoint:
            options["client_options"] = {"api_endpoint": access.storage_endpoint.rstrip("/")}
        client = Client(project=access.project, credentials=google_credentials(access), **options)
        client._http.max_redirects = 0  # noqa: SLF001 - the service sends none, nothing follows any
        return client


def _reopen(uri: str, page_size: int, retry_seconds: float) -> GcsStore:
    return GcsStore(uri, page_size=page_size, retry_seconds=retry_seconds)


def _listed(found: dict[str, str]) -> Listed:
    created = _microseconds(datetime.fromisoformat(found["timeCreated"]))
    return Listed(found["name"], int(found.get("size", 0)), created, found["generation"])


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
