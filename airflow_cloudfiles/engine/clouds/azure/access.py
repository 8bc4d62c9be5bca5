"""Describe the identity with which Azure Storage is reached, and its portal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final
from urllib.parse import quote

from airflow_cloudfiles.engine.storage.access import Access


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureAccess(Access):
    """How Azure Storage is reached: one of the ways, else the environment's own chain.

    Attributes:
        connection_string: Everything at once, as the portal shows it.
        account_key: Shared key of the account.
        sas_token: Shared access signature.
        tenant_id: Of a service principal, with `client_id` and `client_secret`.
        client_id: Of a service principal, or of a user-assigned managed identity.
        client_secret: Of a service principal.
        blob_endpoint: Address of the Blob service (`https://account.blob.core.windows.net`).
        queue_endpoint: Address of the Queue service.
        subscription_id: The Azure subscription of the account, for links to the portal only.
        resource_group: Its resource group, likewise.
        proxies: Addresses of proxies, by scheme.
    """

    vendor: ClassVar = "azure"
    connection_string: str | None = field(default=None, repr=False)
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    blob_endpoint: str | None = None
    queue_endpoint: str | None = None
    subscription_id: str | None = None
    resource_group: str | None = None
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)


_AZURE_PORTALS: Final = {
    ".dfs.core.windows.net": "portal.azure.com",
    ".dfs.core.usgovcloudapi.net": "portal.azure.us",
    ".dfs.core.chinacloudapi.cn": "portal.azure.cn",
}
"""The portal of each of Azure's clouds, by the end of its accounts' hosts."""


def console_address(place: str, folder: str, access: Access | None) -> str:  # noqa: ARG001 - of a container
    """Give the address; empty where there is none. See `hooks.observability.links`."""
    container, _, host = place.partition("@")
    account, _, _ = host.partition(".")
    portal = _AZURE_PORTALS.get(host.removeprefix(account))
    given = access if isinstance(access, AzureAccess) else AzureAccess()
    subscription, group = given.subscription_id, given.resource_group
    if portal is None or given.blob_endpoint or not subscription or not group:
        return ""
    named = f"/subscriptions/{subscription}/resourceGroups/{group}"
    named += f"/providers/Microsoft.Storage/storageAccounts/{account}"
    page = "Microsoft_Azure_Storage/ContainerMenuBlade/~/overview/storageAccountId"
    named, container = (quote(each, safe="") for each in (named, container))
    return f"https://{portal}/#view/{page}/{named}/path/{container}"
