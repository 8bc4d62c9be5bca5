"""What of a state does a run read when it opens it, and in how many round trips?

1. While the driver takes its lock: whose state it is, which numbers each log has, and the hints.
2. Under the lock: which batches are committed, and the newest entry of each log. Which entry that
   is, a listing before the lock has shown; of the records of batches it is only a guess, and the
   listing under the lock decides.

The micro-batches of a run are planned with all of that, but for what is committed, which is read
when the run has the run lock.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.discovery.listing.state import KEY as LISTING
from airflow_cloudfiles.engine.ledger.snapshots import PREFIX as SNAPSHOTS
from airflow_cloudfiles.engine.ledger.soundness import HEAD
from airflow_cloudfiles.engine.state import file_log, metadata, plan_log, sink_log
from airflow_cloudfiles.engine.state.spark_checkpoint import COMMITS
from airflow_cloudfiles.engine.storage.fetched_ahead import far, given_to_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_cloudfiles.engine.locks.run_lock import RunLock
    from airflow_cloudfiles.engine.storage.fetched_ahead import FetchedAhead

_DECISION: Final = f"{sink_log.DECISIONS}/{0:020}"
_NUMBERED: Final = (f"{plan_log.PREFIX}/", f"{file_log.PREFIX}/", "_schemas/")
_LOGS: Final = (*_NUMBERED, f"{SNAPSHOTS}/")
_RECORDS: Final = f"{sink_log.PREFIX}/"
_COMMITTED: Final = (_RECORDS, f"{COMMITS}/")


@dataclass(frozen=True, slots=True)
class Opened:
    """A state that is open.

    Attributes:
        end_reads: Ends that `open_store` gives what was fetched; old answers would mislead.
        ahead: What was fetched; `None` where the state is not far away.
    """

    end_reads: Callable[[], None]
    ahead: FetchedAhead | None = None


@contextlib.contextmanager
def opened_under(
    lock: RunLock, checkpoint_location: str, *, timeout_seconds: float
) -> Iterator[Opened]:
    """Take a lock, and fetch what opening a state reads, in two round trips, one with the lock.

    In the block `open_store` has the answers.

    Args:
        lock: Of the state. At the end of the block it is freed (`end_releases` waits for that).
        checkpoint_location: The state.
        timeout_seconds: How long to wait for the lock.

    Raises:
        StateLockedError: Another run has the lock.
        StateUnreachableError: The store cannot be reached.
    """
    ahead = far(checkpoint_location)
    if ahead is None:
        lock.acquire(timeout_seconds)
        with lock:
            yield Opened(lambda: None)
        return
    with ahead.meanwhile(lambda: _before_the_lock(ahead)):
        is_at_once = lock.acquire(timeout_seconds)
    try:
        if not is_at_once:  # whoever had the lock has gone on since
            ahead.forget()
            _before_the_lock(ahead)
        _under_the_lock(ahead)
        with given_to_all(ahead) as end:
            yield Opened(end, ahead)
    finally:
        lock.release_aside()


@contextlib.contextmanager
def opened_at_once(checkpoint_location: str, known: Opened | None = None) -> Iterator[None]:
    """Fetch what opening a state reads, in two round trips; for a caller that has no lock yet.

    What is committed is not fetched: that is to be read when the lock is held. In the block
    `open_store` has the answers.

    Args:
        checkpoint_location: The state.
        known: What this run has fetched before, under its lock; `None` for nothing.
    """
    ahead = far(checkpoint_location)
    if ahead is None:
        yield
        return
    if known is None or known.ahead is None:
        ahead.fetch([metadata.KEY], _LOGS, [HEAD])
        ahead.fetch(ahead.newest(_NUMBERED), once=[LISTING])
    else:
        ahead.seed(known.ahead, _LOGS)
    with given_to_all(ahead):
        yield


def _before_the_lock(ahead: FetchedAhead) -> None:
    ahead.fetch([metadata.KEY], (*_LOGS, _RECORDS), [HEAD], versions=[LISTING])


def _under_the_lock(ahead: FetchedAhead) -> None:
    record = sink_log.newest_key(ahead.names(_RECORDS))
    newest = [*ahead.newest(_NUMBERED), *([] if record is None else [record])]
    ahead.fetch([_DECISION, *newest], _COMMITTED, [LISTING])
    ahead.cut_out(f"{_RECORDS}0/", _RECORDS)
