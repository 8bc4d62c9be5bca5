"""Give the address of a folder in the console of AWS."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import quote, urlencode

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.storage.access import Access

_AWS_CONSOLES: Final = {"cn-": "amazonaws.cn", "us-gov-": "amazonaws-us-gov.com"}
"""Where a region's console is, if it is not where the others are."""
_OTHER_S3: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")


def address(bucket: str, folder: str, access: Access | None) -> str:
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
