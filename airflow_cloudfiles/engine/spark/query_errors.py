"""What does a query of ours raise?

The error of ours that a task or the planning process raised: by class and message as in a program
without Spark, and a `StreamingQueryException` too, for those who catch that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from airflow_cloudfiles.engine.errors import CloudFilesError

if TYPE_CHECKING:
    from pyspark.errors import StreamingQueryException


def as_query_exception(ours: CloudFilesError, query: StreamingQueryException) -> CloudFilesError:
    """One exception that is both: caught by `except StreamingQueryException` and by our class."""
    kind = type(ours).__name__
    both = type(
        kind, (type(ours), type(query)), {"__module__": "airflow_cloudfiles", "__str__": _message}
    )
    error = cast("CloudFilesError", both.__new__(both))  # type: ignore[call-overload]
    error.__dict__.update(query.__dict__)
    error.__dict__.update(ours.__dict__)
    error.args = ours.args
    return error


def _message(error: CloudFilesError) -> str:
    return error.message
