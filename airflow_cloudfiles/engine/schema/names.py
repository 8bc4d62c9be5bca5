"""Which other names has the source of a schema log had?

A schema log holds the versions of one source. Where a source was relocated, `_schemas/sources.json`
has its names: versions that were written under one of them are those of the others, too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

KEY = "_schemas/sources.json"


def names_of(store: ObjectStore) -> set[str]:
    """Read the names that are of one source; none where it has had one name only.

    Raises:
        CorruptedStateError: They cannot be read.
    """
    try:
        with reaching_state(store):
            value = json.loads(store.get(KEY))
        names = value["sources"]
    except ObjectNotFoundError:
        return set()
    except (ValueError, TypeError, KeyError) as failure:
        raise _damaged(store) from failure
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise _damaged(store)
    return set(names)


def add_name(store: ObjectStore, *names: str) -> None:
    """Note that these are names of the source of the log; again it changes nothing."""
    before = names_of(store)
    if before.issuperset(names):
        return
    value = {"version": 1, "sources": sorted(before.union(names))}
    with reaching_state(store):
        store.put(KEY, json.dumps(value, indent=1).encode("ascii"))


def _damaged(store: ObjectStore) -> CorruptedStateError:
    return CorruptedStateError(
        f"{store.child_uri(KEY)} cannot be read: it has the names that the source of this schema "
        "log has had. Repeat cloudfiles state relocate after removing it, or restore it."
    )
