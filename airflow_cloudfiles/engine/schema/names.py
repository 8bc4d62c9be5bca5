"""Keep the other names that the source of a schema log had.

A schema log holds the versions of one source. Where a source was relocated, `_schemas/sources.json`
has its names: versions that were written under one of them are those of the others, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.storage.base import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD, fields_of

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

KEY = "_schemas/sources.json"
NAMES_VERSION = 1


def names_of(store: ObjectStore) -> set[str]:
    """Read the names that are of one source; none where it has had one name only.

    Raises:
        CorruptedStateError: They cannot be read.
        IncompatibleStateError: A newer version of this package wrote them.
    """
    try:
        with reaching_state(store):
            value = unseal(store.get(KEY))
        names = fields_of(value, name=store.child_uri(KEY), understood=NAMES_VERSION)["sources"]
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
    value = {FIELD: NAMES_VERSION, "sources": sorted(before.union(names))}
    with reaching_state(store):
        store.put(KEY, seal(value))


def _damaged(store: ObjectStore) -> CorruptedStateError:
    return CorruptedStateError(
        f"{store.child_uri(KEY)} cannot be read: it has the names that the source of this schema "
        "log has had. Repeat cloudfiles state relocate after removing it, or restore it."
    )
