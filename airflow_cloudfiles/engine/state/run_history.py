"""What is left of the runs of the past, and for how long?

A run leaves what it was asked to do and how it went: `_runs/<run id>.json` and
`_reports/<run id>.json`. Nothing is decided by them. They go when they are old and not among the
newest, but for the newest specification of an ingesting run, whose options a replay takes.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.storage.fetched_ahead import at_once

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage import ObjectStore

RUNS_PREFIX = "_runs"
REPORTS_PREFIX = "_reports"
LEFT_RUNS_PREFIX = "_source/left_runs"
KEPT_RUNS = 100
"""So many of the newest stay, however old they are."""
MOST_AT_ONCE = 1000
"""One sweep removes at most so many of each folder."""
_ONE_IN = 100
_log = logging.getLogger(__name__)


def sweeps(run_id: str) -> bool:
    """Whether a run sees to it that old ones go: one in a hundred, by its id.

    To know when that was done last would be a request in each run.
    """
    return zlib.crc32(run_id.encode()) % _ONE_IN == 0


def newest_ingest(state: ObjectStore) -> tuple[str, dict[str, Any]] | None:
    """Read the specification of the newest run that ingested.

    Returns:
        Its key and what it holds; `None` when there was no such run.
    """
    return _newest_ingest(state, list(state.list(f"{RUNS_PREFIX}/")))


def sweep(
    state: ObjectStore, now_us: int, retention_seconds: float, *, dry_run: bool = False
) -> int:
    """Remove what runs of the past have left.

    Args:
        state: The checkpoint location.
        now_us: The time by its clock.
        retention_seconds: How old something must be.
        dry_run: Only count.

    Returns:
        How many objects.
    """
    before_us = now_us - int(retention_seconds * 1_000_000)
    specs = list(state.list(f"{RUNS_PREFIX}/"))
    keys = _expired(specs, before_us)
    if keys:
        newest = _newest_ingest(state, specs)
        keys = [key for key in keys if newest is None or key != newest[0]]
    for prefix in (REPORTS_PREFIX, LEFT_RUNS_PREFIX):
        keys += _expired(list(state.list(f"{prefix}/")), before_us)
    if not dry_run:
        at_once(state, [partial(state.delete, key) for key in keys])
    return len(keys)


def _expired(entries: Sequence[FileEntry], before_us: int) -> list[str]:
    """The oldest of a folder, but for the newest `KEPT_RUNS`."""
    old = _by_age(entries)[:-KEPT_RUNS]
    return [each.path for each in old if each.modification_time_us < before_us][:MOST_AT_ONCE]


def _newest_ingest(
    state: ObjectStore, specs: Sequence[FileEntry]
) -> tuple[str, dict[str, Any]] | None:
    for entry in reversed(_by_age(specs)):
        try:
            spec: dict[str, Any] = json.loads(state.get(entry.path))
        except (LookupError, ValueError) as failure:
            _log.info("%s is passed over: %s", entry.path, failure)
            continue
        if spec.get("kind") == "ingest":
            return entry.path, spec
    return None


def _by_age(entries: Iterable[FileEntry]) -> list[FileEntry]:
    return sorted(entries, key=lambda entry: (entry.modification_time_us, entry.path))
