"""`cloudfiles state compact`: pack old entries of the logs, and sweep what runs have left."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from airflow_cloudfiles.commands.running.outcome import Outcome, add_command, as_text
from airflow_cloudfiles.engine.intake.upkeep import compact
from airflow_cloudfiles.engine.options.declared import options_of
from airflow_cloudfiles.engine.options.discovery import UpkeepOptions
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands


def add_to(actions: Commands, parents: list[argparse.ArgumentParser]) -> None:
    """Add the action."""
    text = "pack old entries of the logs, as jobs do by themselves; no entry is lost by it"
    found = add_command(actions, "compact", _compact, help=text, parents=parents)
    found.add_argument(
        "--dry-run", action="store_true", help="only tell what the first pass would do"
    )
    found.add_argument(
        "--run-retention",
        metavar="INTERVAL",
        default="30 days",
        help="how long specifications and reports of runs stay: '30 days' (the default)",
    )


def _compact(given: argparse.Namespace) -> Outcome:
    retention = options_of(UpkeepOptions)["run_retention_seconds"]
    seconds = retention.kind.read("--run-retention", given.run_retention)
    done = compact(
        open_store(given.checkpoint_location), retention_seconds=seconds, dry_run=given.dry_run
    )
    value = {"is_done": not given.dry_run, **asdict(done)}
    return Outcome(value, as_text(value))
