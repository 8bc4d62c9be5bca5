"""Use a bucket of S3, or of a compatible server, as an object store.

A key is any text of up to 1024 bytes. Listings are in the byte order of keys, conditional writes
are S3's own (`If-None-Match`, `If-Match`). The answer to a write may get lost: then the client's
next try is refused because of its own object, and the caller has to compare what is there with what
it wrote (`state/numbered_log.py` does).

`table_options` gives `deltalake` the same identity and address.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from airflow_cloudfiles.engine.clouds.aws.access import REQUEST_ARGUMENTS, AwsAccess
from airflow_cloudfiles.engine.clouds.aws.errors import error_code, error_status, readable
from airflow_cloudfiles.engine.clouds.aws.session import (
    aws_client,
    aws_credentials,
    request_arguments,
)
from airflow_cloudfiles.engine.errors import UnsupportedOptionError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.access import Access, of_kind
from airflow_cloudfiles.engine.storage.base import (
    Fingerprint,
    ListRequest,
    ObjectChangedError,
    ObjectNotFoundError,
    UnorderedListingError,
    UnsupportedRequestError,
    is_version,
    read_nothing,
)
from airflow_cloudfiles.engine.storage.flat import UTF8, Fetch, Page
from airflow_cloudfiles.engine.storage.flat_store import (
    TRIES,
    CloudStore,
    PageRequest,
    address_options,
    proxy_options,
)
from airflow_cloudfiles.engine.storage.outage import OUTCOMES, BrokenOffError, Call, broken_off
from airflow_cloudfiles.engine.storage.uri import is_directory_bucket

if TYPE_CHECKING:
    from datetime import datetime


_JITTER = random.Random()  # noqa: S311 - spreads tries; the global one is the caller's
_PERMISSIONS: dict[Call, str] = {
    "list": "s3:ListBucket",
    "head": "s3:GetObject (and s3:ListBucket on the bucket)",
    "get": "s3:GetObject",
    "put": "s3:PutObject",
    "delete": "s3:DeleteObject",
}
"""By kind of request: the permission that it takes."""

_FRAMES = {"content-length", "transfer-encoding"}
"""One of them gives the end of a body. An answer without either has lost some of its headers."""


COPIED_AT_ONCE = 5 * 2**30
"""Bytes that S3 copies with one request."""

PART_BYTES = 2**29
"""Of an object that is copied in parts."""

_DESCRIPTIONS = (
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
    "Metadata",
)
_CHECKSUMS = (
    "ChecksumCRC32",
    "ChecksumCRC32C",
    "ChecksumCRC64NVME",
    "ChecksumSHA1",
    "ChecksumSHA256",
)


_ARCHIVES = {"GLACIER", "DEEP_ARCHIVE"}
"""Storage classes whose objects have to be restored before they can be read. Those of Glacier
Instant Retrieval do not."""


class _RangeError(Exception):
    """The range begins behind the end of the object."""


class _ConflictError(ConnectionError):
    """Another conditional write to the same key is under way."""


_ANSWERS: dict[HTTPStatus, type[Exception]] = {
    HTTPStatus.NOT_FOUND: ObjectNotFoundError,
    HTTPStatus.PRECONDITION_FAILED: ObjectChangedError,
    HTTPStatus.NOT_MODIFIED: ObjectChangedError,  # of a put to MinIO before 2024
    HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE: _RangeError,
}


class S3Store(CloudStore):
    """An `ObjectStore` in a bucket.

    Modification times are whole seconds, as S3's are: some compatible servers list finer ones than
    they give for a single object.

    A directory bucket lists its keys in no order, and only below whole folders. It can be a source;
    whatever asks for an order is refused.

    Args:
        uri: `s3://bucket` or `s3://bucket/path`.
        access: How S3 is reached; `None` leaves it to the environment.
        page_size: Objects on a page of a listing, at most 1000.
    """

    _failures = (BotoCoreError, ClientError)
    _smallest_page = 1

    def __init__(self, uri: str, access: Access | None = None, *, page_size: int = 1000) -> None:
        super().__init__(uri, page_size=page_size)
        self._access: AwsAccess | None = of_kind(AwsAccess, access)

    @property
    def key_order(self) -> Callable[[str], Any] | None:
        """What two keys are compared by in the order of the bucket; `None`: it has no order."""
        return None if self._is_directory_bucket else UTF8.of

    @property
    def is_order_promised(self) -> bool:
        """Whether it is Amazon's S3, whose order is part of its interface.

        Some of the servers that are compatible with it list folder by folder.
        """
        return self._is_amazon

    @property
    def _is_amazon(self) -> bool:
        host = urlsplit(self._client().meta.endpoint_url).hostname or ""
        return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))

    def key_after(self, after: str) -> str | None:
        """Give the first key after a text."""
        self._require_order()
        return super().key_after(after)

    def _listing(self, wanted: ListRequest, *, ordered: bool) -> Iterator[FileEntry]:
        if ordered:
            self._require_order()
        return super()._listing(wanted, ordered=ordered)

    def _pages(self, prefix: str, size: int, end_before: str = "") -> Fetch:
        if not self._is_directory_bucket:
            return super()._pages(prefix, size, end_before)
        full_prefix = self._root + prefix
        folder = full_prefix[: full_prefix.rfind("/") + 1]

        def fetch(after: str, mark: str | None) -> Page:
            page = self._page(PageRequest(folder, after, mark, size))
            objects = (found for found in page.objects if found.key.startswith(full_prefix))
            return Page(objects, page.mark)

        return fetch

    @property
    def _is_directory_bucket(self) -> bool:
        return is_directory_bucket(self.uri)

    def _require_order(self) -> None:
        if self._is_directory_bucket:
            raise UnorderedListingError(
                f"{self.uri} is in a directory bucket, which does not list its keys in order. It "
                f"can be a source; use a general purpose bucket for everything else."
            )

    def _fetch_page(self, asked: PageRequest) -> Page:
        """Fetch one page; boto3 asks for encoded keys and decodes them, control characters too."""
        where: dict[str, Any] = {"ContinuationToken": asked.mark} if asked.mark else {}
        if asked.start_after > asked.prefix and not asked.mark:
            where = {"StartAfter": asked.start_after}
        if not self._is_directory_bucket:  # which has no archives, and refuses the question
            where["OptionalObjectAttributes"] = ["RestoreStatus"]
        found: dict[str, Any] = self._client().list_objects_v2(
            Bucket=self._bucket, Prefix=asked.prefix, MaxKeys=asked.size, **where
        )
        if "IsTruncated" not in found:  # the client takes it for an answer without a body
            raise BrokenOffError
        objects = [
            self._listed(
                *(one["Key"], one.get("Size"), _modified_us(one), _etag(one)),
                archived_in=archived_in(one),
            )
            for one in found.get("Contents", ())
        ]
        if not found["IsTruncated"]:
            return Page(objects)
        if not found.get("NextContinuationToken"):
            raise ConnectionError(
                f"The listing of {self._where(asked.prefix)} broke off: the server reported "
                f"another page without saying where it begins. Try again; if that does not help, "
                f"the server is at fault."
            )
        return Page(objects, found["NextContinuationToken"])

    def _describe(self, key: str, full_key: str) -> FileEntry:
        found = self._client().head_object(Bucket=self._bucket, Key=full_key)
        return self._entry_of(key, full_key, found)

    def _entry_of(self, key: str, full_key: str, found: dict[str, Any]) -> FileEntry:
        """Read the answer about an object; what its headers lack, a listing may have."""
        self._require_complete(found, "head", full_key)
        size, time_us = found.get("ContentLength"), _modified_us(found)
        if size is None or time_us is None:
            page = self._client().list_objects_v2(Bucket=self._bucket, Prefix=full_key, MaxKeys=1)
            listed: dict[str, Any] = next(
                (one for one in page.get("Contents", ()) if one["Key"] == full_key), {}
            )
            size = listed.get("Size") if size is None else size
            time_us = _modified_us(listed) if time_us is None else time_us
        return self._entry(key, size, time_us, _etag(found), archived_in(found))

    def _server_date(self) -> str | None:
        found = self._client().list_objects_v2(Bucket=self._bucket, Prefix=self._root, MaxKeys=1)
        date: str | None = found["ResponseMetadata"]["HTTPHeaders"].get("date")
        return date

    def _read(self, key: str, **arguments: str) -> bytes:
        """Read a body; the client repeats requests by itself, but not an answer that breaks off."""
        for tries_left in reversed(range(TRIES)):
            try:
                with self._call("get", key) as full_key:
                    found = self._client().get_object(
                        Bucket=self._bucket, Key=full_key, **arguments
                    )
                    self._require_complete(found, "get", full_key)
                    body = found["Body"]
                    with body:  # what this gives is another object, with errors of its own
                        content: bytes = body.read()
            except (ConnectionError, TimeoutError):
                if not tries_left:
                    raise
            else:
                return content
        raise AssertionError("unreachable")

    def _read_range(self, key: str, start: int, length: int, etag: str | None) -> bytes:
        condition = {} if etag is None else {"IfMatch": f'"{etag}"'}
        try:
            return self._read(key, Range=f"bytes={start}-{start + length - 1}", **condition)
        except _RangeError:
            return b"" if etag is None else read_nothing(self, key, etag)

    def _put(self, key: str, content: bytes, **condition: str) -> None:
        with self._call("put", key) as full_key:
            self._client().put_object(Bucket=self._bucket, Key=full_key, Body=content, **condition)

    def _put_if(self, key: str, content: bytes, etag: str | None) -> bool:
        """Put under a condition.

        Some servers (Ceph, DigitalOcean Spaces) refuse the right etag in quotes, as HTTP has it and
        as they give it themselves, and take it without.
        """
        if etag is None:
            return self._put_on(key, content, IfNoneMatch="*")
        if self._put_on(key, content, IfMatch=f'"{etag}"'):
            return True
        if self._is_amazon or (found := self.head(key)) is None or found.etag != etag:
            return False
        return self._put_on(key, content, IfMatch=etag)

    def _put_on(self, key: str, content: bytes, **condition: str) -> bool:
        """Put on a condition; that another such put is under way asks for another try."""
        for tries_left in reversed(range(TRIES)):
            try:
                self._put(key, content, **condition)
            except ObjectChangedError:
                return False
            except ObjectNotFoundError:
                if "IfMatch" not in condition:
                    raise
                return False
            except _ConflictError:
                if not tries_left:
                    raise
                time.sleep(_JITTER.uniform(0.02, 0.04) * 2 ** (TRIES - tries_left))
            else:
                return True
        raise AssertionError("unreachable")

    def _remove(self, full_key: str) -> None:
        self._client().delete_object(Bucket=self._bucket, Key=full_key)

    def _remove_version(self, full_key: str, entry: FileEntry) -> None:
        """Delete under a condition; a server that has none gets the question before."""
        try:
            self._client().delete_object(
                Bucket=self._bucket, Key=full_key, IfMatch=f'"{entry.etag}"'
            )
        except ClientError as failure:
            if error_status(failure) != HTTPStatus.NOT_IMPLEMENTED:
                raise
            if not is_version(self._describe(entry.path, full_key), entry):
                raise ObjectChangedError(full_key) from failure
            self._remove(full_key)

    def _copy(self, source_key: str, entry: FileEntry, full_key: str) -> None:
        source = {"Bucket": self._bucket, "Key": source_key}
        condition = {"CopySourceIfMatch": f'"{entry.etag}"'}
        if entry.size > COPIED_AT_ONCE:
            self._copy_parts(source, entry.size, full_key, condition)
            return
        self._client().copy_object(
            Bucket=self._bucket, Key=full_key, CopySource=source, IfNoneMatch="*", **condition
        )

    def _copy_parts(
        self, source: dict[str, str], size: int, full_key: str, condition: dict[str, str]
    ) -> None:
        """Copy an object that is too large for one request; what describes it is copied too."""
        client = self._client()
        to = {"Bucket": self._bucket, "Key": full_key}
        found = client.head_object(**source)
        kept = {name: found[name] for name in _DESCRIPTIONS if found.get(name)}
        upload = {**to, "UploadId": client.create_multipart_upload(**to, **kept)["UploadId"]}
        try:
            parts = []
            for number, start in enumerate(range(0, size, PART_BYTES), 1):
                end = min(start + PART_BYTES, size) - 1
                answer = client.upload_part_copy(
                    **upload,
                    PartNumber=number,
                    CopySource=source,
                    CopySourceRange=f"bytes={start}-{end}",
                    **condition,
                )
                parts.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
            whole = {"Parts": parts}
            client.complete_multipart_upload(**upload, MultipartUpload=whole, IfNoneMatch="*")
        except BaseException:
            with suppress(BotoCoreError, ClientError):
                client.abort_multipart_upload(**upload)
            raise

    def _describe_content(self, key: str, full_key: str) -> Fingerprint:
        """Inspect; the etag of an object that was written at once is mostly its MD5."""
        found = self._client().head_object(
            Bucket=self._bucket, Key=full_key, ChecksumMode="ENABLED"
        )
        entry = self._entry_of(key, full_key, found)
        etag = entry.etag
        checksums = {("etag", etag)} if etag and "-" not in etag else set()
        if found.get("ChecksumType") == "FULL_OBJECT":
            checksums |= {(name, found[name]) for name in _CHECKSUMS if found.get(name)}
        return Fingerprint(entry, frozenset(checksums))

    def _require_complete(self, answer: dict[str, Any], kind: Call, full_key: str) -> None:
        """Refuse an answer that ends within its headers."""
        if not _FRAMES & answer["ResponseMetadata"]["HTTPHeaders"].keys():
            raise broken_off(self._where(full_key), kind)

    def _client(self) -> Any:
        return aws_client("s3", self._access)

    def _translated(
        self, failure: BotoCoreError | ClientError, kind: Call, where: str
    ) -> Exception:
        what, permission = f"{where} {OUTCOMES[kind]}", _PERMISSIONS[kind]
        if not isinstance(failure, ClientError):
            return readable(failure, what, permission)
        code, status = error_code(failure), error_status(failure)
        if code == "NoSuchBucket" or (kind == "list" and status == HTTPStatus.NOT_FOUND):
            return FileNotFoundError(
                f"{what}: there is no such bucket. Check its name, the account and the endpoint."
            )
        if status == HTTPStatus.CONFLICT:
            return _ConflictError(f"{what}: other writers kept changing it ({code}). Try again.")
        if status == HTTPStatus.NOT_IMPLEMENTED:
            return UnsupportedRequestError(f"{what}: the server has no such request ({code}).")
        if status in _ANSWERS:
            return _ANSWERS[HTTPStatus(status)](where)
        return readable(failure, what, permission)


def _modified_us(found: dict[str, Any]) -> int | None:
    """Read when an object was written, in microseconds (whole seconds); `None` without a time."""
    moment: datetime | None = found.get("LastModified")
    return None if moment is None else int(moment.timestamp()) * 1_000_000


def _etag(found: dict[str, Any]) -> str:
    return str(found.get("ETag", "")).strip('"')


def archived_in(found: dict[str, Any]) -> str:
    """Find the storage class from which an object has to be restored; empty for none.

    Args:
        found: Of a listing, or the answer about an object, which alone knows the access tiers of
            Intelligent-Tiering. A restored object keeps its class, and has a copy for some days.
    """
    if tier := found.get("ArchiveStatus"):
        return f"INTELLIGENT_TIERING, {tier}"
    storage_class = found.get("StorageClass", "")
    if storage_class not in _ARCHIVES:
        return ""
    is_restored = "RestoreExpiryDate" in found.get(
        "RestoreStatus", {}
    ) or 'ongoing-request="false"' in found.get("Restore", "")
    return "" if is_restored else str(storage_class)


def table_options(bucket: str) -> dict[str, str]:
    """Find identity and address for S3, as boto3 does."""
    access: AwsAccess | None = of_kind(AwsAccess, None)
    client = aws_client("s3", access)
    options = {
        "aws_region": _region(client, bucket),
        # Whole versions of the log or none, and each once: S3's own condition, no lock beside it.
        "aws_conditional_put": "etag",
    }
    found = aws_credentials(access)
    if found is not None:
        options["aws_access_key_id"] = found.access_key
        options["aws_secret_access_key"] = found.secret_key
        if found.token:
            options["aws_session_token"] = found.token
    endpoint = str(client.meta.endpoint_url)
    # What `deltalake` finds by itself; the addresses of other partitions, too, are named to it.
    of_amazon = (urlsplit(endpoint).hostname or "").endswith(".amazonaws.com")
    if not of_amazon:
        options |= address_options("aws_endpoint_url", "aws_allow_http", endpoint)
    path_style = not of_amazon or "." in bucket or (access is not None and access.path_style)
    options["aws_virtual_hosted_style_request"] = str(not path_style).lower()
    options |= _of_client_config(access.client_config if access else {})
    for name, value in request_arguments(access).items():
        is_yes = value is True or name == "RequestPayer"
        options[REQUEST_ARGUMENTS[name].lower()] = "true" if is_yes else str(value)
    if access is not None and access.verify is False:
        options["allow_invalid_certificates"] = "true"
    return options


def _of_client_config(config: Mapping[str, Any]) -> dict[str, str]:
    """Find what clients of S3 obey besides, in the words of `deltalake`.

    Raises:
        UnsupportedOptionError: It has no word for it.
    """
    for name in ("use_dualstack_endpoint", "use_fips_endpoint", "proxies_config"):
        if config.get(name):
            raise UnsupportedOptionError(
                f"The connection says {name} in config_kwargs, which deltalake does not know. Give "
                "the address as endpoint_url, or a proxy that needs no settings, for tables."
            )
    options = proxy_options(config.get("proxies") or {})
    if config.get("signature_version") == "unsigned":
        options["aws_skip_signature"] = "true"
    return options


def _region(client: Any, bucket: str) -> str:
    """Return the region of a client; ask the bucket when the client has none."""
    named = str(client.meta.region_name or "")
    if named not in {"", "aws-global"}:
        return named
    return str(client.head_bucket(Bucket=bucket).get("BucketRegion") or "us-east-1")
