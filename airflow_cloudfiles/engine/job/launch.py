"""Start, follow and stop a run from outside Spark.

Operators and commands call `launch`: it stores the job specification in the state, starts the
driver in a process of its own under a supervisor (so that it dies with whoever started it), passes
on every line the driver prints, and reads the report. Importing this module imports no Spark.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from airflow_cloudfiles.engine.errors import (
    OptionError,
    RunError,
    RunFailedError,
    UnsupportedOptionError,
    from_record,
)
from airflow_cloudfiles.engine.job.batch_function import as_argument, python_path
from airflow_cloudfiles.engine.job.spark_command import (
    JOB_MODULE,
    DriverStart,
    LocalPython,
    LocalSpark,
    SparkConnect,
    SparkSubmit,
)
from airflow_cloudfiles.engine.job.spec import BESIDE, REPORT, SPEC, TRANSFORMS, JobSpec
from airflow_cloudfiles.engine.spark import handoff
from airflow_cloudfiles.engine.spark.preload import ALLOCATOR
from airflow_cloudfiles.engine.state import run_history
from airflow_cloudfiles.engine.storage import (
    normalize_uri,
    open_store,
)
from airflow_cloudfiles.engine.storage.access import (
    Access,
    to_environment,
)
from airflow_cloudfiles.engine.storage.base import key_bytes
from airflow_cloudfiles.engine.storage.fetched_ahead import side_by_side
from airflow_cloudfiles.engine.storage.identities import ServedIdentity
from airflow_cloudfiles.engine.storage.outage import reaching_state

__all__ = [
    "JobSpec",
    "LocalPython",
    "LocalSpark",
    "Run",
    "SparkConnect",
    "SparkSubmit",
    "launch",
]

_SPARK_REMOTE = "SPARK_REMOTE"
"""With it in its environment, the PySpark of a driver would use that server instead of a JVM."""
TAIL_LINES = 60
"""How many of the driver's last lines an error without a report shows."""


class Run:
    """A run that was started; `wait` for it, or `kill` it.

    Attributes:
        report: What it has reported, also where it failed; `None` until it has.
    """

    def __init__(
        self,
        process: subprocess.Popen[str],
        on_log: Callable[[str], None],
        read_report: Callable[[], dict[str, Any] | None],
        handed: ExitStack,
    ) -> None:
        self._take_back = weakref.finalize(self, handed.close)
        self._read_report = read_report
        self._process = process
        self._on_log = on_log
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._killed = False
        self.report: Mapping[str, Any] | None = None
        """What the run has left, once it has ended; also when it failed."""

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        return self._process.pid

    def wait(self) -> dict[str, Any]:
        """Pass on the driver's lines until it ends, and return its report.

        The `outcome` in it is `succeeded`; or `left`, when the run was allowed to leave its query
        on a server (`JobSpec.leave_after_seconds`), which `query` then names.

        Raises:
            CloudFilesError: What the run failed with; `RunFailedError` with the last lines when
                it left no report.
        """
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        with self._process:
            for line in self._process.stdout:
                self._tail.append(line.rstrip("\n"))
                self._on_log(line.rstrip("\n"))
        code = self._process.returncode
        report = self._read_report()
        self._take_back()
        self.report = report
        if report is None:
            how = "was killed" if self._killed else f"ended with exit code {code}"
            tail = "\n".join(self._tail)
            raise RunFailedError(
                f"The Spark driver {how} before it wrote a report. Nothing is lost: run again. "
                f"Its last lines were:\n{tail}"
            )
        if report.get("outcome") not in {"succeeded", "left"}:
            raise from_record(report.get("error", {}))
        return report

    def kill(self) -> None:
        """End the driver and everything it started; harmless when it has ended."""
        self._killed = True
        if self._process.stdin is not None:  # its supervisor ends the driver then
            self._process.stdin.close()


