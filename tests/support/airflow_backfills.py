"""Backfills in a real Airflow: to ask for one, and to learn what came of it."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime
from pathlib import Path

from deltalake import DeltaTable

from demo.airflow_home import AirflowHome


def create_backfill(airflow: AirflowHome, dag_id: str, seconds: float) -> None:
    """Ask for three past days; again from the start when SQLite had no room for a second writer."""
    asked = {
        "dag_id": dag_id,
        "from_date": "2026-01-01T00:00:00Z",
        "to_date": "2026-01-03T00:00:00Z",
        "max_active_runs": 1,
    }
    for is_last in (False, False, True):
        try:
            airflow.api.call("POST", "/api/v2/backfills", asked)
        except RuntimeError as failure:
            if is_last or not re.search("HTTP 50[03]", str(failure)):  # 500 before Airflow 3.3
                raise
        else:
            return
        # What was created of it goes; it is parsed again.
        airflow.api.call("DELETE", f"/api/v2/dags/{dag_id}")
        Path(airflow.env["AIRFLOW__CORE__DAGS_FOLDER"], f"{dag_id}.py").touch()
        airflow.wait(lambda: airflow.api.has_dag(dag_id), seconds, dag_id)


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


def drop_at(root: Path, name: str, modified: datetime) -> None:
    """Land a file with a modification time; it is in its place at once."""
    hidden = root / "events" / "landing" / f".{name}"
    hidden.write_text(json.dumps({"name": name}) + "\n")
    whole = int(modified.replace(microsecond=0).timestamp())
    microseconds = whole * 1_000_000 + modified.microsecond
    os.utime(hidden, ns=(microseconds * 1000, microseconds * 1000))
    hidden.rename(hidden.with_name(name))


def first_ended(airflow: AirflowHome, dag_id: str) -> str | None:
    """Id of the first run of a DAG, when it has ended."""
    for run in airflow.api.runs(dag_id)[:1]:
        if run["state"] in ("success", "failed"):
            return str(run["dag_run_id"])
    return None


def names_in(root: Path) -> list[str]:
    """What is in the table of the examples."""
    table = DeltaTable(str(root / "events" / "table")).to_pyarrow_dataset().to_table()
    return sorted(str(name) for name in table["name"].to_pylist())
