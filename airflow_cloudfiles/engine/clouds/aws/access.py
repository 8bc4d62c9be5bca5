"""Describe the identity with which AWS, or a compatible server, is reached, and its console."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlencode

from airflow_cloudfiles.engine.storage.access import Access

REQUEST_ARGUMENTS = {
    "RequestPayer": "AWS_REQUEST_PAYER",
    "ServerSideEncryption": "AWS_SERVER_SIDE_ENCRYPTION",
    "SSEKMSKeyId": "AWS_SSE_KMS_KEY_ID",
    "BucketKeyEnabled": "AWS_SSE_BUCKET_KEY_ENABLED",
}
"""What requests to S3 may say: who pays, and how is encrypted what is written. With the variables
that say it where no access does, which are also the options of `deltalake`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsAccess(Access):
    """How AWS, or a compatible server, is reached.

    Attributes:
        access_key_id: Of a key pair; `None` leaves it to the environment's own chain.
        secret_access_key: Of the key pair.
        session_token: Of temporary credentials.
        profile: Name of a profile in the AWS configuration files.
        region: Such as `eu-central-1`.
        role_arn: A role to assume with the credentials above; renewed as long as it is used.
        role_external_id: Asked for by some trust policies.
        role_session_name: Shows in audit logs.
        endpoint_urls: Addresses by service (`s3`, `sqs`, `sns`, `sts`, `events`); the key `""`
            serves all services without one of their own.
        path_style: Whether the bucket is in the path of a request, as most emulators want it.
        checksums: When S3 is sent and asked for checksums, as botocore's
            `request_checksum_calculation` and `response_checksum_validation` say it.
        request_arguments: What each request to S3 says that has a place for it, in boto3's words
            (`REQUEST_ARGUMENTS`).
        verify: Whether certificates are checked, or the path of a bundle to check them with.
        client_config: Further settings of botocore's clients: proxies, `signature_version`, ….
    """

    vendor: ClassVar = "aws"
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None
    region: str | None = None
    role_arn: str | None = None
    role_external_id: str | None = field(default=None, repr=False)
    role_session_name: str | None = None
    endpoint_urls: Mapping[str, str] = field(default_factory=dict)
    path_style: bool = False
    checksums: Mapping[str, str] = field(default_factory=dict)
    request_arguments: Mapping[str, str | bool] = field(default_factory=dict)
    verify: bool | str = True
    client_config: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def endpoint_url(self, service: str) -> str | None:
        """Address of a service; `None` for AWS's own."""
        return self.endpoint_urls.get(service) or self.endpoint_urls.get("") or None


_AWS_CONSOLES: Final = {"cn-": "amazonaws.cn", "us-gov-": "amazonaws-us-gov.com"}
"""Where a region's console is, if it is not where the others are."""
_OTHER_S3: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")


def console_address(bucket: str, folder: str, access: Access | None) -> str:
    """Give the address; empty where there is none. See `hooks.observability.links`."""
    given = access if isinstance(access, AwsAccess) else AwsAccess()
    if "@" in bucket or given.endpoint_url("s3") or any(os.environ.get(name) for name in _OTHER_S3):
        return ""
    region = given.region or ""
    others = (host for start, host in _AWS_CONSOLES.items() if region.startswith(start))
    asked = {"region": region} if region else {}
    asked |= {"prefix": f"{folder}/"} if folder else {}
    host = next(others, "aws.amazon.com")
    name = quote(bucket, safe="")
    return f"https://console.{host}/s3/buckets/{name}?{urlencode(asked)}".rstrip("?")
