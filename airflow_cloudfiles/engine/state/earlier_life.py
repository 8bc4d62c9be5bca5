"""Refuse to begin a state where an earlier one has been.

A state without its metadata and its file log is a new one, and ingests everything. A backup that
was restored in part, or a clean-up that took `_source/` or some of it, looks like that. So whatever
only a stream in use leaves is a sign that the log is missing, in the state and in the table, whose
commits note the place of the state and its source (`origin`).
"""

from __future__ import annotations

import hashlib
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.state.run_history import REPORTS_PREFIX, decode_report
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

MOST_REPORTS = 100
_IN_USE = (
    "_source/batches/",
    "_source/files/",
    "_source/head.json",
    "_source/operations/",
    "_source/plans/",
    "_source/replays/",
    "_source/sink/",
    "_source/snapshots/",
)
"""What is written when a file is recorded, or later."""


def origin(state: ObjectStore, source: str) -> str:
    """Name a place of a state and its source, for the commits of its stream.

    Args:
        state: The checkpoint location.
        source: What the state knows its source by.
    """
    text = f"{state.uri}\n{source}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def remains_of(state: ObjectStore) -> CorruptedStateError | None:
    """Look for remains in a location without metadata.

    Returns:
        The error that says what there is of an earlier state; `None` for nothing.
    """
    with reaching_state(state):
        names = (entry.path for entry in state.list("_source/"))
        found = next((name for name in names if name.startswith(_IN_USE)), None)
        found = found or _report_of_batches(state)
    if found is None:
        return None
    return without_log(state, f"{printable_path(state.child_uri(found))} is there")


def without_log(state: ObjectStore, what: str) -> CorruptedStateError:
    """Give the error of a state that has no log of its files any more.

    Args:
        state: The checkpoint location.
        what: What shows that it had one, as a clause.
    """
    name = printable_path(state.uri)
    return CorruptedStateError(
        f"The checkpoint location {name} lacks its metadata and file log (_source/metadata.json, "
        f"_source/files/), although {what}: it was in use before, and ingesting everything anew "
        "would double rows. Restore the checkpoint location as a whole from a backup. To ingest "
        "everything anew, give another checkpoint location, and a new table. See "
        "docs/how-to/recover.md."
    )


def _report_of_batches(state: ObjectStore) -> str | None:
    """Give the key of a report of a run that committed something."""
    entries = list(islice(state.list(f"{REPORTS_PREFIX}/"), 10 * MOST_REPORTS))
    entries.sort(key=lambda entry: entry.modification_time_us, reverse=True)
    keys = [entry.path for entry in entries[:MOST_REPORTS]]
    have = at_once(state, [partial(_has_batches, state, key) for key in keys])
    return next((key for key, has in zip(keys, have, strict=True) if has), None)


def _has_batches(state: ObjectStore, key: str) -> bool:
    try:
        report = decode_report(state.get(key), name=key)
    except (ObjectNotFoundError, ValueError, CorruptedStateError):
        return False
    return report.get("kind") == "ingest" and bool(report.get("batches"))
