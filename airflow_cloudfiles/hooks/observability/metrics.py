"""What do Airflow's metrics say of a stream?

A run emits counts through Airflow's own stats, to wherever `[metrics]` of Airflow's configuration
sends them. As those of Airflow, each has a name with tags; and, for receivers that drop tags, a
second name that has the DAG and the task in it, unless `[metrics] legacy_names_on` is off.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import conf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PREFIX: Final = "cloudfiles"
COUNTERS: Final = ("files", "bytes", "rows", "rescued_rows")
"""Counts of a report, under its names."""
_REPORTS: Final = "/_reports/"
_log = logging.getLogger(__name__)


def emit_run(ti: Any, report: Mapping[str, Any], *, schema_changes: int) -> None:
    """Emit what a run did; no run fails for its metrics.

    Args:
        ti: The task instance.
        report: Of the run; what it does not have is not emitted.
        schema_changes: How often the run has changed the schema.
    """
    try:
        _Emitter(ti, report).emit(schema_changes)
    except Exception:  # noqa: BLE001 - whatever a receiver does, the rows are in the table
        _log.warning("The metrics of the run could not be emitted.", exc_info=True)


def stats() -> Any:
    """Airflow's stats, which it has configured in the process of the task.

    Raises:
        ImportError: This Airflow has them nowhere known.
    """
    with suppress(ImportError):
        return import_module("airflow.sdk.observability.stats").Stats
    with suppress(ImportError):
        return import_module("airflow.observability.stats").Stats
    return import_module("airflow.stats").Stats  # 3.1; deprecated later


def stream_tag(report_uri: str) -> str:
    """Name a stream by its checkpoint location, in characters that every receiver takes."""
    location = report_uri.rpartition(_REPORTS)[0]
    bare = re.sub(r"^[A-Za-z0-9+.-]+:/*", "", location).strip("/")
    return re.sub(r"[^A-Za-z0-9_./-]", "_", bare)


class _Emitter:
    """Emits the metrics of one run under both kinds of names."""

    def __init__(self, ti: Any, report: Mapping[str, Any]) -> None:
        self._stats = stats()
        self._report = report
        parts = [str(ti.dag_id), str(ti.task_id)]
        self._tags = {"dag_id": ti.dag_id, "task_id": ti.task_id}
        map_index = getattr(ti, "map_index", None)
        if isinstance(map_index, int) and map_index >= 0:
            parts.append(str(map_index))
            self._tags["map_index"] = str(map_index)
        if tag := stream_tag(str(report.get("report_uri", ""))):
            self._tags["stream"] = tag
        # A dot separates levels of a name, as in Airflow's own.
        self._own = ".".join(re.sub(r"[^A-Za-z0-9_-]", "_", part) for part in parts)
        self._has_own = conf.getboolean("metrics", "legacy_names_on", fallback=True)

    def emit(self, schema_changes: int) -> None:
        for name in COUNTERS:
            if name in self._report:
                self._send(self._stats.incr, name, int(self._report[name]))
        self._send(self._stats.incr, "schema_changes", schema_changes)
        for name, value in self._gauges():
            self._send(self._stats.gauge, name, value)
        seconds = self._report.get("durations", {}).get("total_seconds")
        if seconds is not None:
            outcome = {"outcome": str(self._report.get("outcome", ""))}
            self._send(self._stats.timing, "run_duration", timedelta(seconds=seconds), **outcome)

    def _gauges(self) -> Iterator[tuple[str, float]]:
        """What the run has left, where its report says so."""
        left = self._report.get("metrics", {})
        for name, theirs in (("files", "numFilesOutstanding"), ("bytes", "numBytesOutstanding")):
            if theirs in left:
                yield f"outstanding_{name}", int(left[theirs])
        if "oldest_outstanding" in self._report:
            since = self._report["oldest_outstanding"]
            now = datetime.now(tz=UTC)
            age = now - datetime.fromisoformat(since) if since else timedelta(0)
            yield "oldest_outstanding_seconds", max(0.0, round(age.total_seconds(), 3))

    def _send(self, how: Callable[..., Any], name: str, value: object, **tags: str) -> None:
        how(f"{PREFIX}.{name}", value, tags=self._tags | tags)
        if self._has_own:
            how(f"{PREFIX}.{self._own}.{name}", value)
