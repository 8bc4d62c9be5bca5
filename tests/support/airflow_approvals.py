"""A person in a real Airflow: sees what a task asks, and answers."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from demo.airflow_home import AirflowHome


def asked(
    airflow: AirflowHome, dag_id: str, run_id: str, task_id: str, seconds: float, *, leaves: int = 1
) -> dict[str, Any]:
    """Wait until a task asks.

    Args:
        airflow: Where it runs.
        dag_id: Its DAG.
        run_id: Its run.
        task_id: Its id.
        seconds: How long to wait.
        leaves: How often it leaves its worker, the last time to ask.

    Returns:
        What it asks.
    """

    def waits() -> bool:
        # The scheduler fails a task that is answered before it knows that the worker has left.
        told = (airflow.home / "scheduler.log").read_text(errors="replace")
        key = f"TaskInstanceKey(dag_id='{dag_id}', task_id='{task_id}', run_id='{run_id}'"
        noticed = told.count(f"executor event with state success for task instance {key}")
        state = airflow.api.task(dag_id, run_id, task_id)["state"]
        return noticed >= leaves and state in {"awaiting_input", "deferred"}

    airflow.wait(waits, seconds, f"{dag_id}.{task_id} to ask")
    return dict(airflow.api.call("GET", _detail(dag_id, run_id, task_id)))


def answer(
    airflow: AirflowHome, dag_id: str, run_id: str, task_id: str, option: str, **fields: str
) -> None:
    """Answer it."""
    chosen = {"chosen_options": [option], "params_input": fields}
    airflow.api.call("PATCH", _detail(dag_id, run_id, task_id), chosen)


def _detail(dag_id: str, run_id: str, task_id: str) -> str:
    of_run = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}"
    return f"{of_run}/taskInstances/{task_id}/-1/hitlDetails"
