"""Run a job for a command.

In a process of its own, whose log goes on to the log of the command as it comes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from airflow_cloudfiles.commands.running.outcome import Outcome, as_text
from airflow_cloudfiles.engine.errors import CloudFilesError, with_code
from airflow_cloudfiles.engine.job.launch import LocalPython, launch
from airflow_cloudfiles.engine.job.spark_command import DriverStart
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.spark.preload import is_banner
from airflow_cloudfiles.engine.storage.access import ENVIRONMENT, from_environment

_log = logging.getLogger(__name__)

_ERROR = " ERROR airflow_cloudfiles.engine.job.run: "
"""Begins the error that ends a job, in its log."""


def run_job(spec: JobSpec, shown: Sequence[str], how: DriverStart | None = None) -> Outcome:
    """Run a job to its end.

    Args:
        spec: What to do.
        shown: What of its report is written for people, as far as it has it; programs get all.
        how: Where it runs; `None` for a process without Spark.

    Raises:
        CloudFilesError: What it failed with; not in the log, since the command writes it itself.
    """
    lines = _LogLines()
    # Whoever is asked for credentials (`--conn-id`) is in this process: the job's asks through it.
    access = from_environment() if ENVIRONMENT in os.environ else None
    run = launch(spec, how or LocalPython(), on_log=lines.add, access=access)
    try:
        report = run.wait()
    except CloudFilesError as failure:
        lines.end(with_code(failure))
        raise
    lines.end()
    return Outcome(report, as_text({name: report[name] for name in shown if name in report}))


class _LogLines:
    """What the process logs, but for the error it ends with: the command writes that itself."""

    def __init__(self) -> None:
        self._held: list[str] = []

    def add(self, line: str) -> None:
        """Pass a line on, or hold it back from the error on."""
        if self._held or _ERROR in line:
            self._held.append(line)
        elif is_banner(line):
            _log.debug("%s", line)
        else:
            _log.info("%s", line)

    def end(self, error: str = "") -> None:
        """Pass on what was held back, such as a traceback, without the error itself."""
        held = "\n".join(self._held)
        for line in (held.partition(error)[2] if error and error in held else held).splitlines():
            if line:
                _log.info("%s", line)
