"""Where do bytes live?

`open_store(uri)` gives an `ObjectStore`: list, head, get, get ranges, put, put-if-absent. Every
durable thing this package writes rests on one promise of it: of any number of callers that create
the same key, exactly one succeeds, and what it wrote survives a crash whole.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError, ObjectStore
    from airflow_cloudfiles.engine.storage.uri import normalize_uri

__all__ = ["ObjectNotFoundError", "ObjectStore", "normalize_uri", "open_store"]


def open_store(uri: str) -> ObjectStore:
    """Open the store whose root is a path or URI; nothing is created or contacted yet.

    Args:
        uri: A local path, a `file:` URI, or `memory://name` (one per process, for tests).

    Raises:
        UnsupportedOptionError: A location that this version cannot reach.
        OptionError: Not a location.
    """
    from airflow_cloudfiles.engine.storage.local import LocalStore  # noqa: PLC0415 - lazy room
    from airflow_cloudfiles.engine.storage.memory import MemoryStore  # noqa: PLC0415 - lazy room
    from airflow_cloudfiles.engine.storage.uri import normalize_uri  # noqa: PLC0415 - lazy room

    canonical = normalize_uri(uri)
    if canonical.startswith("memory://"):
        return MemoryStore(canonical)
    return LocalStore(canonical)


def __getattr__(name: str) -> object:
    """Import the public names on first use."""
    for module in map(importlib.import_module, (f"{__name__}.base", f"{__name__}.uri")):
        if name in __all__ and hasattr(module, name):
            return getattr(module, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
