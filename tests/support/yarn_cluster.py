"""A real YARN on this machine: Hadoop's ResourceManager and NodeManager, in processes of their own.

`make yarn` brings their jars, and the environment that is packed for containers.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from xml.sax.saxutils import escape

import psutil
import pytest

import airflow_cloudfiles
from airflow_cloudfiles.engine.job.java import find_java
from airflow_cloudfiles.engine.job.spark_command import COORDINATOR_JVM, spark_home
from tests.support.emulators.processes import Server, free_port, running
from tests.support.waiting import PATIENCE_SECONDS, until

HOME = Path(sys.prefix) / "yarn"
HOST = "127.0.0.1"
SERVERS = "org.apache.hadoop.yarn.server"
OF_THIS_MACHINE = {
    # Its containers are on the machine that has them: nothing is copied into each.
    "spark.yarn.jars": f"local:{spark_home()}/jars/*",
    "spark.driver.extraJavaOptions": COORDINATOR_JVM,
    "spark.executor.extraJavaOptions": COORDINATOR_JVM,
    "spark.yarn.am.extraJavaOptions": COORDINATOR_JVM,
    "spark.yarn.report.interval": "200ms",
}
"""Configuration of Spark for a small machine."""
DRIVER, EXECUTOR = "deploy.yarn.ApplicationMaster", "YarnCoarseGrainedExecutorBackend"
_ADDRESSES = (
    *(f"resourcemanager.{each}" for each in ("address", "scheduler.address", "admin.address")),
    *("resourcemanager.resource-tracker.address", "resourcemanager.webapp.address"),
    *("nodemanager.address", "nodemanager.localizer.address", "nodemanager.webapp.address"),
)
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n%ex
"""


