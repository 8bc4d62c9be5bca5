"""How does a task turn what was rescued into a column?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_cloudfiles.hooks.arguments import StreamArguments, check_at_parse
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.task import run_id_of, set_retry_defaults, task_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.providers.common.compat.sdk import Context

    from airflow_cloudfiles.engine.job.launch import Run


class CloudFilesPromoteOperator(BaseOperator):
    """Turn fields of the rescued data of a table into columns, and fill them.

    The table and the schema log get the columns; rows that have the fields in their rescued data
    get the values, as far as they fit, and only the data files of such rows are replaced. It may
    run while the stream does, and be killed and repeated: each value ends up in one place.

    It starts no Spark, but a process of its own beside the task, which needs the extras `spark`
    and `delta`.

    Args:
        source: Path or URI of the folder the files land in, as the stream has it. (templated)
        format: The format of the files, for instance `json`.
        checkpoint_location: Where the state of the stream lives. (templated)
        target: The table. (templated)
        fields: Dotted paths of fields of the rescued data, each with a type in DDL or `None` to
            have it inferred from the rescued values: `{"user.zip": "STRING", "price": None}`; or a
            list of paths. (templated)
        schema_location: Where the schema log lives; the checkpoint location when left out.
            (templated)
        options: The options of the stream, under Auto Loader's names. (templated)
        conn_id: Connection that says how the cloud is reached, or where relative locations begin.
        kwargs: Airflow's own arguments of an operator. `retries` is 3 unless you say otherwise.

    Returns:
        XCom: the report: `columns` with their types, `rows` that changed, `values` by field
        (`promoted`, `partly`, `unfit`, `occupied`), `files_rewritten`, `schema_version`,
        `target_version`, `warnings`.
    """

    template_fields: Sequence[str] = (
        "source",
        "checkpoint_location",
        "schema_location",
        "target",
        "options",
        "fields",
    )
    template_fields_renderers = {"options": "json", "fields": "json"}  # noqa: RUF012 - as Airflow
    ui_color = "#e3e0f2"

    def __init__(  # noqa: PLR0913 - a task's arguments are its interface
        self,
        *,
        source: str,
        format: str,  # noqa: A002 - Spark's word
        checkpoint_location: str,
        target: str,
        fields: Mapping[str, str | None] | Sequence[str],
        schema_location: str | None = None,
        options: Mapping[str, object] | None = None,
        conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_at_parse(source=source, format=format, options=options)
        set_retry_defaults(kwargs, heals=False)
        super().__init__(**kwargs)
        self.source = source
        self.format = format
        self.checkpoint_location = checkpoint_location
        self.target = target
        self.fields = fields
        self.schema_location = schema_location
        self.options = options
        self.conn_id = conn_id
        self._run: Run | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Promote and return the report."""
        stream = StreamArguments(
            source=self.source,
            format=self.format,
            checkpoint_location=self.checkpoint_location,
            schema_location=self.schema_location,
            target=self.target,
            options=self.options or {},
        )
        with task_errors():
            hook = CloudFilesHook(self.conn_id)
            self._run = hook.promote(
                stream, self.fields, run_id=run_id_of(context), on_log=self._log_line
            )
            report = self._run.wait()
        for name, values in report["values"].items():
            self.log.info("%s: %s", name, ", ".join(f"{n} {what}" for what, n in values.items()))
        for warning in report["warnings"]:
            self.log.warning("%s", warning)
        self.log.info(
            "%s rows changed in %s files: table version %s.",
            report["rows"],
            report["files_rewritten"],
            report["target_version"],
        )
        return report

    def on_kill(self) -> None:
        """End the process; repeating the task goes on where it stopped."""
        if self._run is not None:
            self._run.kill()

    def _log_line(self, line: str) -> None:
        self.log.info("%s", line)
