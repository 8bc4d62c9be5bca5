"""Report the metrics of a stream to Airflow.

A run emits counts through Airflow's own stats, to wherever `[metrics]` of Airflow's configuration
sends them. As those of Airflow, each has a name with tags; and, for receivers that drop tags, a
second name that has the DAG and the task in it, unless `[metrics] legacy_names_on` is off.

Importing this imports no Airflow, so pages, mappings and alerts are checked against it anywhere.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import conf

from airflow_cloudfiles.hooks.task import map_index_of, own_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


COUNTERS: Final = (
    "files", "bytes", "rows", "rescued_rows", "corrupt_records", "quarantined_rows", "dropped_rows",
    "replaced_rows", "registered_files", "copied_files",
)  # fmt: skip
"""Counts of a report, under its names."""
KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(COUNTERS, "counter"),
    **dict.fromkeys(("schema_changes", "lost_files"), "counter"),
    **dict.fromkeys(("outstanding_files", "outstanding_bytes"), "gauge"),
    "oldest_outstanding_seconds": "gauge",
    "run_duration": "timer",
    "seconds_since_last_arrival": "gauge",
    **dict.fromkeys(("waiting_files", "waiting_bytes", "oldest_waiting_seconds"), "gauge"),
}
"""Every metric, and what it is; the pages and their alerts are checked against this."""


PREFIX: Final = "cloudfiles"
_METHODS: Final = {"counter": "incr", "gauge": "gauge", "timer": "timing"}
_REPORTS: Final = "/_reports/"
_log = logging.getLogger(__name__)


def emit_run(
    ti: Any, report: Mapping[str, Any], *, schema_changes: int, lost_files: int | None = None
) -> None:
    """Emit what a run did; a failure to emit does not fail the run.

    Args:
        ti: The task instance.
        report: Of the run; what it does not have is not emitted.
        schema_changes: How often the run has changed the schema.
        lost_files: How many files were gone when it was to read them; `None` if not counted.
    """
    location = str(report.get("report_uri", "")).rpartition(_REPORTS)[0]
    _emit(ti, location, _of_run(report, schema_changes, lost_files), of="run")


def emit_gauges(ti: Any, location: str, values: Mapping[str, float]) -> None:
    """Emit what a task has found out; a failure to emit does not fail the task.

    Args:
        ti: The task instance; `None` emits nothing.
        location: The checkpoint location of the stream.
        values: By name.
    """
    if ti is not None:
        _emit(ti, location, ((name, value, {}) for name, value in values.items()), of="task")


def age_of(since: str | None) -> float:
    """Count the seconds since a time (ISO 8601); 0 for no time."""
    age = datetime.now(tz=UTC) - datetime.fromisoformat(since) if since else timedelta(0)
    return max(0.0, round(age.total_seconds(), 3))


def stats() -> Any:
    """Return Airflow's stats, which it has configured in the process of the task.

    Raises:
        ImportError: This Airflow has them nowhere known.
    """
    with suppress(ImportError):
        return import_module("airflow.sdk.observability.stats").Stats
    with suppress(ImportError):
        return import_module("airflow.observability.stats").Stats
    return import_module("airflow.stats").Stats  # 3.1; deprecated later


def stream_tag(location: str) -> str:
    """Name a stream by its checkpoint location, in characters that every receiver takes."""
    bare = re.sub(r"^[A-Za-z0-9+.-]+:/*", "", location).strip("/")
    return re.sub(r"[^A-Za-z0-9_./-]", "_", bare)


def _emit(
    ti: Any, location: str, values: Iterable[tuple[str, object, dict[str, str]]], *, of: str
) -> None:
    """Emit values, each with its name and further tags, under both kinds of names."""
    try:
        emitted = stats()
        tags = {"dag_id": ti.dag_id, "task_id": ti.task_id}
        if (map_index := map_index_of(ti)) >= 0:
            tags["map_index"] = str(map_index)
        if tag := stream_tag(location):
            tags["stream"] = tag
        # A dot separates levels of a name, as in Airflow's own.
        parts = (str(ti.dag_id), *own_names(ti))
        own = ".".join(re.sub(r"[^A-Za-z0-9_-]", "_", part) for part in parts)
        has_own = conf.getboolean("metrics", "legacy_names_on", fallback=True)
        for name, value, more in values:
            how = getattr(emitted, _METHODS[KINDS[name]])
            how(f"{PREFIX}.{name}", value, tags=tags | more)
            if has_own:
                how(f"{PREFIX}.{own}.{name}", value)
    except Exception:  # noqa: BLE001 - whatever a receiver does, the rows are in the table
        _log.warning("The metrics of the %s could not be emitted.", of, exc_info=True)


def _of_run(
    report: Mapping[str, Any], schema_changes: int, lost_files: int | None
) -> Iterator[tuple[str, object, dict[str, str]]]:
    """Yield what a run has done and left, where its report says it."""
    for name in COUNTERS:
        if name in report:
            yield name, int(report[name]), {}
    yield "schema_changes", schema_changes, {}
    if lost_files is not None:
        yield "lost_files", lost_files, {}
    left = report.get("metrics", {})
    for name, theirs in (("files", "numFilesOutstanding"), ("bytes", "numBytesOutstanding")):
        if theirs in left:
            yield f"outstanding_{name}", int(left[theirs]), {}
    if "oldest_outstanding" in report:
        yield "oldest_outstanding_seconds", age_of(report["oldest_outstanding"]), {}
    seconds = report.get("durations", {}).get("total_seconds")
    if seconds is not None:
        outcome = {"outcome": str(report.get("outcome", ""))}
        yield "run_duration", timedelta(seconds=seconds), outcome
