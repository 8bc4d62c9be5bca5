"""Many streams from one file: one DAG a stream.

A DAG of its own gives each stream its own schedule, its own `max_active_runs`, its own history and
its own switch. Mapped tasks of one DAG would have none of these, and no defaults for `retries`:
Airflow does not run `__init__` of a mapped operator. The streams are beside this file, in
`many_streams.yaml`; `CLOUDFILES_STREAMS` names another one.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, get_parsing_context

from airflow_cloudfiles import dags_from_file

# [START many_streams]
FILE = os.environ.get("CLOUDFILES_STREAMS", str(Path(__file__).with_name("many_streams.yaml")))

# A task needs one DAG of this file, and says which: parsing stays cheap with hundreds of streams.
dags: dict[str, DAG] = dags_from_file(
    FILE,
    only=get_parsing_context().dag_id,
    dag_id_prefix="example_stream_",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["cloudfiles", "example"],
)
# [END many_streams]
