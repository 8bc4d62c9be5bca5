"""What Airflow's database holds of a deferred task or a watcher: the arguments of its trigger."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from airflow_cloudfiles.triggers.cloud_files import CloudFilesTrigger
from airflow_cloudfiles.triggers.file_events import CloudFilesEventsTrigger
from airflow_cloudfiles.triggers.spark_connect import SparkConnectQueryTrigger
from tests.golden.in_state import QUERY

FOLDER = Path(__file__).with_name("triggers")
TRIGGERS = {
    "cloud_files.v1.json": CloudFilesTrigger(
        source="s3://lake/orders",
        format="json",
        checkpoint_location="s3://lake/state",
        options={"cloudFiles.useNotifications": "true"},
        conn_id="lake",
        poke_interval=30.0,
        ends_at=1_767_225_600.5,
    ),
    "file_events.v1.json": CloudFilesEventsTrigger(
        events_location="s3://ops/events/lake",
        source="s3://lake/orders",
        conn_id="lake",
        poke_interval=30.0,
    ),
    "spark_connect.v1.json": SparkConnectQueryTrigger(
        query=asdict(QUERY), spark_conn_id="spark", poke_interval=30.0, is_own=False
    ),
}


def written() -> dict[str, str]:
    """What each trigger of today is stored as."""
    found = {}
    for name, trigger in TRIGGERS.items():
        path, arguments = trigger.serialize()
        found[name] = json.dumps({"classpath": path, "kwargs": arguments}, indent=1) + "\n"
    return found
