"""What does an event of Azure Storage hold?

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
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from airflow_cloudfiles.engine.discovery.events.base import (
    FileEvent,
    Ignored,
    NotUnderstoodError,
    Parsed,
    checked_key,
    checked_name,
    checked_sequencer,
    checked_size,
    fields_of,
    folded,
    guarded,
    known_kind,
    time_us,
    unquoted,
)

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.queues.base import Message

_STORAGE = "Microsoft.Storage."
_SUBJECT = "/blobServices/default/containers/"
_BEGUN = {"CreateFile", "SftpCreate"}
_UNSURE = {"CopyBlob", "SftpCommit"}
"""Their events may have the size of a copy that has only begun, or of the empty file before."""
_OTHERS = {
    "BlobDeleted", "BlobTierChanged", "DirectoryCreated", "DirectoryDeleted",
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


def parse(message: Message) -> Parsed:
    """Read a message of a storage queue."""
    return guarded(_parse, message.body)


def _parse(body: bytes) -> Parsed:
    text = body.strip()
    if text[:1] not in {b"{", b"["}:
        try:
            text = base64.b64decode(text, validate=True).strip()
        except binascii.Error:
            raise NotUnderstoodError("neither JSON nor base64") from None
    events = fields_of(list[msgspec.Raw], text) if text[:1] == b"[" else [text]
    return folded(events, _one)


def _one(text: bytes | msgspec.Raw) -> FileEvent | Ignored:
    event = fields_of(_Event, text)
    kind = event.event_type or event.type or ""
    if kind.startswith(_OF_SUBSCRIPTION):
        return Ignored("validation of a subscription")
    if not kind.startswith(_STORAGE):
        raise NotUnderstoodError("not an event of Azure Storage")
    name = kind.removeprefix(_STORAGE)
    if name not in {"BlobCreated", "BlobRenamed", "DirectoryRenamed"}:
        return known_kind(name, _OTHERS)
    data = fields_of(_Data, event.data)
    created = name == "BlobCreated"
    if created and data.api in _BEGUN and not data.content_length:
        return Ignored("a file that is begun")
    return _file(event, data, created=created, is_folder=name == "DirectoryRenamed")


def _file(event: _Event, data: _Data, *, created: bool, is_folder: bool) -> FileEvent:
    container, key = _subject(event.subject)
    account = _account(event.topic or event.source or "")
    host = _host(account, data.destination_url or data.url)
    return FileEvent(
        location=f"abfss://{container}@{host}/{key}",
        spellings=(
            f"{container}@{account}/{key}",
            f"{container}@{host}/{key}",
            f"wasbs://{container}@{host.replace('.dfs.', '.blob.', 1)}/{key}",
        ),
        size=checked_size(data.content_length) if created else None,
        time_us=time_us(event.event_time or event.time or ""),
        etag=unquoted(data.e_tag) if created else "",
        kind="created" if created else "renamed",
        sequencer=checked_sequencer(data.sequencer),
        is_folder=is_folder,
        doubtful=_DAMAGED in key or (created and data.content_length == 0),
        incomplete=data.api in _UNSURE,
    )


def _subject(subject: str) -> tuple[str, str]:
    """Take container and name out of `/blobServices/default/containers/C/blobs/NAME`."""
    container, slash, key = subject.removeprefix(_SUBJECT).partition("/blobs/")
    if not subject.startswith(_SUBJECT) or not slash:
        raise NotUnderstoodError("the subject of the event is not a blob")
    return checked_name(container, "a container"), checked_key(key, is_azure=True)


def _account(resource: str) -> str:
    """Take the account out of the id of the resource that sent the event."""
    before, _, account = resource.rpartition("/")
    if not before.lower().endswith("/storageaccounts"):
        raise NotUnderstoodError("the event is not of a storage account")
    return checked_name(account.lower(), "an account")


def _host(account: str, url: str | None) -> str:
    """Find the account's host: clouds of their own and DNS zones have other ones."""
    try:
        host = urlsplit(url or "").hostname or ""
    except ValueError:
        host = ""
    if not host.startswith(f"{account}."):
        return f"{account}.dfs.core.windows.net"
    return checked_name(host.replace(".blob.", ".dfs.", 1), "a host")
