"""Find the credential and the address of an Azure storage account.

Shared by blobs and queues. One of these, the first that is there:

1. A connection string, of the access or (where the access is empty) of the environment's
   `AZURE_STORAGE_CONNECTION_STRING`.
2. The access's account key, or its shared access signature.
3. The access's identity, which is asked for tokens; or its service principal.
4. `DefaultAzureCredential`: environment variables, workload identity, managed identity (the
   access's `client_id` chooses among several), a developer's login.

A credential goes to Azure's own domains, or to an address that the connection or the environment
names. A location is not an address: it may name any host, which would receive the credential.

A credential serves one account. Where it names another one than the location does, that is an
error: a container of the same name in the wrong account would be read unnoticed.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from azure.core.credentials import AccessToken, AzureSasCredential

from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.access import check_environment
from airflow_cloudfiles.engine.storage.identities import ask
from airflow_cloudfiles.engine.storage.vendors import import_with_extra

Service = Literal["blob", "queue"]

CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"
"""Environment variable that Azure's own tools read."""

DOMAINS = frozenset({
    "core.windows.net", "core.chinacloudapi.cn", "core.usgovcloudapi.net",
    "core.microsoft.scloud", "core.eaglex.ic.gov", "storage.azure.net", "fabric.microsoft.com",
})  # fmt: skip
"""What follows `account.blob.` in Azure's own clouds, with a DNS zone, and in OneLake."""

CONNECT_SECONDS = 10
READ_SECONDS = 60

_NOISY = ("azure.core.pipeline.policies.http_logging_policy", "azure.identity")
"""Loggers that report every request, in some twenty lines each, at INFO."""

_OF_AZURE = re.compile(r"([a-z0-9]+)(?:-secondary)?\.(?:[a-z0-9-]+\.)*?(?:blob|dfs|queue)\.")
"""Hosts that name their account; a custom domain does not."""


@dataclass(frozen=True, slots=True)
class Account:
    """One service of one account, and how it is entered.

    Attributes:
        endpoint: Address of the service, without a slash at the end.
        credential: What the client libraries take as `credential`.
    """

    endpoint: str
    credential: Any = field(repr=False)


def open_account(
    account: str, access: AzureAccess | None, service: Service, *, domain: str = "core.windows.net"
) -> Account:
    """Find the address of a service of an account, and a credential for it.

    Nothing is contacted: a credential of an identity gets its first token with the first request.

    Args:
        account: Name of the account, as in the location.
        access: What the connection holds; `None` leaves it to the environment.
        service: Which service of the account.
        domain: What follows `account.blob.`; not the same in every national cloud.

    Raises:
        OptionError: The credential belongs to another account, cannot be read, or needs a library
            that is not installed; or the location is at a host that is not Azure's.
    """
    for noisy in map(logging.getLogger, _NOISY):
        if noisy.level == logging.NOTSET:
            noisy.setLevel(logging.WARNING)
    given = access or AzureAccess()
    text = given.connection_string or _ambient_connection_string(given, account)
    if text:
        return _from_connection_string(text, account, service, domain)
    endpoint = given.blob_endpoint if service == "blob" else given.queue_endpoint
    endpoint = (endpoint or _own_address(account, service, domain)).rstrip("/")
    _check_account(account, account_of(endpoint), f"The {service} endpoint of the connection")
    return Account(endpoint, _credential(given, account))


def proxies_of(access: AzureAccess | None) -> dict[str, Any]:
    """Give what Azure's clients take to go through the proxies of an access."""
    return {"proxies": dict(access.proxies)} if access is not None and access.proxies else {}


def _own_address(account: str, service: Service, domain: str) -> str:
    """Return the address that a location implies, if it is at a domain of Azure."""
    if domain.lower() not in DOMAINS:
        raise OptionError(
            f"The location is at {account}.dfs.{domain}, which is not a domain of Azure Storage "
            f"({', '.join(sorted(DOMAINS))}). No credential is sent there. Correct the location, "
            f"or name the address as {service}_endpoint in the connection, or in a connection "
            "string."
        )
    return f"https://{account}.{service}.{domain}"


