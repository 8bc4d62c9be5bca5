"""A task may defer only on a Spark Connect server, and shows no token when it does."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.connect import left_query
from airflow_cloudfiles.engine.job.connect.left_query import (
    LeftQuery,
    LeftRun,
    delete_run,
    newest_query,
    read_run,
    write_run,
)
from airflow_cloudfiles.engine.job.launch import JobSpec, LocalSpark, launch
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from airflow_cloudfiles.triggers.spark_connect import SparkConnectQueryTrigger

pytestmark = pytest.mark.airflow

STREAM: dict[str, Any] = {
    "source": "/in",
    "format": "json",
    "checkpoint_location": "/state",
    "target": "/table",
}
QUERY = LeftQuery(user_id="u", session_id="s", server_session_id="v", query_id="q", run_id="r")


def _task(**changes: Any) -> CloudFilesIngestOperator:
    return CloudFilesIngestOperator(task_id="t", **STREAM, **changes)


def _context() -> Any:
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=1)
    return {"ti": ti}


@pytest.mark.parametrize("where", [{}, {"master": "yarn"}, {"engine": "local"}])
def test_deferring_without_a_server_fails_when_the_dag_is_parsed(where: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="set spark_conn_id to a connection of type Spark Conn"):
        _task(deferrable=True, **where)


def test_an_address_with_a_token_is_refused_for_a_trigger() -> None:
    with pytest.raises(OptionError, match="it has a token") as refused:
        _task(deferrable=True, spark_remote="sc://host/;token=hush")
    assert "hush" not in str(refused.value)
    assert _task(deferrable=True, spark_remote="sc://host:15002").deferrable


def test_a_connection_of_another_type_fails_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", "spark://host:7077")
    task = _task(deferrable=True, spark_conn_id="cluster")
    with pytest.raises(AirflowFailException, match="'cluster' names none"):
        task.execute(_context())


def test_airflow_s_default_is_for_tasks_with_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _task(spark_remote="sc://host").deferrable
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "true")
    assert _task(spark_remote="sc://host").deferrable
    assert not _task(spark_remote="sc://host", deferrable=False).deferrable
    assert not _task().deferrable
    assert not _task(spark_remote="sc://host/;token=hush").deferrable
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", "spark://host:7077")
    assert not _task(spark_conn_id="cluster")._defers()


def test_only_a_server_keeps_a_query(tmp_path: Any) -> None:
    spec = JobSpec(
        kind="ingest",
        **{**STREAM, "checkpoint_location": str(tmp_path)},
        run_id="run",
        leave_after_seconds=1.0,
    )
    with pytest.raises(OptionError, match="Only a run on a Spark Connect server"):
        launch(spec, LocalSpark(), on_log=print)


def test_what_a_run_leaves_is_read_again_and_deleted_with_the_run(tmp_path: Any) -> None:
    state = open_store(str(tmp_path))
    one = LeftRun(run_id="one", before=1, last_entry=2, started="2026-11-23T00:00:00+00:00")
    write_run(state, one)
    assert read_run(state, "one") == one
    assert newest_query(state) is None
    other = LeftRun(
        run_id="other", before=-1, last_entry=0, started=one.started, query=QUERY, discovered={}
    )
    write_run(state, other)
    delete_run(state, "one")
    assert read_run(state, "one") is None
    assert newest_query(state) == read_run(state, "other") == other
    state.put("_source/left_query.json", json.dumps({"version": 99}).encode())
    assert newest_query(state) is None
    delete_run(state, "other")


async def _event(trigger: SparkConnectQueryTrigger) -> Any:
    async for event in trigger.run():
        return event.payload
    raise AssertionError("no event")


def test_a_connection_that_is_gone_resumes_the_task_which_meets_the_error() -> None:
    trigger = SparkConnectQueryTrigger(
        query=asdict(QUERY), spark_conn_id="gone", poke_interval=0.01
    )
    assert asyncio.run(asyncio.wait_for(_event(trigger), 60)) == {"query": "unknown"}


@pytest.mark.parametrize(
    ("task_is", "stops"), [("deferred", False), ("failed", True), (None, True)]
)
def test_a_trigger_that_was_moved_stops_nothing(
    task_is: str | None, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A triggerer whose heartbeat was late calls `on_kill` as it does when a user ends a task."""
    from airflow.sdk.execution_time import task_runner

    stopped: list[object] = []

    def stop(_server: object, query: object) -> None:
        stopped.append(query)

    states = {"r": {"t": task_is}}
    monkeypatch.setattr(
        task_runner.RuntimeTaskInstance, "get_task_states", staticmethod(lambda **_: states)
    )
    monkeypatch.setattr(left_query, "stop", stop)
    trigger = SparkConnectQueryTrigger(query=asdict(QUERY), spark_remote="sc://server")
    trigger.task_instance = _context()["ti"]  # as the triggerer sets it
    asyncio.run(trigger.on_kill())
    assert bool(stopped) is stops
