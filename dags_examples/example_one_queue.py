"""Twenty streams of one bucket, one queue and one watcher.

All streams read the event log of the bucket. Each has an asset and a DAG of its own; the watchers
of the assets share one poller in the triggerer (Airflow 3.3), which drains the queue and wakes the
DAGs whose folders got files, and no others. Make queue and log first:

    cloudfiles notifications set-up --source s3://lake --name lake --events-location s3://ops/events

Set `CLOUDFILES_BUCKET` and `CLOUDFILES_EVENTS` to the two, and `CLOUDFILES_ROOT` to where states
and tables are.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.triggers.file_events import CloudFilesEventsTrigger

# [START one_queue]
BUCKET = os.environ.get("CLOUDFILES_BUCKET", "s3://lake")
EVENTS = os.environ.get("CLOUDFILES_EVENTS", "s3://ops/events")
ROOT = os.environ.get("CLOUDFILES_ROOT", "s3://ops/streams")
FOLDERS = [f"source_{number:02}" for number in range(1, 21)]

for folder in FOLDERS:
    arrival = CloudFilesEventsTrigger(events_location=EVENTS, source=f"{BUCKET}/{folder}")
    landing = Asset(f"{folder}_files", watchers=[AssetWatcher(name=folder, trigger=arrival)])
    with DAG(
        f"example_one_queue_{folder}",
        schedule=[landing],
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        max_active_runs=1,  # events during a run are one further run, after it
        tags=["cloudfiles", "example"],
        doc_md=__doc__,
    ):
        CloudFilesIngestOperator(
            task_id="ingest",
            source=f"{BUCKET}/{folder}",
            format="json",
            checkpoint_location=f"{ROOT}/{folder}/checkpoint",
            target=f"{ROOT}/{folder}/table",
            options={
                "cloudFiles.useManagedFileEvents": "true",
                "cloudFiles.fileEventsLocation": EVENTS,
            },
        )
# [END one_queue]
