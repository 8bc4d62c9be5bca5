"""Bring what a task has written, or has failed with, from its process to the driver's.

An error that no other attempt helps against is a result, too: Spark would try the task again,
and would pass on only a text. An outage is raised, and marked: another attempt may help.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.batches.run import TaskFailed
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    FileUnreachableError,
    StateUnreachableError,
    TargetUnreachableError,
    from_record,
    from_text,
    to_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_cloudfiles.engine.batches.table_writer import TaskWritten

_OUTAGES = (FileUnreachableError, StateUnreachableError, TargetUnreachableError)


def result_of(task: Callable[[Any], TaskWritten], part: Any) -> bytes:
    """Carry out a task, and pack what it has written, or what it failed with.

    Raises:
        CloudFilesError: What another attempt may help against.
    """
    try:
        written: TaskWritten | dict[str, Any] = task(part)
    except _OUTAGES:
        raise
    except CloudFilesError as error:
        written = to_record(error)
    # A task reports statistics of all columns of each of its files, which are much alike.
    return zlib.compress(pickle.dumps(written), 1)


def unpacked(result: bytes) -> TaskWritten | CloudFilesError:
    """Unpack what a task of ours has written, or what it failed with."""
    found = pickle.loads(zlib.decompress(result))  # noqa: S301 - of a task of this run
    return from_record(found) if isinstance(found, dict) else found


def collected(results: Callable[[], Iterable[bytes]]) -> list[TaskWritten]:
    """What the tasks have written, in their order.

    Args:
        results: Asks for what they give back. What yields it ends the others when it is closed.

    Raises:
        TaskFailed: One has failed.
    """
    written: list[TaskWritten] = []
    failed: CloudFilesError | None = None
    try:
        found = results()
        for each in found:
            outcome = unpacked(each)
            if not isinstance(outcome, CloudFilesError):
                written.append(outcome)
            elif failed is None:
                failed = outcome
                if isinstance(found, Generator):
                    found.close()
    except Exception as failure:
        raise TaskFailed(from_text(str(failure)) or failure, [*written, None]) from failure
    if failed is not None:
        raise TaskFailed(failed, [*written, None])
    return written
