"""A real process that drops old entries of an event log: `python tidier.py LOG KEPT STEP`.

It drops all but the newest `KEPT` entries, and passes `before-packed-removal` before each `STEP`.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from airflow_cloudfiles.engine.extensions.event_log import log as event_log
from airflow_cloudfiles.engine.extensions.event_log.log import EventLog
from airflow_cloudfiles.engine.state import compaction


def main(location: str, kept: str, step: str) -> None:
    """Tidy once."""
    event_log.KEPT = int(kept)
    compaction.REMOVED_AT_ONCE = int(step)
    log = EventLog.open(location)
    event_log.tidy(EventLog(log.store, replace(log.description, keep_seconds=-1.0)))


if __name__ == "__main__":
    main(*sys.argv[1:])
