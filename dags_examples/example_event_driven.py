"""When files arrive, run: an asset with a watcher.

The watcher's trigger checks in the triggerer, without a worker, and fires once for what arrived.
The event says that something is there, not what: the ingestion discovers files itself and takes all
of them, so an event that is lost, repeated or late costs nothing. Set `CLOUDFILES_ROOT` to a folder
that the triggerer and all workers share, put JSON files below its `landing/` folder and unpause the
DAG.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.triggers.cloud_files import CloudFilesTrigger

# [START event_driven]
ROOT = os.environ.get("CLOUDFILES_ROOT", "/data/events")
STREAM = {
    "source": f"{ROOT}/landing",
    "format": "json",
    "checkpoint_location": f"{ROOT}/checkpoint",
    "target": f"{ROOT}/table",
}

arrival = CloudFilesTrigger(
    **STREAM, poke_interval=float(os.environ.get("CLOUDFILES_POKE_SECONDS", "30"))
)
landing = Asset("landing", watchers=[AssetWatcher(name="arrivals", trigger=arrival)])
table = Asset("table", uri=Path(ROOT, "table").as_uri())  # see example_new_columns.py

with DAG(
    "example_event_driven",
    schedule=[landing],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,  # events during a run are one further run, after it
    default_args=STREAM,
    tags=["cloudfiles", "example"],
    doc_md=__doc__,
):
    # No sensor: without a batch, the ingestion discovers files itself, and may find none.
    CloudFilesIngestOperator(task_id="ingest", target=table)
# [END event_driven]
