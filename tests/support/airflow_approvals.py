"""A person in a real Airflow: sees what a task asks, and answers."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from demo.airflow_home import AirflowHome
from tests.support.airflow_pages import page_of, pages_of, post
from tests.support.browser import browser


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


def _only_who_may_answers(airflow: AirflowHome, dag_id: str, run_id: str) -> None:
    """Refuse answers of a viewer and of other sites; the viewer sees no form."""
    path = page_of(dag_id, run_id) + "/decide"
    chosen = {"answer": "Refuse", "proposal": "0"}
    viewer, admin = airflow.api_of("ann").headers(), airflow.api.headers()
    elsewhere, here = {"Origin": "https://evil.example"}, {"Origin": airflow.url}
    assert post(airflow, path, chosen, {**admin, **elsewhere}) == 403
    assert post(airflow, path, chosen, {**admin, "Sec-Fetch-Site": "cross-site", **here}) == 403
    assert post(airflow, path, chosen, {**viewer, **here}) == 403
    assert airflow.api.task(dag_id, run_id, "ingest")["state"] == "awaiting_input"
    of_viewer = pages_of(airflow, dag_id, run_id, viewer)["/schema"][1]
    assert "Decide where the task asks" in of_viewer
    assert "<form" not in of_viewer


def decides_in_the_tab(airflow: AirflowHome, dag_id: str, run_id: str) -> None:
    """Decide about new columns b, c and d in a browser, with a mistake first; nobody else may."""
    _only_who_may_answers(airflow, dag_id, run_id)
    with browser(airflow.url) as seen:
        seen.sign_in(airflow.api.headers()["Authorization"].removeprefix("Bearer "))
        task = f"/dags/{dag_id}/runs/{quote(run_id, safe='')}/tasks/ingest"
        seen.open(f"{task}/plugin/cloudfiles_stream")
        seen.enter_frame()
        seen.wait_for("Waits for a decision: 3 new columns: b, c, d.")
        seen.click("Decide")
        seen.wait_for('"1.5"')
        seen.choose("Another type of b", "DECIMALL(9,2)")
        seen.choose("What becomes of c", "int")
        seen.choose("What becomes of d", "rescue")
        seen.press("Accept as chosen")
        seen.wait_for("'DECIMALL' is not a type; did you mean DECIMAL?")
        seen.choose("Another type of b", "DECIMAL(9,2)")
        seen.press("Accept as chosen")
        seen.wait_for("It has rescued data in 1 row.")  # by itself
        assert seen.complaints() == []


def _detail(dag_id: str, run_id: str, task_id: str) -> str:
    of_run = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}"
    return f"{of_run}/taskInstances/{task_id}/-1/hitlDetails"
