"""How does the JVM of a warm Spark start, and when does it listen?

As that of a local run: with the command line that Spark's launcher wrote and the classes of an
earlier one (`job.jvm`). It serves Spark Connect on loopback, behind a token that only its
environment has. Its parent's death kills it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_cloudfiles.engine.job.jvm import command_line
from airflow_cloudfiles.engine.job.spark_command import COORDINATOR_JVM, default_conf
from airflow_cloudfiles.engine.processes import die_with_parent

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name of a variable
_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"
_FOLDER, _PORT = "@folder@", "@port@"
_LOCAL = re.compile(r"local\[(\d+)")
_LISTENS = "0A"
_TAIL_BYTES = 4000
_NOT_SERVING = 255
"""Spark's server ends with this code where it cannot serve, as when its port is taken by now."""


class ConnectJvm:
    """A JVM on its way, then one that serves.

    Args:
        folder: Of the warm Spark.
        settings: Those of its plan (`Plan.settings`).
        python: What it starts in place of Python.
        log: Where it writes.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], python: str, log: Path) -> None:
        self.port = _free_port()
        self.token = secrets.token_urlsafe(32)
        self._log = log
        self._has_served = False
        conf = _conf(settings)
        memory = settings["driver_memory"]
        arguments = ["--master", settings["master"]]
        arguments += ["--driver-memory", memory] if memory else []
        arguments += [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        command, self._archive = command_line(
            [*arguments, "--class", _MAIN, "spark-internal"],
            {_FOLDER: str(folder), _PORT: str(self.port)},
            settings["conf"],
            use=(_MAIN,),
        )
        python_variables = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                env={
                    **os.environ,
                    **python_variables,
                    "PYTHONHASHSEED": "0",
                    "SPARK_CONNECT_MODE": "0",
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    TOKEN: self.token,
                },
                preexec_fn=_prepare,  # noqa: PLW1509 - this process has one thread
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def is_ready(self) -> bool:
        """Whether the JVM, and nobody else, listens on its port."""
        listens = _listens(self.pid, self.port)
        self._has_served = self._has_served or listens
        return listens

    def ended(self, code: int) -> None:
        """Take note of its exit code, which another one has waited for."""
        self._process.returncode = code

    @property
    def has_ended(self) -> bool:
        """Whether it is known to have ended."""
        return self._process.returncode is not None

    @property
    def could_not_serve(self) -> bool:
        """Whether it has ended because it could not listen; another port may do."""
        return self._process.returncode == _NOT_SERVING and not self._has_served

    def why(self) -> str:
        """The last of what it wrote, for an error."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = log.read().decode(errors="replace").strip()
            return f"Java ended with exit code {self._process.returncode}. Its last lines: {text}"
        return f"Java ended with exit code {self._process.returncode}."

    def end(self, *, keep_classes: bool) -> None:
        """End it and wait until it has.

        Args:
            keep_classes: Whether it may take the time to keep its classes for the next one.
        """
        archive = self._archive if self._archive and self._archive.is_wanted else None
        if self.has_ended:
            if archive is not None:
                archive.leave_to_next()
        elif archive is not None and keep_classes:
            self._process.terminate()
            archive.keep(self._process)
        elif archive is not None:
            archive.leave_to_next()
        if not self.has_ended and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _conf(settings: Mapping[str, Any]) -> dict[str, str]:
    """The Spark configuration of the server; what the user says goes before all but the port."""
    found = _LOCAL.match(settings["master"])
    cores = int(found[1]) if found else len(os.sched_getaffinity(0))
    return {
        **default_conf(settings["master"]),
        "spark.driver.extraJavaOptions": f'{COORDINATOR_JVM} "-Djava.io.tmpdir={_FOLDER}"',
        "spark.sql.warehouse.dir": f"{_FOLDER}/warehouse",
        # A client is not given the number of `local[*]`.
        "spark.default.parallelism": str(cores),
        # Here, and not by the session, so that nothing has begun with it: then all runs share the
        # Python processes, and none is left behind.
        "spark.sql.artifact.isolation.enabled": "false",
        "spark.log.level": os.environ.get("CLOUDFILES_SPARK_LOG_LEVEL", "FATAL"),
        **settings["conf"],
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": _PORT,
    }


def _prepare() -> None:
    """In the forked process, before it becomes Java."""
    die_with_parent()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _listens(pid: int, port: int) -> bool:
    """Whether a process listens on a port of this machine."""
    sockets = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (
                Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii").splitlines()[1:]
            ):
                words = line.split()
                if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{words[9]}]")
    if sockets:
        with contextlib.suppress(OSError):
            for each in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(each.readlink()) in sockets:
                        return True
    return False