def launch(
    spec: JobSpec, how: DriverStart, *, on_log: Callable[[str], None], access: Access | None = None
) -> Run:
    """Start a run.

    Args:
        spec: What to do.
        how: `LocalSpark`, `SparkSubmit`, `SparkConnect` or `LocalPython`.
        on_log: Called with every line the driver prints, in the thread that calls `wait`.
        access: How source, state and target are reached, for this process and for the driver,
            which gets it in its environment, and asks this process for credentials that end. The
            executors of a cluster, and a driver that is deployed there, have an identity of their
            own. `None`: the environment's own chain.

    Raises:
        StateUnreachableError: The store of the checkpoint location does not answer.
        StateError: The checkpoint location cannot be written.
        OptionError: The run is to leave its query where no server keeps it.
        JavaNotFoundError: There is no Java 17 or newer for a local Spark.
        RunError: PySpark is missing or damaged, or the command cannot be started.
    """
    if spec.leave_after_seconds is not None and not isinstance(how, SparkConnect):
        raise OptionError("Only a run on a Spark Connect server can leave its query there.")
    if spec.transform is not None:
        _check_transform(how)
    store = open_store(spec.checkpoint_location, access)
    command = how.command(normalize_uri(spec.checkpoint_location), spec.run_id)
    if spec.transform is not None and _is_elsewhere(how):
        command.append(as_argument(spec.transform))
    environment = {**ALLOCATOR, **os.environ, **how.environment(), "PYTHONUNBUFFERED": "1"}
    environment["PYTHONUTF8"] = "1"  # the names of files are, whatever the locale
    environment.pop(_SPARK_REMOTE, None)
    if spec.transform is not None and not _is_elsewhere(how):
        environment |= {TRANSFORMS: "1", "PYTHONPATH": python_path()}
    with reaching_state(store):
        side_by_side(
            store,
            lambda: store.delete(spec.report_key),
            lambda: store.put(spec.spec_key, spec.sealed()),
        )
    with ExitStack() as handed:
        folder, given = _hand_over(spec, access, handed)
        environment[BESIDE] = folder
        if given is not None:
            environment |= to_environment(given)
        driver = _supervised(command, environment)

        def report() -> dict[str, Any] | None:
            beside = handoff.take(f"{folder}/{REPORT}")
            return beside or run_history.read_report(store, spec.run_id)

        return Run(driver, on_log, report, handed.pop_all())


def _check_transform(how: DriverStart) -> None:
    """Refuse a function where Spark would not call it in the driver.

    Raises:
        UnsupportedOptionError: It would not.
    """
    if isinstance(how, SparkConnect):
        raise UnsupportedOptionError(
            "A function over micro-batches (transform) does not work over Spark Connect in this "
            "version: use a local Spark, or spark-submit."
        )


def _is_elsewhere(how: DriverStart) -> bool:
    """Is the driver not on this machine?"""
    return isinstance(how, SparkSubmit) and how.deploy_mode == "cluster"


def _hand_over(
    spec: JobSpec, access: Access | None, handed: ExitStack
) -> tuple[str, Access | None]:
    """Write a specification into a temporary folder for the driver, and answer for an identity.

    Args:
        spec: The run.
        access: How its locations are reached.
        handed: Gets what takes both back.

    Returns:
        The folder, which takes the report, too; and the access that the driver gets, who asks this
        process for credentials.

    Raises:
        RunFailedError: That cannot be written.
    """
    try:
        folder = tempfile.mkdtemp(prefix="airflow-cloudfiles-")
        handed.callback(shutil.rmtree, folder, ignore_errors=True)
        handoff.put(f"{folder}/{SPEC}", json.loads(spec.to_json()))
        if access is None or not access.identity:
            return folder, access
        served = ServedIdentity(access.identity)
        handed.callback(served.close)
    except OSError as failure:
        raise RunFailedError(
            f"The temporary folder cannot be written: {failure}. Free space in it, or set TMPDIR "
            "to a folder of this user, and run again."
        ) from failure
    return folder, replace(access, identity=served.path)


def _supervised(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a driver in a process of its own, which ends when this one does."""
    try:
        return subprocess.Popen(
            [sys.executable, "-m", f"{JOB_MODULE}.supervisor", "--", *map(key_bytes, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise RunError(f"{command[0]} cannot be started: {error}.") from error
