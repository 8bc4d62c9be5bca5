"""A real standalone Spark cluster on this machine: a master and a worker of the PySpark wheel."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Self

from airflow_cloudfiles.engine.job.java import find_java
from airflow_cloudfiles.engine.job.spark_command import spark_home

START_SECONDS = 300


class StandaloneCluster:
    """Master and worker in processes of their own, on loopback and free ports.

    They run under the supervisor, so they end with the tests, in whatever way those end.
    """

    def __init__(self, folder: Path, *, cores: int = 2, memory: str = "2g") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._port, self._web = _free_port(), _free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._cores, self._memory = cores, memory

    def __enter__(self) -> Self:
        at = ["--host", "127.0.0.1", "--webui-port"]
        self._start("master", "Master", [*at, str(self._web), "--port", str(self._port)])
        self._wait(lambda state: '"status" : "ALIVE"' in state)
        worker = ["--cores", str(self._cores), "--memory", self._memory]
        worker += ["--work-dir", str(self._folder / "work"), self.url]
        self._start("worker", "Worker", [*at, "0", *worker])
        self._wait(lambda state: '"aliveworkers" : 1' in state)
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.communicate()  # closes the pipe that keeps it running

    def state(self) -> str:
        """The master's own account of its workers and applications, as JSON text."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=5) as answer:
            text: str = answer.read().decode()
            return text

    def _start(self, name: str, kind: str, arguments: list[str]) -> None:
        home = spark_home()
        env = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "512m",
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": find_java(),
        }
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "airflow_cloudfiles.engine.job.supervisor", "--"),
                    home / "bin" / "spark-class",
                    f"org.apache.spark.deploy.{kind.lower()}.{kind}",
                    *arguments,
                ],
                env=env,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)

    def _wait(self, ready: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):  # nobody answers until it has started
                if ready(self.state()):
                    return
            dead = [p for p in self._processes if p.poll() is not None]
            assert not dead, self._logs()
            time.sleep(0.2)
        raise TimeoutError(self._logs())

    def _logs(self) -> str:
        return "\n".join(p.read_text(errors="replace")[-2000:] for p in self._folder.glob("*.log"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
