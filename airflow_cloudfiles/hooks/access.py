"""Read from an Airflow connection how a cloud or a server is reached.

Each cloud has a type of connection of this package (`clouds`), and so have SFTP servers, with the
fields of the Amazon, Azure, Google and SFTP providers' types. Those are read here, too. What a
connection says and nobody obeys is refused by name.

Where the provider of a type is installed, its hook logs in, and the rest is read here all the same
(docs/decisions/0202-the-providers-hooks-log-in.md): the Amazon, Azure and Google providers know
more ways to log in than this package, such as chains of roles, web identities, SAML, impersonation,
secrets elsewhere. A connection of their types is given to their hook, and the hook is asked for
credentials each time that some are needed. A provider is imported when a connection of its type is
used, and not before.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Connection
from airflow.sdk.log import mask_secret  # common-compat of early 2026 has it nowhere

from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.storage import identities
from airflow_cloudfiles.hooks.access_aws import aws_access, aws_keys
from airflow_cloudfiles.hooks.access_azure import azure_access, azure_tokens, is_no_lone_identity
from airflow_cloudfiles.hooks.access_gcp import gcp_access, gcp_tokens, needs_hook
from airflow_cloudfiles.hooks.access_sftp import sftp_access
from airflow_cloudfiles.hooks.extras import TEST_LOCATION, Source

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

LOCAL = "fs"
"""Type of a connection that has no access: it says where relative locations begin."""

AWS, AZURE, GCP = "cloudfiles_aws", "cloudfiles_azure", "cloudfiles_gcp"
SFTP = "cloudfiles_sftp"
"""The types that this package brings."""

_GENERIC = "generic"
"""What Airflow's command line stores in place of a type that no installed provider has."""

_READERS: dict[str, Callable[..., Access]] = {
    AWS: aws_access,
    AZURE: azure_access,
    GCP: gcp_access,
    SFTP: sftp_access,
    "aws": aws_access,
    "wasb": azure_access,
    "adls": azure_access,
    "google_cloud_platform": gcp_access,
    "sftp": sftp_access,
    "ssh": sftp_access,
}


def access_of(connection: Connection) -> Access | None:
    """Read the access out of a connection; from then on Airflow masks its secrets in logs.

    Returns:
        `None` for a connection of type `fs`.

    Raises:
        UnsupportedOptionError: The type, or something the connection says, is not offered.
        OptionError: The connection contradicts itself.
    """
    if connection.conn_type == LOCAL:
        return None
    reader = _READERS.get(connection.conn_type or "")
    if reader is None:
        raise UnsupportedOptionError(_unreadable(connection))
    identity = identity_of(connection)
    access = reader(connection) if identity is None else reader(connection, identity)
    for each in fields(access):
        secret = getattr(access, each.name)
        if not each.repr and secret and isinstance(secret, str):
            mask_secret(secret)
    return access


def _unreadable(connection: Connection) -> str:
    """Say which type the connection should have."""
    where = f"Connection {connection.conn_id!r} is of type {connection.conn_type!r}"
    if connection.conn_type == _GENERIC:
        return (
            f"{where}, which Airflow stores for a type that no installed provider has. Delete it "
            f"and add it again with --conn-type {AWS}, {AZURE}, {GCP} or {SFTP}, which come with "
            "this package."
        )
    return (
        f"{where}. Use one of type {', '.join(sorted(_READERS))} or {LOCAL}, or none for the "
        "environment's own credentials."
    )


_OURS = (
    "blob_endpoint", "queue_endpoint", "resource_group", "subscription_id", "storage_endpoint",
    "pubsub_endpoint", TEST_LOCATION,
)  # fmt: skip
"""Extra fields of this package, which hooks would hand on to their clients."""


