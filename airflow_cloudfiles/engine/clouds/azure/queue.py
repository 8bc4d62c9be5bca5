"""Read the events of Azure Storage from an Azure storage queue.

The service has no long polling and deletes one message a request. Each renewal gives a message
another receipt. Event Grid writes bodies as base64, others as they are, so a body is taken as text
and decoded where it is parsed: the client's own decoding loses a whole batch to one odd message.

The identity needs the role *Storage Queue Data Message Processor* on the queue: to receive, hide,
delete and peek. *Storage Queue Data Contributor* besides counts what waits.

Event Grid puts it into the queue in its own schema or as a CloudEvent, one object or an array, as
base64 or as it is. The name is in `subject`, where nothing is escaped.

Which event means a complete file depends on how it was written. With the Blob API it is one
`BlobCreated`. Writers to a hierarchical namespace create an empty file first, which has an event of
its own (`CreateFile`, over SFTP `SftpCreate`); the one that counts comes when they close it. A
rename is another event, without size or version; that of a folder names no file.

References:
    "Azure Blob Storage as an Event Grid source", event types and examples.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec
from azure.core import exceptions as azure
from azure.storage.queue import QueueClient

from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.azure.client import (
    CONNECT_SECONDS,
    READ_SECONDS,
    open_account,
    proxies_of,
)
from airflow_cloudfiles.engine.clouds.azure.errors import is_identity_outage
from airflow_cloudfiles.engine.discovery import events
from airflow_cloudfiles.engine.discovery.queues.base import Message, WaitingMessages
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.access import Access, of_kind
from airflow_cloudfiles.engine.storage.outage import DENIED, NO_IDENTITY_NOW

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions


_STORAGE = "Microsoft.Storage."
_SUBJECT = "/blobServices/default/containers/"
_BEGUN = {"CreateFile", "SftpCreate"}
_UNSURE = {"CopyBlob", "SftpCommit"}
"""Their events may have the size of a copy that has only begun, or of the empty file before."""
_REMOVED = {"BlobDeleted", "DirectoryDeleted"}
_OTHERS = {
    "BlobTierChanged", "DirectoryCreated",
    "AsyncOperationInitiated", "BlobInventoryPolicyCompleted", "LifecyclePolicyCompleted",
    "StorageTaskQueued", "StorageTaskCompleted", "StorageTaskAssignmentQueued",
    "StorageTaskAssignmentCompleted",
}  # fmt: skip
_OF_SUBSCRIPTION = "Microsoft.EventGrid.Subscription"
_DAMAGED = "\N{REPLACEMENT CHARACTER}"


class _Data(msgspec.Struct, rename="camel"):
    api: str | None = None
    content_length: int | None = None
    sequencer: str | None = None
    e_tag: str | None = None
    url: str | None = None
    source_url: str | None = None
    destination_url: str | None = None


class _Event(msgspec.Struct, rename="camel"):
    """Event Grid's own schema and CloudEvents: the same under two names each."""

    subject: str = ""
    event_type: str | None = None
    type: str | None = None
    event_time: str | None = None
    time: str | None = None
    topic: str | None = None
    source: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"{}")


def parse(message: Message) -> events.Parsed:
    """Read a message of a storage queue."""
    return events.guarded(_parse, message.body)


def _parse(body: bytes) -> events.Parsed:
    text = body.strip()
    if text[:1] not in {b"{", b"["}:
        try:
            text = base64.b64decode(text, validate=True).strip()
        except binascii.Error:
            raise events.NotUnderstoodError("neither JSON nor base64") from None
    parts = events.fields_of(list[msgspec.Raw], text) if text[:1] == b"[" else [text]
    return events.folded(parts, _one)


def _one(text: bytes | msgspec.Raw) -> events.FileEvent | events.IgnoredMessage:
    event = events.fields_of(_Event, text)
    kind = event.event_type or event.type or ""
    if kind.startswith(_OF_SUBSCRIPTION):
        return events.IgnoredMessage("validation of a subscription")
    if not kind.startswith(_STORAGE):
        raise events.NotUnderstoodError("not an event of Azure Storage")
    name = kind.removeprefix(_STORAGE)
    if name in _REMOVED:
        is_folder = name == "DirectoryDeleted"
        return events.removed(name, partial(_gone, event, is_folder=is_folder))
    if name not in {"BlobCreated", "BlobRenamed", "DirectoryRenamed"}:
        return events.known_kind(name, _OTHERS)
    data = events.fields_of(_Data, event.data)
    created = name == "BlobCreated"
    if created and data.api in _BEGUN and not data.content_length:
        return events.IgnoredMessage("a file that is begun")
    return _file(event, data, created=created, is_folder=name == "DirectoryRenamed")


