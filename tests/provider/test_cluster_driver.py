"""A worker that is lost while its driver is at work in a cluster: the next try has its report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator
from tests.support.cluster_manager import ClusterManager
from tests.support.landing import drop, rows
from tests.support.waiting import until

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

TASK = """
import json, sys
from tests.provider.test_cluster_driver import context, task
task(json.loads(sys.argv[1])).execute(context(1))
"""


def task(locations: dict[str, str]) -> CloudFilesIngestOperator:
    """An ingestion with its driver in a cluster, and a function over its micro-batches."""
    return CloudFilesIngestOperator(
        task_id="ingest",
        format="json",
        spark_conn_id="cluster",
        deploy_mode="cluster",
        transform=priced,
        transform_kwargs={"currency": "CHF"},
        **locations,
    )


def context(try_number: int) -> Any:
    """What Airflow tells a try."""
    ti = SimpleNamespace(
        dag_id="orders", run_id="r", task_id="ingest", map_index=-1, try_number=try_number
    )
    return {"ti": ti}


def priced(batch, currency):
    """What the function of a test makes of a micro-batch."""
    from pyspark.sql import functions as fn

    @fn.udf("string")
    def doubled(number):
        return str(2 * int(number))

    return batch.select(doubled("n").alias("n"), fn.lit(currency).alias("currency"))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterManager:
    """A cluster, and the connection `cluster` that submits to it."""
    made = ClusterManager(tmp_path / "cluster")
    monkeypatch.setenv("PATH", f"{made.folder}{os.pathsep}{os.environ['PATH']}")
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"spark-binary": "spark-submit"}}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
    return made


def test_the_next_try_has_the_report_of_the_driver_and_the_state_has_no_function(
    tmp_path: Path, cluster: ClusterManager
) -> None:
    """A function reaches the driver; the worker is killed; the next try submits nothing."""
    source, state, table = (tmp_path / name for name in ("in", "state", "table"))
    drop(source, "a.json", [{"n": 1}, {"n": 2}])
    locations = {
        "source": str(source),
        "checkpoint_location": str(state),
        "target": str(table),
    }
    worker = subprocess.Popen([sys.executable, "-c", TASK, json.dumps(locations)])
    lock = RunLock(open_store(str(state)), JOB_KEY)
    until(lambda: lock.noted_run() == "orders.r.ingest.1", more=lambda: cluster.log)
    worker.kill()
    worker.wait()
    report = task(locations).execute(context(2))
    assert report["run_id"] == "orders.r.ingest.1", cluster.log
    assert (report["rows"], report["transform"]) == (2, "priced"), cluster.log
    assert cluster.submitted == ["orders.r.ingest.1"]
    found = sorted((row["n"], row["currency"]) for row in rows(table))
    assert found == [("2", "CHF"), ("4", "CHF")]
    written = [each.read_bytes() for each in state.rglob("*") if each.is_file()]
    assert any(b"priced" in each for each in written)
    assert not any(b"doubled" in each for each in written)
