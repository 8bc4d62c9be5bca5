"""Carry out what `table_run` asks for, in a process of its own.

`python -m airflow_cloudfiles.engine.extensions.table_process ACTION`, with the arguments as JSON on
its standard input.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from airflow_cloudfiles.engine.errors import CloudFilesError, to_record
from airflow_cloudfiles.engine.extensions.file_operations.of_table import operate_on_files
from airflow_cloudfiles.engine.extensions.overview.rescued import why_rescued
from airflow_cloudfiles.engine.extensions.row_rules.quarantine import quarantine_action
from airflow_cloudfiles.engine.extensions.start_over import start_over
from airflow_cloudfiles.engine.extensions.table_run import RESULT
from airflow_cloudfiles.engine.extensions.upkeep.optimize import optimize
from airflow_cloudfiles.engine.extensions.upkeep.vacuum import vacuum
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog


def _carried_out(action: str, given: dict[str, Any]) -> dict[str, Any]:
    """Do what the process is for; gives its report."""
    match action:
        case "explain":
            return {"reasons": [asdict(each) for each in why_rescued(**given)]}
        case "operate":
            return asdict(operate_on_files(**given))
        case "optimize":
            return asdict(optimize(**given))
        case "quarantined rows":
            return quarantine_action(given)
        case "start over":
            return asdict(start_over(**given))
        case _:
            hours = given.pop("retention_hours")
            retention = None if hours is None else timedelta(hours=hours)
            table = TableLog(DeltaLocation.to_read(given.pop("target")))
            return vacuum(table, retention=retention, **given).as_record()


def main(action: str, text: str) -> int:
    """Carry an action out; the last line that is printed has the report, or the error.

    Args:
        action: One of `Action`.
        text: Its arguments, as JSON.
    """
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)
    logging.getLogger("airflow_cloudfiles").setLevel(logging.INFO)
    result: dict[str, Any]
    try:
        result = {"report": _carried_out(action, json.loads(text))}
    except CloudFilesError as error:
        result = {"error": to_record(error)}
    sys.stdout.write(f"{RESULT}{json.dumps(result, ensure_ascii=True)}\n")
    sys.stdout.flush()
    return 0 if "report" in result else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.stdin.read()))
