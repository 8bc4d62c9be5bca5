"""Every quarter of an hour, ingest what has arrived since the last time.

Nothing runs in between: a stream as a batch. The sensor gives its worker slot back while it waits,
and a quarter of an hour without files ends as skipped, not as failed. Set `CLOUDFILES_ROOT` to a
folder all workers share, put JSON files below its `landing/` folder and unpause the DAG.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor

# [START batch_streaming]
ROOT = os.environ.get("CLOUDFILES_ROOT", "/data/events")
STREAM = {
    "source": f"{ROOT}/landing",
    "format": "json",
    "checkpoint_location": f"{ROOT}/checkpoint",
    "target": f"{ROOT}/table",
}

with DAG(
    "example_batch_streaming",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # a run ingests everything there is: those that were missed are not missed
    max_active_runs=1,  # one state has one run at a time; a second would wait for it
    default_args=STREAM,
    tags=["cloudfiles", "example"],
    doc_md=__doc__,
):
    arrived = CloudFilesSensor(
        task_id="arrived", mode="reschedule", poke_interval=60, timeout=600, soft_fail=True
    )
    CloudFilesIngestOperator(task_id="ingest", batch=arrived.output)
# [END batch_streaming]