class YarnCluster:
    """One ResourceManager and one NodeManager, on loopback and free ports.

    Args:
        folder: For configuration, logs and what containers are given.
    """

    def __init__(self, folder: Path) -> None:
        if not all((HOME / each).exists() for each in ("hadoop", "bouncycastle", "env")):
            pytest.skip("Hadoop's YARN is not here: run `make yarn`")
        self.folder = folder
        self.conf_dir = folder / "conf"
        self._addresses = {f"yarn.{each}": f"{HOST}:{free_port()}" for each in _ADDRESSES}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._configure()
        with ExitStack() as stack:
            for name, main in (
                ("resourcemanager", f"{SERVERS}.resourcemanager.ResourceManager"),
                ("nodemanager", f"{SERVERS}.nodemanager.NodeManager"),
            ):
                ready = self._has_a_node if name == "nodemanager" else self._answers
                command = self._java("-Xmx256m", main)
                log = self.folder / f"{name}.log"
                server = Server(command, ready, log, seconds=PATIENCE_SECONDS)
                stack.enter_context(running(server))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.containers(""):  # which have sessions of their own
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self._stack.close()

    def environment(self) -> dict[str, str]:
        """What who submits needs."""
        return {"HADOOP_CONF_DIR": str(self.conf_dir), "JAVA_HOME": find_java()}

    def pack(self) -> str:
        """Pack the environment of containers with this package, as the page says; give its URI."""
        made = self.folder / "env"
        shutil.copytree(HOME / "env", made, symlinks=True)
        [packages] = made.glob("lib/python*/site-packages")
        source = Path(airflow_cloudfiles.__file__).parent
        shutil.copytree(
            source, packages / source.name, ignore=shutil.ignore_patterns("__pycache__")
        )
        packed = self.folder / "env.tar.gz"
        # By its module: the script of the copy begins with the path of the original.
        command = [str(made / "bin/python"), "-m", "venv_pack", "--compress-level", "1"]
        command += ["--prefix", str(made), "--output", str(packed), "--quiet"]
        subprocess.run(command, check=True, cwd=self.folder, env=_without_python())
        shutil.rmtree(made)
        return packed.as_uri()

    def applications(self, name: str) -> list[dict[str, Any]]:
        """What YARN says of the applications of a name."""
        found = (self._get("apps")["apps"] or {}).get("app", [])
        return [each for each in found if each["name"] == name]

    def ended(self, name: str) -> dict[str, Any]:
        """Wait until the one application of a name has ended, and say what YARN says of it."""
        ends = {"FINISHED", "FAILED", "KILLED"}
        until(lambda: {each["state"] for each in self.applications(name)} & ends)
        [found] = self.applications(name)
        return found

    def attempts(self, application: str) -> int:
        """Count the drivers that an application has had."""
        found = self._get(f"apps/{application}/appattempts")
        return len(found["appAttempts"]["appAttempt"])

    def containers(self, kind: str) -> list[psutil.Process]:
        """The processes of containers whose command has a word: `DRIVER`, `EXECUTOR`."""
        found = []
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = each.cmdline()
                is_of_us = str(self.folder / "local") in each.cwd()
                if is_of_us and words and any(kind in word for word in words):
                    found.append(each)
        return found

    def kill(self, kind: str) -> None:
        """Kill the JVMs of containers, and nothing else."""
        found = [each for each in self.containers(kind) if each.name() == "java"]
        assert found, f"no {kind} runs"
        for each in found:
            each.kill()

    def logs(self, application: str) -> str:
        """What `yarn logs -applicationId` prints, as soon as the NodeManager has collected it."""
        command = self._java("-Xmx256m", "org.apache.hadoop.yarn.client.cli.LogsCLI")
        printed = ""

        def has_them() -> bool:
            nonlocal printed
            done = subprocess.run(
                [*command, "-applicationId", application],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
            )
            printed = done.stdout
            return done.returncode == 0 and "LogType:" in printed

        until(has_them, more=lambda: printed, every=1)
        return printed

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self._get("info")["clusterInfo"]["state"] == "STARTED")
        return False

    def _has_a_node(self) -> bool:
        return bool(self._get("metrics")["clusterMetrics"]["activeNodes"])

    def _get(self, what: str) -> dict[str, Any]:
        address = self._addresses["yarn.resourcemanager.webapp.address"]
        with urllib.request.urlopen(f"http://{address}/ws/v1/cluster/{what}", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def _java(self, *words: str) -> list[str]:
        jars = spark_home() / "jars"
        path = [str(self.conf_dir), f"{HOME}/hadoop/*", f"{HOME}/bouncycastle/*"]
        for each in ("hadoop-client-*", "*slf4j*", "log4j-*"):
            path += map(str, sorted(jars.glob(f"{each}.jar")))
        return [str(Path(find_java()) / "bin/java"), "-cp", os.pathsep.join(path), *words]

    def _configure(self) -> None:
        self.conf_dir.mkdir(parents=True)
        queue = "yarn.scheduler.capacity"
        sites = {
            "core-site": {
                "fs.defaultFS": "file:///",
                "hadoop.tmp.dir": str(self.folder / "tmp"),
            },
            "capacity-scheduler": {
                f"{queue}.root.queues": "default",
                f"{queue}.root.default.capacity": "100",
                f"{queue}.maximum-am-resource-percent": "1.0",
            },
            "yarn-site": {
                **self._addresses,
                "yarn.resourcemanager.hostname": HOST,
                "yarn.resourcemanager.am.max-attempts": "2",
                "yarn.nodemanager.hostname": HOST,
                "yarn.nodemanager.local-dirs": str(self.folder / "local"),
                "yarn.nodemanager.log-dirs": str(self.folder / "logs"),
                "yarn.nodemanager.remote-app-log-dir": str(self.folder / "collected"),
                "yarn.node-attribute.fs-store.root-dir": str(self.folder / "attributes"),
                "yarn.log-aggregation-enable": "true",
                "yarn.nodemanager.resource.memory-mb": "4096",
                "yarn.nodemanager.resource.cpu-vcores": "8",
                "yarn.scheduler.minimum-allocation-mb": "128",
                "yarn.nodemanager.pmem-check-enabled": "false",
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.disk-health-checker.enable": "false",
                # Which is looked at once all the same; a disk may be nearly full.
                "yarn.nodemanager.disk-health-checker."
                "max-disk-utilization-per-disk-percentage": "100",
            },
        }
        for site, values in sites.items():
            lines = (
                f"<property><name>{name}</name><value>{escape(value)}</value></property>"
                for name, value in values.items()
            )
            text = "\n".join(["<configuration>", *lines, "</configuration>", ""])
            (self.conf_dir / f"{site}.xml").write_text(text, encoding="utf-8")
        (self.conf_dir / "log4j2.properties").write_text(_LOG4J, encoding="utf-8")


def _without_python() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