def identity_of(connection: Connection) -> str | None:
    """Give whom to ask for the credentials of a connection.

    Returns:
        `None` where the connection is read without a hook: its type is none of a provider that is
        installed, or it holds credentials that do not end, which say everything.

    Raises:
        OptionError: The hook does not take the connection.
    """
    found = _PROVIDERS.get(connection.conn_type or "")
    if found is None or not _is_installed(found.module) or not found.is_needed(connection):
        return None
    name = _name(connection)
    if identities.is_known(name):
        return name
    with _explained(connection):
        source = found.source(_hook(found, connection))
    if source is None:
        return None

    lock = threading.Lock()  # clients ask from several threads; one of them logs in

    def given_to(purpose: str) -> Mapping[str, Any]:
        with lock, _explained(connection):
            given = source(purpose)
        for secret in ("secret_key", "token"):
            if given.get(secret):
                mask_secret(given[secret])
        return given

    return identities.register(name, given_to)


def _is_installed(module: str) -> bool:
    """Look for a module without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def _name(connection: Connection) -> str:
    """Name an identity: the same for the same connection, so that clients are kept."""
    parts = (
        connection.conn_type, connection.conn_id, connection.host, connection.login,
        connection.password, connection.port, connection.schema, connection.extra,
    )  # fmt: skip
    return f"{connection.conn_type}-{connection.conn_id}-{hash(parts):x}"


def _hook(provider: _Provider, connection: Connection) -> Any:
    """Make the hook, with the connection that is at hand: it looks for none itself."""
    kept = {name: value for name, value in connection.extra_dejson.items() if name not in _OURS}
    given = Connection(  # a new one: the other may be a row of Airflow's database
        conn_id=connection.conn_id,
        conn_type=connection.conn_type,
        host=connection.host,
        schema=connection.schema,
        login=connection.login,
        password=connection.password,
        port=connection.port,
        extra=json.dumps(kept) if kept else None,
    )
    base = getattr(importlib.import_module(provider.module), provider.hook)
    hook = type(base.__name__, (base,), {"get_connection": classmethod(lambda *_: given)})
    return hook(connection.conn_id)


@contextmanager
def _explained(connection: Connection) -> Iterator[None]:
    """Put what a hook raises into a sentence; errors of this package pass."""
    try:
        yield
    except (CloudFilesError, OSError):
        raise
    except Exception as failure:
        where = f"Connection {connection.conn_id!r} ({connection.conn_type})"
        if isinstance(failure, ImportError):
            raise OptionError(
                f"{where} needs a package that is not installed here: {failure}. Install the "
                "provider of its type with all that it needs."
            ) from failure
        from airflow.providers.common.compat.sdk import redact  # noqa: PLC0415 - heavy

        text = str(redact(str(failure))).partition("\n")[0].rstrip(".")
        raise OptionError(
            f"{where} cannot be used by the hook of its provider: {type(failure).__name__}: "
            f"{text}. Correct the connection."
        ) from None


@dataclass(frozen=True, slots=True)
class _Provider:
    """How a type of connection is logged in with.

    Attributes:
        module: Of the provider's hook.
        hook: Its name.
        source: Makes a source of a hook; `None` where the connection holds what does not end.
        is_needed: Whether a connection needs the hook.
    """

    module: str
    hook: str
    source: Callable[[Any], Source | None]
    is_needed: Callable[[Connection], bool] = lambda _: True


_AZURE = "airflow.providers.microsoft.azure.hooks"
_PROVIDERS = {
    "aws": _Provider("airflow.providers.amazon.aws.hooks.base_aws", "AwsBaseHook", aws_keys),
    "wasb": _Provider(f"{_AZURE}.wasb", "WasbHook", azure_tokens, is_no_lone_identity),
    "adls": _Provider(
        f"{_AZURE}.data_lake", "AzureDataLakeStorageV2Hook", azure_tokens, is_no_lone_identity
    ),
    "google_cloud_platform": _Provider(
        "airflow.providers.google.common.hooks.base_google",
        "GoogleBaseHook",
        gcp_tokens,
        needs_hook,
    ),
}
