"""Follow what runs in a process of its own: a job of a stream, or work on a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.extensions.table_run import TableRun
from airflow_cloudfiles.hooks.job_log import JobLog
from airflow_cloudfiles.hooks.observability.links import ReportLink
from airflow_cloudfiles.hooks.rendering import TextArguments
from airflow_cloudfiles.hooks.stream_task import StreamTask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_cloudfiles.engine.extensions.cluster.submitted_run import FollowedRun
    from airflow_cloudfiles.engine.extensions.table_run import Action
    from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook


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
    """Base of the operators that do something to a table, or for one, beside the task."""

    ui_color = "#e3e0f2"
    _run: TableRun | None = None

    def run_beside(
        self, action: Action, given: Mapping[str, Any], hook: CloudFilesHook
    ) -> dict[str, Any]:
        """Run it to its end, with its log in the task's; gives its report.

        Args:
            action: What to do.
            given: To what, and how.
            hook: Of the task.
        """
        self._run = TableRun(action, given, access=hook.access)
        return self._run.wait(lambda line: self.log.info("%s", line))

    def on_kill(self) -> None:
        """End the process; what it has done stays, and a repeated task does what is left."""
        if self._run is not None:
            self._run.kill()
