"""What only a real Airflow can show: retries, their absence, and the end of a killed task.

One Airflow (scheduler, DAG processor, API server) serves all tests of this module.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from demo.airflow_home import AirflowHome

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

DAGS = Path(__file__).parent / "real"
RUN_SECONDS = 300  # most of it is waiting for a busy machine


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the streams live."""
    return tmp_path_factory.mktemp("streams")


@pytest.fixture(scope="module")
def airflow(root: Path) -> Iterator[AirflowHome]:
    """A running Airflow with the DAGs unpaused."""
    with AirflowHome(root / "airflow", DAGS, {"STREAMS_ROOT": str(root)}) as home:
        for dag_id in ("heals", "fails_on_new_columns", "is_killed", "is_marked_failed"):
            home.wait(lambda dag=dag_id: home.api.has_dag(dag), 60, dag_id)  # type: ignore[misc]
            home.api.pause(dag_id, paused=False)
        yield home


def _drop(root: Path, dag_id: str, name: str, *records: dict[str, object]) -> None:
    landing = root / dag_id / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    landing.joinpath(name).write_text("".join(f"{json.dumps(each)}\n" for each in records))


def _run(airflow: AirflowHome, dag_id: str) -> tuple[str, str]:
    """Run a DAG to its end; returns the run's id and final state."""
    run_id = airflow.api.trigger(dag_id)
    state = airflow.wait(lambda: airflow.api.run_ended(dag_id, run_id), RUN_SECONDS, dag_id)
    return run_id, state


def _tries(airflow: AirflowHome, dag_id: str, run_id: str) -> list[str]:
    return [str(each["state"]) for each in airflow.api.tries(dag_id, run_id, "ingest")]


def _table(root: Path, dag_id: str) -> list[dict[str, object]]:
    rows = DeltaTable(str(root / dag_id / "table")).to_pyarrow_dataset().to_table().to_pylist()
    return sorted(rows, key=lambda row: str(row["a"]))


def test_a_schema_change_fails_the_task_once_and_heals_without_anybody(
    airflow: AirflowHome, root: Path
) -> None:
    _drop(root, "heals", "1.json", {"a": 1})
    run_id, state = _run(airflow, "heals")
    assert (state, _tries(airflow, "heals", run_id)) == ("success", ["success"])

    _drop(root, "heals", "2.json", {"a": 2, "b": "new"})
    run_id, state = _run(airflow, "heals")
    assert (state, _tries(airflow, "heals", run_id)) == ("success", ["failed", "success"])
    log = airflow.api.log("heals", run_id, "ingest", 1)
    assert '"exc_type": "UnknownFieldException"' in log  # B66
    assert [(row["a"], row["b"]) for row in _table(root, "heals")] == [("1", None), ("2", "new")]

    report = airflow.api.xcom("heals", run_id, "ingest")
    assert (report["files"], report["rows"], report["schema_version"]) == (1, 1, 1)
    beside = root / "heals" / "state" / "_reports" / f"{report['run_id']}.json"
    assert json.loads(beside.read_text())["rows"] == 1
    batch = airflow.api.xcom("heals", run_id, "arrived")
    assert (batch["files"], batch["sample"]) == (1, ["2.json"])


def test_fail_on_new_columns_is_not_retried(airflow: AirflowHome, root: Path) -> None:  # B141
    dag_id = "fails_on_new_columns"
    _drop(root, dag_id, "1.json", {"a": 1})
    assert _run(airflow, dag_id)[1] == "success"

    _drop(root, dag_id, "2.json", {"a": 2, "b": "new"})
    run_id, state = _run(airflow, dag_id)
    assert (state, _tries(airflow, dag_id, run_id)) == ("failed", ["failed"])
    assert airflow.api.task(dag_id, run_id, "ingest")["max_tries"] == 3
    assert "automatic retry: false" in airflow.api.log(dag_id, run_id, "ingest", 1)
    assert len(_table(root, dag_id)) == 1


def test_a_killed_task_process_takes_its_spark_along(airflow: AirflowHome, root: Path) -> None:
    dag_id = "is_killed"
    run_id = _run_until_spark_is_up(airflow, root, dag_id)
    [supervisor] = _named(airflow, "airflow_cloudfiles.engine.stream.supervisor")
    os.kill(_parent(supervisor), signal.SIGKILL)

    airflow.wait(lambda: _spark_is_gone(airflow), 30, "Spark to be gone")
    # Airflow itself retries the lost try later; a run of the user's own need not wait for that
    first = airflow.wait(lambda: _tries(airflow, dag_id, run_id), RUN_SECONDS, "Airflow to notice")
    assert first[0] != "success"
    assert _run(airflow, dag_id)[1] == "success"
    assert [row["a"] for row in _table(root, dag_id)] == ["1"]


def test_a_task_that_a_user_marks_failed_ends_its_spark(airflow: AirflowHome, root: Path) -> None:
    dag_id = "is_marked_failed"
    run_id = _run_until_spark_is_up(airflow, root, dag_id)
    airflow.api.mark(dag_id, run_id, "ingest", "failed")

    airflow.wait(lambda: _spark_is_gone(airflow), 60, "Spark to be gone")
    assert airflow.api.task(dag_id, run_id, "ingest")["state"] == "failed"
    assert _run(airflow, dag_id)[1] == "success"
    assert [row["a"] for row in _table(root, dag_id)] == ["1"]


def _run_until_spark_is_up(airflow: AirflowHome, root: Path, dag_id: str) -> str:
    """Start a run of one file and wait for its JVM, which takes seconds to begin working."""
    _drop(root, dag_id, "1.json", {"a": 1})
    run_id = airflow.api.trigger(dag_id)
    airflow.wait(lambda: _named(airflow, "java"), RUN_SECONDS, "the JVM")
    return run_id


def _spark_is_gone(airflow: AirflowHome) -> bool:
    return not _named(airflow, "java") and not _named(airflow, "airflow_cloudfiles.engine")


def _named(airflow: AirflowHome, word: str) -> list[int]:
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


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
