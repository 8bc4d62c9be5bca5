"""Describe the identity with which Google Cloud is reached, and its console."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import ClassVar, Final
from urllib.parse import quote, urlencode

from airflow_cloudfiles.engine.storage.access import Access


@dataclass(frozen=True, slots=True, kw_only=True)
class GcpAccess(Access):
    """How Google Cloud is reached: one of the ways, else application default credentials.

    Attributes:
        project: Id of the project that requests are made for.
        keyfile_json: A service account's key, as JSON text.
        keyfile_path: A file that holds one.
        anonymous: No credentials at all: public buckets and emulators.
        storage_endpoint: Address of Cloud Storage; `STORAGE_EMULATOR_HOST` is obeyed besides.
        pubsub_endpoint: `host:port` of a Pub/Sub emulator; `PUBSUB_EMULATOR_HOST` besides.
        quota_project: Id of the project whose quota requests count against.
    """

    vendor: ClassVar = "gcp"
    project: str | None = None
    keyfile_json: str | None = field(default=None, repr=False)
    keyfile_path: str | None = None
    anonymous: bool = False
    storage_endpoint: str | None = None
    pubsub_endpoint: str | None = None
    quota_project: str | None = None


_OTHER_GCS: Final = "STORAGE_EMULATOR_HOST"


def console_address(bucket: str, folder: str, access: Access | None) -> str:
    """Give the address; empty where there is none. See `hooks.observability.links`."""
    given = access if isinstance(access, GcpAccess) else GcpAccess()
    if "@" in bucket or given.storage_endpoint or os.environ.get(_OTHER_GCS):
        return ""
    path = "/".join(quote(each, safe="") for each in (bucket, *folder.split("/")) if each)
    asked = f"?{urlencode({'project': given.project})}" if given.project else ""
    return f"https://console.cloud.google.com/storage/browser/{path}{asked}"
