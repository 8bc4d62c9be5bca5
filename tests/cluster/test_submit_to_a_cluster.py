"""The same job on a real cluster: a driver and executors that do not share a process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import airflow_cloudfiles
from airflow_cloudfiles.engine.errors import UnknownFieldException
from airflow_cloudfiles.engine.job.java import find_java
from airflow_cloudfiles.engine.job.launch import JobSpec, SparkSubmit, launch
from airflow_cloudfiles.engine.job.spark_command import COORDINATOR_JVM, DAEMON_MODULE, spark_home
from tests.docs.pages import python_blocks
from tests.support.jvm_classes import keep_classes
from tests.support.landing import drop, rows
from tests.support.standalone_cluster import StandaloneCluster
from tests.support.table_streams import GrowingTable

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
    cluster: StandaloneCluster,
    folder: Path,
    run_id: str,
    kind: Any = "ingest",
    format: str = "json",  # noqa: A002 - Spark's word
) -> tuple[dict[str, Any], list[str]]:
    spec = JobSpec(
        kind=kind,
        source=str(folder / "in"),
        format=format,
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
    return launch(spec, how, on_log=lines.append).wait(), lines


@contextlib.contextmanager
def _watched_executors() -> Iterator[set[str]]:
    """Collect the commands of the Python processes that executors start, until the block ends."""
    found: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error):
                    parent = process.parent()
                    command = parent.cmdline() if parent else []
                    if any("CoarseGrainedExecutorBackend" in each for each in command):
                        found.add(" ".join(process.cmdline()[1:]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        ended.set()
        watcher.join()


@pytest.mark.airflow
def test_a_cluster_lands_every_row_once_and_an_operator_heals_a_new_column(
    cluster: StandaloneCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        drop(tmp_path / "in", f"{number}.json", [{"id": f"{number}-{i}"} for i in range(50)])
    inferred, _ = _run(cluster, tmp_path, "infer", kind="infer")
    assert inferred["created"]
    with _watched_executors() as commands:
        report, lines = _run(cluster, tmp_path, "first")
    assert (report["files"], report["rows"], report["batches"]) == (4, 200, 1)
    assert any("200 rows" in line for line in lines), "the driver's log reaches the caller"
    daemons = {each for each in commands if each.startswith("-m ")}
    assert daemons
    assert all(each.startswith(f"-m {DAEMON_MODULE}") for each in daemons), commands
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


def test_a_program_of_a_managed_spark_carries_out_a_run(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    """That of the page, submitted as a service does: by nothing of this package."""
    [program] = [block.code for block in python_blocks() if block.page.name == "managed-spark.md"]
    path = tmp_path / "ingest.py"
    path.write_text(f"{program}\n\nsys.exit(main(*sys.argv[1:]))\n", encoding="utf-8")
    drop(tmp_path / "in", "a.json", [{"id": f"a{row}"} for row in range(50)])
    folders = [str(tmp_path / each) for each in ("in", "state", "table")]

    def submitted() -> int:
        words = [f"{spark_home()}/bin/spark-submit", "--master", cluster.url]
        for key, value in CONF.items():
            words += ["--conf", f"{key}={value}"]
        done = subprocess.run(
            [*words, str(path), *folders],
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("CLOUDFILES_")},
                "CLOUDFILES_CACHE_DIR": str(tmp_path / "cache"),
                "JAVA_HOME": find_java(),
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(Path(airflow_cloudfiles.__file__).parents[1]),
            },
            check=False,
        )
        return done.returncode

    assert submitted() == 0
    assert re.search(r'"name" : "cloudfiles-[^"]*"', cluster.state())
    assert len(rows(tmp_path / "table")) == 50
    drop(tmp_path / "in", "b.json", [{"id": "b0", "currency": "USD"}])
    assert submitted() == 1
    assert submitted() == 0
    found = rows(tmp_path / "table")
    assert sorted(row["id"] for row in found) == sorted(["b0", *(f"a{row}" for row in range(50))])


def test_a_cluster_reads_a_delta_table(cluster: StandaloneCluster, tmp_path: Path) -> None:
    table = GrowingTable(tmp_path / "in", "a")
    for run, value in enumerate((1, 2)):
        table.append(value)
        report, _ = _run(cluster, tmp_path, f"table-{run}", format="delta")
        assert (report["rows"], report["batches"]) == (1, 1)
    assert '"name" : "cloudfiles-table-1"' in cluster.state(), "it ran on the cluster"
    assert sorted(row["a"] for row in rows(tmp_path / "table")) == [1, 2]


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
