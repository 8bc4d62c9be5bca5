"""A queue's trigger, sensors of Airflow's providers and tasks of this package: two clouds.

A shop announces its deliveries in a queue of SQS, and `MessageQueueTrigger` starts a run for a
message. `S3KeySensor` and `GCSObjectExistenceSensor` wait for the markers of the shop's and of a
partner's delivery, and each is ingested. All that concerns the shop logs in by the connection
`landing` of type `aws`, and the partner's by `partner` of type `google_cloud_platform`. A message
that is lost costs nothing: the next run finds the files by listing. Install the extras `amazon` and
`google` (docs/how-to/connections.md), `apache-airflow-providers-common-messaging` and
`aiobotocore`, and set `LANDING`, `LANDING_QUEUE`, `LAKE` and `PARTNER`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.providers.google.cloud.sensors.gcs import GCSObjectExistenceSensor
from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator

# [START with_providers]
LANDING = os.environ.get("LANDING", "s3://acme-landing")
QUEUE = os.environ.get("LANDING_QUEUE", "https://sqs.eu-central-1.amazonaws.com/111122223333/words")
LAKE = os.environ.get("LAKE", "s3://acme-lake")
PARTNER = os.environ.get("PARTNER", "gs://acme-partner")
ORDERS = {
    "source": f"{LANDING}/orders",
    "format": "json",
    "checkpoint_location": f"{LAKE}/_state/orders",
    "target": f"{LAKE}/orders",
    "conn_id": "landing",
}
RETURNS = {
    "source": f"{PARTNER}/returns",
    "format": "json",
    "checkpoint_location": f"{PARTNER}/_state/returns",
    "target": f"{PARTNER}/tables/returns",
    "conn_id": "partner",
}

message = MessageQueueTrigger(scheme="sqs", sqs_queue=QUEUE, aws_conn_id="landing")
delivery = Asset("delivery", watchers=[AssetWatcher(name="messages", trigger=message)])

with DAG(
    "example_with_providers",
    schedule=[delivery],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,
    tags=["cloudfiles", "example"],
    doc_md=__doc__,
):
    orders = S3KeySensor(
        task_id="orders", bucket_key=f"{LANDING}/done/_COMPLETE", aws_conn_id="landing"
    )
    returns = GCSObjectExistenceSensor(
        task_id="returns",
        bucket=PARTNER.removeprefix("gs://"),
        object="done/_COMPLETE",
        google_cloud_conn_id="partner",
    )
    ingest_orders = CloudFilesIngestOperator(task_id="ingest_orders", engine="local", **ORDERS)
    ingest_returns = CloudFilesIngestOperator(task_id="ingest_returns", engine="local", **RETURNS)
    orders >> ingest_orders
    returns >> ingest_returns
# [END with_providers]
