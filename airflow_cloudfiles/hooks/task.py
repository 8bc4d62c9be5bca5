"""How does a task of ours behave towards Airflow: its retries, its errors, its name?"""

from __future__ import annotations

import hashlib
import re
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    TableEvolvedError,
    UnknownFieldException,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

try:  # retry policies exist from Airflow 3.3 (AIP-105)
    from airflow.providers.common.compat.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
except ImportError:
    HEALING_POLICY = None
else:
    HEALING_POLICY = ExceptionRetryPolicy(
        rules=[
            RetryRule(
                exception=kind,
                action=RetryAction.RETRY,
                retry_delay=timedelta(0),
                reason="the schema log holds the evolved schema",
            )
            for kind in (UnknownFieldException, TableEvolvedError)
        ]
    )
    """A schema change is retried at once; every other error after the task's `retry_delay`."""

DEFAULT_RETRIES = 3
FALLBACK_RETRY_DELAY = timedelta(seconds=10)
"""Below Airflow 3.3 one delay serves every error; short, as a schema change is healed by then."""

_LONGEST_RUN_ID = 160


def set_retry_defaults(kwargs: MutableMapping[str, Any], *, heals: bool) -> None:
    """Give a task our retry defaults wherever its author says nothing.

    The author's word is an argument of the task or an entry of `default_args`; the latter reach an
    operator's `__init__` apart from its other arguments, so both are looked at.

    Args:
        kwargs: The arguments on their way to Airflow's base operator.
        heals: Whether a retry of this task heals a schema change.
    """
    given = {**(kwargs.get("default_args") or {}), **kwargs}
    defaults: dict[str, object] = {"retries": DEFAULT_RETRIES}
    if heals and HEALING_POLICY is not None:
        defaults["retry_policy"] = HEALING_POLICY
    elif heals:
        defaults["retry_delay"] = FALLBACK_RETRY_DELAY
    kwargs.update({name: value for name, value in defaults.items() if name not in given})


@contextmanager
def task_errors() -> Iterator[None]:
    """Let an error fail the task with or without retries, as the error itself says.

    Raises:
        AirflowFailException: In place of an error that a retry cannot help, with its message.
    """
    try:
        yield
    except CloudFilesError as error:
        if error.is_retryable:
            raise
        raise AirflowFailException(error.message) from error


def run_id_of(context: Mapping[str, Any]) -> str:
    """Name one try of one task instance, in characters that every store and file system takes.

    Two tries never share a name: a hash keeps what the replaced characters distinguished.
    """
    ti = context["ti"]
    parts = [ti.dag_id, ti.run_id, ti.task_id]
    map_index = getattr(ti, "map_index", -1)
    if isinstance(map_index, int) and map_index >= 0:
        parts.append(str(map_index))
    full = ".".join([*parts, str(ti.try_number)])
    name = re.sub(r"[^A-Za-z0-9._-]", "-", full).lstrip("._-")
    if name == full and len(name) <= _LONGEST_RUN_ID:
        return name
    digest = hashlib.sha256(full.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[:_LONGEST_RUN_ID]}-{digest}"