def _gone(event: _Event, *, is_folder: bool) -> events.FileEvent:
    data = events.fields_of(_Data, event.data)
    return _file(event, data, created=False, is_folder=is_folder)


def _former(data: _Data, container: str, host: str) -> str:
    """Name what was renamed, if that was in the same container."""
    try:
        path = unquote(urlsplit(data.source_url or "").path, errors="strict")
    except (ValueError, UnicodeError):
        return ""
    _, found, key = path.partition(f"/{container}/")
    return f"abfss://{container}@{host}/{key}" if found and key else ""


def _file(event: _Event, data: _Data, *, created: bool, is_folder: bool) -> events.FileEvent:
    container, key = _subject(event.subject)
    account = _account(event.topic or event.source or "")
    host = _host(account, data.destination_url or data.url)
    return events.FileEvent(
        location=f"abfss://{container}@{host}/{key}",
        spellings=(
            f"{container}@{account}/{key}",
            f"{container}@{host}/{key}",
            f"wasbs://{container}@{host.replace('.dfs.', '.blob.', 1)}/{key}",
        ),
        size=events.checked_size(data.content_length) if created else None,
        time_us=events.time_us(event.event_time or event.time or ""),
        etag=events.unquoted(data.e_tag) if created else "",
        kind="created" if created else "renamed",
        sequencer=events.checked_sequencer(data.sequencer),
        former=_former(data, container, host),
        is_folder=is_folder,
        doubtful=_DAMAGED in key or (created and data.content_length == 0),
        incomplete=data.api in _UNSURE,
    )


def _subject(subject: str) -> tuple[str, str]:
    """Take container and name out of `/blobServices/default/containers/C/blobs/NAME`."""
    container, slash, key = subject.removeprefix(_SUBJECT).partition("/blobs/")
    if not subject.startswith(_SUBJECT) or not slash:
        raise events.NotUnderstoodError("the subject of the event is not a blob")
    return events.checked_name(container, "a container"), events.checked_key(key, is_azure=True)


def _account(resource: str) -> str:
    """Take the account out of the id of the resource that sent the event."""
    before, _, account = resource.rpartition("/")
    if not before.lower().endswith("/storageaccounts"):
        raise events.NotUnderstoodError("the event is not of a storage account")
    return events.checked_name(account.lower(), "an account")


def _host(account: str, url: str | None) -> str:
    """Find the account's host: clouds of their own and DNS zones have other ones."""
    try:
        host = urlsplit(url or "").hostname or ""
    except ValueError:
        host = ""
    if not host.startswith(f"{account}."):
        return f"{account}.dfs.core.windows.net"
    return events.checked_name(host.replace(".blob.", ".dfs.", 1), "a host")


_MOST = 32
_PAUSE_SECONDS = 0.25
"""What stands in for long polling: an empty answer comes after this pause."""
_NAME = re.compile(r"(?=.{3,63}\Z)[a-z0-9]+(-[a-z0-9]+)*")
_NOT_FOUND = 404
_PASSING = {408, 429}
_SERVER_ERROR = 500


