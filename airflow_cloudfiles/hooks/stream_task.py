"""Give all tasks of a stream the arguments that they have in common.

Airflow reads the signature of every `__init__` on the way to its base operator: for `default_args`,
for `partial()`, for required arguments. So a stream's arguments are written out once, here, and a
subclass declares only those it adds and passes the rest on as `**kwargs`, which `keywords` types
for the classes that a DAG is written with. Our own defaults of Airflow's arguments, such as
`retries`, are read there too, for a mapped task (Airflow 3.3).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_cloudfiles.hooks.arguments import (
    StreamArguments,
    as_text,
    check_at_parse,
    has_template,
    options_of,
)
from airflow_cloudfiles.hooks.assets import location_of
from airflow_cloudfiles.hooks.observability.links import StreamLink, TableLink
from airflow_cloudfiles.hooks.task import DEFAULT_RETRIES, task_errors

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airflow.providers.common.compat.sdk import BaseOperatorLink, Context

    from airflow_cloudfiles.hooks.keywords import AssetLocation, Location, Options

REQUIRED: Final[Any] = inspect.Parameter.empty
"""Default of an argument that is required and may be in the `default_args` of a DAG.

To Airflow it is no default: it names the argument where nobody gives it. A type checker, which
does not see `default_args`, does not miss it.
"""


_OF_MARKS = ("_start_string", "_prefix")
"""How Jinja's arguments end that say what begins a template."""


class TextArguments(BaseOperator):
    """Base of the tasks that have arguments which are text whatever a template makes of them.

    Airflow renders every text, whether it has a template or not: Jinja takes a line end off its
    end, and a DAG with `render_template_as_native_obj` makes a number of `0.00`. An option such as
    `lineSep` or `nullValue` is another one then, and a location of digits no text any more.
    """

    text_fields: ClassVar[Sequence[str]] = ("source", "target")
    """Arguments that are one text. Of `options`, each value is one."""

    def render_template(
        self,
        content: Any,
        context: Context,
        jinja_env: Any = None,
        seen_oids: set[int] | None = None,
    ) -> Any:
        """Render an argument, or a part of it."""
        is_options = content is getattr(self, "options", None)
        if is_options and isinstance(content, Mapping):
            return {
                name: self._option(value, context, jinja_env, seen_oids)
                for name, value in content.items()
            }
        if isinstance(content, str):
            if any(content is getattr(self, name, None) for name in self.text_fields):
                return self._text_environment().from_string(content).render(context)
            if not self._has_template(content):
                return content
        return super().render_template(content, context, jinja_env, seen_oids)

    def _option(
        self, value: object, context: Context, jinja_env: Any, seen_oids: set[int] | None
    ) -> Any:
        """Render the value of an option, to its last line end."""
        if not isinstance(value, str):
            return super().render_template(value, context, jinja_env, seen_oids)
        if not self._has_template(value):
            return value
        environment = self._text_environment().overlay(keep_trailing_newline=True)
        return environment.from_string(value).render(context)

    def _has_template(self, text: str) -> bool:
        """Tell whether a text has something for Jinja to render, also with a DAG's own marks."""
        dag = self.get_dag()
        given = (dag.jinja_environment_kwargs or {}) if dag else {}
        return has_template(text) or any(name.endswith(_OF_MARKS) for name in given)

    def _text_environment(self) -> Any:
        """Give Jinja as the DAG has it, for texts."""
        dag = self.get_dag()
        return dag.get_template_env(force_sandboxed=True) if dag else self.get_template_env()


class StreamTask(TextArguments):
    """Base of the sensor and the operators.

    Args:
        source: Path or URI of the folder the files land in; may have a pattern. (templated)
        format: The format of the files, for instance `json`. To ingest from a Delta table, `delta`.
        checkpoint_location: Where the state of the stream lives. (templated)
        schema_location: Where the schema log lives; default: the checkpoint location. (templated)
        target: The table the rows go to; it is never read as input, even below the source.
            (templated)
        options: `cloudFiles.*` and format options, under Auto Loader's names. Credentials are
            refused. (templated)
        conn_id: Connection of AWS, Azure or Google Cloud, or of type *File (path)*: relative
            locations are below its path.
        retries: As of every Airflow task, but 3 unless the task or `default_args` says otherwise. A
            mapped task needs it in `partial()` or `default_args` below Airflow 3.3.
        kwargs: Airflow's own arguments of an operator.
    """

    template_fields: Sequence[str] = (
        "source",
        "checkpoint_location",
        "schema_location",
        "target",
        "options",
        # Not for templates alone: Airflow's UI knows a task by the fields that it stores of it.
        "format",
        "conn_id",
    )
    template_fields_renderers = {"options": "json"}  # noqa: RUF012 - Airflow declares it so
    operator_extra_links: Collection[BaseOperatorLink] = (StreamLink(), TableLink())

    text_fields = ("source", "checkpoint_location", "schema_location", "target")
    reads_tables: ClassVar[bool] = False
    """Whether the source of this task may be a Delta table."""

    def __init__(  # noqa: PLR0913 - a task's arguments are its interface
        self,
        *,
        source: AssetLocation,
        format: str,  # noqa: A002 - Spark's word
        checkpoint_location: Location,
        schema_location: Location | None = None,
        target: AssetLocation | None = None,
        options: Options | None = None,
        conn_id: str | None = None,
        retries: int = DEFAULT_RETRIES,
        **kwargs: Any,
    ) -> None:
        source, target = location_of(source), location_of(target)
        check_at_parse(
            source=source, format=format, options=options, reads_tables=self.reads_tables
        )
        super().__init__(retries=retries, **kwargs)
        self.source = as_text(source)
        self.format = format
        self.checkpoint_location = as_text(checkpoint_location)
        self.schema_location = None if schema_location is None else as_text(schema_location)
        self.target = None if target is None else as_text(target)
        self.options = cast("Mapping[str, object] | None", options)  # as soon as it is rendered
        self.conn_id = conn_id

    def stream_arguments(self) -> StreamArguments:
        """Build the stream from the rendered arguments."""
        with task_errors():
            return StreamArguments(
                source=self.source,
                format=self.format,
                checkpoint_location=self.checkpoint_location,
                schema_location=self.schema_location,
                target=self.target,
                options=options_of(self.options),
            )
