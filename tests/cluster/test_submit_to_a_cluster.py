"""The same job on a real cluster: a driver and executors that do not share a process."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from airflow_cloudfiles.engine.errors import UnknownFieldException
from airflow_cloudfiles.engine.job.launch import JobSpec, SparkSubmit, launch
from airflow_cloudfiles.engine.job.spark_command import COORDINATOR_JVM, DAEMON_MODULE
from tests.support.jvm_classes import keep_classes
from tests.support.landing import drop, rows
from tests.support.standalone_cluster import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]

CONF = {
    "spark.executor.memory": "1g",
    "spark.driver.extraJavaOptions": COORDINATOR_JVM,
    "spark.executor.extraJavaOptions": COORDINATOR_JVM,
    "spark.cores.max": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(autouse=True)
def _drivers_start_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", keep_classes())


def _run(
    cluster: StandaloneCluster, folder: Path, run_id: str, kind: Any = "ingest"
) -> tuple[dict[str, Any], list[str]]:
    spec = JobSpec(
        kind=kind,
        source=str(folder / "in"),
        format="json",
        checkpoint_location=str(folder / "state"),
        target=str(folder / "table"),
        run_id=run_id,
    )
    how = SparkSubmit(
        master=cluster.url,
        executor_python=sys.executable,
        conf=CONF,
    )
    lines: list[str] = []

    def on_log(line: str) -> None:
        lines.append(line)
        if " rows, " in line:  # the workers are still there
            lines.extend(_executors_daemons())

    return launch(spec, how, on_log=on_log).wait(), lines


def _executors_daemons() -> list[str]:
    """The Python daemons of executors."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            parent = process.parent()
            if parent and any("CoarseGrainedExecutorBackend" in each for each in parent.cmdline()):
                found.append(f"EXECUTOR {' '.join(process.cmdline()[1:])}")
    return found


@pytest.mark.airflow
def test_a_cluster_lands_every_row_once_and_an_operator_heals_a_new_column(
    cluster: StandaloneCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        drop(tmp_path / "in", f"{number}.json", [{"id": f"{number}-{i}"} for i in range(50)])
    inferred, _ = _run(cluster, tmp_path, "infer", kind="infer")
    assert inferred["created"]
    report, lines = _run(cluster, tmp_path, "first")
    assert (report["files"], report["rows"], report["batches"]) == (4, 200, 1)
    assert any("200 rows" in line for line in lines), "the driver's log reaches the caller"
    daemons = {line for line in lines if line.startswith("EXECUTOR ")}
    assert daemons
    assert all(line.startswith(f"EXECUTOR -m {DAEMON_MODULE} pyspark.") for line in daemons)
    assert re.search(r'"name" : "cloudfiles-first"', cluster.state()), "it ran on the cluster"

    drop(tmp_path / "in", "new.json", [{"id": "x", "currency": "USD"}])
    with pytest.raises(UnknownFieldException) as caught:
        _run(cluster, tmp_path, "second")
    assert caught.value.is_retryable
    assert caught.value.fields == {"currency": "USD"}
    healed = _run_operator(cluster, tmp_path, monkeypatch)
    assert (healed["rows"], healed["schema_version"]) == (1, 1)
    assert healed["target_version"] > report["target_version"]
    assert '"name" : "cloudfiles-d.r.ingest.1"' in cluster.state()
    found = rows(tmp_path / "table")
    assert len(found) == len({row["id"] for row in found}) == 201


def _run_operator(
    cluster: StandaloneCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Run an operator that submits through a Spark connection of Airflow."""
    from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator

    host, port = cluster.url.rsplit(":", 1)
    monkeypatch.setenv(
        "AIRFLOW_CONN_CLUSTER",
        json.dumps({"conn_type": "spark", "host": host, "port": int(port)}),
    )
    ingest = CloudFilesIngestOperator(
        task_id="ingest",
        source=str(folder / "in"),
        format="json",
        checkpoint_location=str(folder / "state"),
        target=str(folder / "table"),
        spark_conn_id="cluster",
        spark_conf={**CONF, "spark.pyspark.python": sys.executable},
    )
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="ingest", map_index=-1, try_number=1)
    report: dict[str, Any] = ingest.execute({"ti": ti})  # type: ignore[typeddict-item]
    return report
