"""Put many streams into an Airflow's database, as runs of its tasks would leave them there.

`python -m tests.support.many_streams` in the environment of an Airflow reads its standard input: a
JSON array of `[dag_id, task_id, map_index, label, state, rendered fields]`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RUN_ID = "manual__2026-11-24T00:00:00+00:00"
_ROOT = Path(__file__).parents[2]


def put_streams(env: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> None:
    """Put rows into the database of the Airflow that an environment is of."""
    command = [sys.executable, "-m", __name__]
    given = json.dumps(rows).encode()
    subprocess.run(command, input=given, env=dict(env), cwd=_ROOT, check=True)


def _put(rows: Sequence[Sequence[Any]]) -> None:
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.dagrun import DagRun
    from airflow.models.renderedtifields import RenderedTaskInstanceFields
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import insert

    begun = datetime(2026, 11, 24, tzinfo=UTC)
    dags = [{"dag_id": each} for each in sorted({row[0] for row in rows})]
    of_dag = {"bundle_name": "many", "max_active_tasks": 1, "has_task_concurrency_limits": False}
    of_dag |= {"max_consecutive_failed_dag_runs": 0, "timetable_type": "", "is_stale": False}
    of_run = {"run_id": RUN_ID, "run_type": "manual", "state": "success", "start_date": begun}
    instances, rendered = [], []
    for dag_id, task_id, map_index, label, state, fields in rows:
        key = {"dag_id": dag_id, "task_id": task_id, "run_id": RUN_ID, "map_index": map_index}
        more = {"state": state, "rendered_map_index": label, "start_date": begun}
        operator = {"operator": "CloudFilesIngestOperator", "pool": "default_pool"}
        instances.append({**key, **more, **operator, "try_number": 1, "max_tries": 0})
        rendered.append({**key, "rendered_fields": fields})
    with create_session() as session:
        for model, values in (
            (DagBundleModel, [{"name": "many"}]),
            (DagModel, [{**each, **of_dag} for each in dags]),
            (DagRun, [{**each, **of_run, "run_after": begun} for each in dags]),
            (TaskInstance, instances),
            (RenderedTaskInstanceFields, rendered),
        ):
            session.execute(insert(model.__table__), values)


if __name__ == "__main__":
    _put(json.load(sys.stdin))
