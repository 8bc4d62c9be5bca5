"""What tests of a real Airflow share about tasks."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.stream.definition import resolve_schema
from demo.airflow_home import AirflowHome


def meets_a_new_column(folder: Path) -> None:
    """Let the first run of a stream meet a column that its schema lacks.

    Args:
        folder: Has the source in `landing`, and the state in `state`.
    """
    landing = folder / "landing"
    landing.mkdir(parents=True)
    landing.joinpath("1.json").write_text(json.dumps({"a": 1}))
    options = {"cloudFiles.format": "json", "cloudFiles.schemaLocation": str(folder / "state")}
    resolve_schema(CloudFilesOptions.parse(options, path=str(landing)))
    landing.joinpath("2.json").write_text(json.dumps({"a": 2, "b": 2}))


def tries_of_mapped(airflow: AirflowHome, dag_id: str, run_id: str, task_id: str) -> list[str]:
    """The states of the tries of the first instance of a mapped task, oldest first."""
    of_run = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}"
    found = airflow.api.call("GET", f"{of_run}/taskInstances/{task_id}/0/tries")["task_instances"]
    return [str(each["state"]) for each in sorted(found, key=lambda each: each["try_number"])]
