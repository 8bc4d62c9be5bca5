"""What a template makes of a task's arguments is text where text is meant.

Airflow renders every text, whether it has a template or not: Jinja takes a line end off its end,
and a DAG with `render_template_as_native_obj` makes a number of `0.00`. An option such as `lineSep`
or `nullValue` is another one then, and a location of digits no text any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_cloudfiles.hooks.arguments import has_template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.providers.common.compat.sdk import Context


_OF_MARKS = ("_start_string", "_prefix")
"""How Jinja's arguments end that say what begins a template."""


class TextArguments(BaseOperator):
    """Base of the tasks that have arguments which are text whatever a template makes of them."""

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
