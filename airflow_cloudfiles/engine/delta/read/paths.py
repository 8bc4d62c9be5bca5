"""Where is a file that the log of a table names?

The log has URIs, percent-encoded: relative to the table's folder as a rule, absolute where a file
was taken over from another table (a shallow clone).
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from airflow_cloudfiles.engine.errors import TargetCorruptedError, UnsupportedTableError
from airflow_cloudfiles.engine.storage import ObjectStore, normalize_uri, open_store

_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")


def decoded(path: str) -> str:
    """A path of the log as the name it stands for."""
    return unquote(path, errors="surrogateescape") if "%" in path else path


def relative_key(store: ObjectStore, path: str) -> str | None:
    """The key below the table that a path in the log stands for; `None` when it is elsewhere.

    Args:
        store: The table's files.
        path: As the log has it.
    """
    name = decoded(path)
    return store.key_of(name) or None if _ABSOLUTE.match(path) else name


def locate(store: ObjectStore, path: str, target: str) -> tuple[ObjectStore, str]:
    """The store and the key of a path in the log, below the table or elsewhere.

    Args:
        store: The table's files.
        path: As the log has it.
        target: The table, for errors.

    Raises:
        UnsupportedTableError: The file is on a storage of another kind than the table.
        TargetCorruptedError: The path names no file.
    """
    key = relative_key(store, path)
    if key is not None:
        if any(part in {"", ".", ".."} for part in key.split("/")):
            raise _damaged(path, target)
        return store, key
    uri = normalize_uri(decoded(path))
    folder, _, name = uri.rpartition("/")
    if folder.endswith("/") or not name:
        raise _damaged(path, target)
    if uri.partition(":")[0] != store.uri.partition(":")[0]:
        raise UnsupportedTableError(
            f"The Delta table {target} has a file on a storage of another kind ({path}), which is "
            "not read. Copy the table to one storage."
        )
    return open_store(folder), name


def _damaged(path: str, target: str) -> TargetCorruptedError:
    return TargetCorruptedError(
        f"The log of the Delta table {target} is damaged: {path!r} names no file of it. Restore "
        "the log from a backup."
    )
