"""Keep the files of a Delta table in shape, as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.messages import counted, plural
from airflow_cloudfiles.engine.options.values import size
from airflow_cloudfiles.hooks.observability.links import TableLink
from airflow_cloudfiles.hooks.task import task_errors
from airflow_cloudfiles.operators.job import TableTask

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from typing import Unpack

    from airflow.providers.common.compat.sdk import Context

    from airflow_cloudfiles.hooks.keywords import TableKeywords

_SHOWN: Final = 20
"""Files that the log of a task names."""


class CloudFilesOptimizeTableOperator(TableTask):
    """Write the small data files of a Delta table together, or all of its files anew.

    It may run while streams write to the table, and be killed and repeated: no row changes. It
    starts no Spark, but a process of its own beside the task, which needs the extras `spark` and
    `delta`.

    Args:
        target: Path or URI of the table. (templated)
        all_files: Whether files of the target size are written anew, too.
        target_size: Size of a file, such as `128m`; default: `delta.targetFileSize` of the table,
            or else 256 MiB on a disk and 64 MiB in a cloud. (templated)
        kwargs: The arguments of `TableTask`.

    Returns:
        XCom: `version`, `target_bytes`, `removed_files`, `removed_bytes`, `added_files`,
        `added_bytes`, `skipped_groups`: groups of files that another writer has replaced meanwhile.
    """

    template_fields: Sequence[str] = ("target", "target_size")
    operator_extra_links = (TableLink(),)

    def __init__(
        self,
        *,
        target: str,
        all_files: bool = False,
        target_size: str | None = None,
        **kwargs: Unpack[TableKeywords],
    ) -> None:
        super().__init__(target=target, **kwargs)
        self.all_files = all_files
        self.target_size = target_size

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        """Optimize and return the report."""
        with task_errors():
            asked = None if not self.target_size else size.read("target_size", self.target_size)
            report = self.run_beside("optimize", all_files=self.all_files, target_bytes=asked)
        removed, added = report["removed_files"], report["added_files"]
        self.log.info(
            "%s %s %s now.", counted(removed, "file"), plural(removed, "is", "are"), added
        )
        return report


class CloudFilesVacuumTableOperator(TableTask):
    """Remove the files of a Delta table that no version within a retention names.

    By default it only reports them: `delete=True` removes them. It may run while others read and
    write the table, and be killed and repeated. It starts no Spark, but a process of its own beside
    the task, which needs the extras `spark` and `delta`.

    Args:
        target: Path or URI of the table. (templated)
        retention: How far back versions stay readable; default: the table's own
            (`delta.deletedFileRetentionDuration`, a week unless that is set).
        delete: Whether the files are removed; otherwise they are only counted. Default: `False`.
        allow_short_retention: Whether the retention may be shorter than the table's own. Queries of
            older versions and running tasks can lose their files then. Default: `False`.
        kwargs: The arguments of `TableTask`.

    Returns:
        XCom: `version`, `retention_hours`, `removed`, `files`, `bytes`, `data_files`,
        `deletion_vectors`, `change_data`, `staged_rows`, `unnamed_but_young`, `nested_tables`, as
        `cloudfiles table vacuum` reports them. The names of the first files are in the task's log.
    """

    template_fields: Sequence[str] = ("target",)
    operator_extra_links = (TableLink(),)

    def __init__(
        self,
        *,
        target: str,
        retention: timedelta | None = None,
        delete: bool = False,
        allow_short_retention: bool = False,
        **kwargs: Unpack[TableKeywords],
    ) -> None:
        super().__init__(target=target, **kwargs)
        self.retention = retention
        self.delete = delete
        self.allow_short_retention = allow_short_retention

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002 - Airflow's signature
        """Vacuum and return the report."""
        hours = None if self.retention is None else self.retention.total_seconds() / 3600
        with task_errors():
            report = self.run_beside(
                "vacuum",
                retention_hours=hours,
                dry_run=not self.delete,
                allow_short_retention=self.allow_short_retention,
            )
        paths = report.pop("paths")  # may be too many for the database
        for path in paths[:_SHOWN]:
            self.log.info("%s", path)
        done = plural(len(paths), "was", "were") if self.delete else "would be"
        hint = "" if self.delete else " with delete=True"
        self.log.info("%s %s removed%s.", counted(len(paths), "file"), done, hint)
        return report
