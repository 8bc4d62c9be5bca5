"""Which Python do the processes of a local run come from?

From a fork server of this run (`fork_server`), where that is possible; else Spark starts each by
itself. Either way they do the same.
"""

from __future__ import annotations

import logging
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from airflow_cloudfiles.engine.job.start_conf import FORK_SERVER, is_on
from airflow_cloudfiles.engine.spark.preload import NO_THREADS

PYTHON = "spark.pyspark.python"
_MODULE = "airflow_cloudfiles.engine.job.fork_server"
_ENVIRONMENT = {
    **NO_THREADS,
    # As Spark sets it for its Python processes: all hash alike.
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "YES",
}
_log = logging.getLogger(__name__)


class ForkServer:
    """The fork server of this process, which ends with it.

    It starts in the background; until it is ready, launchers wait for it.

    Args:
        folder: Private to this user, for its socket and the launcher.

    Attributes:
        launcher: What Spark is to start in place of Python.
    """

    def __init__(self, folder: Path) -> None:
        address = folder / "fork-server"
        self.launcher = folder / "python"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen()
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(listener.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                env={**os.environ, **_ENVIRONMENT},
            )
        script = Path(__file__).with_name("fork_launcher.py")
        command = [sys.executable, "-IS", str(script), str(address), sys.executable]
        self.launcher.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
        self.launcher.chmod(0o700)

    def close(self) -> None:
        """End it, and what it has forked; harmless when it has ended."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def start(folder: Path, conf: Mapping[str, str]) -> ForkServer | None:
    """Start a fork server, and have the Spark of this process use it.

    Args:
        folder: As for `ForkServer`.
        conf: The Spark configuration of the run.

    Returns:
        The server; `None`, with a line in the log, where Spark starts Python by itself.
    """
    reason = _reason_against(conf)
    if reason is None:
        try:
            server = ForkServer(folder)
        except OSError as error:
            reason = str(error)
        else:
            # The JVM looks data sources up with the Python of the driver.
            os.environ["PYSPARK_PYTHON"] = str(server.launcher)
            os.environ["PYSPARK_DRIVER_PYTHON"] = str(server.launcher)
            return server
    _log.info("Python processes are not forked: %s", reason)
    return None


def _reason_against(conf: Mapping[str, str]) -> str | None:
    """Why no fork server is to be used."""
    if not is_on(conf, FORK_SERVER):
        return f"{FORK_SERVER} is false"
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} does not let a process with frameworks loaded fork"
    chosen = {PYTHON: conf.get(PYTHON), "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON")}
    for name, python in chosen.items():
        if python is not None and python != sys.executable:
            return f"{name} is {python}"
    return None
