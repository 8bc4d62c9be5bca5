"""Land the flights that arrive as JSON Lines in a Delta table, and follow their schema.

`make demo` runs this DAG. Elsewhere, set the Airflow Variable `flights_root` to a folder all
workers share, put files below its `landing/` folder and unpause the DAG: each run waits for files,
ingests them and makes room for the next run.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_cloudfiles.operators.cloud_files import (
    CloudFilesInferSchemaOperator,
    CloudFilesIngestOperator,
)
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor

POKE_SECONDS = float(os.environ.get("FLIGHTS_POKE_SECONDS", "60"))

# [START ingest_flights]
ROOT = "{{ var.value.get('flights_root', '/data/flights') }}"
STREAM = {
    "source": f"{ROOT}/landing",
    "format": "json",
    "checkpoint_location": f"{ROOT}/checkpoint",
    "target": f"{ROOT}/table",
    "options": {"cloudFiles.inferColumnTypes": True},
}

with DAG(
    "example_ingest_flights",
    schedule="@continuous",
    start_date=datetime(2025, 1, 1, tzinfo=UTC),  # without one, @continuous runs once and no more
    max_active_runs=1,
    default_args=STREAM,
    tags=["cloudfiles", "example"],
    doc_md=__doc__,
):
    arrived = CloudFilesSensor(task_id="arrived", poke_interval=POKE_SECONDS)
    infer_schema = CloudFilesInferSchemaOperator(task_id="infer_schema")
    ingest = CloudFilesIngestOperator(task_id="ingest", batch=arrived.output)

    arrived >> infer_schema >> ingest
# [END ingest_flights]
