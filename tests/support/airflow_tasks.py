"""What tests of a real Airflow share about tasks."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.stream.definition import resolve_schema
from demo.airflow_home import AirflowHome

SUPERVISOR = "airflow_cloudfiles.engine.job.supervisor"


def meets_a_new_column(folder: Path, **columns: object) -> None:
    """Let the first run of a stream meet columns that its schema lacks.

    Args:
        folder: Has the source in `landing`, and the state in `state`.
        columns: The new columns, with their values; default is `b`.
    """
    landing = folder / "landing"
    landing.mkdir(parents=True)
    landing.joinpath("1.json").write_text(json.dumps({"a": 1}))
    options = {"cloudFiles.format": "json", "cloudFiles.schemaLocation": str(folder / "state")}
    resolve_schema(CloudFilesOptions.parse(options, path=str(landing)))
    landing.joinpath("2.json").write_text(json.dumps({"a": 2, **(columns or {"b": 2})}))


def tries_of_mapped(airflow: AirflowHome, dag_id: str, run_id: str, task_id: str) -> list[str]:
    """The states of the tries of the first instance of a mapped task, oldest first."""
    of_run = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}"
    found = airflow.api.call("GET", f"{of_run}/taskInstances/{task_id}/0/tries")["task_instances"]
    return [str(each["state"]) for each in sorted(found, key=lambda each: each["try_number"])]


def spark_is_up(airflow: AirflowHome) -> bool:
    """Is the driver's JVM there? (A task asks `java -version` first, without a supervisor.)"""
    return bool(processes_named(airflow, SUPERVISOR) and processes_named(airflow, "java"))


def spark_is_gone(airflow: AirflowHome) -> bool:
    """Have the driver, its JVM and all that came with them ended?"""
    return not processes_named(airflow, "java") and not processes_named(
        airflow, "airflow_cloudfiles.engine"
    )


def processes_named(airflow: AirflowHome, word: str) -> list[int]:
    """Processes of this Airflow with a word in their command line."""
    found = []
    for pid in airflow.pids():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except FileNotFoundError:
            continue
        if any(
            part.decode(errors="replace").rpartition("/")[2].startswith(word) for part in command
        ):
            found.append(pid)
    return found


def parent_of(pid: int) -> int:
    """The process that has started another one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
