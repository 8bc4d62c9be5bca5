"""Ingest single files again, leave them out, put them aside or forget them, as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.hooks.arguments import as_text
from airflow_cloudfiles.hooks.stream_task import REQUIRED
from airflow_cloudfiles.hooks.task import run_id_of, task_errors
from airflow_cloudfiles.operators.job import TableTask

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_cloudfiles.engine.state.operations import Action
    from airflow_cloudfiles.hooks.keywords import Location, TableKeywords

_SHOWN: Final = 20
"""Files that the report of a task names; its log names all."""


class CloudFilesFileOperator(TableTask):
    """Have files of a stream ingested again, left out, put aside, or forgotten.

    It is done to all of the files or to none, once in a DAG run however often the task is tried,
    and may be killed at any moment. The next run of the stream acts on it. No run may be at work:
    the task fails then, and its retry helps. It starts no Spark, but a process of its own beside
    the task, which needs the extras `spark` and `delta`.

    Args:
        action: `replay`: the files are ingested again, and their former rows are removed in the
            same commit. `skip`: they were not ingested yet, and never are. `quarantine`: as `skip`,
            until they are released; also in the midst of a batch that fails. `release`: what was
            skipped or quarantined is ingested. `forget`: the stream does not know them any more.
            (templated)
        paths: Of the files, one or a list: relative to the source, or URIs; written exactly as they
            are named. (templated)
        checkpoint_location: Path or URI of the state. (templated)
        reason: Why, for people. (templated)
        pattern: Whether the paths are patterns or folders, and mean the files to which the action
            applies. Default: `False`.
        append: Of a replay: former rows stay, so they are there twice. Default: `False`.
        target: The table, where no run of a job has written it. (templated)
        path_column: Of a replay: the column of the table that has the URI of a row's file; default:
            what `cloudFiles.metadataColumns` says. (templated)
        is_dry_run: Whether it is only looked what would be done. Default: `False`.
        kwargs: The arguments of `TableTask`.

    Returns:
        XCom: `action`, how many files were changed (`changed`), the first of them (`files`), how
        many had nothing left to do (`unchanged`), `entries` of the file log, `is_dry_run`,
        `warnings`.
    """

    template_fields: Sequence[str] = (
        "action",
        "paths",
        "checkpoint_location",
        "reason",
        "target",
        "path_column",
    )
    text_fields = ("checkpoint_location", "reason", "target", "path_column")

    def __init__(  # noqa: PLR0913 - a task's arguments are its interface
        self,
        *,
        action: Action,
        paths: str | Sequence[str] | XComArg,
        checkpoint_location: Location = REQUIRED,
        reason: str = "",
        pattern: bool = False,
        append: bool = False,
        target: Location | None = None,
        path_column: str | None = None,
        is_dry_run: bool = False,
        **kwargs: Unpack[TableKeywords],
    ) -> None:
        super().__init__(target=target, **kwargs)
        self.action = action
        self.paths = paths
        self.checkpoint_location = as_text(checkpoint_location)
        self.reason = reason
        self.pattern = pattern
        self.append = append
        self.path_column = path_column
        self.is_dry_run = is_dry_run

    def execute(self, context: Context) -> dict[str, Any]:
        """Do it and return the report."""
        as_given = ("checkpoint_location", "paths", "reason", "pattern", "append", "path_column")
        given: dict[str, Any] = {name: getattr(self, name) for name in as_given}
        given["action"], given["dry_run"] = self.action, self.is_dry_run
        # Of all tries, so that a repeated one does nothing more.
        given["operation_id"] = run_id_of(context, try_number=0)
        with task_errors():
            report = self.run_beside("operate", **given)
        files, unchanged = report["files"], report["unchanged"]
        for path in files:
            self.log.info("%s: %s", self.action, path)
        for path, why in unchanged.items():
            self.log.info("%s is left as it is: %s", path, why)
        for warning in report["warnings"]:
            self.log.warning("%s", warning)
        # All of them may be too many for the database.
        return {
            **report,
            "changed": len(files),
            "files": files[:_SHOWN],
            "unchanged": len(unchanged),
        }
