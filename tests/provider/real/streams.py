"""DAGs of `test_real_airflow.py`: as an author writes them, with no word about retries."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk import DAG, BaseNotifier, Param

from airflow_cloudfiles.hooks import approval
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.operators.schema_change import (
    CloudFilesDecideSchemaOperator,
    CloudFilesProposeSchemaOperator,
)
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor
from airflow_cloudfiles.task_groups.cloud_files import CloudFilesTaskGroup
from airflow_cloudfiles.task_groups.streams import streams_from_file

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


class LeavesSoon(CloudFilesIngestOperator):
    """Leaves every query, as if it lasted long."""

    leave_after_seconds = 0.2


CHANGED = "{{ ti.try_number }}: {{ schema_change.changes | join }} in {{ schema_change.files }}"


HAS_PARKING = approval.TaskAwaitingInput is not None


def _of(dag_id: str) -> dict[str, str]:
    """The stream of a DAG."""
    root = f"{os.environ['STREAMS_ROOT']}/{dag_id}"
    return {
        "source": f"{root}/landing",
        "format": "json",
        "checkpoint_location": f"{root}/state",
        "target": f"{root}/table",
    }


SMALL = {"cloudFiles.maxFilesPerTrigger": "{{ params.files_per_batch }}"}
OWN = {"master": "local[1]"}
# Spark 3.5 comes without a Spark Connect server.
HAS_SERVER = "AIRFLOW_CONN_SERVER" in os.environ
SERVER = {"spark_conn_id": "server"} if HAS_SERVER else OWN
for dag_id, options, spark in (
    ("heals", {}, OWN),
    ("fails_on_new_columns", {"cloudFiles.schemaEvolutionMode": "failOnNewColumns"}, SERVER),
    ("is_killed", SMALL, OWN),
    ("is_marked_failed", SMALL, OWN),
    ("asks", {}, SERVER),
):
    root = f"{os.environ['STREAMS_ROOT']}/{dag_id}"
    stream = {**_of(dag_id), "options": options}
    with DAG(dag_id, schedule=None, default_args=stream, params={"files_per_batch": 1}):
        arrived = CloudFilesSensor(task_id="arrived", poke_interval=1, timeout=900)
        CloudFilesIngestOperator(
            task_id="ingest",
            batch=arrived.output,
            on_schema_change=Note(f"{root}/changes", CHANGED),
            require_approval=dag_id == "asks" and HAS_PARKING,
            **spark,
        )

with DAG("is_decided", schedule=None):
    CloudFilesIngestOperator(
        task_id="ingest", require_approval=HAS_PARKING, engine="local", **_of("is_decided")
    )

with DAG("asks_deferred", schedule=None):
    LeavesSoon(
        task_id="ingest",
        require_approval=HAS_PARKING,
        deferrable=HAS_SERVER,
        # The scheduler fails a task that is resumed before it knows that the worker has left.
        poke_interval=10,
        retries=0,
        **_of("asks_deferred"),
        **SERVER,
    )

# One task says nothing of retries, the other one what the documentation says.
with DAG("is_mapped", schedule=None):
    for task_id, given in {
        "plain": {},
        "written_out": {"retries": 3, "retry_delay": timedelta(seconds=2)},
    }.items():
        CloudFilesIngestOperator.partial(task_id=task_id, **SERVER, **given).expand_kwargs(
            [_of(f"is_mapped/{task_id}")]
        )

# As docs/how-to/approve-schema-changes.md has it; and with the operator that has two answers.
ASK = {
    "subject": "{{ ti.xcom_pull('propose').subject }}",
    "body": "{{ ti.xcom_pull('propose').body }}",
}
with DAG("asks_in_three", schedule=None, default_args={**_of("asks_in_three"), **SERVER}):
    answer = "ti.xcom_pull('ask')"
    propose = CloudFilesProposeSchemaOperator(task_id="propose")
    ask = HITLOperator(
        task_id="ask",
        options=["Accept", "Rescue", "Refuse"],
        params={"hints": Param("", type=["null", "string"])},
        **ASK,
    )
    decide = CloudFilesDecideSchemaOperator(
        task_id="decide",
        proposal="{{ ti.xcom_pull('propose').proposal }}",
        decision=f"{{{{ {answer}.chosen_options[0] }}}}",
        hints=f"{{{{ {answer}.params_input.hints }}}}",
        decided_by=f"{{{{ {answer}.responded_by_user.name }}}}",
    )
    propose >> ask >> decide

with DAG("approves", schedule=None, default_args={**_of("approves"), **SERVER}):
    propose = CloudFilesProposeSchemaOperator(task_id="propose")
    decide = CloudFilesDecideSchemaOperator(
        task_id="decide", decision="{{ ti.xcom_pull('ask').chosen_options[0] }}"
    )
    propose >> ApprovalOperator(task_id="ask", **ASK) >> decide

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

for name, stream in streams_from_file(Path(__file__).with_name("marked.yaml")).items():
    stream["ingest"]["require_approval"] = approval.TaskAwaitingInput is not None
    where = {"source": "s3://nowhere", "lake": "s3://nowhere", "queue": ""}
    with DAG(name, schedule=None, params=where):
        function = CloudFilesTaskGroup(name, **stream, prefix_group_id=False)
        local = CloudFilesIngestOperator(
            task_id="has_no_spark",
            source=stream["source"],
            format=stream["format"],
            checkpoint_location="{{ params.lake }}/local/state",
            target="{{ params.lake }}/local/table",
            conn_id=stream["conn_id"],
            engine="local",
        )
        function >> local
