"""Serve a bucket of Google Cloud Storage as an object store, and tell what its errors mean.

The etag of an object is its generation: each write gives another, so conditions on it cannot be
met by an older writer. The modification time is that of the generation (`timeCreated`), not
`updated`, which changes with labels and storage classes too: the file is still the same.
Objects are read as they are stored: one with `Content-Encoding: gzip` is not unpacked on the way.

One sentence with the object, and what to do: never the client's own text, which holds the request.

`table_options` gives `deltalake` the same identity and address.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

from google.api_core import exceptions as google
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.cloud.storage import Client
from google.cloud.storage.exceptions import DataCorruption
from google.cloud.storage.retry import DEFAULT_RETRY

from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.clouds.gcp.client import (
    google_credentials,
    is_identity_outage,
    key_file,
)
from airflow_cloudfiles.engine.errors import UnsupportedOptionError
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.access import Access, of_kind
from airflow_cloudfiles.engine.storage.base import (
    Fingerprint,
    ObjectChangedError,
    ObjectNotFoundError,
    refuse_version,
)
from airflow_cloudfiles.engine.storage.flat import ListedObject, Page
from airflow_cloudfiles.engine.storage.flat_store import (
    ClientPerProcess,
    CloudStore,
    PageRequest,
    address_options,
    keep_connections,
)
from airflow_cloudfiles.engine.storage.outage import (
    NO_ANSWER_IN_TIME,
    NO_IDENTITY_NOW,
    OUTCOMES,
    BrokenOffError,
    Call,
    Reason,
    Service,
)

_PERMISSIONS: dict[Call, str] = {
    "list": "storage.objects.list",
    "head": "storage.objects.get",
    "get": "storage.objects.get",
    "put": "storage.objects.create and storage.objects.delete",
    "delete": "storage.objects.delete",
}
"""By kind of request: the permission that it takes."""

_SERVICE = Service(
    "Cloud Storage", container="bucket", grant="the permission", correct="Check its name."
)


def _reason(cause: BaseException, status: int | None, needed: str) -> Reason:
    """Say why a request failed and what to do, with the class that programs react to."""
    if status is not None:
        return _SERVICE.reason(status, f"status {status}", needed)
    if "Timeout" in type(cause).__name__:
        return NO_ANSWER_IN_TIME
    return _without_answer(cause)


def _without_answer(cause: BaseException) -> Reason:
    """Say why there is no answer of Cloud Storage at all."""
    name = type(cause).__name__
    if isinstance(cause, GoogleAuthError) and is_identity_outage(cause):
        return ConnectionError, f"{NO_IDENTITY_NOW} ({name})"
    if isinstance(cause, DefaultCredentialsError):
        return (
            PermissionError,
            "no Google credentials here. Use a connection, or application default credentials.",
        )
    if isinstance(cause, GoogleAuthError):
        return PermissionError, f"Google did not accept the credentials ({name}). Renew them."
    if name == "TooManyRedirects":
        reason = (
            "the answer was a redirect, which is not followed. Check the storage_endpoint of the "
            "connection, or STORAGE_EMULATOR_HOST."
        )
        return PermissionError, reason
    return (
        ConnectionError,
        f"no answer, or one that broke off ({name}). Check the network, and try again.",
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_TIMEOUTS = (10, 60)
"""Seconds to connect, and to wait for the next bytes."""

_FIELDS = "items(name,size,timeCreated,generation),nextPageToken"


class GcsStore(CloudStore):
    """An `ObjectStore` in a bucket.

    Args:
        uri: `gs://bucket` or `gs://bucket/path`.
        access: How Cloud Storage is reached; `None` leaves it to the environment.
        page_size: Objects on a page of a listing, at most 1000.
        retry_seconds: How long the client repeats a request that fails for a while.
    """

    _failures = (google.GoogleAPIError, GoogleAuthError, DataCorruption, OSError)
    _key_rule = "In Cloud Storage a name is text in UTF-8."

    def __init__(
        self,
        uri: str,
        access: Access | None = None,
        *,
        page_size: int = 1000,
        retry_seconds: float = 60,
    ) -> None:
        super().__init__(uri, page_size=page_size, retry_seconds=retry_seconds)
        self._access: GcpAccess | None = of_kind(GcpAccess, access)
        self._patience: dict[str, Any] = {
            "retry": DEFAULT_RETRY.with_timeout(retry_seconds),
            "timeout": _TIMEOUTS,
        }
        self._clients = ClientPerProcess(self._open_client, lambda: key_file(self._access))

    def _describe(self, key: str, full_key: str) -> FileEntry:
        blob = self._blob(full_key)
        blob.reload(**self._patience)
        return self._entry_of(key, blob)

    def _entry_of(self, key: str, blob: Any) -> FileEntry:
        time_us = _microseconds(blob.time_created)
        return self._entry(key, blob.size, time_us, str(blob.generation or ""))

    def _server_date(self) -> str | None:
        dates: list[str | None] = []

        def note(answer: Any, **_: Any) -> None:
            dates.append(answer.headers.get("Date"))

        client = self._open_client()  # one of its own, whose session may have a hook
        client._http.hooks["response"].append(note)  # noqa: SLF001 - its only way to a header
        listing = client.list_blobs(
            self._bucket, prefix=self._root or None, page_size=1, **self._patience
        )
        next(listing.pages, None)
        return dates[-1] if dates else None

    def _put(self, key: str, content: bytes, **condition: int) -> None:
        """Upload; to repeat it is safe, for the request is the same each time."""
        kind = "application/octet-stream"
        with self._call("put", key) as full_key:
            self._blob(full_key).upload_from_string(
                bytes(content), content_type=kind, **condition, **self._patience
            )

    def _put_if(self, key: str, content: bytes, etag: str | None) -> bool:
        """Put if the generation is that of the etag; 0 is the one of no object."""
        try:
            self._put(key, content, if_generation_match=int(etag or 0))
        except ObjectChangedError:
            return False
        return True

    def _read(self, key: str, generation: int | None = None, **part: int) -> bytes:
        with self._call("get", key) as full_key:
            try:
                content: bytes = self._blob(full_key, generation).download_as_bytes(
                    raw_download=True, **part, **self._patience
                )
            except google.RequestRangeNotSatisfiable:
                return b""
        return content

    def _read_range(self, key: str, start: int, length: int, etag: str | None) -> bytes:
        generation = None if etag is None else int(etag)
        try:  # a bucket that keeps old versions gives the one that is asked for
            return self._read(key, generation, start=start, end=start + length - 1)
        except ObjectNotFoundError:
            if etag is None:
                raise
            refuse_version(self, key)

    def _remove(self, full_key: str) -> None:
        self._blob(full_key).delete(**self._patience)

    def _remove_version(self, full_key: str, entry: FileEntry) -> None:
        self._blob(full_key).delete(if_generation_match=int(entry.etag), **self._patience)

    def _copy(self, source_key: str, entry: FileEntry, full_key: str) -> None:
        """Copy, with as many requests as the service takes for it."""
        generation = int(entry.etag)
        source, blob = self._blob(source_key, generation), self._blob(full_key)
        token: str | None = None
        try:
            while True:
                token, _, _ = blob.rewrite(
                    source,
                    token=token,
                    if_generation_match=0,
                    if_source_generation_match=generation,
                    **self._patience,
                )
                if token is None:
                    return
        except google.NotFound as failure:
            raise ObjectChangedError(full_key) from failure

    def _describe_content(self, key: str, full_key: str) -> Fingerprint:
        blob = self._blob(full_key)
        blob.reload(**self._patience)
        entry = self._entry_of(key, blob)
        found = {("crc32c", blob.crc32c), ("md5", blob.md5_hash)}
        return Fingerprint(entry, frozenset(each for each in found if each[1]))

    def _fetch_page(self, asked: PageRequest) -> Page:
        """Fetch one page; where it starts is inclusive, where it ends is not."""
        listing = self._client().list_blobs(
            self._bucket,
            prefix=asked.prefix or None,
            start_offset=asked.start_after if asked.start_after > asked.prefix else None,
            end_offset=asked.end_before or None,
            page_token=asked.mark,
            page_size=asked.size,
            fields=_FIELDS,
            **self._patience,
        )
        try:
            page = next(listing.pages, None)
        except GoogleAuthError:  # some are values that are not valid, too
            raise
        except ValueError as failure:  # not JSON
            raise BrokenOffError from failure
        objects = page.raw_page.get("items", ()) if page else ()
        return Page([self._listed_object(one) for one in objects], listing.next_page_token)

    def _listed_object(self, found: dict[str, str]) -> ListedObject:
        created, size = found.get("timeCreated"), found.get("size")
        time_us = _microseconds(datetime.fromisoformat(created)) if created else None
        etag = found.get("generation", "")
        return self._listed(found["name"], int(size) if size else None, time_us, etag)

    def _translated(self, failure: Exception, kind: Call, where: str) -> Exception:
        cause: BaseException = failure
        while isinstance(cause, google.RetryError) and cause.cause is not None:
            cause = cause.cause
        status = cause.code if isinstance(cause, google.GoogleAPICallError) else None
        if status == HTTPStatus.NOT_FOUND and kind not in {"list", "put"}:
            return ObjectNotFoundError(where)
        if status == HTTPStatus.PRECONDITION_FAILED:
            return ObjectChangedError(where)
        error, reason = _reason(cause, status, _PERMISSIONS[kind])
        return error(f"{where} {OUTCOMES[kind]}: {reason}")

    def _blob(self, full_key: str, generation: int | None = None) -> Any:
        return self._client().bucket(self._bucket).blob(full_key, generation=generation)

    def _client(self) -> Any:
        return self._clients.get()

    def _open_client(self) -> Any:
        access = self._access or GcpAccess()
        options: dict[str, Any] = {}
        if access.storage_endpoint:
            options["client_options"] = {"api_endpoint": access.storage_endpoint.rstrip("/")}
        client = Client(project=access.project, credentials=google_credentials(access), **options)
        client._http.max_redirects = 0  # noqa: SLF001 - the service sends none, nothing follows any
        client._http.hooks["response"].append(_refuse_empty)  # noqa: SLF001 - as above
        keep_connections(client._http)  # noqa: SLF001 - as above
        return client


def _refuse_empty(answer: Any, **_: Any) -> None:
    """Have an answer repeated that was cut off in its headers, and so has no JSON.

    The client would take its body for what was asked, and fail on the type.
    """
    is_json = answer.request.method == "GET" and "alt=media" not in answer.request.url
    if is_json and answer.status_code == HTTPStatus.OK and not answer.content:
        raise ConnectionError("the answer was cut off")


def _microseconds(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // timedelta(microseconds=1)


_NO_KEY = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}


def table_options(_bucket: str) -> dict[str, str]:
    """Find identity and address for Cloud Storage; without a key, `deltalake` looks for its own."""
    access: GcpAccess = of_kind(GcpAccess, None) or GcpAccess()
    options: dict[str, str] = {}
    if access.identity is not None:
        raise UnsupportedOptionError(
            "A Delta table on Cloud Storage is written through deltalake, which takes no token: "
            "an identity that Airflow's Google provider logs in with can't reach it. Use the key "
            "of a service account, or application default credentials, for the target."
        )
    if access.keyfile_json:
        options["google_service_account_key"] = access.keyfile_json
    elif access.keyfile_path:
        options["google_service_account"] = access.keyfile_path
    elif access.anonymous:
        options["google_skip_signature"] = "true"
        # Without this option, too, it asks for a token when it writes (object_store 0.13).
        options["google_service_account_key"] = json.dumps(_NO_KEY)
    endpoint = access.storage_endpoint or os.environ.get("STORAGE_EMULATOR_HOST")
    if endpoint:
        endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
        options |= address_options("google_base_url", "google_allow_http", endpoint)
    return options
