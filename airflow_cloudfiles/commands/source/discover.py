"""`cloudfiles discover`: record the files that have arrived, as a sensor does."""

from __future__ import annotations

import argparse
from dataclasses import replace

from airflow_cloudfiles.commands.outcome import (
    Commands,
    Outcome,
    Parser,
    add_command,
    as_text,
)
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions


def add_to(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    help_text = "record the files that have arrived; nothing is ingested"
    found = add_command(commands, "discover", _discover, help=help_text, parents=[shared])
    found.add_location("--source", "where the files land", required=True)
    found.add_checkpoint_location()
    found.add_argument("--format", default="json", help="cloudFiles.format (json)")
    found.add_options("an option of the stream, such as cloudFiles.useNotifications=true")
    found.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="URI",
        help="a place below the source that is no input: schema location, target; may be repeated",
    )
    found.add_flag("--full", "list everything once")
    found.add_flag(
        "--dry-run",
        "list everything, record nothing, and show which files are new, which replace their former "
        "rows (cloudFiles.onOverwrite) and whose rows would go (cloudFiles.onDelete)",
    )


def _discover(given: argparse.Namespace) -> Outcome:
    options = CloudFilesOptions.parse(
        {"cloudFiles.format": given.format, **dict(given.option)}, path=given.source
    )
    discovery = options.discovery
    if given.full:
        discovery = replace(discovery, use_incremental_listing="false", list_on_start=True)
    intake = Intake.open(
        source=given.source,
        format=options.format,
        checkpoint_location=given.checkpoint_location,
        exclude=[*given.exclude, *filter(None, [options.bad_records_path])],
        discovery=discovery,
    )
    try:
        found = intake.preview() if given.dry_run else intake.discover()
        value = found.to_json()
    finally:
        intake.close()
    return Outcome(value, as_text(value))
