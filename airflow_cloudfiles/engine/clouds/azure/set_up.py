"""Set up what announces the files of an Azure storage account.

An Event Grid subscription of the account puts events into a storage queue of the same account. The
queue is made with the identity that reads storage; the subscription is made through Azure Resource
Manager, which takes Microsoft Entra identities only (never an account key), and wants to know
the Azure subscription and the resource group of the account.

The account's event subscriptions are independent of one another: those of others keep theirs.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from azure.core import PipelineClient
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
)
from azure.core.pipeline import policies
from azure.core.rest import HttpRequest
from azure.storage.queue import QueueServiceClient

from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.azure.client import open_account, proxies_of
from airflow_cloudfiles.engine.discovery.services import (
    DEFAULT_SCOPE,
    MISSING,
    OURS,
    PREFIX,
    RETENTION_DAYS,
    VENDOR,
    CloudResource,
    CloudScope,
    Inspection,
    NotificationRequest,
    queue_with,
)
from airflow_cloudfiles.engine.errors import NotificationServicesError, OptionError
from airflow_cloudfiles.engine.storage.access import Access, of_kind
from airflow_cloudfiles.engine.storage.uri import bucket_and_path

EVENT_GRID_VERSION = "2022-06-15"
STORAGE_VERSION = "2023-01-01"
EVENT_TYPES = (
    "Microsoft.Storage.BlobCreated",
    "Microsoft.Storage.BlobRenamed",
    "Microsoft.Storage.DirectoryRenamed",
)
DELETED_TYPES = ("Microsoft.Storage.BlobDeleted", "Microsoft.Storage.DirectoryDeleted")
BEGUN = ("CreateFile", "SftpCreate")
"""Calls whose event says that an empty file was made; the one that counts comes when it is closed.
All others are let through, so that a way of writing that is new is not missed."""

MANAGEMENT_URL = "CLOUDFILES_AZURE_MANAGEMENT_URL"
"""Environment variable: address of Azure Resource Manager, where it is none of the known ones."""

_MANAGEMENT = {
    "core.windows.net": "https://management.azure.com",
    "core.chinacloudapi.cn": "https://management.chinacloudapi.cn",
    "core.usgovcloudapi.net": "https://management.usgovcloudapi.net",
}
_ACCOUNT = re.compile(r"([^@]+)@([a-z0-9-]+)\.dfs\.(.+)")
_USER_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROVISIONING_SECONDS = 120.0
_NOT_FOUND = 404
_DENIED = {401, 403}


class AzureServices:
    """Notifications of Azure storage accounts.

    Args:
        access: The identity that may set things up.
        scope: Subscription and resource group of the account.
    """

    def __init__(self, access: Access | None = None, scope: CloudScope = DEFAULT_SCOPE) -> None:
        if scope.project_id:
            raise OptionError("Azure has no projects. Leave the project out.")
        self._access: AzureAccess | None = of_kind(AzureAccess, access)
        self._scope = scope
        self._managers: dict[str, ResourceManager] = {}

    def resources(self, wanted: NotificationRequest, *, to_remove: bool) -> Sequence[CloudResource]:
        """Give the parts, in the order they are made."""
        if wanted.via or wanted.same_account or wanted.dead_letter_topic:
            raise OptionError(
                "Azure has no via, same_account or dead-letter topic. Leave them out."
            )
        container, account, domain = _account(wanted.source)
        manager = self._manager(domain)
        account_id = self._account_id(account)
        if not to_remove:
            manager.check_account(account_id)
        tags = _metadata(wanted)
        return [
            StorageQueue(self._queues(account, domain), wanted.full_name, tags),
            EventSubscription(manager, account_id, container, wanted),
        ]

    def options(self, wanted: NotificationRequest) -> dict[str, str]:
        """Give the options for the stream."""
        return {"cloudFiles.useNotifications": "true", "cloudFiles.queueName": wanted.full_name}

    def existing(self, source: str | None) -> Iterator[NotificationRequest]:
        """Find queues by their names and metadata."""
        if source is None:
            raise OptionError("Azure lists queues by account. Give a source in that account.")
        _, account, domain = _account(source)
        queues = self._queues(account, domain)
        for each in queues.list_queues(name_starts_with=PREFIX, include_metadata=True):
            metadata = each.metadata or {}
            path = unquote(metadata.get("path", ""))
            if metadata.get("vendor") == VENDOR and (
                path == source or path.startswith(f"{source}/")
            ):
                yield NotificationRequest(source=path, name=metadata["name"])

    def explain(self, failure: Exception) -> str | None:
        """Explain a failure of Azure's clients."""
        first = (str(failure).splitlines() or [type(failure).__name__])[0].rstrip(".")
        if isinstance(failure, HttpResponseError) and failure.status_code in _DENIED:
            return f"the identity lacks a role ({failure.status_code}): {first}."
        if isinstance(failure, ClientAuthenticationError):
            return f"no Microsoft Entra identity was found: {first}."
        return f"{first}." if isinstance(failure, AzureError) else None

    def _account_id(self, account: str) -> str:
        """Resource id of the account."""
        subscription = self._scope.subscription_id or os.environ.get("AZURE_SUBSCRIPTION_ID")
        group = self._scope.resource_group
        if not subscription or not group:
            raise OptionError(
                "Event Grid needs the Azure subscription and the resource group of the storage "
                f"account {account}. Give both (subscription_id and resource_group)."
            )
        return (
            f"/subscriptions/{subscription}/resourceGroups/{group}"
            f"/providers/Microsoft.Storage/storageAccounts/{account}"
        )

    def _manager(self, domain: str) -> ResourceManager:
        """Open the client of Resource Manager; it needs an identity, even if storage has a key."""
        if domain not in self._managers:
            given = self._access or AzureAccess()
            identity = AzureAccess(
                tenant_id=given.tenant_id,
                client_id=given.client_id,
                client_secret=given.client_secret,
                identity=given.identity,
                queue_endpoint=f"https://unused.queue.{domain}",
            )
            credential = open_account("unused", identity, "queue", domain=domain).credential
            endpoint = os.environ.get(MANAGEMENT_URL) or _MANAGEMENT.get(domain)
            if not endpoint:
                raise OptionError(
                    f"The address of the Azure Resource Manager of {domain} is not known. Set "
                    f"{MANAGEMENT_URL} to it."
                )
            self._managers[domain] = ResourceManager(endpoint, credential)
        return self._managers[domain]

    def _queues(self, account: str, domain: str) -> Any:
        found = open_account(account, self._access, "queue", domain=domain)
        return QueueServiceClient(
            found.endpoint, credential=found.credential, **proxies_of(self._access)
        )


