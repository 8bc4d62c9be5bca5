"""The DAG of the Airflow part of `make torture`."""

from __future__ import annotations

import os

from airflow.sdk import DAG

from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor

root = os.environ["TORTURE_ROOT"]
stream = {
    "source": f"{root}/in",
    "format": "json",
    "checkpoint_location": f"{root}/state",
    "target": f"{root}/table",
    "options": {"cloudFiles.maxFilesPerTrigger": 1},
}
with DAG("tortured", schedule=None, default_args={**stream, "retries": 0}):
    arrived = CloudFilesSensor(task_id="arrived", poke_interval=1, timeout=600)
    CloudFilesIngestOperator(task_id="ingest", batch=arrived.output, master="local[1]")
