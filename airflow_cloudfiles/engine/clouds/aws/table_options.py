"""Give `deltalake` the identity and the address with which a bucket of S3 is reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from airflow_cloudfiles.engine.clouds.addresses import address_options, proxy_options
from airflow_cloudfiles.engine.clouds.aws.access import REQUEST_ARGUMENTS, AwsAccess
from airflow_cloudfiles.engine.clouds.aws.session import (
    aws_client,
    aws_credentials,
    request_arguments,
)
from airflow_cloudfiles.engine.errors import UnsupportedOptionError
from airflow_cloudfiles.engine.storage.access import of_kind


def table_options(bucket: str) -> dict[str, str]:
    """Find identity and address for S3, as boto3 does."""
    access: AwsAccess | None = of_kind(AwsAccess, None)
    client = aws_client("s3", access)
    options = {
        "aws_region": _region(client, bucket),
        # Whole versions of the log or none, and each once: S3's own condition, no lock beside it.
        "aws_conditional_put": "etag",
    }
    found = aws_credentials(access)
    if found is not None:
        options["aws_access_key_id"] = found.access_key
        options["aws_secret_access_key"] = found.secret_key
        if found.token:
            options["aws_session_token"] = found.token
    endpoint = str(client.meta.endpoint_url)
    # What `deltalake` finds by itself; the addresses of other partitions, too, are named to it.
    of_amazon = (urlsplit(endpoint).hostname or "").endswith(".amazonaws.com")
    if not of_amazon:
        options |= address_options("aws_endpoint_url", "aws_allow_http", endpoint)
    path_style = not of_amazon or "." in bucket or (access is not None and access.path_style)
    options["aws_virtual_hosted_style_request"] = str(not path_style).lower()
    options |= _of_client_config(access.client_config if access else {})
    for name, value in request_arguments(access).items():
        is_yes = value is True or name == "RequestPayer"
        options[REQUEST_ARGUMENTS[name].lower()] = "true" if is_yes else str(value)
    if access is not None and access.verify is False:
        options["allow_invalid_certificates"] = "true"
    return options


def _of_client_config(config: Mapping[str, Any]) -> dict[str, str]:
    """Find what clients of S3 obey besides, in the words of `deltalake`.

    Raises:
        UnsupportedOptionError: It has no word for it.
    """
    for name in ("use_dualstack_endpoint", "use_fips_endpoint", "proxies_config"):
        if config.get(name):
            raise UnsupportedOptionError(
                f"The connection says {name} in config_kwargs, which deltalake does not know. Give "
                "the address as endpoint_url, or a proxy that needs no settings, for tables."
            )
    options = proxy_options(config.get("proxies") or {})
    if config.get("signature_version") == "unsigned":
        options["aws_skip_signature"] = "true"
    return options


def _region(client: Any, bucket: str) -> str:
    """Return the region of a client; ask the bucket when the client has none."""
    named = str(client.meta.region_name or "")
    if named not in {"", "aws-global"}:
        return named
    return str(client.head_bucket(Bucket=bucket).get("BucketRegion") or "us-east-1")
