"""The DAGs of the pictures: an online shop, whose files are in S3."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor

for name in ("orders", "clicks", "invoices"):
    stream = {
        "source": f"s3://acme-landing/{name}",
        "format": "json",
        "checkpoint_location": f"s3://acme-lake/_state/{name}",
        "conn_id": "lake",
        "options": {"cloudFiles.inferColumnTypes": True},
    }
    with DAG(name, schedule=None, default_args=stream):
        arrived = CloudFilesSensor(task_id="arrived", poke_interval=5)
        if name != "invoices":
            CloudFilesIngestOperator(
                task_id="ingest",
                target=f"s3://acme-lake/{name}",
                batch=arrived.output,
                require_approval=name == "orders",
                engine="local",
            )
