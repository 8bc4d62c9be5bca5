"""Runs on a Spark Connect server of the oldest supported Spark, with the client that is installed.

Spark 3.5 brings no Connect server: it is fetched once, and where it can't be, this is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from airflow_cloudfiles.engine.errors import SparkServerError, UnknownFieldException
from airflow_cloudfiles.engine.job.java import find_java
from airflow_cloudfiles.engine.job.launch import SparkConnect, launch
from airflow_cloudfiles.engine.job.spark_command import DAEMON_MODULE
from tests.support.connect_server import free_port, is_open
from tests.support.driver import Driver
from tests.support.landing import drop, rows
from tests.support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

OLDEST = Path(sys.prefix) / "oldest-spark"
PACKAGE = "org.apache.spark:spark-connect_2.12:3.5.0"
MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[str]:
    """The address of a server of Spark 3.5.0, set up as docs/how-to/spark-connect.md says."""
    if not OLDEST.exists():
        pytest.skip("PySpark's oldest supported version is not here: run `make oldest-spark`")
    folder, port = tmp_path_factory.mktemp("oldest"), free_port()
    conf = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.jars.ivy": str(OLDEST / "ivy"),
        "spark.local.dir": str(folder / "local"),
        "spark.python.daemon.module": DAEMON_MODULE,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    command = [str(OLDEST / "pyspark" / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    command += ["--packages", PACKAGE, "--class", MAIN, "spark-internal"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            cwd=folder,
            env={
                **os.environ,
                "JAVA_HOME": find_java(),
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": os.pathsep.join([str(OLDEST), str(repository)]),
                "SPARK_HOME": str(OLDEST / "pyspark"),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
        )
    said = (folder / "log").read_text
    try:
        until(lambda: is_open(port) or server.poll() is not None, seconds=180, more=said)
        if server.poll() is not None:
            assert "unresolved dependenc" in said().lower(), said()[-3000:]
            pytest.skip(f"{PACKAGE} can't be fetched here")
        yield f"sc://127.0.0.1:{port}"
    finally:
        family = (
            psutil.Process(server.pid).children(recursive=True) if server.poll() is None else []
        )
        server.terminate()
        server.wait(60)
        for process in family:
            if process.is_running():
                process.kill()


def test_a_stream_meets_a_new_column_on_a_server_of_spark_3_5(tmp_path: Path, remote: str) -> None:
    stream = Driver(tmp_path)
    for number in range(3):
        drop(stream.source, f"{number}.json", [{"id": f"{number}-{row}"} for row in range(5)])
    log: list[str] = []
    report = launch(stream.spec(), SparkConnect(remote), on_log=log.append).wait()
    assert (report["files"], report["rows"]) == (3, 15)
    assert "warnings" not in report or not report["warnings"], "the daemon is configured there"
    drop(stream.source, "3.json", [{"id": "3-0", "name": "new"}])
    with pytest.raises(UnknownFieldException):
        launch(stream.spec(), SparkConnect(remote), on_log=log.append).wait()
    assert launch(stream.spec(), SparkConnect(remote), on_log=log.append).wait()["rows"] == 1
    drop(stream.source, "4.json", [{"id": "4-0", "name": "late"}])
    deferred = replace(stream.spec(), leave_after_seconds=0.0)
    with pytest.raises(SparkServerError, match=r"has Spark 3\.5\.0, and a deferred run needs 4\.0"):
        launch(deferred, SparkConnect(remote), on_log=log.append).wait()
    assert launch(stream.spec(), SparkConnect(remote), on_log=log.append).wait()["rows"] == 1
    found = rows(stream.target)
    assert len(found) == 17
    assert {row["name"] for row in found} == {None, "new", "late"}
