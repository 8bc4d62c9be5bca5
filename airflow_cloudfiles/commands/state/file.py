"""`cloudfiles file`: have single files ingested again, left out, put aside, or forgotten."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from airflow_cloudfiles.commands.running.outcome import (
    Outcome,
    add_checkpoint_location,
    add_command,
    add_group,
    add_txn_app_id,
    as_text,
)
from airflow_cloudfiles.commands.state.files import file_lines
from airflow_cloudfiles.engine.extensions.table_run import TableRun
from airflow_cloudfiles.engine.intake.file_state_columns import rows
from airflow_cloudfiles.engine.intake.file_states import FileQuery, FileStates, StateSnapshot

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands

_ACTIONS = {
    "replay": "have files ingested again by the next run, whose rows replace their former ones; "
    "batches that a table has lost: cloudfiles replay",
    "skip": "never ingest files that were not ingested yet",
    "quarantine": "put files aside that make runs fail, until they are released",
    "release": "have files ingested that were skipped or quarantined",
    "forget": "let the stream not know files any more: what is still there is found as new",
}
_SHOWN = (
    ("operation", 10),
    ("operation_time", 19),
    ("status", 11),
    ("batch_id", 8),
    ("path", 0),
    ("operation_reason", 0),
)


def add_to(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command and what it can do."""
    text = "have single files ingested again, left out, put aside, or forgotten"
    actions = add_group(commands, "file", text)
    for name, help_text in _ACTIONS.items():
        _add(actions, name, help_text, shared)
    text = "list the files to which something was done, and how far they are"
    listed = add_command(actions, "list", _list, help=text, parents=[shared])
    add_checkpoint_location(listed)


def _add(actions: Commands, name: str, help_text: str, shared: argparse.ArgumentParser) -> None:
    found = add_command(actions, name, _operate, help=help_text, parents=[shared])
    found.set_defaults(action=name)
    add_checkpoint_location(found)
    found.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a file: relative to the source, or its URI; written exactly as it is named",
    )
    found.add_argument(
        "--glob",
        action="store_true",
        help="the paths are patterns or folders, and mean the files to which this applies",
    )
    found.add_argument("--reason", default="", metavar="TEXT", help="why, for people")
    found.add_argument(
        "--target", metavar="URI", help="the table, where no run of a job has written it"
    )
    add_txn_app_id(found)
    found.add_argument(
        "--operation-id",
        default="",
        metavar="NAME",
        help="a name of this operation: it is done once to a file under this name",
    )
    found.add_argument("--dry-run", action="store_true", help="only tell what would be done")
    if name == "replay":
        found.add_argument(
            "--append",
            action="store_true",
            help="former rows stay: the rows of the files are there twice",
        )
        found.add_argument(
            "--path-column",
            metavar="COLUMN",
            help="the column of the table with the URI of a row's file; default: what "
            "cloudFiles.metadataColumns says",
        )


def _operate(given: argparse.Namespace) -> Outcome:
    asked = {
        "checkpoint_location": given.checkpoint_location,
        "action": given.action,
        "paths": given.paths,
        "reason": given.reason,
        "pattern": given.glob,
        "append": getattr(given, "append", False),
        "target": given.target,
        "path_column": getattr(given, "path_column", None),
        "txn_app_id": given.txn_app_id,
        "operation_id": given.operation_id,
        "dry_run": given.dry_run,
    }
    report = TableRun("operate", asked).wait()
    lines = [as_text(report)]
    if given.dry_run and report["files"]:
        lines.append("Nothing was changed. Leave out --dry-run to do it.")
    return Outcome(report, "\n".join(lines))


def _list(given: argparse.Namespace) -> Outcome:
    snapshot = StateSnapshot.take(given.checkpoint_location)
    found = rows(FileStates(snapshot, FileQuery()).operated())
    return Outcome(None, "", lines=file_lines(found, _SHOWN, as_json=given.json))
