"""Remove or move files that are in the table, as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.messages import counted, plural
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.task import run_id_of, task_errors
from airflow_cloudfiles.operators.job import JobTask

if TYPE_CHECKING:
    from typing import Unpack

    from airflow.providers.common.compat.sdk import Context

    from airflow_cloudfiles.hooks.keywords import ReconcileKeywords


_TOLD = ("mode", "is_dry_run", "files", "bytes", "others", "examples", "is_complete", "warnings")
"""What of the report is returned."""


class CloudFilesCleanOperator(JobTask):
    """Remove or move files of the source that are committed and due (`cloudFiles.cleanSource`).

    A run that ingests cleans by itself, for a minute at most. This task cleans at a time of its
    own, also when nothing new has arrived. It may be killed and repeated, and waits for the end of
    a run that is at work, as far as retries do: then it fails with a retryable error.

    It starts no Spark, but a process of its own beside the task, which needs the extras `spark`
    and `delta`.

    Args:
        is_dry_run: Whether only to tell what would be removed or moved. Default: `False`.
        trust_checkpoint: For a query of your own that writes no table: what Spark has committed is
            taken to be where it belongs. Default: `False`.
        txn_app_id: The `txnAppId` with which a query of your own writes to the table, if it is not
            the default. (templated)
        kwargs: The arguments of `StreamTask`. `options` say what to do with
            `cloudFiles.cleanSource` and its options. Without `target` the state names the table.

    Returns:
        XCom: what was done: `mode`, `is_dry_run`, `files`, `bytes`, `others` (files that stay, by
        the reason), `examples` of these, `is_complete`, `warnings`.
    """

    template_fields = (*JobTask.template_fields, "txn_app_id")
    ui_color = "#e3e0f2"

    def __init__(
        self,
        *,
        is_dry_run: bool = False,
        trust_checkpoint: bool = False,
        txn_app_id: str | None = None,
        **kwargs: Unpack[ReconcileKeywords],
    ) -> None:
        super().__init__(**kwargs)
        self.is_dry_run = is_dry_run
        self.trust_checkpoint = trust_checkpoint
        self.txn_app_id = txn_app_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Clean and return what was done."""
        hook = CloudFilesHook(self.conn_id)
        with task_errors():
            run = hook.clean(
                self.stream_arguments(),
                run_id=run_id_of(context),
                on_log=self.log_line,
                dry_run=self.is_dry_run,
                trust_checkpoint=self.trust_checkpoint,
                app_id=self.txn_app_id,
            )
            report = self.follow(run)
        for warning in report["warnings"]:
            self.log.warning("%s", warning)
        done = "would be" if self.is_dry_run else plural(report["files"], "was", "were")
        files, size = report["files"], counted(report["bytes"], "byte")
        self.log.info("%s of %s %s cleaned.", counted(files, "file"), size, done)
        return {name: report[name] for name in _TOLD}