class ResourceManager:
    """The few requests to Azure Resource Manager that are needed.

    Args:
        endpoint: Its address.
        credential: Of a Microsoft Entra identity.
    """

    def __init__(self, endpoint: str, credential: Any) -> None:
        self._endpoint = endpoint.rstrip("/")
        scope = f"{self._endpoint}/.default"
        self._client: Any = PipelineClient(
            self._endpoint,
            policies=[
                policies.UserAgentPolicy("airflow-provider-cloudfiles"),
                policies.RetryPolicy(retry_total=4),
                policies.BearerTokenCredentialPolicy(credential, scope),
            ],
        )

    def check_account(self, account_id: str) -> None:
        """Refuse an account that is not there, or cannot have queues."""
        found = self.get(account_id, STORAGE_VERSION)
        if found is None:
            raise NotificationServicesError(
                f"There is no storage account {account_id}, or this identity may not see it. "
                "Correct the Azure subscription or the resource group. Nothing was changed."
            )
        if found.get("sku", {}).get("tier") == "Premium":
            raise NotificationServicesError(
                f"The storage account {account_id.rpartition('/')[2]} is premium, and has no "
                "queues. Find its files by listing. Nothing was changed."
            )

    def get(self, resource_id: str, version: str = EVENT_GRID_VERSION) -> dict[str, Any] | None:
        """Read a resource; `None` when it is not there."""
        return self._send("GET", resource_id, version)

    def put(self, resource_id: str, body: Mapping[str, Any]) -> None:
        """Make or change an event subscription, and wait until it works.

        Raises:
            NotificationServicesError: It was not made.
        """
        found = self._send("PUT", resource_id, EVENT_GRID_VERSION, body)
        deadline = time.monotonic() + _PROVISIONING_SECONDS
        pause = 0.25
        while True:
            state = (found or {}).get("properties", {}).get("provisioningState", "Succeeded")
            if state == "Succeeded":
                return
            if state in {"Failed", "Canceled"} or time.monotonic() > deadline:
                raise NotificationServicesError(
                    f"Event Grid did not create {resource_id} (state: {state}). Check it in the "
                    "portal, and run this again."
                )
            time.sleep(pause)
            pause = min(2 * pause, 5.0)
            found = self.get(resource_id)

    def delete(self, resource_id: str) -> None:
        """Delete a resource, which may be gone already."""
        self._send("DELETE", resource_id, EVENT_GRID_VERSION)

    def _send(
        self, method: str, resource_id: str, version: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        url = f"{self._endpoint}{quote(resource_id)}"
        request = HttpRequest(method, url, params={"api-version": version}, json=body)
        answer = self._client.send_request(request)
        if answer.status_code == _NOT_FOUND and body is None:
            return None
        answer.raise_for_status()
        content: dict[str, Any] | None = answer.json() if answer.content else None
        return content


class StorageQueue(CloudResource):
    """The storage queue that the stream reads; its metadata records whose it is."""

    kind = "queue"

    def __init__(self, queues: Any, name: str, metadata: Mapping[str, str]) -> None:
        self.name = name
        self._queues = queues
        self._metadata = metadata

    def inspect(self) -> Inspection:
        """Inspect its metadata."""
        try:
            found = self._queues.get_queue_client(self.name).get_queue_properties()
        except ResourceNotFoundError:
            return MISSING
        metadata = found.metadata or {}
        if metadata.get("vendor") != VENDOR:
            return Inspection("foreign", "it does not have the metadata of this package")
        if any(metadata.get(key) != self._metadata[key] for key in ("path", "name")):
            return Inspection("foreign", f"it serves {unquote(metadata.get('path', '?'))}")
        return queue_with(found.approximate_message_count or 0)

    def make(self) -> None:
        """Make it."""
        self._queues.create_queue(self.name, metadata=dict(self._metadata))

    def remove(self) -> None:
        """Delete it, with the messages that are in it."""
        self._queues.delete_queue(self.name)


class EventSubscription(CloudResource):
    """That the account's events of a container go to the queue. Its labels record whose it is."""

    kind = "event subscription"

    def __init__(
        self, manager: ResourceManager, account_id: str, container: str, wanted: NotificationRequest
    ) -> None:
        self.name = wanted.full_name
        self._manager = manager
        self._id = f"{account_id}/providers/Microsoft.EventGrid/eventSubscriptions/{self.name}"
        self._labels = [f"{key}:{value}" for key, value in _metadata(wanted).items()]
        self._ours = {f"vendor:{VENDOR}", f"path:{quote(wanted.source)}", f"name:{wanted.name}"}
        minutes = 24 * 60  # the longest that Event Grid tries
        self._properties: dict[str, Any] = {
            "destination": {
                "endpointType": "StorageQueue",
                "properties": {
                    "resourceId": account_id,
                    "queueName": wanted.full_name,
                    "queueMessageTimeToLiveInSeconds": RETENTION_DAYS * 86400,
                },
            },
            "filter": {
                "includedEventTypes": [*EVENT_TYPES, *(DELETED_TYPES if wanted.deletes else ())],
                "subjectBeginsWith": (
                    f"/blobServices/default/containers/{container}/blobs/{wanted.key_prefix}"
                ),
                "isSubjectCaseSensitive": True,
                "advancedFilters": [
                    {"operatorType": "StringNotIn", "key": "data.api", "values": list(BEGUN)}
                ],
            },
            "eventDeliverySchema": "EventGridSchema",
            "retryPolicy": {"maxDeliveryAttempts": 30, "eventTimeToLiveInMinutes": minutes},
        }

    def inspect(self) -> Inspection:
        """Inspect its labels, and what it sends where."""
        found = self._manager.get(self._id)
        if found is None:
            return MISSING
        properties = found.get("properties", {})
        if not self._ours <= set(properties.get("labels") or []):
            return Inspection("foreign", "it does not have the labels of this source")
        if properties.get("provisioningState") != "Succeeded":
            return Inspection("incomplete", f"its state is {properties.get('provisioningState')}")
        same = all(_holds(properties.get(key), self._properties[key]) for key in _COMPARED)
        if same:
            return OURS
        return Inspection("incomplete", "it announced other files, or to another queue")

    def make(self) -> None:
        """Make it, or restore its settings."""
        self._manager.put(self._id, {"properties": {**self._properties, "labels": self._labels}})

    def remove(self) -> None:
        """Delete it."""
        self._manager.delete(self._id)


_COMPARED = ("destination", "filter")


def _holds(found: Any, wanted: Any) -> bool:
    """Tell whether an answer has what was wanted; Azure adds fields and changes the case of ids."""
    if isinstance(wanted, dict):
        is_object = isinstance(found, dict)
        return is_object and all(_holds(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list) and _are_texts([*wanted, *found]):
        return {each.lower() for each in found} >= {each.lower() for each in wanted}
    if isinstance(wanted, list):
        is_as_long = isinstance(found, list) and len(found) == len(wanted)
        return is_as_long and all(map(_holds, found, wanted))
    if isinstance(wanted, str):
        return isinstance(found, str) and found.lower() == wanted.lower()
    return bool(found == wanted)


def _are_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(each, str) for each in values)


def _account(source: str) -> tuple[str, str, str]:
    """Container, account and domain of a source."""
    found = _ACCOUNT.fullmatch(bucket_and_path(source)[0])
    if found is None:
        raise OptionError(f"{source} does not name a container and an account.")
    container, account, domain = found.groups()
    return container, account, domain


def _metadata(wanted: NotificationRequest) -> dict[str, str]:
    """Build what queue and subscription are marked with."""
    if odd := [key for key in wanted.tags if not _USER_KEY.fullmatch(key)]:
        raise OptionError(
            f"{odd[0]!r} is no key for metadata of a queue: use letters, digits and underscores, "
            "not beginning with a digit."
        )
    ours = {"vendor": VENDOR, "path": quote(wanted.source), "name": wanted.name}
    return {**{key: quote(value) for key, value in wanted.tags.items()}, **ours}
