"""How does a bucket of S3, or of something that speaks its protocol, serve as an object store?

A key is any text of up to 1024 bytes. Listings are in the byte order of keys, conditional writes
are S3's own (`If-None-Match`, `If-Match`). The same key may have been written by a try whose answer
was lost: then the client's next try is told "already there" about its own object, and the caller
has to look whose it is (`state/numbered_log.py` does).
"""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.access import Access, AwsAccess, of_kind
from airflow_cloudfiles.engine.storage.aws.errors import error_code, error_status, readable
from airflow_cloudfiles.engine.storage.aws.session import aws_client
from airflow_cloudfiles.engine.storage.base import (
    ObjectChangedError,
    ObjectNotFoundError,
    RequestCounter,
    SkipRule,
    UnorderedListingError,
    Wanted,
    read_nothing,
)
from airflow_cloudfiles.engine.storage.clock import http_now_us
from airflow_cloudfiles.engine.storage.flat import (
    UTF8,
    Fetch,
    Listed,
    Page,
    child_uri,
    first_key,
    key_below,
    list_flat,
)
from airflow_cloudfiles.engine.storage.uri import (
    bucket_and_path,
    is_directory_bucket,
    normalize_uri,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

_TRIES = 5
_CALLS = {
    "list": ("could not be listed", "s3:ListBucket"),
    "head": ("could not be looked at", "s3:GetObject (and s3:ListBucket on the bucket)"),
    "get": ("could not be read", "s3:GetObject"),
    "put": ("could not be written", "s3:PutObject"),
    "delete": ("could not be deleted", "s3:DeleteObject"),
}
"""By kind of request: what did not work, and the permission that it takes."""


_FRAMES = {"content-length", "transfer-encoding"}
"""One of them says where a body ends. An answer without either has lost some of its headers."""


class _PreconditionError(Exception):
    """The condition of a conditional write does not hold."""


class _RangeError(Exception):
    """The range begins behind the end of the object."""


class _ConflictError(ConnectionError):
    """Another conditional write to the same key is under way."""


_ANSWERS: dict[HTTPStatus, type[Exception]] = {
    HTTPStatus.NOT_FOUND: ObjectNotFoundError,
    HTTPStatus.PRECONDITION_FAILED: _PreconditionError,
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE: _RangeError,
}


class S3Store:
    """An `ObjectStore` in a bucket.

    Modification times are whole seconds, as S3's are: some that speak its protocol list finer ones
    than they give for a single object. A pickle holds no credentials: where it is opened, the
    environment there decides.

    A directory bucket lists its keys in no order, and only below whole folders. It can be a source;
    whatever asks for an order is refused.

    Args:
        uri: `s3://bucket` or `s3://bucket/path`.
        access: How S3 is reached; `None` leaves it to the environment.
        page_size: Objects on a page of a listing, at most 1000.
    """

    def __init__(self, uri: str, access: Access | None = None, *, page_size: int = 1000) -> None:
        self._uri = normalize_uri(uri)
        self._bucket, path = bucket_and_path(self._uri)
        self._root = path + "/" if path else ""
        self._access: AwsAccess | None = of_kind(AwsAccess, access)
        self._page_size = page_size
        self._requests = RequestCounter()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._uri, self._page_size)

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
        """What two keys are compared by in the order of the bucket; `None`: it has no order."""
        return None if self._is_directory_bucket else UTF8.of

    @property
    def is_order_promised(self) -> bool:
        """Whether it is Amazon's S3, whose order is part of its interface.

        Other servers speak the protocol, and some of them list folder by folder.
        """
        host = urlsplit(self._client().meta.endpoint_url).hostname or ""
        return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))

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
        fetch = self._pages(prefix, self._page_size)
        if not ordered:
            return list_flat(fetch, self._root, wanted, order=None)
        self._require_order()
        return list_flat(fetch, self._root, wanted)

    def key_after(self, after: str) -> str | None:
        """Give the first key after a text."""
        self._require_order()
        return first_key(self._pages("", 1), self._root, after)

    def head(self, key: str) -> FileEntry | None:
        """Look at an object; `None` when there is none."""
        try:
            found = self._call("head", "head_object", key)
        except ObjectNotFoundError:
            return None
        return FileEntry(
            key, found["ContentLength"], _microseconds(found["LastModified"]), _etag(found)
        )

    def clock_us(self) -> int:
        """Tell the time by S3's clock."""
        self._requests.add("list")
        with _readable("list", self._uri):
            found = self._client().list_objects_v2(
                Bucket=self._bucket, Prefix=self._root, MaxKeys=1
            )
        return http_now_us(found["ResponseMetadata"]["HTTPHeaders"].get("date"), self._uri)

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
        if length == 0:  # which S3 has no words for
            return read_nothing(self, key, etag)
        condition = {} if etag is None else {"IfMatch": f'"{etag}"'}
        try:
            return self._read(key, Range=f"bytes={start}-{start + length - 1}", **condition)
        except _RangeError:
            return b"" if etag is None else read_nothing(self, key, etag)
        except _PreconditionError as failure:
            raise ObjectChangedError(self.child_uri(key)) from failure

    def put(self, key: str, content: bytes) -> None:
        """Create or replace an object."""
        self._call("put", "put_object", key, Body=content)

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create an object unless there is one."""
        return self._put_if(key, content, IfNoneMatch="*")

    def put_if_match(self, key: str, content: bytes, etag: str) -> bool:
        """Replace an object if it still is the version that has an etag."""
        try:
            return self._put_if(key, content, IfMatch=f'"{etag}"')
        except ObjectNotFoundError:
            return False

    def delete(self, key: str) -> None:
        """Remove an object, if there is one."""
        self._call("delete", "delete_object", key)

    def child_uri(self, key: str) -> str:
        """Give the URI of an object."""
        return child_uri(self._uri, key)

    def key_of(self, uri: str) -> str | None:
        """Tell under which key another location appears below this root."""
        return key_below(self._uri, uri)

    def _pages(self, prefix: str, size: int) -> Fetch:
        full_prefix = self._root + prefix
        if not self._is_directory_bucket:
            return lambda after, mark: self._page(full_prefix, after, mark, size=size)
        folder = full_prefix[: full_prefix.rfind("/") + 1]

        def fetch(after: str, mark: str | None) -> Page:
            page = self._page(folder, after, mark, size=size)
            objects = (found for found in page.objects if found.key.startswith(full_prefix))
            return Page(objects, page.mark)

        return fetch

    @property
    def _is_directory_bucket(self) -> bool:
        return is_directory_bucket(self._uri)

    def _require_order(self) -> None:
        if self._is_directory_bucket:
            raise UnorderedListingError(
                f"{self._uri} is in a directory bucket, which does not list its keys in order. It "
                f"can be a source; use a general purpose bucket for everything else."
            )

    def _page(self, prefix: str, start_after: str, mark: str | None, *, size: int) -> Page:
        """Fetch one page; boto3 asks for encoded keys and decodes them, control characters too."""
        where = {"ContinuationToken": mark} if mark else {}
        if start_after > prefix and not mark:
            where = {"StartAfter": start_after}
        self._requests.add("list")
        found: dict[str, Any] = {}
        for _ in range(_TRIES):
            with _readable("list", f"s3://{self._bucket}/{prefix}"):
                found = self._client().list_objects_v2(
                    Bucket=self._bucket, Prefix=prefix, MaxKeys=size, **where
                )
            if "IsTruncated" in found:
                break
        else:
            raise _broken_off(f"s3://{self._bucket}/{prefix}", "list")
        objects = (
            Listed(one["Key"], one["Size"], _microseconds(one["LastModified"]), _etag(one))
            for one in found.get("Contents", ())
        )
        if not found.get("IsTruncated"):
            return Page(objects)
        if not found.get("NextContinuationToken"):
            raise ConnectionError(
                f"The listing of s3://{self._bucket}/{prefix} breaks off: the server says that "
                f"there is more, and not where. Try again; if it stays so, the server is at fault."
            )
        return Page(objects, found["NextContinuationToken"])

    def _put_if(self, key: str, content: bytes, **condition: str) -> bool:
        """Put under a condition; that another such put is under way asks for another try."""
        for tries_left in reversed(range(_TRIES)):
            try:
                self._call("put", "put_object", key, Body=content, **condition)
            except _PreconditionError:
                return False
            except _ConflictError:
                if not tries_left:
                    raise
                time.sleep(random.uniform(0.02, 0.04) * 2 ** (_TRIES - tries_left))  # noqa: S311
            else:
                return True
        raise AssertionError("unreachable")

    def _read(self, key: str, **arguments: str) -> bytes:
        """Read a body; the client repeats requests by itself, but not an answer that breaks off."""
        for tries_left in reversed(range(_TRIES)):
            try:
                body = self._call("get", "get_object", key, **arguments)["Body"]
                with _readable("get", self.child_uri(key)), body:
                    content: bytes = body.read()
            except (ConnectionError, TimeoutError):
                if not tries_left:
                    raise
            else:
                return content
        raise AssertionError("unreachable")

    def _call(self, kind: str, operation: str, key: str, **arguments: Any) -> dict[str, Any]:
        self._requests.add(kind)
        with _readable(kind, self.child_uri(key)):
            answer: dict[str, Any] = getattr(self._client(), operation)(
                Bucket=self._bucket, Key=self._root + key, **arguments
            )
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        if kind in {"head", "get"} and not _FRAMES & headers.keys():
            raise _broken_off(self.child_uri(key), kind)
        return answer

    def _client(self) -> Any:
        return aws_client("s3", self._access)


def _reopen(uri: str, page_size: int) -> S3Store:
    """Open what a pickle holds."""
    return S3Store(uri, page_size=page_size)


@contextmanager
def _readable(kind: str, where: str) -> Iterator[None]:
    """Turn what the client raises into what a store raises."""
    try:
        yield
    except (BotoCoreError, ClientError) as failure:
        raise _translated(failure, kind, where) from failure


def _translated(failure: BotoCoreError | ClientError, kind: str, where: str) -> Exception:
    what, permission = _CALLS[kind]
    if not isinstance(failure, ClientError):
        return readable(failure, f"{where} {what}", permission)
    code, status = error_code(failure), error_status(failure)
    if code == "NoSuchBucket" or (kind == "list" and status == HTTPStatus.NOT_FOUND):
        return FileNotFoundError(
            f"{where} {what}: there is no such bucket. Check its name, and the account and the "
            f"address that it is looked for at."
        )
    if status == HTTPStatus.CONFLICT:
        return _ConflictError(f"{where} {what}: others kept writing it ({code}). Try again.")
    if status in _ANSWERS:
        return _ANSWERS[HTTPStatus(status)](where)
    return readable(failure, f"{where} {what}", permission)


def _broken_off(where: str, kind: str) -> ConnectionError:
    """An answer that ends within its headers: the client takes it for one without a body."""
    return ConnectionError(
        f"{where} {_CALLS[kind][0]}: the answer broke off within its headers. Try again; if it "
        f"stays so, look at what is between here and the server."
    )


def _microseconds(moment: datetime) -> int:
    """Whole seconds, in microseconds."""
    return int(moment.timestamp()) * 1_000_000


def _etag(found: dict[str, Any]) -> str:
    return str(found.get("ETag", "")).strip('"')
