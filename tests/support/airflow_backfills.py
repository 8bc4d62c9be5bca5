"""Backfills in a real Airflow: to ask for one, and to learn what came of it."""

from __future__ import annotations

import subprocess
import sys

from demo.airflow_home import AirflowHome


def create_backfill(airflow: AirflowHome, dag_id: str, seconds: float) -> None:
    """Ask for three past days; again from the start when SQLite had no room for a second writer."""
    days = "--from-date 2026-01-01 --to-date 2026-01-03 --max-active-runs 1"
    for _ in range(3):
        done = _command(airflow, f"backfill create {days} --dag-id {dag_id}")
        if "database is locked" not in done.stderr:
            break
        # What was created of it goes; it is parsed again.
        _command(airflow, f"dags delete --yes {dag_id}")
        airflow.wait(lambda: airflow.api.has_dag(dag_id), seconds, dag_id)
    assert done.returncode == 0, done.stderr[-2000:]


def _command(airflow: AirflowHome, arguments: str) -> subprocess.CompletedProcess[str]:
    patient = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"{_database(airflow)}?timeout=600"}
    return subprocess.run(
        [sys.executable, "-m", "airflow", *arguments.split()],
        env={**airflow.env, **patient},
        capture_output=True,
        text=True,
        check=False,
    )


def _database(airflow: AirflowHome) -> str:
    return airflow.env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]


def backfilled(airflow: AirflowHome, dag_id: str) -> dict[str, dict[str, str]] | None:
    """State of each task by day, when three backfill runs have ended."""
    runs = [each for each in airflow.api.runs(dag_id) if each["run_type"] == "backfill"]
    if len(runs) < 3 or any(each["state"] not in ("success", "failed") for each in runs):
        return None
    return {
        str(run["logical_date"])[:10]: {
            str(task["task_id"]): str(task["state"])
            for task in airflow.api.tasks(dag_id, run["dag_run_id"])
        }
        for run in runs
    }
