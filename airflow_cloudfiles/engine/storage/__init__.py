"""Store bytes: open the store of a location.

`open_store(uri)` gives an `ObjectStore`: list, head, get, get ranges, put, put-if-absent. Every
durable thing this package writes rests on one promise of it: of any number of callers that create
the same key, exactly one succeeds, and what it wrote survives a crash whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.uri import normalize_uri, refuse_iceberg
from airflow_cloudfiles.engine.storage.vendors import BY_SCHEME

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

__all__ = ["ObjectNotFoundError", "ObjectStore", "StoreOpener", "normalize_uri", "open_store"]

StoreOpener = Callable[[str], ObjectStore]
"""Opens the store at a location: `open_store`, or what a run has open (`OpenedState.open`)."""


def open_store(uri: str, access: Access | None = None) -> ObjectStore:
    """Open the store whose root is a path or URI; nothing is created or contacted yet.

    Args:
        uri: A local path, a `file:` URI, `s3://bucket/path`, `gs://bucket/path`,
            `abfss://container@account.dfs.core.windows.net/path`, `sftp://host/path` (to read and
            clean), or `memory://name` (one per process, for tests). Other spellings of the same:
            see `normalize_uri`.
        access: How the cloud or server is reached. One of another cloud is as none: then the
            environment decides (`CLOUDFILES_ACCESS`, else the client's own chain).

    Raises:
        UnsupportedOptionError: A location that this version cannot reach.
        OptionError: Not a location, or the extra of its cloud is not installed.
    """
    from airflow_cloudfiles.engine.storage.local import LocalStore  # noqa: PLC0415 - lazy import

    canonical = normalize_uri(uri)
    scheme = canonical.partition(":")[0]
    if vendor := BY_SCHEME.get(scheme):
        leaf = vendor.load("store", needed_for=canonical)
        return cast("ObjectStore", getattr(leaf, vendor.store)(canonical, access))
    if scheme == "memory":
        from airflow_cloudfiles.engine.storage.memory import MemoryStore  # noqa: PLC0415 - lazy import

        return MemoryStore(canonical)
    refuse_iceberg(canonical)
    return LocalStore(canonical)
