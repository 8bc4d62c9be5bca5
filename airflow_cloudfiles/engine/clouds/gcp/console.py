"""Give the address of a folder in the console of Google Cloud."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import quote, urlencode

from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.storage.access import Access

_OTHER_GCS: Final = "STORAGE_EMULATOR_HOST"


def address(bucket: str, folder: str, access: Access | None) -> str:
    """Give the address; empty where there is none. See `hooks.observability.links`."""
    given = access if isinstance(access, GcpAccess) else GcpAccess()
    if "@" in bucket or given.storage_endpoint or os.environ.get(_OTHER_GCS):
        return ""
    path = "/".join(quote(each, safe="") for each in (bucket, *folder.split("/")) if each)
    asked = f"?{urlencode({'project': given.project})}" if given.project else ""
    return f"https://console.cloud.google.com/storage/browser/{path}{asked}"