class AzureQueue:
    """A queue of Azure Queue Storage.

    Args:
        client: Azure's own client of the queue.
    """

    batch_size = _MOST

    def __init__(self, client: QueueClient) -> None:
        self._client = client

    @property
    def name(self) -> str:
        """Account and name."""
        return f"{self._client.account_name}/{self._client.queue_name}"

    def receive(self, seconds: int) -> list[Message]:
        """Take up to 32 messages, with one request."""

        def page() -> list[Any]:
            pages = self._client.receive_messages(
                messages_per_page=_MOST, visibility_timeout=seconds
            ).by_page()
            return list(next(pages, ()))

        found = self._call("receive", page)
        if not found:
            time.sleep(_PAUSE_SECONDS)
        return [
            Message(
                id=each.id,
                receipt=each.pop_receipt,
                body=str(each.content).encode("utf-8", "surrogatepass"),
                receive_count=each.dequeue_count or 0,
                sent_us=_microseconds(each.inserted_on),
            )
            for each in found
        ]

    def hide(self, messages: Sequence[Message], seconds: int) -> list[Message]:
        """Hide each longer; each gets a new receipt."""
        return [message for message in messages if not self._hide(message, seconds)]

    def delete(self, messages: Sequence[Message]) -> list[Message]:
        """Delete each; one that is not there any more is deleted."""
        return [message for message in messages if not self._delete(message)]

    def approximate_size(self) -> int | None:
        """Return the number of messages; the service counts hidden ones too."""
        try:
            properties = self._call("inspect", self._client.get_queue_properties)
        except PermissionError:
            return None
        count: int | None = properties.approximate_message_count
        return count

    def look(self) -> WaitingMessages:
        """Ask for the count, else peek: that changes no message."""
        size = self.approximate_size()
        if size is not None:
            return WaitingMessages(size)
        seen = self._call("peek into", lambda: self._client.peek_messages(max_messages=_MOST))
        sent = [_microseconds(each.inserted_on) or 0 for each in seen]
        return WaitingMessages(len(seen), max(sent, default=0))

    def parse(self, message: Message) -> events.Parsed:
        """Read an event of Event Grid."""
        return parse(message)

    def _hide(self, message: Message, seconds: int) -> bool:
        try:
            renewed = self._client.update_message(
                message.id, pop_receipt=message.receipt, visibility_timeout=seconds
            )
        except azure.AzureError as failure:
            if _lost(failure):
                return False
            raise _as_os_error(failure, "hide a message of", self.name) from failure
        message.receipt = renewed.pop_receipt or message.receipt
        return True

    def _delete(self, message: Message) -> bool:
        try:
            self._client.delete_message(message.id, pop_receipt=message.receipt)
        except azure.HttpResponseError as failure:
            if _lost(failure):
                return _code(failure) == "MessageNotFound"
            raise _as_os_error(failure, "delete a message of", self.name) from failure
        except azure.AzureError:  # the answer is lost; the message may be gone
            return False
        return True

    def _call(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except azure.AzureError as failure:
            raise _as_os_error(failure, what, self.name) from failure


def open_queue(
    name: str,
    source_uri: str,
    options: DiscoveryOptions,  # noqa: ARG001 - what other clouds need
    access: Access | None,
) -> AzureQueue:
    """Open a queue of the account that a source is in; nothing is contacted yet.

    Args:
        name: Name of the queue.
        source_uri: `abfss://container@account.dfs...`.
        options: Those of the source.
        access: Credentials and addresses.

    Raises:
        OptionError: Not the name of a queue, or no address that a credential may be sent to.
    """
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"cloudFiles.queueName: {name!r} is not the name of a storage queue, which is 3 to 63 "
            "lower-case letters, digits and single dashes."
        )
    host = source_uri.partition("@")[2].partition("/")[0]
    account, _, domain = host.partition(".dfs.")
    own: AzureAccess | None = of_kind(AzureAccess, access)
    found = open_account(account, own, "queue", domain=domain)
    return AzureQueue(
        QueueClient(
            found.endpoint,
            name,
            credential=found.credential,
            connection_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            permit_redirects=False,  # the service sends none; each would be signed anew
            **proxies_of(own),
        )
    )


def _microseconds(time: datetime | None) -> int | None:
    return None if time is None else int(time.timestamp() * 1_000_000)


def _code(failure: azure.AzureError) -> str:
    code = getattr(failure, "error_code", None)
    return str(getattr(code, "value", code))


def _lost(failure: azure.AzureError) -> bool:
    """Tell whether the message belongs to another receiver now, or to none."""
    return _code(failure) in {"MessageNotFound", "PopReceiptMismatch"}


def _as_os_error(failure: azure.AzureError, what: str, queue: str) -> OSError:
    """Explain an error of the client."""
    if is_identity_outage(failure):
        return ConnectionError(f"Could not {what} the storage queue {queue}: {NO_IDENTITY_NOW}")
    if isinstance(failure, azure.HttpResponseError):
        return _of_answer(failure, what, queue)
    if isinstance(failure, azure.ServiceRequestError | azure.ServiceResponseError):
        timed_out = "timed out" in str(failure).lower()
        kind: type[OSError] = TimeoutError if timed_out else ConnectionError
        return kind(f"No answer on trying to {what} the storage queue {queue}.")
    kind_of_failure = type(failure).__name__
    return PermissionError(f"No credential to {what} the storage queue {queue}: {kind_of_failure}.")


def _of_answer(failure: azure.HttpResponseError, what: str, queue: str) -> OSError:
    """Explain an answer that is an error."""
    code = f"{failure.status_code} {_code(failure)}"
    is_refused = isinstance(failure, azure.ClientAuthenticationError)
    if is_refused or failure.status_code in DENIED:
        return PermissionError(
            f"Not allowed to {what} the storage queue {queue} ({code}). The identity needs the "
            f"role Storage Queue Data Contributor on it; a shared access signature the rights "
            f"read and process (rp)."
        )
    if failure.status_code == _NOT_FOUND:
        return FileNotFoundError(f"There is no storage queue {queue} ({code}).")
    status = failure.status_code
    if status is None or status in _PASSING or status >= _SERVER_ERROR:  # none: it broke off
        return ConnectionError(f"The storage queue {queue} was too busy to {what} ({code}).")
    return OSError(f"Azure refused to {what} the storage queue {queue} ({code}).")
