"""How does a run come to the warm Spark of its machine?

It asks each one of its kind whether it takes the run; under a lock, it starts one where none does.
Whatever is wrong with one that is there, the run does not fail of it: a dead one is removed, a hung
one is ended, and where nothing helps the run gets a Spark of its own, with a line in the log.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Self

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    OptionError,
    SparkUnreachableError,
)
from airflow_cloudfiles.engine.job import start_conf
from airflow_cloudfiles.engine.job.connect.server import REMOTE
from airflow_cloudfiles.engine.job.fork_launcher import FORKED
from airflow_cloudfiles.engine.job.spark_command import LAUNCHED, LocalSpark
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.job.warm import wire
from airflow_cloudfiles.engine.job.warm.instances import (
    Instance,
    instances,
    new_instance,
    remove_dead,
    start_lock,
    write_private,
)
from airflow_cloudfiles.engine.job.warm.plan import Plan, plan_of
from airflow_cloudfiles.engine.locks.file_lock import FileLock
from airflow_cloudfiles.engine.options.table_stream import is_table
from airflow_cloudfiles.engine.spark.preload import FORKABLE

START_SECONDS = 120.0
"""How long a warm Spark may take until it forks; its JVM starts later."""
_POLL_SECONDS = 0.02
_NEEDED = ("grpc", "grpc_status", "zstandard", "pandas")
_PYTHON = "spark.pyspark.python"
_TAIL_CHARACTERS = 1000
_SERVER = "airflow_cloudfiles.engine.job.warm_server.server"


class Unavailable(Exception):  # noqa: N818 - it is no failure of the run
    """Why there is no warm Spark for a run."""


class WarmDriver:
    """The driver of a run, forked by a warm Spark; it ends when this process does.

    Args:
        connection: To the warm Spark, which has forked it.
        output: What the driver writes.
        pid: Process of the warm Spark.
    """

    def __init__(self, connection: socket.socket, output: int, pid: int) -> None:
        self._connection = connection
        self.stdout: IO[str] = os.fdopen(output, encoding="utf-8", errors="replace")
        self.pid = pid
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the end of the driver."""
        self.stdout.close()
        line = b""
        with contextlib.suppress(OSError):
            self._connection.settimeout(None)
            while not line.endswith(b"\n") and (more := self._connection.recv(64)):
                line += more
        self._connection.close()
        self.returncode = int(line) if line.strip() else -1

    def kill(self) -> None:
        """Have it ended: it is asked to, and killed some seconds later."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def lost(self) -> CloudFilesError | None:
        """Why it ended without a word, if the warm Spark did."""
        if self.returncode is None or self.returncode >= 0:
            return None
        return SparkUnreachableError(
            "The warm Spark of this machine ended under the run. What was committed stays; run "
            "again for the rest: the next run starts another."
        )


def begin(
    spec: JobSpec,
    how: LocalSpark,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    on_log: Callable[[str], object],
) -> WarmDriver | None:
    """Have a run's driver forked by a warm Spark.

    Args:
        spec: The run.
        how: Its Spark, with `keep_warm`.
        arguments: Those of its driver, behind Python.
        environment: That of its driver.
        on_log: Gets the line that says why there is none.

    Returns:
        The driver; `None` where the run needs a Spark of its own.

    Raises:
        OptionError: A bound of the warm Spark is no size, or no interval.
    """
    assert how.keep_warm is not None  # noqa: S101 - asked for by the caller
    try:
        _check(spec, environment)
        plan = plan_of(how.master, how.driver_memory, spec.spark_conf, environment)
        driver = _environment(environment)
        return _begun(plan, how.keep_warm.total_seconds(), arguments, driver)
    except OptionError:
        raise
    except (Unavailable, OSError, EOFError, ValueError, CloudFilesError) as error:
        on_log(f"No warm Spark takes this run, which starts one of its own: {error}")
        return None


def _check(spec: JobSpec, environment: Mapping[str, str]) -> None:
    """Find out what keeps a run from a warm Spark."""
    if not sys.platform.startswith("linux"):
        raise Unavailable(f"{sys.platform} does not let a process with frameworks loaded fork")
    if not start_conf.is_on(spec.spark_conf, start_conf.FORK_SERVER):
        raise Unavailable(f"{start_conf.FORK_SERVER} is false")
    if is_table(spec.format):  # not over Spark Connect: the server cannot keep its checkpoint
        raise Unavailable("its source is a Delta table")
    python = spec.spark_conf.get(_PYTHON, sys.executable)
    if python != sys.executable:
        raise Unavailable(f"{_PYTHON} is {python}")
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Unavailable(f"{', '.join(missing)} is not installed; install pyspark[connect]")
    if "JAVA_HOME" not in environment:
        raise Unavailable("JAVA_HOME is not known")


def _begun(
    plan: Plan, keep_seconds: float, arguments: Sequence[str], environment: Mapping[str, str]
) -> WarmDriver:
    """Find a warm Spark that takes the run, or start one."""
    request = {
        "kind": wire.RUN,
        "arguments": list(arguments),
        "environment": dict(environment),
        "folder": os.getcwd(),  # noqa: PTH109 - as the kernel names it
        "umask": plan.umask,
        "keep_seconds": keep_seconds,
    }
    if (driver := _taken(plan.key, request)) is not None:
        return driver
    lock = FileLock(start_lock())
    deadline = time.monotonic() + START_SECONDS
    while not lock.try_acquire():
        if time.monotonic() > deadline:
            raise Unavailable("another run has been starting one for too long")
        time.sleep(_POLL_SECONDS)
    try:
        if (driver := _taken(plan.key, request)) is not None:
            return driver
        remove_dead()
        _start(plan, keep_seconds)
        driver = _taken(plan.key, request)
    finally:
        lock.release()
    if driver is None:
        raise Unavailable("the one that was started does not take it")
    return driver


def _taken(key: str, request: Mapping[str, Any]) -> WarmDriver | None:
    """Have one of those that are there take a run."""
    for each in instances(key):
        if each.record() is not None and each.is_alive():
            with contextlib.suppress(ConnectionError):
                if (driver := _asked(each, request)) is not None:
                    return driver
    return None


def _asked(instance: Instance, request: Mapping[str, Any]) -> WarmDriver | None:
    """Ask one to take a run; one that does not answer is ended."""
    environment = {**request["environment"], wire.FOLDER: str(instance.folder)}
    output, written = os.pipe()
    connection = wire.connected(instance)
    pid = wire.peer(connection)
    try:
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - for its descriptor
            streams = (nothing.fileno(), written, written)
            wire.send(connection, {**request, "environment": environment}, streams)
        answer = connection.recv(1)
    except TimeoutError:
        end_hung(instance, pid)
        answer = b""
    finally:
        os.close(written)
    if answer == FORKED:
        return WarmDriver(connection, output, pid)
    connection.close()
    os.close(output)
    return None


def end_hung(instance: Instance, pid: int) -> None:
    """Kill one that does not answer; the kernel has said that the process is this user's.

    Its own children end with it, and so do theirs.
    """
    instance.remove_record()
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _start(plan: Plan, keep_seconds: float) -> None:
    """Start one, and wait until it takes runs."""
    instance = new_instance(plan.key)
    lock = instance.take_lock()
    ready, written = os.pipe()
    try:
        write_private(instance.settings, json.dumps(plan.settings()))
        command = [sys.executable, "-m", _SERVER, str(instance.folder)]
        with open(instance.log, "ab", opener=_private) as log:
            process = subprocess.Popen(
                [*command, str(lock), str(written), str(keep_seconds)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**plan.environment, **FORKABLE, "PYTHONUNBUFFERED": "1"},
                pass_fds=(lock, written),
                start_new_session=True,
            )
        process.wait()  # it goes on in a process that it has forked
    finally:
        os.close(lock)
        os.close(written)
    try:
        if not select.select([ready], [], [], START_SECONDS)[0]:
            raise Unavailable(f"none was ready within {START_SECONDS:g} seconds")
        if not os.read(ready, 1):
            said = instance.log.read_text(encoding="utf-8", errors="replace").strip()
            instance.remove()
            raise Unavailable(f"it has ended at its start: {said[-_TAIL_CHARACTERS:]}")
    finally:
        os.close(ready)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a driver that a warm Spark forks."""
    # Its address is not known yet; `WarmStart` asks for it.
    return {**environment, LAUNCHED: wire.WARM, REMOTE: "sc://localhost"}
