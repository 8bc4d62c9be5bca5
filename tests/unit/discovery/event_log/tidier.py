"""A real process that drops old entries of an event log: `python tidier.py LOG KEPT STEP`.

It drops all but the newest `KEPT` entries, and passes `before-event-drop` before each `STEP`.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from airflow_cloudfiles.engine.extensions.event_log import retention
from airflow_cloudfiles.engine.extensions.event_log.log import EventLog


def main(location: str, kept: str, step: str) -> None:
    """Tidy once."""
    retention.KEPT = int(kept)
    retention.PACK_ENTRIES = int(step)
    log = EventLog.open(location)
    retention.tidy(EventLog(log.store, replace(log.description, keep_seconds=-1.0)))


if __name__ == "__main__":
    main(*sys.argv[1:])
