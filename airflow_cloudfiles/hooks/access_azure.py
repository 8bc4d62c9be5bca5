"""Read from a connection of type `wasb`, `adls` or `cloudfiles_azure` how Azure is reached.

Fields and precedence are those of Airflow's Azure provider. Which account is reached, the URI of a
location says (`abfss://container@account…`); an address in the connection is needed for an emulator
or a cloud of one's own only.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.hooks.extras import Extras, Source, address_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

_PUBLIC = re.compile(r"https://[^/.]+\.(blob|dfs)\.core\.windows\.net/?", re.IGNORECASE)
_FROM_CHAIN = "Leave the credentials out: the environment's own chain finds a workload identity."
_REFUSED = {
    "client_secret_auth_config": "Give tenant_id, with the client's id as login and its secret as "
    "password.",
    "workload_identity_tenant_id": _FROM_CHAIN,
    "proxies": "Set HTTPS_PROXY and NO_PROXY for the workers.",
}


def azure_access(connection: Connection, identity: str | None = None) -> AzureAccess:
    """Read a connection of type `wasb`, `adls` or `cloudfiles_azure`.

    Args:
        connection: The connection.
        identity: Who is asked for tokens, if it is not the connection that says credentials.

    Raises:
        OptionError: It contradicts itself, or says what is not offered.
    """
    extra = Extras.of(connection)
    proxies: dict[str, str] = {}
    if identity is not None:
        extra.drop("client_secret_auth_config", "workload_identity_tenant_id")
        proxies = extra.within("proxies").fields()
    extra.refuse(_REFUSED)
    blob, queue = _addresses(connection, extra)
    sas_address, sas_token = _shared_access_signature(extra.text("sas_token"))
    credentials = _credentials(connection, extra, sas_token)
    found = AzureAccess(
        **({"identity": identity} if identity else credentials),
        proxies=proxies,
        blob_endpoint=blob,
        queue_endpoint=queue,
        subscription_id=extra.text("subscription_id"),
        resource_group=extra.text("resource_group"),
    )
    extra.end(passed_over=("account_name", "account_url"))
    return replace(found, blob_endpoint=sas_address or blob) if found.sas_token else found


def _credentials(
    connection: Connection, extra: Extras, sas_token: str | None
) -> dict[str, str | None]:
    """Choose the one of the given credentials that counts.

    Raises:
        OptionError: It lacks something.
    """
    connection_string = extra.text("connection_string")
    shared_access_key, account_key = extra.text("shared_access_key"), extra.text("account_key")
    tenant_id = extra.text("tenant_id")
    managed_identity = extra.text("managed_identity_client_id")
    login, password = connection.login, connection.password
    if connection_string:
        return {"connection_string": connection_string}
    if tenant_id:
        if not login or not password:
            raise OptionError(
                f"Connection {connection.conn_id!r} ({connection.conn_type}) has a tenant_id. Give "
                "the id of the service principal as login and its secret as password."
            )
        return {"tenant_id": tenant_id, "client_id": login, "client_secret": password}
    if sas_token and not shared_access_key:
        return {"sas_token": sas_token}
    key = shared_access_key or password or account_key
    return {"account_key": key} if key else {"client_id": managed_identity}


def _addresses(connection: Connection, extra: Extras) -> tuple[str | None, str | None]:
    """Read the addresses of the Blob and the Queue service, where not those of a URI's account."""
    queue = extra.text("queue_endpoint")
    blob = extra.text("blob_endpoint") or _host(connection)
    if blob and _PUBLIC.fullmatch(blob):
        blob = None
    return (blob.rstrip("/") if blob else None), (queue.rstrip("/") if queue else None)


def _host(connection: Connection) -> str | None:
    """Read the address in the field `host`; a bare word there is an id of Active Directory."""
    address, host = address_of(connection), connection.host or ""
    if address is None or ("." not in host and "://" not in host and not connection.port):
        return None
    return address.replace(".dfs.", ".blob.", 1)


def _shared_access_signature(given: str | None) -> tuple[str | None, str | None]:
    """Split a signature that may be given as a whole URL: the address, the token."""
    if given is None:
        return None, None
    if not given.startswith(("https://", "http://")):
        return None, given.removeprefix("?")
    address, _, token = given.partition("?")
    return (None if _PUBLIC.fullmatch(address) else address.rstrip("/")), token


def azure_tokens(hook: Any) -> Source | None:
    """Give tokens of the credential that the hook's client has, if it is one that gives tokens."""
    credential = hook.get_conn().credential
    if not hasattr(credential, "get_token"):
        return None

    def token(scope: str) -> dict[str, Any]:
        from airflow_cloudfiles.engine.clouds.azure.errors import (  # noqa: PLC0415 - of this cloud
            access_token,
        )

        found = access_token(credential, scope)
        return {"token": found.token, "expires_on": found.expires_on}

    return token


def is_no_lone_identity(connection: Connection) -> bool:
    """Tell whether an identity of a machine is named as the hook obeys it: with its tenant."""
    extra = Extras.of(connection)
    client = extra.peek("managed_identity_client_id")
    return not client or extra.peek("workload_identity_tenant_id") is not None
