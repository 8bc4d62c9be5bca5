"""Turn what was rescued into a column, as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.stream_task import REQUIRED
from airflow_cloudfiles.hooks.task import run_id_of, task_errors
from airflow_cloudfiles.operators.job import JobTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_cloudfiles.hooks.keywords import Location, StreamKeywords


class CloudFilesPromoteOperator(JobTask):
    """Turn fields of the rescued data of a table into columns, and fill them.

    The table and the schema log get the columns; rows that have the fields in their rescued data
    get the values, as far as they fit, and only the data files of such rows are replaced. It may
    run while the stream does, and be killed and repeated: each value ends up in one place.

    It starts no Spark, but a process of its own beside the task, which needs the extras `spark`
    and `delta`.

    Args:
        fields: Dotted paths of fields of the rescued data, each with a type in DDL or `None` to
            have it inferred from the rescued values: `{"user.zip": "STRING", "price": None}`; or a
            list of paths. (templated)
        kwargs: The arguments of `StreamTask`; `target` is required.

    Returns:
        XCom: the report: `columns` with their types, `rows` that changed, `values` by field
        (`promoted`, `partly`, `unfit`, `occupied`), `files_rewritten`, `schema_version`,
        `target_version`, `warnings`.
    """

    template_fields: Sequence[str] = (*JobTask.template_fields, "fields")
    template_fields_renderers = {"options": "json", "fields": "json"}  # noqa: RUF012 - as Airflow
    ui_color = "#e3e0f2"

    def __init__(
        self,
        *,
        fields: Mapping[str, str | None] | Sequence[str] | XComArg,
        target: Location = REQUIRED,
        **kwargs: Unpack[StreamKeywords],
    ) -> None:
        super().__init__(target=target, **kwargs)
        # as soon as it is rendered
        self.fields = cast("Mapping[str, str | None] | Sequence[str]", fields)

    def execute(self, context: Context) -> dict[str, Any]:
        """Promote and return the report."""
        hook = CloudFilesHook(self.conn_id)
        with task_errors():
            run = hook.promote(
                self.stream_arguments(),
                self.fields,
                run_id=run_id_of(context),
                on_log=self.log_line,
            )
            report = self.follow(run)
        for name, values in report["values"].items():
            self.log.info("%s: %s", name, ", ".join(f"{n} {what}" for what, n in values.items()))
        for warning in report["warnings"]:
            self.log.warning("%s", warning)
        self.log.info(
            "%s changed in %s: table version %s.",
            counted(report["rows"], "row"),
            counted(report["files_rewritten"], "file"),
            report["target_version"],
        )
        return report
