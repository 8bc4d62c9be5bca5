"""Can a store be trusted to keep two writers apart?

Everything durable here rests on put-if-absent. Some compatible servers take the
condition, ignore it, and let the second writer replace what the first one wrote. That shows only
when it is tried.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import StateError

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.base import ObjectStore

FOLDER = "_source"
"""Where the trial of a state is made: below its own folder of what it knows about its source."""

SCRATCH = "_cloudfiles_test"
"""Where a trial is made that belongs to no state. No stream reads names that begin so."""


def require_conditional_put(store: ObjectStore, *, folder: str = FOLDER) -> None:
    """Prove that put-if-absent refuses the second writer, with three requests and a deletion.

    Args:
        store: Where a state is to live.
        folder: Where the object of the trial is, for some moments.

    Raises:
        StateError: The store ignores the condition: two runs at once would destroy the state.
        OSError: The store cannot be written, or read.
    """
    key = f"{folder}/probe-{uuid.uuid4().hex}"
    first, second = b"first", b"second"
    store.put_if_absent(key, first)  # its answer may be lost; what is there decides
    try:
        refused = not store.put_if_absent(key, second)
        kept = store.get(key) == first
    finally:
        store.delete(key)
    if not (refused and kept):
        raise StateError(
            f"The store of {store.uri} ignores If-None-Match: of two writers of one object, the "
            f"second replaced what the first had written. The state of a stream is not safe there. "
            f"Put the checkpoint location on S3, Azure Storage, Cloud Storage or a local disk, or "
            f"upgrade the server to a version with conditional writes."
        )
