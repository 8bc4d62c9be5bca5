"""Read from an Airflow connection how a cloud or a server is reached.

Each cloud has a type of connection of this package (`clouds`), and so have SFTP servers, with the
fields of the Amazon, Azure, Google and SFTP providers' types. Those are read here, too. Where the
provider of a type is installed, its hook logs in (`provided`), and the rest is read here all the
same: docs/decisions/0202-the-providers-hooks-log-in.md. What a connection says and nobody obeys is
refused by name.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from airflow.sdk.log import mask_secret  # common-compat of early 2026 has it nowhere

from airflow_cloudfiles.engine.errors import UnsupportedOptionError
from airflow_cloudfiles.hooks.access_aws import aws_access
from airflow_cloudfiles.hooks.access_azure import azure_access
from airflow_cloudfiles.hooks.access_gcp import gcp_access
from airflow_cloudfiles.hooks.access_sftp import sftp_access
from airflow_cloudfiles.hooks.provided import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_cloudfiles.engine.storage.access import Access
    from airflow_cloudfiles.hooks.extras import CloudConnection

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


def access_of(connection: CloudConnection) -> Access | None:
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


def _unreadable(connection: CloudConnection) -> str:
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
