"""A real Spark driver in a process of its own, killed where a test says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from airflow_cloudfiles.engine.crashpoints import CRASH_AT
from airflow_cloudfiles.engine.job.launch import LocalSpark
from airflow_cloudfiles.engine.job.spark_command import DriverStart
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.storage import open_store
from tests.support.jvm_classes import keep_classes

RUN_SECONDS = 900  # ends a run that hangs; a busy machine takes minutes for one
# Before the first commit of anything; each point of discovering, planning, reading, committing.
TOUR = (
    "after-listing",
    "after-dedupe",
    "before-file-log-append",
    "after-file-log-append",
    "before-plan-append",
    "after-plan-append",
    "after-spark-offset",
    "before-read",
    "after-data-files",
    "before-sink-commit",
    "after-sink-commit",
    "after-sink-record",
    "after-spark-commit",
)


class Driver:
    """Runs one stream again and again, as a scheduler that never gives up would.

    Attributes:
        how: What carries the tasks of the next runs.
    """

    def __init__(self, folder: Path, **options: str) -> None:
        self.source, self.state, self.target = (folder / n for n in ("in", "state", "table"))
        self.source.mkdir(exist_ok=True)
        self.options = options
        self.runs = 0
        self.how: DriverStart = LocalSpark(master="local[2]")

    def run(self, crash_at: str | None = None) -> tuple[int, dict[str, Any] | None]:
        """Run once; return the exit code (-9 when killed) and the report, if there is one."""
        process = self.start(crash_at)
        output, _ = process.communicate(timeout=RUN_SECONDS)
        self.log = output
        return process.returncode, self.report()

    def spec(self, **more: Any) -> JobSpec:
        """What the next run is told."""
        self.runs += 1
        self.run_id = f"run-{self.runs}"
        given: dict[str, Any] = {
            "kind": "ingest",
            "source": str(self.source),
            "format": "json",
            "checkpoint_location": str(self.state),
            "target": str(self.target),
            "run_id": self.run_id,
            "options": self.options,
        }
        return JobSpec(**(given | more))

    def start(self, crash_at: str | None = None) -> subprocess.Popen[str]:
        """Start a run without waiting for it."""
        spec = self.spec()
        open_store(str(self.state)).put(spec.spec_key, spec.sealed())
        return self.begun(self.how, {}, crash_at)

    def begun(
        self, how: DriverStart, more: dict[str, str], crash_at: str | None
    ) -> subprocess.Popen[str]:
        """Start the driver of a run whose specification it finds."""
        if isinstance(how, LocalSpark):
            keep_classes()
        env = {**os.environ, **how.environment(), **more}
        env.pop(CRASH_AT, None)
        if crash_at:
            env[CRASH_AT] = crash_at
        command = how.command(str(self.state), self.run_id)
        assert command[0] == sys.executable
        return subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def report(self) -> dict[str, Any] | None:
        """The report of the last run."""
        path = self.state / "_reports" / f"{self.run_id}.json"
        if not path.exists():
            return None
        loaded: dict[str, Any] = json.loads(path.read_text())
        return loaded

    def killed_at(self, point: str) -> None:
        """Run, and be killed at a point; it is an error when the run does not get there."""
        code, report = self.run(point)
        end = self.log[-3000:]
        assert code == -signal.SIGKILL, f"{point} was not reached: {code}, {report}\n{end}"
