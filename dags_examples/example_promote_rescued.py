"""Make columns of what was rescued, once a night, for the fields that are on a list.

The stream runs in mode `rescue`: no new field ever fails it, all are kept in `_rescued_data`. Who
wants one as a column adds it to the list. Rows that are there get their values; from the next run
on, the stream fills the column by itself. A field that is done costs a look at what is rescued.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.operators.promote import CloudFilesPromoteOperator

# [START promote_rescued]
ROOT = os.environ.get("CLOUDFILES_ROOT", "/data/orders")
STREAM = {
    "source": f"{ROOT}/landing",
    "format": "json",
    "checkpoint_location": f"{ROOT}/checkpoint",
    "target": f"{ROOT}/table",
    "options": {
        "cloudFiles.schemaEvolutionMode": "rescue",
        "cloudFiles.inferColumnTypes": "true",
    },
}
FIELDS = json.loads(os.environ.get("CLOUDFILES_PROMOTE", '{"customer.zip": "STRING"}'))

with DAG(
    "example_promote_rescued",
    schedule="0 4 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["cloudfiles", "example"],
    doc_md=__doc__,
):
    ingest = CloudFilesIngestOperator(task_id="ingest", **STREAM)
    promote = CloudFilesPromoteOperator(task_id="promote", fields=FIELDS, **STREAM)
    ingest >> promote
# [END promote_rescued]
