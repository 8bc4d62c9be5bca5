r"""Past days, one run a day: `airflow backfill create` over files older than the stream.

The running stream has a `modifiedAfter`; what is older is ingested by backfill runs, each taking
the files modified in its data interval. Both work on one state: a file that one of them has
recorded is not recorded by the other, and a day that is run again finds nothing new.

    airflow dags unpause example_backfill
    airflow backfill create --dag-id example_backfill --max-active-runs 1 \
        --from-date 2026-01-01 --to-date 2026-01-31

A backfill of a paused DAG stays queued, and does not look at the DAG's own `max_active_runs`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor

try:
    from airflow.sdk import CronDataIntervalTimetable
except ImportError:  # Airflow 3.1
    from airflow.timetables.interval import CronDataIntervalTimetable

# [START backfill]
ROOT = os.environ.get("CLOUDFILES_ROOT", "/data/events")
STREAM = {  # the running stream's, except for its options
    "source": f"{ROOT}/landing",
    "format": "json",
    "checkpoint_location": f"{ROOT}/checkpoint",
    "target": f"{ROOT}/table",
}
INTERVAL = {
    # Both are exclusive, and an interval is [start, end): a microsecond earlier, and no file is
    # between two intervals or in both.
    "modifiedAfter": "{{ data_interval_start - macros.timedelta(microseconds=1) }}",
    "modifiedBefore": "{{ data_interval_end }}",
    "cloudFiles.useIncrementalListing": "false",  # past files are behind the newest known ones
}

with DAG(
    "example_backfill",
    # "@daily" has an interval of no length: start and end are the same.
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
    max_active_runs=1,
    default_args={**STREAM, "options": INTERVAL, "retry_delay": timedelta(minutes=1)},
    tags=["cloudfiles", "example"],
    doc_md=__doc__,
):
    # Looks once: a day without files is skipped and starts no Spark.
    picked = CloudFilesSensor(task_id="picked", timeout=0, soft_fail=True)
    CloudFilesIngestOperator(task_id="ingest", batch=picked.output)
# [END backfill]
