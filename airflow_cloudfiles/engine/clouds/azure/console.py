"""Give the address of a folder in the portal of Azure."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.storage.access import Access

_AZURE_PORTALS: Final = {
    ".dfs.core.windows.net": "portal.azure.com",
    ".dfs.core.usgovcloudapi.net": "portal.azure.us",
    ".dfs.core.chinacloudapi.cn": "portal.azure.cn",
}
"""The portal of each of Azure's clouds, by the end of its accounts' hosts."""


def address(place: str, folder: str, access: Access | None) -> str:  # noqa: ARG001 - of a container
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
