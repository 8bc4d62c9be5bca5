"""A type checker knows every argument of sensors, operators and trigger, and no others."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import BaseOperator, BaseSensorOperator

from airflow_cloudfiles.hooks import keywords
from airflow_cloudfiles.hooks.silence import WatchedTask
from airflow_cloudfiles.hooks.stream_task import StreamTask
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.operators.spark_job import (
    CloudFilesSparkJobOperator,
    ParkingSparkJobOperator,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.airflow

# What mypy says to a line is behind `# E:`; to a line without it, nothing.
DAG_FILE = """
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, Asset, AssetWatcher, task
from pyspark.sql import SparkSession

from airflow_cloudfiles import Options
from airflow_cloudfiles.decorators.cloud_files import cloud_files_task
from airflow_cloudfiles.operators.clean import CloudFilesCleanOperator
from airflow_cloudfiles.operators.cloud_files import (
    CloudFilesInferSchemaOperator,
    CloudFilesIngestOperator,
    CloudFilesReconcileOperator,
)
from airflow_cloudfiles.operators.files import CloudFilesFileOperator
from airflow_cloudfiles.operators.promote import CloudFilesPromoteOperator
from airflow_cloudfiles.operators.table import (
    CloudFilesOptimizeTableOperator,
    CloudFilesVacuumTableOperator,
)
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor
from airflow_cloudfiles.triggers.cloud_files import CloudFilesTrigger


@task
def where() -> str:
    return "/in"


stream = {"source": "/in", "format": "json", "checkpoint_location": "/state", "target": "/table"}
with DAG("shared", schedule=None, default_args=stream):
    CloudFilesSensor(task_id="a", retries=5, pool="lake", poke_interval=60, mode="reschedule")
    CloudFilesSensor(task_id="b", deferrable=True, soft_fail=True, timeout=timedelta(hours=1))
    CloudFilesInferSchemaOperator(task_id="c", infer_again=True, spark_conf={"a": "b"})
    CloudFilesIngestOperator(task_id="d", write="merge", keys=["id"], retries=1, queue="spark")
    CloudFilesPromoteOperator(task_id="e", fields=["price"], execution_timeout=timedelta(hours=1))
    CloudFilesReconcileOperator(task_id="f", owner="lake", doc_md="nightly", outlets=[Asset("a")])
    CloudFilesFileOperator(task_id="j", action="replay", paths=["a.json"], pool="lake")
    CloudFilesCleanOperator(task_id="k", is_dry_run=True, options={"a": 1}, queue="lake")
    orders = Options.json().schema_hints("id INT").backfill_interval(timedelta(days=1))
    CloudFilesIngestOperator(task_id="l", options=orders | Options.sink().merge_keys(["id"]))
SparkSession.builder.getOrCreate().readStream.options(**orders)
Options.json().max_file_per_trigger(5)  # E: has no attribute
Options.json().max_files_per_trigger("many")  # E: expected "int"
Options.json().schema_evolution_mode("rescued")  # E: expected "Literal['addNewColumns',
Options.json().row_tag("order")  # E: "JsonSource" has no attribute "row_tag"
CloudFilesReconcileOperator(
    task_id="g", source=Path("/in"), format="json", checkpoint_location=where()
)
CloudFilesOptimizeTableOperator(task_id="h", target="/table", retries=1, pool="lake")
CloudFilesVacuumTableOperator(task_id="i", target="/table", retention=timedelta(days=7))
AssetWatcher(
    name="w",
    trigger=CloudFilesTrigger(source="/in", format="json", checkpoint_location="/state"),
)
@cloud_files_task(source="/in", format="json", checkpoint_location="/s", target="/t", keys=["id"])
def clean(batch: object, least: int = 1) -> object:
    return batch


