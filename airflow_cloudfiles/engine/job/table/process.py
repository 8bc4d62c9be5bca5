"""Carry out what `run` asks for, in a process of its own.

`python -m airflow_cloudfiles.engine.job.table.process ACTION`, with the arguments as JSON on its
standard input.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.optimize import optimize
from airflow_cloudfiles.engine.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.delta.vacuum import vacuum
from airflow_cloudfiles.engine.errors import CloudFilesError, to_record
from airflow_cloudfiles.engine.job.files import operate_on_files
from airflow_cloudfiles.engine.job.start_over import start_over
from airflow_cloudfiles.engine.job.table.run import RESULT
from airflow_cloudfiles.engine.overview.rescued import why_rescued


def optimize_table(**given: Any) -> dict[str, Any]:
    """Optimize a table; see `optimize`."""
    return asdict(optimize(**given))


def vacuum_table(
    target: str,
    *,
    retention_hours: float | None = None,
    dry_run: bool = True,
    allow_short_retention: bool = False,
) -> dict[str, Any]:
    """Vacuum a table; see `vacuum`.

    Args:
        target: Path or URI of the table.
        retention_hours: How far back versions stay readable; `None` for the table's own.
        dry_run: Only say what would be removed.
        allow_short_retention: Whether the retention may be shorter than the table's own.
    """
    report = vacuum(
        TableLog(DeltaLocation.to_read(target)),
        retention=None if retention_hours is None else timedelta(hours=retention_hours),
        dry_run=dry_run,
        allow_short_retention=allow_short_retention,
    )
    return report.as_record()


def operate(**given: Any) -> dict[str, Any]:
    """Do something to files of a stream; see `operate_on_files`."""
    return asdict(operate_on_files(**given))


def start_stream_over(**given: Any) -> dict[str, Any]:
    """Begin a stream again; see `start_over`."""
    return asdict(start_over(**given))


def explain_rescued(**given: Any) -> dict[str, Any]:
    """Explain why values were rescued; see `why_rescued`."""
    return {"reasons": [asdict(each) for each in why_rescued(**given)]}


_ACTIONS: Final[Mapping[str, Callable[..., dict[str, Any]]]] = {
    "explain": explain_rescued,
    "operate": operate,
    "optimize": optimize_table,
    "start over": start_stream_over,
    "vacuum": vacuum_table,
}


def main(action: str, text: str) -> int:
    """Maintain a table; the last line that is printed has the report, or the error.

    Args:
        action: One of `Action`.
        text: Its arguments, as JSON.
    """
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)
    logging.getLogger("airflow_cloudfiles").setLevel(logging.INFO)
    given: dict[str, Any] = json.loads(text)
    result: dict[str, Any]
    try:
        result = {"report": _ACTIONS[action](**given)}
    except CloudFilesError as error:
        result = {"error": to_record(error)}
    sys.stdout.write(f"{RESULT}{json.dumps(result, ensure_ascii=True)}\n")
    sys.stdout.flush()
    return 0 if "report" in result else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.stdin.read()))
