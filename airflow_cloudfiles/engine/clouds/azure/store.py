"""Use a container of Azure Blob Storage, or of ADLS Gen2, as an object store.

Through the Blob endpoint: what it lists, reads and writes is the same with and without a
hierarchical namespace, and conditional writes are the service's own. Two things differ there
(decision 18):

- Folders are entries of their own, empty and with `hdi_isfolder` in their metadata. So listings
  ask for metadata: the request costs the same, and only blobs that have some answer with more.
- Listings go folder by folder: `a/x` before `a-b`. A listing between bounds has to know that, so
  the account is asked once. An account that does not answer that, and OneLake, which starts
  listings nowhere but at the beginning, are listed whole, and filtered here.

`table_options` gives `deltalake` the same identity and address.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, DecodeError, HttpResponseError
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import BlobServiceClient, ExponentialRetry

from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.azure.client import (
    CONNECT_SECONDS,
    READ_SECONDS,
    open_account,
    proxies_of,
)
from airflow_cloudfiles.engine.clouds.azure.errors import error_code, token_of, translated
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.storage.access import Access, of_kind
from airflow_cloudfiles.engine.storage.base import (
    Fingerprint,
    ListRequest,
    ObjectChangedError,
    ObjectNotFoundError,
    refuse_version,
)
from airflow_cloudfiles.engine.storage.flat import (
    Fetch,
    Folders,
    ListedObject,
    Order,
    Page,
    first_key,
    list_flat,
)
from airflow_cloudfiles.engine.storage.flat_store import (
    ClientPerProcess,
    CloudStore,
    PageRequest,
    address_options,
    keep_connections,
    proxy_options,
)
from airflow_cloudfiles.engine.storage.outage import BrokenOffError, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_log = logging.getLogger(__name__)

_LAST = "\ud7ff"
"""Behind this character, UTF-16 and UTF-8 sort differently; no bound that is sent has a later one.
Whichever of the two Azure sorts by (azurite: UTF-16), nothing before a bound is left out."""
_LATE = re.compile("[\ue000-\U0010ffff]")

FLAT = Order(lambda key: key.encode("utf-16-be", "surrogatepass"), last=_LAST)
"""Accounts without a hierarchical namespace: by the code units of UTF-16."""

TREE = Order(lambda key: FLAT.of(key.replace("/", "\0")), last=_LAST)
"""With one: the same, but what is in a folder comes right behind the folder."""

_COPY_POLL_SECONDS = 0.5
_COPY_SECONDS = 600.0
"""A copy that takes longer is left to Azure, which promises no time; who tries again finds it."""


class AzureStore(CloudStore):
    """An `ObjectStore` in a container.

    Azure takes a backslash for a slash, and its client resolves `.` and `..`: keys with a backslash
    or such a part cannot be distinguished from others, and are refused.

    Args:
        uri: `abfss://container@account.dfs.core.windows.net`, or with a path.
        access: How the account is reached; `None` leaves it to the environment.
        page_size: Objects on a page of a listing, at most 5000.
        retries: How often the client repeats a request that fails for a while; four last half a
            minute.
    """

    _failures = (AzureError,)
    _key_rule = (
        "In Azure a name is text in UTF-8, a backslash is a slash, and parts that are . or .. are "
        "resolved."
    )

    def __init__(
        self, uri: str, access: Access | None = None, *, page_size: int = 5000, retries: int = 4
    ) -> None:
        super().__init__(uri, page_size=page_size, retries=retries)
        self._container, _, host = self._bucket.partition("@")
        self._account, _, self._domain = host.partition(".dfs.")
        self._access: AzureAccess | None = of_kind(AzureAccess, access)
        self._retries = retries
        self._clients = ClientPerProcess(self._open_client)
        self._account_order: Order | Literal["unknown"] | None = "unknown"

    @property
    def key_order(self) -> Callable[[str], Any] | None:
        """What two keys are compared by in the order of the account; `None`: not known."""
        order = self._find_order()
        return order.of if order else None

    def key_after(self, after: str) -> str | None:
        """Give the first key after a text."""
        order = self._find_order()
        if order is not None:
            fetch = self._first_pages()
            return first_key(fetch, self._root, after, order=order, first_asked=_safe_start)
        found = self._filtered(self._pages("", self.page_size), ListRequest(start_after=after))
        keys = (entry.path for entry in found)
        return min(keys, key=FLAT.of, default=None)

    def _describe(self, key: str, full_key: str) -> FileEntry:
        return self._entry_of(key, self._blob(full_key).get_blob_properties())

    def _entry_of(self, key: str, found: Any) -> FileEntry:
        if _is_folder(found):
            raise ObjectNotFoundError(self.child_uri(key))
        time_us = _microseconds(found.last_modified)
        return self._entry(key, found.size, time_us, _etag(found), _archived_in(found))

    def _server_date(self) -> str | None:
        dates: list[str | None] = []
        pages = self._client().list_blobs(
            name_starts_with=self._root or None,
            results_per_page=1,
            raw_response_hook=lambda answer: dates.append(answer.http_response.headers.get("Date")),
        )
        next(pages.by_page(), None)
        return dates[-1] if dates else None

    def _put(self, key: str, content: bytes, *, overwrite: bool = True, **condition: Any) -> None:
        with self._call("put", key) as full_key:
            self._blob(full_key).upload_blob(content, overwrite=overwrite, **condition)

    def _put_if(self, key: str, content: bytes, etag: str | None) -> bool:
        condition = {} if etag is None else _if_match(etag)
        try:
            self._put(key, content, overwrite=bool(condition), **condition)
        except (ObjectChangedError, ObjectNotFoundError):
            return False
        return True

    def _read(self, key: str, **part: Any) -> bytes:
        with self._call("get", key) as full_key:
            try:
                # Content-Encoding tells what a file is, and not how it is sent.
                stream = self._blob(full_key).download_blob(**part, decompress=False)
                content: bytes = stream.readall()
            except HttpResponseError as failure:
                if error_code(failure) == "InvalidRange":
                    return b""
                raise
        if _is_folder(stream.properties):
            raise ObjectNotFoundError(self.child_uri(key))
        return content

    def _read_range(self, key: str, start: int, length: int, etag: str | None) -> bytes:
        condition = {} if etag is None else _if_match(etag)
        try:
            return self._read(key, offset=start, length=length, **condition)
        except ObjectChangedError:  # Azure's answer is the same when the object is gone
            refuse_version(self, key)

    def _remove(self, full_key: str) -> None:
        """Remove an object with its snapshots."""
        self._blob(full_key).delete_blob(delete_snapshots="include")

    def _remove_version(self, full_key: str, entry: FileEntry) -> None:
        self._blob(full_key).delete_blob(delete_snapshots="include", **_if_match(entry.etag))

    def _copy(self, source_key: str, entry: FileEntry, full_key: str) -> None:
        """Copy within the account; Azure may go on with it after its answer."""
        blob = self._blob(full_key)
        copy = blob.start_copy_from_url(
            self._blob(source_key).url,
            source_etag=f'"{entry.etag}"',
            source_match_condition=MatchConditions.IfNotModified,
            match_condition=MatchConditions.IfMissing,
        )
        status, deadline = copy["copy_status"], time.monotonic() + _COPY_SECONDS
        while status == "pending" and time.monotonic() < deadline:
            time.sleep(_COPY_POLL_SECONDS)
            status = blob.get_blob_properties().copy.status
        if status != "success":
            raise ConnectionError(f"{self._where(full_key)} could not be copied: {status}.")

    def _describe_content(self, key: str, full_key: str) -> Fingerprint:
        found = self._blob(full_key).get_blob_properties()
        entry = self._entry_of(key, found)
        if found.copy.status not in {None, "success"}:
            raise ConnectionError(
                f"{self._where(full_key)} is not whole: its copy is {found.copy.status}."
            )
        md5 = found.content_settings.content_md5
        return Fingerprint(entry, frozenset({("md5", bytes(md5).hex())} if md5 else ()))

    def _listing(self, wanted: ListRequest, *, ordered: bool) -> Iterator[FileEntry]:
        """List; nothing is asked before the first step."""
        fetch = self._pages(wanted.prefix, self.page_size)
        if not (wanted.start_after or wanted.end_before or wanted.skip):
            yield from list_flat(fetch, self._root, wanted, order=None)
            return
        order = self._find_order() if ordered else None
        if order is None:
            yield from self._filtered(fetch, wanted)
            return
        safe = replace(wanted, end_before=_safe_end(wanted.end_before))
        end = None if safe == wanted else order.of(wanted.end_before)
        for entry in list_flat(fetch, self._root, safe, order=order, first_asked=_safe_start):
            if end is None or order.of(entry.path) < end:
                yield entry

    def _filtered(self, fetch: Fetch, wanted: ListRequest) -> Iterator[FileEntry]:
        """List everything that has a prefix, in whatever order, and leave out the rest here."""
        folders, skip = Folders(wanted.skip), wanted.skip
        first, end = FLAT.of(wanted.start_after), FLAT.of(wanted.end_before)
        for entry in list_flat(fetch, self._root, ListRequest(wanted.prefix), order=None):
            position = FLAT.of(entry.path)
            if position <= first or (end and position >= end):
                continue
            if folders.skipped(entry.path) is None and not (skip and skip(entry.path, False)):
                yield entry

    def _fetch_page(self, asked: PageRequest) -> Page:
        """Fetch one page; the server's start is inclusive, or (before azurite 3.37) ignored."""
        where: dict[str, str] = {}
        if FLAT.of(asked.start_after) > FLAT.of(asked.prefix):
            where["start_from"] = _safe_start(asked.start_after)
        listing = self._client().list_blobs(
            name_starts_with=asked.prefix or None,
            include=["metadata"],
            results_per_page=asked.size,
            **where,
        )
        pages = listing.by_page(asked.mark)
        try:
            blobs = [*next(pages)]
        except (DecodeError, AttributeError, ValueError) as failure:
            # The client raises one or the other for an answer that ends within its headers, the
            # last for a blob of no type.
            raise BrokenOffError from failure
        return Page([self._listed_blob(blob) for blob in blobs], pages.continuation_token or None)

    def _listed_blob(self, blob: Any) -> ListedObject:
        time_us, is_folder = _microseconds(blob.last_modified), _is_folder(blob)
        archived_in = _archived_in(blob)
        return self._listed(
            blob.name, blob.size, time_us, _etag(blob), is_folder=is_folder, archived_in=archived_in
        )

    def _find_order(self) -> Order | None:
        """Give the order in which the account lists; asked once. `None`: not known."""
        if self._account_order == "unknown":
            self._account_order = self._ask_for_order()
        return self._account_order

    def _ask_for_order(self) -> Order | None:
        if self._domain.endswith("fabric.microsoft.com"):
            return None
        with self._request("head", ""):
            try:
                found = self._client().get_account_information()
            except HttpResponseError as failure:
                if (failure.status_code or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                _log.warning(
                    "Azure did not report whether the account %s has a hierarchical namespace "
                    "(%s), so listings that start in the middle read everything. Allow the "
                    "identity the action "
                    "Microsoft.Storage/storageAccounts/blobServices/getInfo/action.",
                    self._account,
                    error_code(failure),
                )
                return None
        return TREE if found.get("is_hns_enabled") else FLAT

    def _takes(self, full_key: str) -> bool:
        is_aliased = "\\" in full_key or not {".", ".."}.isdisjoint(full_key.split("/"))
        return super()._takes(full_key) and not is_aliased

    def _translated(self, failure: AzureError, kind: Call, where: str) -> Exception:
        return translated(failure, kind, where)

    def _blob(self, full_key: str) -> Any:
        return self._client().get_blob_client(full_key)

    def _client(self) -> Any:
        """Give the client of the container."""
        return self._clients.get()

    def _open_client(self) -> Any:
        account = open_account(self._account, self._access, "blob", domain=self._domain)
        retries = self._retries
        transport = RequestsTransport(connection_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS)
        transport.open()
        keep_connections(transport.session)
        service = BlobServiceClient(
            account.endpoint,
            account.credential,
            transport=transport,
            permit_redirects=False,  # the service sends none; each would be signed anew
            **proxies_of(self._access),
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


def _if_match(etag: str) -> dict[str, Any]:
    return {"etag": f'"{etag}"', "match_condition": MatchConditions.IfNotModified}


def _safe_start(text: str) -> str:
    """Build a text that UTF-16 and UTF-8 sort alike, not behind the given one and close to it."""
    late = _LATE.search(text)
    return text[: late.start()] + _LAST if late else text


def _safe_end(text: str) -> str:
    """Build a text that both sort alike, not before the given one; empty when there is none."""
    late = _LATE.search(text)
    if late is None:
        return text
    shared = text[: late.start()].rstrip(_LAST)
    return shared[:-1] + chr(ord(shared[-1]) + 1) if shared else ""


def _is_folder(found: Any) -> bool:
    """Tell whether an entry is the folder of a hierarchical namespace."""
    if found.size or not found.metadata:
        return False
    return any(
        name.lower() == "hdi_isfolder" and str(value).lower() == "true"
        for name, value in found.metadata.items()
    )


def _archived_in(blob: Any) -> str:
    """Find the access tier from which a blob has to be rehydrated; it has it until that is done."""
    tier = str(getattr(blob.blob_tier, "value", blob.blob_tier) or "")
    return tier if tier == "Archive" else ""


def _microseconds(moment: Any) -> int | None:
    """Whole seconds, as Azure's are, in microseconds; `None` where Azure's client found none."""
    return None if moment is None else int(moment.timestamp()) * 1_000_000


def _etag(found: Any) -> str:
    return str(found.etag or "").strip('"')


_STORAGE_SCOPE = "https://storage.azure.com/.default"


def table_options(bucket: str) -> dict[str, str]:
    """Find identity and address for a container, as the Azure store does."""
    name, _, domain = bucket.rpartition("@")[2].partition(".dfs.")
    access: AzureAccess | None = of_kind(AzureAccess, None)
    account = open_account(name, access, "blob", domain=domain)
    options = {
        **proxy_options(access.proxies if access else {}),
        "azure_storage_account_name": name,
        **address_options("azure_storage_endpoint", "azure_allow_http", account.endpoint),
    }
    credential = account.credential
    if isinstance(credential, dict):
        options["azure_storage_account_key"] = credential["account_key"]
    elif hasattr(credential, "signature"):
        options["azure_storage_sas_token"] = credential.signature
    else:
        options["azure_storage_token"] = token_of(credential, _STORAGE_SCOPE)
    return options
