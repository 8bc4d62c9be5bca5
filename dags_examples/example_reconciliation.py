"""Every night, list everything once and report what notifications had lost.

A queue loses events: a rule that was changed, a queue that was deleted, messages older than its
retention. An incremental listing misses names that sort before those it knows. The task lists the
whole source on the stream's own state, so that what is found is ingested by the stream's next run;
its XCom says how many files that were, and `too_many_lost` fails when it was more than a few.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, task

from airflow_cloudfiles.operators.cloud_files import CloudFilesReconcileOperator

# [START reconciliation]
ROOT = os.environ.get("CLOUDFILES_ROOT", "/data/events")
STREAM = {
    "source": f"{ROOT}/landing",
    "format": "json",
    "checkpoint_location": f"{ROOT}/checkpoint",
    "target": f"{ROOT}/table",
    # With notifications: "options": {"cloudFiles.useNotifications": True, "cloudFiles.queueUrl": …}
    "options": {"cloudFiles.useIncrementalListing": "true"},
}
MOST_LOST = int(os.environ.get("CLOUDFILES_MOST_LOST", "100"))

with DAG(
    "example_reconciliation",
    schedule="0 3 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["cloudfiles", "example"],
    doc_md=__doc__,
):
    reconciled = CloudFilesReconcileOperator(task_id="reconcile", **STREAM)

    @task(retries=0)
    def too_many_lost(report: dict[str, Any]) -> None:
        """Fail, so that somebody is told."""
        if report["files"] > MOST_LOST:
            raise ValueError(f"{report['files']} files had been lost, such as {report['sample']}")

    too_many_lost(reconciled.output)
# [END reconciliation]
