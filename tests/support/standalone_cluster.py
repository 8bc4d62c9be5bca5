"""A real standalone Spark cluster on this machine: a master and workers of the PySpark wheel."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from airflow_cloudfiles.engine.job.java import find_java
from airflow_cloudfiles.engine.job.spark_command import spark_home
from tests.support.jvm_classes import keep_classes
from tests.support.machines import Machine
from tests.support.waiting import is_there, until

START_SECONDS = 300


class StandaloneCluster:
    """Master and workers in processes of their own, on loopback and free ports.

    They run under the supervisor, so they end with the tests, in whatever way those end.

    Args:
        folder: For logs, and for what the worker keeps when there are no machines.
        cores: Of each worker.
        memory: Of each worker.
        machines: Where the workers run, each on its own; without any there is one, on this machine.
    """

    def __init__(
        self, folder: Path, *, cores: int = 2, memory: str = "2g", machines: Sequence[Machine] = ()
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._port, self._web = _free_port(), _free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._cores, self._memory = cores, memory
        self._machines = machines

    def __enter__(self) -> Self:
        self._start("master", "Master", ["--port", str(self._port)], web=self._web)
        self._wait(lambda state: '"status" : "ALIVE"' in state)
        if not self._machines:
            self._start_worker("worker", f"{self._folder}/work")
        for machine in self._machines:
            self.start_worker(machine)
        self._wait_for_workers()
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes.values()):
            process.communicate()  # closes the pipe that keeps it running

    def state(self) -> str:
        """The master's own account of its workers and applications, as JSON text."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=5) as answer:
            text: str = answer.read().decode()
            return text

    def start_worker(self, machine: Machine) -> None:
        """Start the worker of a machine, without waiting for it."""
        self._start_worker(machine.name, "work", machine)

    def executors_of(self, machine: Machine) -> list[psutil.Process]:
        """The JVMs of executors that run on a machine."""
        found = []
        for each in self._processes_of(machine):
            with contextlib.suppress(psutil.Error):
                if any("CoarseGrainedExecutorBackend" in word for word in each.cmdline()):
                    found.append(each)
        return found

    def kill_executors(self, *machines: Machine) -> None:
        """Kill the executors of machines; the workers live on."""
        found = [each for machine in machines for each in self.executors_of(machine)]
        assert found, f"no executor runs on {[machine.name for machine in machines]}"
        for each in found:
            each.kill()

    def lose(self, machine: Machine) -> None:
        """Kill everything that runs on a machine, as when it loses its power."""
        process = self._processes.pop(machine.name)
        for each in (psutil.Process(process.pid), *self._processes_of(machine, process.pid)):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGKILL)
        process.communicate()

    def wait_until_idle(self) -> None:
        """Wait until no application runs, and its executors are gone."""
        until(lambda: not json.loads(self.state())["activeapps"])
        left = [each for machine in self._machines for each in self.executors_of(machine)]
        until(lambda: not any(map(is_there, left)))

    def _processes_of(self, machine: Machine, pid: int | None = None) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            supervisor = psutil.Process(pid or self._processes[machine.name].pid)
            return supervisor.children(recursive=True)
        return []

    def _wait_for_workers(self) -> None:
        wanted = len(self._processes) - 1
        self._wait(lambda state: f'"aliveworkers" : {wanted},' in state)

    def _start_worker(self, name: str, folder: str, machine: Machine | None = None) -> None:
        words = ["--cores", str(self._cores), "--memory", self._memory, "--work-dir", folder]
        self._start(name, "Worker", [*words, self.url], web=0, machine=machine)

    def _start(
        self,
        name: str,
        kind: str,
        arguments: list[str],
        *,
        web: int,
        machine: Machine | None = None,
    ) -> None:
        host = machine.address if machine else "127.0.0.1"
        words = [str(spark_home() / "bin" / "spark-class")]
        words += [f"org.apache.spark.deploy.{kind.lower()}.{kind}"]
        words += ["--host", host, "--webui-port", str(web), *arguments]
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "airflow_cloudfiles.engine.job.supervisor", "--"),
                    *(machine.command(words) if machine else words),
                ],
                env=_environment(machine),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes[name] = process

    def _wait(self, ready: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):  # nobody answers until it has started
                if ready(self.state()):
                    return
            dead = [p for p in self._processes.values() if p.poll() is not None]
            assert not dead, self._logs()
            time.sleep(0.2)
        raise TimeoutError(self._logs())

    def _logs(self) -> str:
        return "\n".join(p.read_text(errors="replace")[-2000:] for p in self._folder.glob("*.log"))


def _environment(machine: Machine | None) -> dict[str, str]:
    """The environment of a master or a worker."""
    of_machine: Mapping[str, Any] = machine.environment() if machine else {}
    return {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(spark_home()),
        "SPARK_DAEMON_MEMORY": "256m" if machine else "512m",
        "JAVA_TOOL_OPTIONS": keep_classes(),  # executors inherit it
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": find_java(),
        **of_machine,
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