def account_of(endpoint: str) -> str | None:
    """Give the account that an address names; `None` for a custom domain.

    Emulators have the account in the path.
    """
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    if found := _OF_AZURE.match(host):
        return found.group(1)
    return parts.path.strip("/").partition("/")[0] or None


def _ambient_connection_string(access: AzureAccess, account: str) -> str | None:
    """Find the environment's connection string, if it is of this account and alone given."""
    if access != AzureAccess():
        return None
    text = os.environ.get(CONNECTION_STRING)
    if not text or _named_account(_fields(text)) not in {None, account}:
        return None
    return text


def _from_connection_string(text: str, account: str, service: Service, domain: str) -> Account:
    """Read a connection string; the address that it gives wins."""
    fields = _fields(text)
    _check_account(account, _named_account(fields), "The connection string")
    endpoint = fields.get(f"{service}endpoint")
    if not endpoint and fields.get("usedevelopmentstorage", "").lower() == "true":
        raise OptionError(
            "UseDevelopmentStorage=true in a connection string names no address. Give the whole "
            f"string of the emulator, with its {service.title()}Endpoint."
        )
    if not endpoint and (suffix := fields.get("endpointsuffix")):
        protocol = fields.get("defaultendpointsprotocol", "https")
        endpoint = f"{protocol}://{account}.{service}.{suffix}"
    endpoint = endpoint or _own_address(account, service, domain)
    credential: Any
    if key := fields.get("accountkey"):
        credential = {"account_name": fields.get("accountname", account), "account_key": key}
    elif sas := fields.get("sharedaccesssignature"):
        credential = _sas(sas)
    else:
        raise OptionError(
            f"The connection string of the Azure account {account!r} has neither an AccountKey "
            "nor a SharedAccessSignature. Copy it whole from the portal (Access keys)."
        )
    return Account(endpoint.rstrip("/"), credential)


def _fields(text: str) -> dict[str, str]:
    """Split a connection string into its parts, by their names in lower case."""
    parts = (part.partition("=") for part in text.split(";"))
    return {name.strip().lower(): value.strip() for name, equals, value in parts if equals}


def _named_account(fields: Mapping[str, str]) -> str | None:
    """Find the account that a connection string is for, if it is named."""
    if name := fields.get("accountname"):
        return name
    return account_of(fields.get("blobendpoint") or fields.get("queueendpoint") or "")


def _check_account(account: str, named: str | None, what: str) -> None:
    if named is not None and named != account:
        raise OptionError(
            f"{what} is of the Azure account {named!r}, and the location is in {account!r}. Use a "
            "connection of that account, or one with a service principal or managed identity, "
            "which serves several accounts."
        )


def _credential(access: AzureAccess, account: str) -> Any:
    """Build the credential of an access that has no connection string."""
    if access.account_key:
        return {"account_name": account, "account_key": access.account_key}
    if access.sas_token:
        return _sas(access.sas_token)
    if access.identity is not None:
        return IdentityCredential(access.identity)
    identity = import_with_extra("azure.identity", "azure", needed_for="An Azure identity")
    if access.tenant_id and access.client_id and access.client_secret:
        return identity.ClientSecretCredential(
            access.tenant_id, access.client_id, access.client_secret
        )
    check_environment("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET")
    return identity.DefaultAzureCredential(managed_identity_client_id=access.client_id)


class IdentityCredential:
    """A credential whose tokens are asked for (`identities`); clients keep each until it ends."""

    def __init__(self, identity: str) -> None:
        self._identity = identity

    def get_token(self, *scopes: str, **_: Any) -> Any:
        """Give a token for a scope."""
        found = ask(self._identity, scopes[0])
        return AccessToken(found["token"], found["expires_on"])


def _sas(token: str) -> Any:
    """Build a credential of a shared access signature."""
    return AzureSasCredential(token.removeprefix("?"))
