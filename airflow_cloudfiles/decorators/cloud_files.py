"""Make a task of a function over micro-batches: `@task.cloud_files`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ParamSpec

from airflow.providers.common.compat.sdk import DecoratedOperator, task_decorator_factory

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.operators.cloud_files import CloudFilesIngestOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Concatenate, Unpack

    from airflow.sdk.bases.decorator import Task

    from airflow_cloudfiles.hooks.keywords import IngestKeywords

Called = ParamSpec("Called")
"""What a decorated function takes besides the batch."""


class CloudFilesDecoratedOperator(DecoratedOperator, CloudFilesIngestOperator):
    """An ingestion whose `transform` is the decorated function.

    Args:
        python_callable: The function.
        op_args: None: its arguments are given by name.
        op_kwargs: What the function is called with besides the batch. (templated)
        kwargs: The arguments of `CloudFilesIngestOperator`.
    """

    template_fields: Sequence[str] = (*CloudFilesIngestOperator.template_fields, "op_kwargs")
    template_fields_renderers = {  # noqa: RUF012 - as Airflow
        **CloudFilesIngestOperator.template_fields_renderers,
        "op_kwargs": "py",
    }
    custom_operator_name = "@task.cloud_files"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        multiple_outputs: bool = False,
        **kwargs: Any,
    ) -> None:
        if op_args:
            raise OptionError(
                f"{python_callable.__name__} is called with the DataFrame of each micro-batch when "
                "the task runs. Give its other arguments by name."
            )
        # For Airflow's check of the call: the batch is given when the task runs.
        batch = next(iter(inspect.signature(python_callable).parameters), None)
        given = {} if batch is None else {batch: None}
        super().__init__(
            python_callable=python_callable,
            op_kwargs={**given, **(op_kwargs or {})},
            multiple_outputs=multiple_outputs,
            transform=python_callable,
            **kwargs,
        )
        self.op_kwargs = {name: each for name, each in self.op_kwargs.items() if name != batch}

    def transform_arguments(self) -> Mapping[str, Any]:
        """Return what the task was called with."""
        return self.op_kwargs


def cloud_files_task(
    python_callable: Callable[..., Any] | None = None,
    **kwargs: Unpack[IngestKeywords],
) -> Callable[[Callable[Concatenate[Any, Called], Any]], Task[Called, Any]]:
    """Make an ingestion of a function that says what is written of each micro-batch.

    The same as `@task.cloud_files`, with arguments that a type checker knows.

    Args:
        python_callable: The function, from the DataFrame of a micro-batch to the one to write.
        kwargs: The arguments of `CloudFilesIngestOperator` but for `transform`; `task_id` is the
            name of the function unless it is given.
    """
    made: Any = task_decorator_factory(
        python_callable=python_callable,
        decorated_operator_class=CloudFilesDecoratedOperator,
        **kwargs,
    )
    return made  # type: ignore[no-any-return]
