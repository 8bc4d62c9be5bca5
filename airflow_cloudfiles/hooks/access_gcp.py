"""Read from a connection of type `google_cloud_platform` or `cloudfiles_gcp` how Google is reached.

Fields are those of Airflow's Google provider, also under the names that older forms gave them
(`extra__google_cloud_platform__…`). `storage_endpoint` and `pubsub_endpoint` are ours, for
emulators.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.hooks.extras import Extras, Source, refuse_fields

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

_FROM_CHAIN = (
    "Leave the credentials out and set GOOGLE_APPLICATION_CREDENTIALS for the workers: application "
    "default credentials read such a file."
)
_KEY = "Give a service account's key as keyfile_dict or key_path."
_IMPERSONATE = (
    "Give a connection of the service account itself, or set application default credentials that "
    "impersonate it (gcloud auth application-default login --impersonate-service-account)."
)
_REFUSED = {
    "client_id": _KEY,
    "client_secret": _KEY,
    "credential_config_file": _FROM_CHAIN,
    "credential_source": _FROM_CHAIN,
    "idp_extra_parameters": _KEY,
    "idp_extra_params": _KEY,
    "idp_issuer_url": _KEY,
    "impersonation_chain": _IMPERSONATE,
    "key_secret_name": _KEY,
    "key_secret_project_id": _KEY,
    "quota_project_id": "Give the project that requests are made for as project.",
}
_LOCATED = "What is read or written, a location says. Remove it."
_ADDRESS = (
    "Give the address as the extra field storage_endpoint (https://…), that of Pub/Sub as "
    "pubsub_endpoint."
)
_REFUSED_FIELDS = {"host": _ADDRESS, "port": _ADDRESS, "login": _KEY, "password": _KEY}
_AIRFLOWS_SCHEMA = "default"
"""Of `google_cloud_default`, which Airflow makes by itself."""
_WIDE = "https://www.googleapis.com/auth/cloud-platform"


def needs_hook(connection: Connection) -> bool:
    """Tell whether a connection says something that only the provider's hook knows."""
    extra = Extras.of(connection)
    extra.pass_over("scope", _WIDE)
    return any(extra.peek(name) is not None for name in (*_REFUSED, "scope"))


def gcp_access(connection: Connection, identity: str | None = None) -> GcpAccess:
    """Read a connection of type `google_cloud_platform` or `cloudfiles_gcp`.

    Args:
        connection: The connection.
        identity: Who is asked for tokens, if it is not the connection that says credentials.

    Raises:
        OptionError: It contradicts itself, or says what is not offered.
    """
    extra = Extras.of(connection)
    if connection.schema != _AIRFLOWS_SCHEMA:
        refuse_fields(connection, {"schema": _LOCATED})
    refuse_fields(connection, _REFUSED_FIELDS)
    extra.pass_over("scope", _WIDE)
    quota_project = extra.text("quota_project_id") if identity else None
    if identity is not None:
        extra.drop(*_REFUSED, "scope", "keyfile_dict", "key_path", "is_anonymous")
    extra.refuse(
        {**_REFUSED, "scope": "What a service account may do, its roles say; leave scope out."}
    )
    access = GcpAccess(
        project=extra.text("project"),
        keyfile_json=_keyfile(connection, extra),
        keyfile_path=extra.text("key_path"),
        anonymous=extra.flag("is_anonymous", default=False),
        storage_endpoint=extra.text("storage_endpoint"),
        pubsub_endpoint=extra.text("pubsub_endpoint"),
        identity=identity,
        quota_project=quota_project,
    )
    extra.end(passed_over=("num_retries",))
    ways = [access.keyfile_json, access.keyfile_path, access.anonymous]
    if sum(map(bool, ways)) > 1:
        raise OptionError(
            f"Connection {connection.conn_id!r} ({connection.conn_type}) has more than one of "
            "keyfile_dict, key_path and is_anonymous. Keep the one that is meant."
        )
    if access.keyfile_path and not access.keyfile_path.endswith(".json"):
        raise OptionError(
            f"Connection {connection.conn_id!r} ({connection.conn_type}): key_path must name a "
            "JSON key file (.json). Keys of type P12 are not read."
        )
    return access


def _keyfile(connection: Connection, extra: Extras) -> str | None:
    """Read the key of a service account as JSON text, however the connection holds it."""
    if extra.peek("keyfile_dict") is None:
        return None
    key = dict(extra.within("keyfile_dict").fields())
    if isinstance(key.get("private_key"), str):  # forms turn line ends into two characters
        key["private_key"] = key["private_key"].replace("\\n", "\n")
    if not key:
        raise OptionError(
            f"Connection {connection.conn_id!r} ({connection.conn_type}): keyfile_dict is empty."
        )
    return json.dumps(key)


def gcp_tokens(hook: Any) -> Source:
    """Give tokens of the hook's credentials."""
    credentials: list[Any] = []

    def token(_: str) -> dict[str, Any]:
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415 - of this cloud
        from google.auth.transport.requests import Request  # noqa: PLC0415 - as above

        from airflow_cloudfiles.engine.clouds.gcp.client import (  # noqa: PLC0415 - as above
            is_identity_outage,
        )

        try:
            if not credentials:
                credentials.append(hook.get_credentials())
            [found] = credentials
            if not found.valid:
                found.refresh(Request())
        except GoogleAuthError as failure:
            error = ConnectionError if is_identity_outage(failure) else PermissionError
            raise error(f"No token for Google Cloud: {failure}") from failure
        ends = found.expiry or datetime.now(UTC).replace(tzinfo=None)
        return {"token": found.token, "expiry": ends.isoformat()}

    return token