clean(least=2)
clean(leest=2)  # E: Unexpected keyword argument "leest"
cloud_files_task(sorce="/in", format="json")  # E: Unexpected keyword argument "sorce"
CloudFilesSensor(task_id="1", sorce="/in")  # E: Unexpected keyword argument "sorce"
CloudFilesInferSchemaOperator(task_id="2", sorce="/in")  # E: Unexpected keyword argument "sorce"
CloudFilesIngestOperator(task_id="3", sorce="/in")  # E: Unexpected keyword argument "sorce"
CloudFilesReconcileOperator(task_id="4", sorce="/in")  # E: Unexpected keyword argument "sorce"
CloudFilesPromoteOperator(task_id="5", fields=[], sorce="/")  # E: Unexpected keyword argument
CloudFilesOptimizeTableOperator(task_id="6", target="/t", pol="x")  # E: Unexpected keyword argument
CloudFilesVacuumTableOperator(task_id="7", target="/t", pol="x")  # E: Unexpected keyword argument
CloudFilesCleanOperator(task_id="11", sorce="/in")  # E: Unexpected keyword argument "sorce"
CloudFilesFileOperator(task_id="9", action="undo", paths="a")  # E: Argument "action"
CloudFilesTrigger(sorce="/in", format="json", checkpoint_location="/")  # E: "sorce"
CloudFilesIngestOperator(task_id="8", retries="3")  # E: Argument "retries"
CloudFilesIngestOperator(task_id="9", write="upsert")  # E: Argument "write"
CloudFilesSensor(task_id="10", format=7)  # E: Argument "format"
CloudFilesSensor(source="/in")  # E: Missing named argument "task_id"
"""
EXPECTED = re.compile(r"  # E: (.*)$")


@pytest.mark.slow
def test_mypy_finds_a_misspelt_argument_and_nothing_else(tmp_path: Path, repository: Path) -> None:
    file = tmp_path / "dag_file.py"
    file.write_text(DAG_FILE, encoding="utf-8")
    # The options and the cache of `make types`: what is checked there is not checked again.
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(file)]
    found = subprocess.run(
        command, cwd=repository, capture_output=True, text=True, timeout=600, check=False
    )
    assert not found.stderr
    told: dict[int, list[str]] = {}
    for line in found.stdout.splitlines():
        if mistake := re.search(r"dag_file\.py:(\d+): error: (.*)", line):
            told.setdefault(int(mistake[1]), []).append(mistake[2])
    expected = {
        number: mark[1]
        for number, line in enumerate(DAG_FILE.splitlines(), 1)
        if (mark := EXPECTED.search(line))
    }
    assert expected
    assert sorted(told) == sorted(expected), found.stdout
    for number, text in expected.items():
        assert any(text in each for each in told[number]), (text, told[number])


def _named(cls: type[Any]) -> dict[str, str]:
    """The arguments that the `__init__` of a class names, with their types as they are written."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    return {
        each.name: each.annotation
        for each in parameters
        if each.name != "self" and each.kind is not each.VAR_KEYWORD
    }


def _declared(declaration: Any) -> dict[str, str]:
    """The arguments of a declaration, with their types as they are written."""
    return {name: kind.__forward_arg__ for name, kind in declaration.__annotations__.items()}


@pytest.mark.parametrize(
    ("bases", "declaration"),
    [
        ([StreamTask], keywords.ReconcileKeywords),
        ([StreamTask, CloudFilesSparkJobOperator], keywords.InferKeywords),
        (
            [StreamTask, WatchedTask, CloudFilesSparkJobOperator, ParkingSparkJobOperator],
            keywords.ParkingKeywords,
        ),
    ],
)
def test_what_is_declared_is_what_the_classes_take(bases: list[Any], declaration: Any) -> None:
    own = {name: kind for base in bases for name, kind in _named(base).items()}
    if declaration is keywords.ParkingKeywords:
        own.pop("target")  # the operator requires it
    own.pop("retry_policy", None)  # Airflow's
    airflow = _declared(keywords.OperatorKeywords)
    declared = _declared(declaration)
    assert {name: kind for name, kind in declared.items() if name not in airflow} == own


def test_a_decorated_function_takes_what_the_operator_takes_but_the_function() -> None:
    own = {*_named(CloudFilesIngestOperator)} - {"transform", "transform_kwargs"}
    shared = {*keywords.ParkingKeywords.__annotations__}
    assert {*keywords.IngestKeywords.__annotations__} == own | shared


def test_every_argument_of_airflow_is_declared() -> None:
    operator = _named(BaseOperator)
    declared = {*keywords.OperatorKeywords.__annotations__, "retries"}
    assert set(operator) <= declared
    sensor = {*keywords.SensorKeywords.__annotations__, "retries"}
    assert set(_named(BaseSensorOperator)) <= sensor
