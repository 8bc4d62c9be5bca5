"""How does an Airflow connection say that a cloud is reached?

The connections of the Amazon, Azure and Google providers are read here and not by their hooks: see
docs/decisions/0024-connections-are-read-here.md. What a connection says and this package does not
offer is refused by name.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import mask_secret

from airflow_cloudfiles.engine.errors import UnsupportedOptionError
from airflow_cloudfiles.hooks.access_aws import aws_access
from airflow_cloudfiles.hooks.access_azure import azure_access
from airflow_cloudfiles.hooks.access_gcp import gcp_access

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_cloudfiles.engine.storage.access import Access
    from airflow_cloudfiles.hooks.extras import CloudConnection

LOCAL = "fs"
"""Type of a connection that has no access: it says where relative locations begin."""

_READERS: dict[str, Callable[[CloudConnection], Access]] = {
    "aws": aws_access,
    "wasb": azure_access,
    "adls": azure_access,
    "google_cloud_platform": gcp_access,
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
        raise UnsupportedOptionError(
            f"Connection {connection.conn_id!r} is of type {connection.conn_type!r}. Use one of "
            f"type {', '.join(sorted(_READERS))} or {LOCAL}, or none for the environment's own "
            "credentials."
        )
    access = reader(connection)
    for each in fields(access):
        secret = getattr(access, each.name)
        if not each.repr and secret:
            mask_secret(secret)
    return access
