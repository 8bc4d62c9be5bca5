"""What of a state does a run read when it opens it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.discovery.listing.state import KEY as LISTING
from airflow_cloudfiles.engine.ledger.snapshots import PREFIX as SNAPSHOTS
from airflow_cloudfiles.engine.ledger.soundness import HEAD
from airflow_cloudfiles.engine.state import file_log, metadata, plan_log, sink_log
from airflow_cloudfiles.engine.state.spark_checkpoint import COMMITS
from airflow_cloudfiles.engine.storage.fetched_ahead import fetched_ahead

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

_KEYS: Final = (metadata.KEY, f"{sink_log.DECISIONS}/{0:020}")
_ONCE: Final = (HEAD, LISTING)
_LOGS: Final = (f"{plan_log.PREFIX}/", f"{file_log.PREFIX}/", f"{SNAPSHOTS}/", "_schemas/")
_COMMITTED: Final = (f"{sink_log.PREFIX}/", f"{sink_log.PREFIX}/0/", f"{COMMITS}/")


def opened_at_once(
    checkpoint_location: str, *, under_lock: bool
) -> AbstractContextManager[Callable[[], None]]:
    """Fetch what opening a state reads, in two round trips.

    Args:
        checkpoint_location: The state.
        under_lock: Whether the caller holds a lock of it. If not, what is committed is not fetched:
            that is to be read when the lock is held.

    Returns:
        A context; in it `open_store` has the answers, until what it yields is called.
    """
    folders = (*_LOGS, *_COMMITTED) if under_lock else _LOGS
    return fetched_ahead(checkpoint_location, keys=_KEYS, folders=folders, once=_ONCE)
