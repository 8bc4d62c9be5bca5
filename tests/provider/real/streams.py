"""DAGs of `test_real_airflow.py`: as an author writes them, with no word about retries."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import DAG, BaseNotifier

from airflow_cloudfiles.hooks import approval
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor

if TYPE_CHECKING:
    from airflow.sdk import Context


class Note(BaseNotifier):
    """Writes what it is told into a file, a line for each call."""

    template_fields = ("text",)

    def __init__(self, path: str, text: str) -> None:
        super().__init__()
        self.path, self.text = path, text

    def notify(self, context: Context) -> None:
        """Append a line."""
        with Path(self.path).open("a", encoding="utf-8") as file:
            file.write(f"{self.text}\n")


CHANGED = "{{ ti.try_number }}: {{ schema_change.changes | join }} in {{ schema_change.files }}"

for dag_id, options in {
    "heals": {},
    "fails_on_new_columns": {"cloudFiles.schemaEvolutionMode": "failOnNewColumns"},
    "is_killed": {"cloudFiles.maxFilesPerTrigger": 1},
    "is_marked_failed": {"cloudFiles.maxFilesPerTrigger": 1},
    "asks": {},
}.items():
    root = f"{os.environ['STREAMS_ROOT']}/{dag_id}"
    stream = {
        "source": f"{root}/landing",
        "format": "json",
        "checkpoint_location": f"{root}/state",
        "target": f"{root}/table",
        "options": options,
    }
    with DAG(dag_id, schedule=None, default_args=stream):
        arrived = CloudFilesSensor(task_id="arrived", poke_interval=1, timeout=900)
        CloudFilesIngestOperator(
            task_id="ingest",
            batch=arrived.output,
            master="local[1]",
            on_schema_change=Note(f"{root}/changes", CHANGED),
            require_approval=dag_id == "asks" and approval.TaskAwaitingInput is not None,
        )

with DAG("links", schedule=None):  # fails before it would look for the table
    CloudFilesIngestOperator(
        task_id="ingest",
        source=f"{os.environ['STREAMS_ROOT']}/links/nowhere",
        format="json",
        checkpoint_location=f"{os.environ['STREAMS_ROOT']}/links/state",
        target="s3://acme-lake/orders",
        master="local[1]",
        retries=0,
    )

with DAG(
    "is_deferred",
    schedule=None,
    params={"source": "s3://nowhere", "lake": "s3://nowhere", "queue": ""},
    default_args={
        "source": "{{ params.source }}",
        "format": "json",
        "checkpoint_location": "{{ params.lake }}/state",
        "conn_id": "landing",
    },
):
    arrived = CloudFilesSensor(
        task_id="arrived",
        options={"cloudFiles.useNotifications": True, "cloudFiles.queueUrl": "{{ params.queue }}"},
        deferrable=True,
        poke_interval=2,
        timeout=900,
        # Airflow may fail a task whose trigger fires soon (apache/airflow #72716); a retry finds
        # what is recorded.
        retry_delay=timedelta(seconds=2),
    )
    CloudFilesIngestOperator(
        task_id="ingest",
        target="{{ params.lake }}/table",
        batch=arrived.output,
        master="local[1]",
        keep_warm=timedelta(minutes=2),
    )
