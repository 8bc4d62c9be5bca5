"""How is a run started, followed and stopped from outside Spark?

Operators and commands call `launch`: it stores the job specification in the state, starts the
driver in a process of its own under a supervisor (so that it dies with whoever started it), passes
on every line the driver prints, and reads the report. Importing this module imports no Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from airflow_cloudfiles.engine.errors import RunError, RunFailedError, from_record
from airflow_cloudfiles.engine.job.spark_command import (
    JOB_MODULE,
    How,
    LocalPython,
    LocalSpark,
    SparkSubmit,
)
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.storage import (
    ObjectNotFoundError,
    ObjectStore,
    normalize_uri,
    open_store,
)
from airflow_cloudfiles.engine.storage.access import Access, to_environment
from airflow_cloudfiles.engine.storage.outage import reaching_state

__all__ = ["JobSpec", "LocalPython", "LocalSpark", "Run", "SparkSubmit", "launch"]

TAIL_LINES = 60
"""How many of the driver's last lines an error without a report shows."""


class Run:
    """A run that was started; `wait` for it, or `kill` it."""

    def __init__(
        self,
        spec: JobSpec,
        process: subprocess.Popen[str],
        on_log: Callable[[str], None],
        state: ObjectStore,
    ) -> None:
        self._spec = spec
        self._state = state
        self._process = process
        self._on_log = on_log
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._killed = False

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        return self._process.pid

    def wait(self) -> dict[str, Any]:
        """Pass on the driver's lines until it ends, and return its report.

        Raises:
            CloudFilesError: What the run failed with; `RunFailedError` with the last lines when
                it left no report.
        """
        with self._process:
            for line in self._process.stdout or ():
                self._tail.append(line.rstrip("\n"))
                self._on_log(line.rstrip("\n"))
        code = self._process.returncode
        report = self._report()
        if report is None:
            how = "was killed" if self._killed else f"ended with exit code {code}"
            tail = "\n".join(self._tail)
            raise RunFailedError(
                f"The Spark driver {how} before it wrote a report. Nothing is lost: run again. "
                f"Its last lines were:\n{tail}"
            )
        if report.get("outcome") != "succeeded":
            raise from_record(report.get("error", {}))
        return report

    def kill(self) -> None:
        """End the driver and everything it started; harmless when it has ended."""
        self._killed = True
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _report(self) -> dict[str, Any] | None:
        try:
            with reaching_state(self._state):
                content = self._state.get(self._spec.report_key)
        except ObjectNotFoundError:
            return None
        loaded: dict[str, Any] = json.loads(content)
        return loaded


def launch(
    spec: JobSpec, how: How, *, on_log: Callable[[str], None], access: Access | None = None
) -> Run:
    """Start a run.

    Args:
        spec: What to do.
        how: `LocalSpark`, `SparkSubmit` or `LocalPython`.
        on_log: Called with every line the driver prints, in the thread that calls `wait`.
        access: How source, state and target are reached, for this process and for the driver,
            which gets it in its environment. The executors of a cluster, and a driver that is
            deployed there, have an identity of their own. `None`: the environment's own chain.

    Raises:
        StateUnreachableError: The store of the checkpoint location does not answer.
        StateError: The checkpoint location cannot be written.
        JavaNotFoundError: There is no Java 17 or newer for a local Spark.
        RunError: PySpark is missing or damaged, or the command cannot be started.
    """
    store = open_store(spec.checkpoint_location, access)
    command = how.command(normalize_uri(spec.checkpoint_location), spec.run_id)
    environment = {**os.environ, **how.environment(), "PYTHONUNBUFFERED": "1"}
    if access is not None:
        environment |= to_environment(access)
    with reaching_state(store):
        store.delete(spec.report_key)
        store.put(spec.spec_key, spec.to_json().encode())
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", f"{JOB_MODULE}.supervisor", "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise RunError(f"{command[0]} cannot be started: {error}.") from error
    return Run(spec, process, on_log, store)
