"""When a table got a new column, do something about it.

The ingestion of `example_event_driven.py` writes the asset `table`; its events say how many rows
came, and which columns are new. This DAG runs after each event and reads that. Events may be
merged: a run gets all that came since the one before it. Set `CLOUDFILES_ROOT` as for that example.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, task

# [START new_columns]
ROOT = os.environ.get("CLOUDFILES_ROOT", "/data/events")
table = Asset("table", uri=Path(ROOT, "table").as_uri())


@task
def report_new_columns(triggering_asset_events: Any = None) -> list[str]:
    """Collect what the events say; here one would tell the owners of the table."""
    extras = [event.extra for event in triggering_asset_events[table]]
    columns = sorted({name for extra in extras for name in extra.get("new_columns", ())})
    rows = sum(extra["rows"] for extra in extras)
    logging.getLogger(__name__).info("%s rows, new columns: %s", rows, columns or "none")
    return columns


with DAG(
    "example_new_columns",
    schedule=[table],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,
    tags=["cloudfiles", "example"],
    doc_md=__doc__,
):
    report_new_columns()
# [END new_columns]
