"""Follow what runs in a process of its own: a job of a stream, or work on a table."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.extensions.table_run import TableRun
from airflow_cloudfiles.engine.spark.preload import is_banner
from airflow_cloudfiles.hooks.arguments import as_text
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.observability.links import ReportLink
from airflow_cloudfiles.hooks.stream_task import StreamTask, TextArguments
from airflow_cloudfiles.hooks.task import DEFAULT_RETRIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk.types import Logger

    from airflow_cloudfiles.engine.extensions.cluster.submitted_run import FollowedRun
    from airflow_cloudfiles.engine.extensions.table_run import Action
    from airflow_cloudfiles.hooks.keywords import Location

_LEVELS: Final = logging.getLevelNamesMapping()
_HEAD: Final = re.compile(
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}|\d\d/\d\d/\d\d \d\d:\d\d:\d\d) "
    rf"({'|'.join(sorted(_LEVELS, key=len, reverse=True))}) ([^\s:]+): (.*)"
)
_OWN: Final = "airflow_cloudfiles."


class JobLog:
    """Makes lines of a job's log entries of the task's, at their own levels.

    A job writes `time LEVEL name: message`, its JVM `time LEVEL class: message`. Airflow's log has
    the time itself, so only level and message are passed on. A line without such a head, as a stack
    trace has many, continues the entry before it.

    Args:
        log: Where they go.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._level = logging.INFO

    def write(self, line: str) -> None:
        """Pass a line on at its level; what every Spark prints at its start is only for DEBUG."""
        if is_banner(line):
            self._log.debug("%s", line)
            return
        head = _HEAD.match(line)
        if head is None:
            self._log.log(self._level, "%s", line)
            return
        level, name, message = head.groups()
        self._level = _LEVELS[level]
        if name.startswith(_OWN):
            self._log.log(self._level, "%s", message)
        else:
            self._log.log(self._level, "%s: %s", name, message)


class JobTask(StreamTask):
    """Base of the operators that start a job: its log is the task's, and its end too.

    Args:
        kwargs: The arguments of `StreamTask`.
    """

    operator_extra_links = (*StreamTask.operator_extra_links, ReportLink())

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._run: FollowedRun | None = None
        self._job_log: JobLog | None = None

    def follow(self, run: FollowedRun) -> dict[str, Any]:
        """Wait for a job that was started with `log_line`.

        Returns:
            Its report.

        Raises:
            CloudFilesError: The job failed.
        """
        self._run = run
        return run.wait()

    @property
    def run_report(self) -> Mapping[str, Any] | None:
        """What the job of this try has reported, also when it failed; `None` before its end."""
        return None if self._run is None else self._run.report

    def on_kill(self) -> None:
        """End the job, with every process it started."""
        if self._run is not None:
            self._run.kill()

    def log_line(self, line: str) -> None:
        """Write a line of the job's log into the task's, at its level."""
        if self._job_log is None:
            self._job_log = JobLog(self.log)
        self._job_log.write(line)


class TableTask(TextArguments):
    """Base of the operators that do something to a table, or for one, beside the task.

    Args:
        target: Path or URI of the table.
        conn_id: Connection of AWS, Azure or Google Cloud, or of type *File (path)*: relative
            locations are below its path.
        retries: As of every Airflow task, but 3 by default.
        kwargs: Airflow's own arguments of an operator.
    """

    ui_color = "#e3e0f2"
    _run: TableRun | None = None

    def __init__(
        self,
        *,
        target: Location | None,
        conn_id: str | None = None,
        retries: int = DEFAULT_RETRIES,
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, **kwargs)
        self.target = None if target is None else as_text(target)
        self.conn_id = conn_id

    def run_beside(self, action: Action, /, **given: Any) -> dict[str, Any]:
        """Run it to its end, with its log in the task's; gives its report.

        Args:
            action: What to do.
            given: Further arguments of the function that does it, besides `target`.
        """
        hook = CloudFilesHook(self.conn_id)
        if "checkpoint_location" in given:
            given["checkpoint_location"] = hook.absolute(given["checkpoint_location"])
        given["target"] = None if self.target is None else hook.absolute(self.target)
        self._run = TableRun(action, given, access=hook.access)
        return self._run.wait(lambda line: self.log.info("%s", line))

    def on_kill(self) -> None:
        """End the process; what it has done stays, and a repeated task does what is left."""
        if self._run is not None:
            self._run.kill()
