"""Say why a root serves nothing.

A disk that is not mounted, a bucket that is gone and a server that serves an empty folder look like
files that are gone. Whoever is about to give files up asks first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.storage.base import is_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_cloudfiles.engine.storage.base import ObjectStore


def absence(store: ObjectStore, *, holds: Callable[[str], bool] | None = None) -> str | None:
    """Say why files are not to be taken for deleted; `None` where the root is there.

    Args:
        store: The root.
        holds: The root must hold an object, too, for whose key this is true.

    Returns:
        A sentence without a full stop.
    """
    name = printable_path(store.uri)
    try:
        if not store.is_folder():
            place = "" if is_tree(store) else ": there is no such bucket or container"
            return f"The source {name} does not exist any more{place}"
        if holds is not None and not any(holds(each.path) for each in store.list(ordered=False)):
            return f"The source {name} is empty"
    except OSError as failure:
        return f"The source {name} cannot be listed any more ({str(failure).rstrip('.')})"
    return None
