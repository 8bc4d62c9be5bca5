"""An inbox of Excel files on an SFTP server that empties itself into a Delta table.

A partner leaves workbooks in `/inbox`. The sensor waits in the triggerer, without a worker; a file
is taken when it has been still for a minute, since it can be seen while it is being uploaded. The
run reads all sheets of the year, adds new columns to the table and, when it is over, moves what
earlier runs have committed to `/done` on the server. Make a connection `acme_sftp` of type
`cloudfiles_sftp` with the key of the server (docs/how-to/ingest-from-sftp.md), and set
`SFTP_INBOX_SERVER` and `CLOUDFILES_ROOT`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor

# [START sftp_inbox]
SERVER = os.environ.get("SFTP_INBOX_SERVER", "sftp://sftp.acme.com")
ROOT = os.environ.get("CLOUDFILES_ROOT", "/data/acme")  # SFTP servers keep no state and no table
STREAM = {
    "source": f"{SERVER}/inbox",
    "format": "excel",
    "checkpoint_location": f"{ROOT}/checkpoint",
    "target": f"{ROOT}/table",
    "conn_id": "acme_sftp",
    "options": {
        "dataAddress": "'* 2026'",  # the sheets "January 2026", "February 2026", ...
        "headerRows": 1,
        "cloudFiles.minFileAge": "1 minute",
        "cloudFiles.inferColumnTypes": True,
        "cloudFiles.cleanSource": "MOVE",
        "cloudFiles.cleanSource.retentionDuration": "1 hour",
        "cloudFiles.cleanSource.moveDestination": f"{SERVER}/done",
    },
}

with DAG(
    "example_sftp_inbox",
    schedule="@continuous",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,
    default_args=STREAM,
    tags=["cloudfiles", "example"],
    doc_md=__doc__,
):
    arrived = CloudFilesSensor(task_id="arrived", deferrable=True, poke_interval=60)
    ingest = CloudFilesIngestOperator(
        task_id="ingest", batch=arrived.output, metadata_columns=["file_name", "sheet_name"]
    )
# [END sftp_inbox]
