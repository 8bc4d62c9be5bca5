"""Carry orders on from a bronze table to a silver one, also when a column is renamed.

The first task lands JSON files in the bronze table. The second reads that table as a stream: each
run appends what its versions have added, exactly once. When a column is added to bronze, the task
fails, and its retry goes on with the column. When one is renamed, the task fails until somebody has
looked at silver and set the Airflow Variable `orders_allow_rename` to the version that the error
names (or to `always`). What came before the renaming has the old name, what comes later the new.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator

# [START bronze_to_silver]
ROOT = os.environ.get("CLOUDFILES_ROOT", "/data/orders")

with DAG(
    "example_bronze_to_silver",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["cloudfiles", "example"],
    doc_md=__doc__,
):
    bronze = CloudFilesIngestOperator(
        task_id="bronze",
        source=f"{ROOT}/landing",
        format="json",
        checkpoint_location=f"{ROOT}/checkpoints/bronze",
        target=f"{ROOT}/bronze",
    )
    silver = CloudFilesIngestOperator(
        task_id="silver",
        source=f"{ROOT}/bronze",
        format="delta",
        checkpoint_location=f"{ROOT}/checkpoints/silver",
        target=f"{ROOT}/silver",
        options={"allowSourceColumnRename": "{{ var.value.get('orders_allow_rename', '') }}"},
    )
    bronze >> silver
# [END bronze_to_silver]
