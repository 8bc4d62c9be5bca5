"""A stream's arguments are declared once, and Airflow finds them on every task of the stream."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_cloudfiles.engine.errors import UnknownOptionError
from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.hooks.stream_task import StreamTask
from airflow_cloudfiles.operators.clean import CloudFilesCleanOperator
from airflow_cloudfiles.operators.cloud_files import (
    CloudFilesInferSchemaOperator,
    CloudFilesIngestOperator,
    CloudFilesReconcileOperator,
)
from airflow_cloudfiles.operators.promote import CloudFilesPromoteOperator
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor
from airflow_cloudfiles.triggers.cloud_files import CloudFilesTrigger

pytestmark = pytest.mark.airflow

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "operators.md"
NAMES = ("source", "format", "checkpoint_location", "schema_location", "target", "options")
STREAM: dict[str, Any] = {
    "source": "/in",
    "format": "json",
    "checkpoint_location": "/state",
    "schema_location": "/schema",
    "target": "/table",
    "options": {"cloudFiles.inferColumnTypes": True},
}
OWN: dict[type[StreamTask], dict[str, Any]] = {
    CloudFilesCleanOperator: {"is_dry_run": True, "txn_app_id": "own"},
    CloudFilesSensor: {"deferrable": True, "poke_interval": 7},
    CloudFilesInferSchemaOperator: {"infer_again": True, "master": "local[2]"},
    CloudFilesIngestOperator: {"batch": {"last_entry": 1}, "spark_conn_id": "cluster"},
    CloudFilesPromoteOperator: {"fields": ["price"]},
    CloudFilesReconcileOperator: {},
}
TASKS = pytest.mark.parametrize("task", OWN, ids=lambda task: task.__name__)


def test_the_declarations_of_a_streams_arguments_agree_with_each_other_and_with_the_page() -> None:
    declared = [
        name for name in inspect.signature(StreamTask.__init__).parameters if name != "self"
    ]
    assert declared == [*NAMES, "conn_id", "retries", "kwargs"]
    assert [each.name for each in fields(StreamArguments)] == list(NAMES)
    table = PAGE.read_text(encoding="utf-8").partition("## Arguments they share")[2]
    table = table.partition("\n## ")[0]
    documented = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert documented == [*NAMES, "conn_id"]


@TASKS
def test_default_args_reach_a_streams_arguments_and_a_tasks_own(task: type[StreamTask]) -> None:
    given = {**STREAM, **OWN[task], "conn_id": "lake", "retries": 1, "unknown_to_tasks": 1}
    with DAG("d", schedule=None, default_args=given):
        made = task(task_id="t", source="/elsewhere")
    assert made.stream_arguments() == StreamArguments(**{**STREAM, "source": "/elsewhere"})
    assert (made.conn_id, made.retries) == ("lake", 1)
    for name, value in OWN[task].items():
        if hasattr(made, name):
            assert getattr(made, name) == value


@TASKS
def test_a_location_may_be_a_path(task: type[StreamTask]) -> None:
    names = ("source", "checkpoint_location", "schema_location", "target")
    given = {**STREAM, **{name: Path(STREAM[name]) for name in names}, **OWN[task]}
    made = task(task_id="t", **given)
    made.render_template_fields({})
    assert made.stream_arguments() == StreamArguments(**STREAM)


@TASKS
def test_a_misspelt_argument_is_refused_by_name(task: type[StreamTask]) -> None:
    given = {**STREAM, **OWN[task]}
    with pytest.raises(TypeError, match="src"):
        task(task_id="t", **given, src="/in")
    with pytest.raises(TypeError, match="unexpected keyword argument 'src'"):
        task.partial(task_id="t", src="/in")
    partial = task.partial(task_id="t", **given)
    with pytest.raises(TypeError, match="unexpected keyword argument 'src'"):
        partial.expand(src=["/in"])
    with DAG("d", schedule=None):  # Airflow warns of a partial that is never mapped
        partial.expand(conn_id=["lake"])


@TASKS
def test_missing_arguments_are_named(task: type[StreamTask]) -> None:
    given = {name: STREAM[name] for name in ("target", "checkpoint_location")}
    with pytest.raises(TypeError, match="missing keyword arguments 'format', 'source'"):
        task(task_id="t", **given, **OWN[task])


@TASKS
def test_a_mapped_task_has_the_streams_arguments(task: type[StreamTask]) -> None:
    shared = {name: STREAM[name] for name in ("format", "target", "options")}
    with DAG("d", schedule=None, default_args={"schema_location": "/schema"}):
        mapped = task.partial(task_id="t", **shared, **OWN[task]).expand(
            source=["/a", "/b"], checkpoint_location=["/state/a", "/state/b"]
        )
    made = mapped.unmap({"source": "/a", "checkpoint_location": "/state/a"})
    own = {"source": "/a", "checkpoint_location": "/state/a"}
    assert made.stream_arguments() == StreamArguments(**{**STREAM, **own})


@TASKS
def test_a_streams_locations_and_options_are_templated(task: type[StreamTask]) -> None:
    place = "{{ place }}"
    templated = {name: place for name in NAMES if name not in {"format", "options"}}
    options = {"cloudFiles.schemaHints": place}
    made = task(task_id="t", **templated, format="json", options=options, **OWN[task])
    made.render_template_fields({"place": "/data"})  # type: ignore[typeddict-unknown-key]
    assert made.stream_arguments() == StreamArguments(
        **dict.fromkeys(templated, "/data"),
        format="json",
        options={"cloudFiles.schemaHints": "/data"},
    )


@TASKS
def test_plain_options_are_checked_when_the_dag_is_parsed(task: type[StreamTask]) -> None:
    given = {**STREAM, "options": {"cloudFiles.maxFilePerTrigger": 5}}
    with pytest.raises(UnknownOptionError, match=r"cloudFiles\.maxFilesPerTrigger"):
        task(task_id="t", **given, **OWN[task])


def test_a_trigger_takes_a_streams_arguments_and_no_others() -> None:
    trigger = CloudFilesTrigger(**STREAM, conn_id="lake", poke_interval=5)
    _, arguments = trigger.serialize()
    assert arguments == {**STREAM, "conn_id": "lake", "poke_interval": 5}
    assert CloudFilesTrigger(**arguments).stream == trigger.stream
    with pytest.raises(TypeError, match="src"):
        CloudFilesTrigger(**STREAM, src="/in")
    with pytest.raises(TypeError, match="format"):
        CloudFilesTrigger(source="/in", checkpoint_location="/state")
