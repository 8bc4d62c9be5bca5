"""A run from a Delta table keeps its checkpoint in every cloud; two at once plan a batch once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_cloudfiles.engine.delta.stream.commits import TableOffset
from airflow_cloudfiles.engine.errors import StateLockedError
from airflow_cloudfiles.engine.job.session import NoSpark
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.job.table_ingest import ingest_table
from airflow_cloudfiles.engine.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.state import spark_checkpoint
from airflow_cloudfiles.engine.state.spark_checkpoint import QueryCheckpoint, QueryProgress
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.table_streams import GrowingTable

pytestmark = [pytest.mark.emulator]

RUNS = 8


@pytest.fixture(params=["aws", "azurite", "gcs"])
def state(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A checkpoint location, which the environment gives access to."""
    emulator = request.getfixturevalue(request.param)
    root: str = emulator.container() if request.param == "azurite" else emulator.bucket()
    for name, value in to_environment(emulator.access).items():
        monkeypatch.setenv(name, value)
    return f"{root}/state"


def test_runs_go_on_and_a_planned_batch_is_finished(state: str, tmp_path: Path) -> None:
    table, silver = GrowingTable(tmp_path / "bronze", "a"), tmp_path / "silver"

    def run() -> dict[str, Any]:
        spec = JobSpec(
            kind="ingest",
            source=str(table.folder),
            format="delta",
            checkpoint_location=state,
            target=str(silver),
            options={"maxFilesPerTrigger": "1"},
            run_id="r",
        )
        report: dict[str, Any] = {}
        ingest_table(spec, NoSpark(spec), report, {})
        return report

    table.append(1)
    table.append(2)
    assert run()["batches"] == 2
    checkpoint = open_store(state)
    spark_checkpoint.remove(checkpoint, f"{spark_checkpoint.COMMITS}/1")
    table.append(3)
    report = run()
    assert (report["batches"], report["batches_recovered"]) == (2, 1)
    assert run()["batches"] == 0
    with RunLock(checkpoint, JOB_KEY), pytest.raises(StateLockedError):
        RunLock(checkpoint, JOB_KEY).acquire()
    assert sorted(DeltaTable(silver).to_pyarrow_table()["a"].to_pylist()) == [1, 2, 3]


def test_of_many_that_plan_a_batch_at_once_one_does(state: str) -> None:
    together = threading.Barrier(RUNS)

    def plan(number: int) -> int | None:
        mine = QueryCheckpoint(open_store(state))
        together.wait()
        mine.open()
        try:
            mine.plan(0, TableOffset("t", number))
        except StateLockedError:
            return None
        return number

    with ThreadPoolExecutor(RUNS) as pool:
        winners = [each for each in pool.map(plan, range(RUNS)) if each is not None]
    checkpoint = QueryCheckpoint(open_store(state))
    assert checkpoint.open() == QueryProgress(-1, 0)
    assert [checkpoint.end_of(0)["reservoirVersion"]] == winners
