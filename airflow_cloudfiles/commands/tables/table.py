"""Maintain a Delta table, and the rows of it that rules have put aside: `table`, `quarantine`.

`table` does what a table needs from time to time; `quarantine` lists, releases or discards rows.
"""

from __future__ import annotations

import argparse
import json
from datetime import timedelta
from typing import Any

from airflow_cloudfiles.commands.outcome import (
    Commands,
    Outcome,
    Parser,
    add_command,
    add_group,
    as_text,
    columns,
)
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.table_run import TableRun
from airflow_cloudfiles.engine.messages import cut, printable
from airflow_cloudfiles.engine.options.values import size

_SHOWN = 20
"""Files that the text names; `--json` names all."""


def add_table(commands: Commands, shared: Parser) -> None:
    """Add the command and what it can do."""
    actions = add_group(commands, "table", "maintain a Delta table")
    _add_vacuum(actions, shared)
    _add_optimize(actions, shared)


def _add_vacuum(actions: Commands, shared: Parser) -> None:
    help_text = "remove the files that no version within the retention names; a dry run at first"
    action = add_command(actions, "vacuum", _vacuum, help=help_text, parents=[shared])
    action.add_location("--target", "the Delta table", required=True)
    action.add_argument(
        "--retention-hours",
        type=_hours,
        metavar="HOURS",
        help="how far back versions stay readable; default: the table's own, a week unless "
        "delta.deletedFileRetentionDuration is set",
    )
    action.add_flag("--delete", "remove the files; without it they are only listed")
    action.add_flag(
        "--allow-short-retention",
        "accept a retention below the table's own; queries of older versions and running "
        "tasks can lose their files",
    )
    _add_changes(actions, shared)


_COLUMN = ("column", "COLUMN", "a, or a.b for a field of a struct")
_CHANGES = {
    "rename-column": (
        "rename a column as a change of the metadata; streams that feed it go on",
        (_COLUMN, ("name", "NAME", "the new name, without a path")),
    ),
    "drop-column": ("drop a column as a change of the metadata; a dry run at first", (_COLUMN,)),
    "add-column": (
        "add a column, or a field to a struct, at the end",
        (("column", "'COLUMN TYPE'", "such as 'discount DECIMAL(10,2)'"),),
    ),
    "drop-not-null": (
        "let a column be null, which may be NOT NULL, as a change of the metadata",
        (_COLUMN,),
    ),
    "set-property": (
        "set table properties, and the table features they need; a dry run at first",
        (
            (
                "properties",
                "KEY=VALUE",
                "such as delta.columnMapping.mode=name or delta.enableTypeWidening=true",
            ),
        ),
    ),
}
"""What changes the metadata of a table only, and what each takes."""
_DRY_AT_FIRST = ("drop-column", "set-property")


def _add_changes(actions: Commands, shared: Parser) -> None:
    for name, (text, arguments) in _CHANGES.items():
        action = add_command(actions, name, _change, help=text, parents=[shared])
        action.set_defaults(change=name)
        action.add_location("--target", "the Delta table", required=True)
        if name in _DRY_AT_FIRST:
            apply = "change the table; without it nothing is"
            action.add_argument("--apply", dest="dry_run", action="store_false", help=apply)
        else:
            action.add_flag("--dry-run", "only say what would change in the table")
        for dest, metavar, meaning in arguments:
            nargs = "+" if dest == "properties" else None
            action.add_argument(dest, nargs=nargs, metavar=metavar, help=meaning)


def _change(given: argparse.Namespace) -> Outcome:
    from airflow_cloudfiles.engine.extensions.upkeep import alter  # noqa: PLC0415 - as in `_vacuum`

    is_dry_run = given.dry_run
    if given.change == "set-property":
        pairs = dict(each.partition("=")[::2] for each in given.properties)
        change = alter.set_properties(given.target, pairs, dry_run=is_dry_run)
    else:
        altered = getattr(alter, given.change.replace("-", "_"))
        named = [getattr(given, dest) for dest, _, _ in _CHANGES[given.change][1]]
        change = altered(given.target, *named, dry_run=is_dry_run)
    value = {
        "target": change.target,
        "version": change.version,
        "before": change.before,
        "after": change.after,
        "features": list(change.features),
        "properties": dict(change.properties or {}),
    }
    lines = [as_text(value)]
    if change.features:
        lines.append("Readers and writers must support the new table features from then on.")
    if is_dry_run:
        lines.append("Nothing was changed: this was a dry run.")
    elif change.version is None:
        lines.append("The table is like that already.")
    return Outcome(value, "\n".join(lines))


def _add_optimize(actions: Commands, shared: Parser) -> None:
    help_text = "write small data files together, or all files anew"
    action = add_command(actions, "optimize", _optimize, help=help_text, parents=[shared])
    action.add_location("--target", "the Delta table", required=True)
    action.add_flag("--all", "write files of the target size anew, too")
    action.add_argument(
        "--target-size",
        type=_size,
        metavar="SIZE",
        help="size of a file, such as 128m; default: delta.targetFileSize of the table, or else "
        "256m on a disk and 64m in a cloud",
    )
    action.add_flag("--dry-run", "only count what would be done")


def _optimize(given: argparse.Namespace) -> Outcome:
    asked = {
        "target": given.target,
        "all_files": given.all,
        "target_bytes": given.target_size,
        "dry_run": given.dry_run,
    }
    report = TableRun("optimize", asked).wait()
    value = {"target": given.target, **report}
    lines = [as_text(value)]
    if report["skipped_groups"]:
        lines.append("Another writer has replaced some of the files. Run again for the rest.")
    if given.dry_run and report["removed_files"]:
        lines.append("Nothing was changed. Leave out --dry-run to optimize.")
    return Outcome(value, "\n".join(lines))


def _vacuum(given: argparse.Namespace) -> Outcome:
    # Imported here: the other commands need no table, and start faster.
    from airflow_cloudfiles.engine.extensions.upkeep.vacuum import vacuum  # noqa: PLC0415
    from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation  # noqa: PLC0415
    from airflow_cloudfiles.engine.tables.delta.read.snapshot import TableLog  # noqa: PLC0415

    report = vacuum(
        TableLog(DeltaLocation.to_read(given.target)),
        retention=given.retention_hours,
        dry_run=not given.delete,
        allow_short_retention=given.allow_short_retention,
    )
    value = {"target": given.target, **report.as_record()}
    shown = {**value, "paths": report.paths[:_SHOWN]}
    more = len(report.paths) - _SHOWN
    if more > 0:
        shown["more_paths"] = more
    lines = [as_text(shown)]
    if report.is_dry_run and report.paths:
        lines.append("Nothing was removed. Add --delete to remove these files.")
    return Outcome(value, "\n".join(lines))


def _hours(text: str) -> timedelta:
    """Read a number of hours."""
    try:
        found = timedelta(hours=float(text))
    except (ValueError, OverflowError):
        found = timedelta(-1)
    if found < timedelta(0):
        msg = f"{text!r} is not a number of hours"
        raise argparse.ArgumentTypeError(msg)
    return found


def _size(text: str) -> int:
    """Read a size as Spark writes it."""
    try:
        return size.read("--target-size", text)
    except OptionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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


def add_quarantine(commands: Commands, shared: Parser) -> None:
    """Add the command and what it can do."""
    text = "list, release or discard the rows that rules (expect.row.<name>) have put aside"
    actions = add_group(commands, "quarantine", text)
    for name, help_text in _ACTIONS.items():
        _add_action(actions, name, help_text, shared)


def _add_action(actions: Commands, name: str, help_text: str, shared: Parser) -> None:
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
