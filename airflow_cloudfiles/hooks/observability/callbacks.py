"""Notify people of what a run has met.

Callbacks of a task: callables and Airflow's notifiers, called with the context of the task as those
of Airflow (`on_failure_callback`) are. They inform people, so none decides how a task ends.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_cloudfiles.hooks.keywords import Callback


def callbacks_of(name: str, given: Callback | Collection[Callback] | None) -> list[Callback]:
    """Check the callbacks that a task is given.

    Args:
        name: Of the argument.
        given: One callback, several, or none.

    Raises:
        OptionError: It is something else.
    """
    if given is None:
        return []
    if callable(given):
        return [given]
    several: Any = given
    is_list = isinstance(several, Collection) and not isinstance(several, str | Mapping)
    if not is_list or not all(callable(each) for each in several):
        raise OptionError(
            f"{name} must be a callable, a notifier or a list of these, got {several!r:.80}."
        )
    return list(several)


def call_each(
    callbacks: Sequence[Callback], context: Mapping[str, Any], log: Any, **met: object
) -> None:
    """Call callbacks; one that fails is logged as an error, and the next is called.

    Args:
        callbacks: Of the task. A notifier is called as a copy, because rendering changes it.
        context: Airflow's. Each callback gets a copy, so that it changes nothing for the others.
        log: The log of the task.
        met: What was met, for the context.
    """
    for callback in callbacks:
        is_rendered = hasattr(callback, "template_fields")
        called: Any = copy.copy(callback) if is_rendered else callback
        try:
            called({**context, **met})
        except Exception:
            name = getattr(callback, "__qualname__", type(callback).__qualname__)
            log.exception("The callback %s failed; the task goes on.", name)
