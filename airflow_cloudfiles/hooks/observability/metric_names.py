"""Which metrics does a stream have, and of what kind is each?

Importing this imports no Airflow, so pages, mappings and alerts are checked against it anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
