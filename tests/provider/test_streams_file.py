"""The streams of a YAML file are task groups and DAGs, and a function is a task."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_cloudfiles import dags_from_file, streams_from_file
from airflow_cloudfiles.decorators.cloud_files import cloud_files_task
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.streams_file import KEYS
from airflow_cloudfiles.engine.tables.delta.opening import open_table
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.task_groups.cloud_files import CloudFilesTaskGroup

pytestmark = pytest.mark.airflow

START = datetime(2026, 1, 1, tzinfo=UTC)
YAML = """
defaults:
  format: json
  options: {cloudFiles.inferColumnTypes: true}
  sensor: {timeout: 60}
  ingest: {master: "local[2]", transform: "shop_functions:cheap"}
  dag: {tags: [shop], start_date: 2026-01-01}
streams:
  orders:
    source: %(folder)s/in
    checkpoint_location: %(folder)s/state
    target: %(folder)s/table
    sensor: {poke_interval: 1}
    dag: {schedule: "@daily"}
"""
DAG_FILE = """
import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, task

from airflow_cloudfiles import dags_from_file

START = datetime(2026, 1, 1, tzinfo=UTC)
FOLDER = os.environ["FOLDER"]
dags = dags_from_file(Path(__file__).with_name("streams.yaml"))
with DAG("decorated", schedule=None, start_date=START) as decorated:

    @task.cloud_files(
        source=f"{FOLDER}/in",
        format="json",
        checkpoint_location=f"{FOLDER}/state",
        target=f"{FOLDER}/table",
        options={"cloudFiles.inferColumnTypes": True},
        master="local[2]",
    )
    def clean(batch, least: int):
        from pyspark.sql import functions as F

        return batch.where(F.col("price") >= least)

    clean(least=5)

if __name__ == "__main__":
    from airflow.utils.db import upgradedb

    upgradedb()  # what `airflow db migrate` does, which would import everything once more
    for dag in (dags["orders"], decorated):
        run = dag.test(logical_date=START)
        assert run.state == "success", run
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "streams.yaml"
    written.write_text(YAML % {"folder": tmp_path})
    return written


def test_a_stream_has_its_arguments_and_those_of_the_defaults(file: Path) -> None:
    streams = streams_from_file(file)
    with DAG("shop", schedule=None):
        groups = [CloudFilesTaskGroup(name, **stream) for name, stream in streams.items()]
    (orders,) = groups
    assert orders.arrived.timeout == 60
    assert orders.arrived.poke_interval == 1
    assert orders.ingest.transform == "shop_functions:cheap"
    assert orders.ingest.options == {"cloudFiles.inferColumnTypes": True}


def test_each_stream_is_a_dag(file: Path) -> None:
    dags = dags_from_file(file, dag_id_prefix="shop_", max_active_runs=1, schedule="@hourly")
    dag = dags["orders"]
    assert (dag.dag_id, dag.schedule, dag.tags) == ("shop_orders", "@daily", {"shop"})
    assert (dag.max_active_runs, dag.start_date.date()) == (1, START.date())
    assert sorted(dag.task_ids) == ["arrived", "ingest"]
    assert dags_from_file(file, only="another") == {}


@pytest.mark.parametrize(
    ("where", "key", "says"),
    [
        ("sensor", "poke_intervall", "Did you mean poke_interval"),
        ("ingest", "transforms", "Did you mean transform"),
        ("dag", "schedules", "Did you mean schedule"),
        ("ingest", "task_id", "has no key 'task_id'"),
    ],
)
def test_arguments_of_the_tasks_and_of_the_dag_are_known(
    tmp_path: Path, where: str, key: str, says: str
) -> None:
    written = tmp_path / "streams.yaml"
    written.write_text(f"streams:\n  orders:\n    {where}:\n      {key}: 1\n")
    with pytest.raises(OptionError, match=says) as failure:
        streams_from_file(written)
    assert "line 4:" in str(failure.value)


@pytest.mark.spark
@pytest.mark.slow
def test_dags_run_their_functions(tmp_path: Path) -> None:
    """A function of a module, in a DAG of a file; and one that is decorated."""
    code = tmp_path / "dags"
    code.mkdir()
    (code / "shop_functions.py").write_text(
        "from shop_numbers import MOST\n\n"
        "def cheap(batch):\n    return batch.where(f'price < {MOST}')\n"
    )
    (code / "shop_numbers.py").write_text("MOST = 5\n")
    for name in ("imported", "decorated"):
        (tmp_path / name).mkdir()
        _land(tmp_path / name)
    (code / "streams.yaml").write_text(YAML % {"folder": tmp_path / "imported"})
    (code / "shop.py").write_text(DAG_FILE)
    env = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(code),
        "FOLDER": str(tmp_path / "decorated"),
    }
    done = subprocess.run(
        [sys.executable, code / "shop.py"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    assert _prices(tmp_path / "imported") == [1]
    assert _prices(tmp_path / "decorated") == [9]


def test_a_decorated_function_has_the_arguments_of_an_ingestion(tmp_path: Path) -> None:
    with DAG("d", schedule=None):

        @cloud_files_task(**_stream(tmp_path), keys=["id"], write="merge", retries=7)
        def clean(batch: Any, least: int = 3) -> Any:
            """Drop what is cheap."""
            return batch.where(f"price >= {least}")

        made = clean(least=5).operator
        assert clean.override(task_id="again")().operator.op_kwargs == {}
    assert isinstance(made, CloudFilesIngestOperator)
    assert (made.task_id, made.retries, made.keys) == ("clean", 7, ["id"])
    assert made.op_kwargs == {"least": 5}
    assert made.doc_md == "Drop what is cheap."
    found = made._transform()["transform"]
    assert found["name"] == "clean"
    assert found["arguments"] == {"least": 5}
    assert "batch.where" in found["source"]


def test_a_call_that_cannot_work_fails_when_the_dag_is_parsed(tmp_path: Path) -> None:
    def takes_nothing() -> None:
        pass

    def clean(batch: Any) -> Any:
        return batch.where(START)

    with DAG("d", schedule=None):
        decorate = cloud_files_task(**_stream(tmp_path))
        with pytest.raises(OptionError, match="must take the DataFrame"):
            decorate(takes_nothing)()
        with pytest.raises(OptionError, match="uses START from outside of it"):
            decorate(clean)()
        with pytest.raises(OptionError, match="its other arguments by name"):
            decorate(clean)(1)
        with pytest.raises(TypeError, match="leest"):
            decorate(clean)(leest=1)


def _stream(folder: Path) -> dict[str, Any]:
    return {
        "source": f"{folder}/in",
        "format": "json",
        "checkpoint_location": f"{folder}/state",
        "target": f"{folder}/table",
        "options": {"cloudFiles.inferColumnTypes": True},
    }


def _land(folder: Path) -> None:
    (folder / "in").mkdir()
    lines = [json.dumps({"id": each, "price": each}) for each in (1, 9)]
    (folder / "in" / "1.json").write_text("\n".join(lines))


def _prices(folder: Path) -> list[int]:
    table = open_table(str(folder / "table"))
    assert table is not None
    found: list[int] = table.to_pyarrow_table().column("price").to_pylist()
    return sorted(found)


def test_the_keys_of_a_file_are_the_arguments_of_a_task_group() -> None:
    arguments = set(inspect.signature(CloudFilesTaskGroup).parameters)
    assert set(KEYS) - {"dag", "tooltip"} == arguments - {"group_id", "kwargs"}
