"""Describe the identity with which Azure Storage is reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

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
