"""Many streams from one list: one DAG a stream.

A DAG of its own gives each stream its own schedule, its own `max_active_runs`, its own history and
its own switch. Mapped tasks of one DAG would have none of these, and no defaults for `retries`:
Airflow does not run `__init__` of a mapped operator. The list is beside this file, in
`many_streams.yaml`; `CLOUDFILES_STREAMS` names another one.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import yaml
from airflow.sdk import DAG, get_parsing_context

from airflow_cloudfiles.task_groups.cloud_files import CloudFilesTaskGroup

# [START many_streams]
LIST = os.environ.get("CLOUDFILES_STREAMS", str(Path(__file__).with_name("many_streams.yaml")))
ROOT = os.environ.get("CLOUDFILES_ROOT", "/data/events")

# A task needs one DAG of this file, and says which: parsing stays cheap with hundreds of streams.
only = get_parsing_context().dag_id

for name, stream in yaml.safe_load(Path(LIST).read_text(encoding="utf-8"))["streams"].items():
    dag_id = f"example_stream_{name}"
    if only not in (None, dag_id):
        continue
    with DAG(
        dag_id,
        schedule=stream.get("schedule", "@hourly"),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=["cloudfiles", "example"],
        doc_md=stream.get("description", __doc__),
    ):
        CloudFilesTaskGroup(
            name,
            source=stream.get("source", f"{ROOT}/{name}/landing"),
            format=stream.get("format", "json"),
            checkpoint_location=f"{ROOT}/{name}/checkpoint",
            target=stream.get("target", f"{ROOT}/{name}/table"),
            options=stream.get("options", {}),
            conn_id=stream.get("conn_id"),
            sensor={"deferrable": True, "timeout": 1800},
            prefix_group_id=False,
        )
# [END many_streams]
