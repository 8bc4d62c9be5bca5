"""Sensors of Airflow's Amazon provider and tasks of this package, with one connection.

A supplier writes files, and a marker when a delivery is complete. `S3KeySensor` waits for the
marker, `SqsSensor` for a word of the supplier in a queue; then the files are ingested. All three
log in by the connection `landing` of type `aws`, so a role, a web identity or whatever else the
connection says holds for all. Install the extra `amazon` (docs/how-to/connections.md), and set
`LANDING`, `LANDING_QUEUE` and `LAKE`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.providers.amazon.aws.sensors.sqs import SqsSensor
from airflow.sdk import DAG

from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor

# [START with_amazon_provider]
LANDING = os.environ.get("LANDING", "s3://acme-landing")
QUEUE = os.environ.get("LANDING_QUEUE", "https://sqs.eu-central-1.amazonaws.com/111122223333/words")
LAKE = os.environ.get("LAKE", "s3://acme-lake")
ORDERS = {
    "source": f"{LANDING}/orders",
    "format": "json",
    "checkpoint_location": f"{LAKE}/_state/orders",
    "target": f"{LAKE}/orders",
    "conn_id": "landing",
}

with DAG(
    "example_with_amazon_provider",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["cloudfiles", "example"],
    doc_md=__doc__,
):
    complete = S3KeySensor(
        task_id="complete", bucket_key=f"{LANDING}/done/_COMPLETE", aws_conn_id="landing"
    )
    word = SqsSensor(task_id="word", sqs_queue=QUEUE, aws_conn_id="landing")
    arrived = CloudFilesSensor(task_id="arrived", **ORDERS)
    ingest = CloudFilesIngestOperator(task_id="ingest", batch=arrived.output, **ORDERS)
    [complete, word] >> arrived
# [END with_amazon_provider]
