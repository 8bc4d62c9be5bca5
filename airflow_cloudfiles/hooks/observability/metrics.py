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
    from collections.abc import Iterator


COUNTERS: Final = ("files", "bytes", "rows", "rescued_rows", "corrupt_records")
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
    try:
        _Emitter(ti, location).emit(report, schema_changes, lost_files)
    except Exception:  # noqa: BLE001 - whatever a receiver does, the rows are in the table
        _log.warning("The metrics of the run could not be emitted.", exc_info=True)


def emit_gauges(ti: Any, location: str, values: Mapping[str, float]) -> None:
    """Emit what a task has found out; a failure to emit does not fail the task.

    Args:
        ti: The task instance; `None` emits nothing.
        location: The checkpoint location of the stream.
        values: By name.
    """
    if ti is None:
        return
    try:
        _Emitter(ti, location).emit_gauges(values)
    except Exception:  # noqa: BLE001 - whatever a receiver does, the rows are in the table
        _log.warning("The metrics of the task could not be emitted.", exc_info=True)


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


class _Emitter:
    """Emits the metrics of one task under both kinds of names."""

    def __init__(self, ti: Any, location: str) -> None:
        self._stats = stats()
        parts = [str(ti.dag_id), *own_names(ti)]
        self._tags = {"dag_id": ti.dag_id, "task_id": ti.task_id}
        if (map_index := map_index_of(ti)) >= 0:
            self._tags["map_index"] = str(map_index)
        if tag := stream_tag(location):
            self._tags["stream"] = tag
        # A dot separates levels of a name, as in Airflow's own.
        self._own = ".".join(re.sub(r"[^A-Za-z0-9_-]", "_", part) for part in parts)
        self._has_own = conf.getboolean("metrics", "legacy_names_on", fallback=True)

    def emit(self, report: Mapping[str, Any], schema_changes: int, lost_files: int | None) -> None:
        for name in COUNTERS:
            if name in report:
                self._send(name, int(report[name]))
        self._send("schema_changes", schema_changes)
        if lost_files is not None:
            self._send("lost_files", lost_files)
        self.emit_gauges(dict(_left(report)))
        seconds = report.get("durations", {}).get("total_seconds")
        if seconds is not None:
            outcome = {"outcome": str(report.get("outcome", ""))}
            self._send("run_duration", timedelta(seconds=seconds), **outcome)

    def emit_gauges(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._send(name, value)

    def _send(self, name: str, value: object, **tags: str) -> None:
        how = getattr(self._stats, _METHODS[KINDS[name]])
        how(f"{PREFIX}.{name}", value, tags=self._tags | tags)
        if self._has_own:
            how(f"{PREFIX}.{self._own}.{name}", value)


def _left(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield what a run has left, where its report says it."""
    left = report.get("metrics", {})
    for name, theirs in (("files", "numFilesOutstanding"), ("bytes", "numBytesOutstanding")):
        if theirs in left:
            yield f"outstanding_{name}", int(left[theirs])
    if "oldest_outstanding" in report:
        yield "oldest_outstanding_seconds", age_of(report["oldest_outstanding"])
