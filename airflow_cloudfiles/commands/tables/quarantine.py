"""`cloudfiles quarantine`: rows that rules have put aside."""

from __future__ import annotations

import argparse
import json
from typing import Any

from airflow_cloudfiles.commands.running.outcome import (
    Commands,
    Outcome,
    Parser,
    add_command,
    add_group,
    as_text,
    columns,
)
from airflow_cloudfiles.engine.extensions.table_run import TableRun
from airflow_cloudfiles.engine.messages import cut, printable

_ACTIONS = {
    "list": "count the rows by rule, batch and file, and show some of them",
    "release": "put rows back into the target, as its columns are now",
    "discard": "remove rows for good",
}
_SELECTED = (
    ("--batch", "batches", "N", "rows of this micro-batch; may be repeated"),
    (
        "--file",
        "files",
        "PATH",
        "rows of this file: its URI, or the end of it behind a slash; may be repeated",
    ),
    ("--rule", "rules", "NAME", "rows that violate this rule; may be repeated"),
    ("--id", "ids", "ID", "the row with this _quarantine_id; may be repeated"),
)
_SAMPLE = 10
_MOST_ROW = 300


def add_to(commands: Commands, shared: Parser) -> None:
    """Add the command and what it can do."""
    text = "list, release or discard the rows that rules (expect.row.<name>) have put aside"
    actions = add_group(commands, "quarantine", text)
    for name, help_text in _ACTIONS.items():
        _add(actions, name, help_text, shared)


def _add(actions: Commands, name: str, help_text: str, shared: Parser) -> None:
    found = add_command(actions, name, _act, help=help_text, parents=[shared])
    found.set_defaults(action=name)
    found.add_location("--target", "the Delta table of the stream", required=True)
    found.add_location(
        "--quarantine-table",
        "the table that expect.quarantineTable names; default: the target, with _quarantine",
    )
    for flag, dest, metavar, meaning in _SELECTED:
        kind = int if dest == "batches" else str
        found.add_argument(
            flag, dest=dest, action="append", default=[], type=kind, metavar=metavar, help=meaning
        )
    found.add_argument(
        "--where",
        default="",
        metavar="PREDICATE",
        help="rows for which this is true, such as \"amount > 0 AND country = 'DE'\"",
    )
    if name == "list":
        found.add_argument(
            "--sample", type=int, default=_SAMPLE, metavar="N", help="how many rows are shown"
        )
        return
    found.add_argument("--all", dest="all_rows", action="store_true", help="all rows")
    if name == "release":
        found.add_argument(
            "--rescued-column",
            metavar="NAME",
            help="the rescued data column of the target, which takes what has no column; default: "
            "_rescued_data",
        )
        found.add_options(
            "a rule that rows are held against once more, such as expect.row.positive='amount > 0' "
            "with expect.row.positive.onViolation=drop: rows that violate it stay"
        )


def _act(given: argparse.Namespace) -> Outcome:
    names = [dest for _, dest, _, _ in _SELECTED]
    selection = {name: getattr(given, name) for name in (*names, "where") if getattr(given, name)}
    asked: dict[str, Any] = {
        "action": given.action,
        "target": given.target,
        "table": given.quarantine_table,
        "selection": selection,
        "all_rows": getattr(given, "all_rows", False),
        "sample": getattr(given, "sample", _SAMPLE),
        "rescued_column": getattr(given, "rescued_column", None),
        "check": dict(getattr(given, "option", ())),
    }
    report = TableRun("quarantined rows", asked).wait()
    value = {"target": given.target, **report}
    if given.action == "list":
        return Outcome(value, "\n".join(_listed(report)))
    return Outcome(value, as_text(value))


def _listed(report: dict[str, Any]) -> list[str]:
    """Write the counts, and rows in a line each."""
    plain = {name: report[name] for name in ("quarantine_table", "rows", "pending_rows")}
    lines = [as_text(plain)]
    for name, head in (("by_rule", "rule"), ("by_batch", "batch"), ("by_file", "file")):
        counts = [(printable(key), f"{count:,}") for key, count in report[name].items()]
        if counts:
            lines += ["", *columns([(head, "rows"), *counts], right={1})]
    for row in report["sample"]:
        lines += ["", printable(cut(json.dumps(row, ensure_ascii=False), _MOST_ROW))]
    return lines
