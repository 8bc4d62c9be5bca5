"""What is left of the runs of the past, and for how long?

A run leaves what it was asked to do and how it went: `_runs/<run id>.json` and
`_reports/<run id>.json`. Nothing is decided by them. They go when they are old and not among the
newest, but for the newest specification of an ingesting run, whose options a replay takes.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import CorruptedStateError, RunFailedError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.sealed import seal, unseal
from airflow_cloudfiles.engine.versions import FIELD, fields_of, require_version

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.storage import ObjectStore

RUNS_PREFIX = "_runs"
REPORTS_PREFIX = "_reports"
REPORT_VERSION = 1
SPEC_VERSION = 1
LEFT_RUNS_PREFIX = "_source/left_runs"
KEPT_RUNS = 100
"""So many of the newest stay, however old they are."""
MOST_AT_ONCE = 1000
"""One sweep removes at most so many of each folder."""
_ONE_IN = 100
_log = logging.getLogger(__name__)


def encode_report(report: Mapping[str, Any]) -> bytes:
    """Build the bytes of a report."""
    return seal({FIELD: REPORT_VERSION, **report})


def decode_report(content: bytes, *, name: str) -> dict[str, Any]:
    """Read what `encode_report` wrote.

    Raises:
        ValueError: It is damaged.
        IncompatibleStateError: The driver has a newer version of this package.
    """
    same = "Install the same version of the package here and on the Spark side."
    return fields_of(unseal(content), name=name, understood=REPORT_VERSION, what_to_do=same)


def sweeps(run_id: str) -> bool:
    """Whether a run sees to it that old ones go: one in a hundred, by its id.

    To know when that was done last would be a request in each run.
    """
    return zlib.crc32(run_id.encode()) % _ONE_IN == 0


def read_report(state: ObjectStore, run_id: str) -> dict[str, Any] | None:
    """Read the report of a run; `None` when it has left none.

    Raises:
        RunFailedError: It is damaged.
        IncompatibleStateError: The driver has a newer version of this package.
        StateError: The state cannot be read.
    """
    key = f"{REPORTS_PREFIX}/{run_id}.json"
    name = printable_path(state.child_uri(key))
    try:
        with reaching_state(state):
            return decode_report(state.get(key), name=name)
    except ObjectNotFoundError:
        return None
    except ValueError as failure:
        raise RunFailedError(
            f"The report {name} cannot be read: {failure}. It was damaged after it was written. "
            "Run again: what the run has committed stays."
        ) from failure


def newest_ingest(state: ObjectStore) -> tuple[str, dict[str, Any]] | None:
    """Read the specification of the newest run that ingested.

    Returns:
        Its key and what it holds; `None` when there was no such run.

    Raises:
        CorruptedStateError: One that is as new is damaged, so nobody knows which it is.
        IncompatibleStateError: A newer version of this package wrote it.
    """
    for key, spec in _ingests(state, list(state.list(f"{RUNS_PREFIX}/"))):
        name = printable_path(state.child_uri(key))
        if spec is not None:
            require_version(spec.get(FIELD, 1), name=name, understood=SPEC_VERSION)
            return key, spec
        raise CorruptedStateError(
            f"The specification {name} of a run was damaged after it was written, so its options "
            "are not known. Restore it from a backup, or delete it: then those of the run before "
            "it count."
        )
    return None


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
        newest = next((key for key, spec in _ingests(state, specs) if spec is not None), None)
        keys = [key for key in keys if newest is None or key != newest]
    for prefix in (REPORTS_PREFIX, LEFT_RUNS_PREFIX):
        keys += _expired(list(state.list(f"{prefix}/")), before_us)
    if not dry_run:
        at_once(state, [partial(state.delete, key) for key in keys])
    return len(keys)


def _expired(entries: Sequence[FileEntry], before_us: int) -> list[str]:
    """The oldest of a folder, but for the newest `KEPT_RUNS`."""
    old = _by_age(entries)[:-KEPT_RUNS]
    return [each.path for each in old if each.modification_time_us < before_us][:MOST_AT_ONCE]


def _ingests(
    state: ObjectStore, specs: Sequence[FileEntry]
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Give the specifications of ingesting runs, the newest first; `None` for a damaged one."""
    for entry in reversed(_by_age(specs)):
        try:
            spec = unseal(state.get(entry.path))
        except ObjectNotFoundError:
            continue  # another sweep was faster
        except ValueError as failure:
            _log.warning("%s cannot be read: %s", entry.path, failure)
            yield entry.path, None
            continue
        if spec.get("kind") == "ingest":
            yield entry.path, spec


def _by_age(entries: Iterable[FileEntry]) -> list[FileEntry]:
    return sorted(entries, key=lambda entry: (entry.modification_time_us, entry.path))
