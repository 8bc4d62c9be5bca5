"""Give tasks their behavior towards Airflow: retries, errors, names."""

from __future__ import annotations

import hashlib
import re
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    FilesQuarantinedError,
    TableEvolvedError,
    UnknownFieldException,
    with_code,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow.providers.common.compat.sdk import RetryPolicy

try:  # retry policies exist from Airflow 3.3 (AIP-105)
    from airflow.providers.common.compat.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
except ImportError:
    HEALING_POLICY = None
else:
    HEALING_POLICY = ExceptionRetryPolicy(
        rules=[
            RetryRule(
                exception=kind, action=RetryAction.RETRY, retry_delay=timedelta(0), reason=reason
            )
            for kind, reason in (
                (UnknownFieldException, "the schema log holds the evolved schema"),
                (TableEvolvedError, "the schema log holds the evolved schema"),
                (FilesQuarantinedError, "the files that were to blame are put aside"),
            )
        ]
    )
    """What is healed already is retried at once; other errors after the task's `retry_delay`."""

DEFAULT_RETRIES = 3
FALLBACK_RETRY_DELAY = timedelta(seconds=10)
"""Below Airflow 3.3 one delay serves every error; short, as a schema change is healed by then."""

_LONGEST_RUN_ID = 160


def healing_arguments(
    retry_policy: RetryPolicy | None, given: Mapping[str, Any]
) -> dict[str, object]:
    """Build the arguments that retry soon what is healed already, unless the author says otherwise.

    The defaults themselves belong in the signatures of `__init__`: Airflow 3.3 reads them there for
    a mapped task, which it hands every argument of its base operator explicitly.

    Args:
        retry_policy: Of the task; from Airflow 3.3.
        given: The arguments on their way to Airflow's base operator. `default_args` reach an
            operator's `__init__` apart from its other arguments, so both are looked at.

    Returns:
        Further arguments for the base operator.
    """
    if HEALING_POLICY is not None or retry_policy is not None:
        return {"retry_policy": retry_policy}
    if "retry_delay" in {**(given.get("default_args") or {}), **given}:
        return {}
    return {"retry_delay": FALLBACK_RETRY_DELAY}


@contextmanager
def task_errors(*, ends_retries: bool = True) -> Iterator[None]:
    """Let an error fail the task with or without retries, as the error itself says.

    What is raised says its code, too, and where that has its section.

    Args:
        ends_retries: `False` raises an error that a retry cannot help as itself.

    Raises:
        AirflowFailException: In place of an error that a retry cannot help, with its message.
    """
    try:
        yield
    except CloudFilesError as error:
        text = with_code(error)
        if ends_retries and not error.is_retryable:
            raise AirflowFailException(text) from error
        error.args = (text,)  # Airflow's pages show the text of an error, and none of its notes
        error.__dict__.pop("__notes__", None)
        raise


def run_id_of(context: Mapping[str, Any], *, try_number: int | None = None) -> str:
    """Name one try of one task instance, in characters that every store and file system takes.

    Two tries never share a name: a hash keeps what the replaced characters distinguished.

    Args:
        context: Of the task.
        try_number: Which try; `None` for this one.
    """
    ti = context["ti"]
    number = ti.try_number if try_number is None else try_number
    full = ".".join([ti.dag_id, ti.run_id, *own_names(ti), str(number)])
    name = re.sub(r"[^A-Za-z0-9._-]", "-", full).lstrip("._-")
    if name == full and len(name) <= _LONGEST_RUN_ID:
        return name
    digest = hashlib.sha256(full.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[:_LONGEST_RUN_ID]}-{digest}"


def own_names(ti: Any) -> list[str]:
    """Give what names an instance in its run: the task, and which one of a mapped task."""
    index = map_index_of(ti)
    return [str(ti.task_id), *([str(index)] if index >= 0 else [])]


def map_index_of(ti: Any) -> int:
    """Give which instance of a mapped task one is; -1 where the task is not mapped."""
    found = getattr(ti, "map_index", -1)
    return found if isinstance(found, int) else -1
