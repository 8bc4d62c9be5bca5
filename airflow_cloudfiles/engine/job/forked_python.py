"""Which Python do the processes of a local run come from?

From a fork server of this run (`fork_server`), where that is possible; else Spark starts each by
itself. Either way they do the same.

The driver forks the server from itself when it has imported everything and done nothing
(`fork_early`). So both share what they have imported, and the server has it at once. It waits,
costs next to nothing in a run that needs no Spark, and imports the rest when it is asked for.
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

from airflow_cloudfiles.engine.job import fork_server
from airflow_cloudfiles.engine.job.start_conf import FORK_SERVER, is_on
from airflow_cloudfiles.engine.spark.preload import FORKABLE, has_one_thread

PYTHON = "spark.pyspark.python"
_log = logging.getLogger(__name__)


class ForkServer:
    """A fork server, which ends with this process.

    Args:
        control: The standard input of the server is its other end.
        process: The server, when it was not forked but started.
        pid: Its process id.
    """

    def __init__(
        self, control: socket.socket, process: subprocess.Popen[bytes] | None, pid: int
    ) -> None:
        self._control = control
        self._process = process
        self._pid = pid

    def listen(self, folder: Path, *, for_iceberg: bool = False) -> Path:
        """Have it import the rest, and answer launchers; until it is ready, these wait for it.

        Args:
            folder: Private to this user, for its socket and the launcher.
            for_iceberg: Whether the processes write to a table of an Iceberg catalog.

        Returns:
            The launcher: what Spark is to start in place of Python.

        Raises:
            OSError: There is no socket in this folder, or the server has ended.
        """
        address = folder / "fork-server"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen()
            word = fork_server.LISTEN_FOR_ICEBERG if for_iceberg else fork_server.LISTEN
            socket.send_fds(self._control, [word], [listener.fileno()])
        launcher = folder / "python"
        script = Path(__file__).with_name("fork_launcher.py")
        command = [sys.executable, "-IS", str(script), str(address), sys.executable]
        launcher.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
        launcher.chmod(0o700)
        return launcher

    def close(self) -> None:
        """End it, and what it has forked; harmless when it has ended."""
        if self._control.fileno() < 0:
            return
        self._control.close()
        if self._process is not None:
            self._process.wait()
        else:
            os.waitpid(self._pid, 0)


def fork_early() -> ForkServer | None:
    """Fork a server from this process, which has imported what a driver needs, and idles.

    Call it before anything is logged, opened or read: the server, and all that it forks, has what
    this process has.

    Returns:
        The server, not listening; `None` where a process like this one cannot fork.
    """
    if not sys.platform.startswith("linux") or not has_one_thread():
        return None
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        fork_server.become(theirs)
    theirs.close()
    return ForkServer(ours, None, pid)


def started() -> ForkServer:
    """Start a server that imports everything by itself.

    Raises:
        OSError: It cannot be started.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", fork_server.__name__],
            stdin=theirs.fileno(),
            env={**os.environ, **FORKABLE, "PYTHONUNBUFFERED": "YES"},
        )
    return ForkServer(ours, process, process.pid)


def start(
    folder: Path,
    conf: Mapping[str, str],
    server: ForkServer | None = None,
    *,
    for_iceberg: bool = False,
) -> ForkServer | None:
    """Have the Spark of this process use a fork server.

    Args:
        folder: As for `ForkServer.listen`.
        conf: The Spark configuration of the run.
        server: One that idles; default is a new one. It is closed when it is not used.
        for_iceberg: As for `ForkServer.listen`.

    Returns:
        The server; `None`, with a line in the log, where Spark starts Python by itself.
    """
    reason = _reason_against(conf)
    if reason is None:
        try:
            server = server or started()
            launcher = str(server.listen(folder, for_iceberg=for_iceberg))
        except OSError as error:
            reason = str(error)
        else:
            # The JVM looks data sources up with the Python of the driver.
            os.environ["PYSPARK_PYTHON"] = launcher
            os.environ["PYSPARK_DRIVER_PYTHON"] = launcher
            return server
    if server is not None:
        server.close()
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
