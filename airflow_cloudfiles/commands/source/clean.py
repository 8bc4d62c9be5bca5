"""`cloudfiles clean`: remove or move files of the source that are committed and due."""

from __future__ import annotations

import argparse
import uuid
from typing import TYPE_CHECKING

from airflow_cloudfiles.commands.running.job import run_job
from airflow_cloudfiles.commands.running.outcome import (
    Outcome,
    add_checkpoint_location,
    add_command,
    add_options,
    add_txn_app_id,
)
from airflow_cloudfiles.commands.tables.replay import newest_run
from airflow_cloudfiles.engine.errors import StateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands

_TOLD = ("mode", "is_dry_run", "files", "bytes", "others", "is_complete", "warnings")


def add_to(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    help_text = "remove or move files of the source that are committed and due (cleanSource)"
    found = add_command(commands, "clean", _clean, help=help_text, parents=[shared])
    add_checkpoint_location(found)
    found.add_argument(
        "--target",
        metavar="URI",
        help="the table that must have the batches; default is the one that the state names",
    )
    found.add_argument(
        "--dry-run", action="store_true", help="only tell what would be removed or moved"
    )
    found.add_argument(
        "--trust-checkpoint",
        action="store_true",
        help="for a query of your own that writes no table: what Spark has committed is taken to "
        "be where it belongs",
    )
    add_txn_app_id(found)
    add_options(found, "an option of the stream, besides or instead of those of its newest run")


def _clean(given: argparse.Namespace) -> Outcome:
    state = open_store(given.checkpoint_location)
    stream = read_metadata(state)
    if stream is None:
        raise StateError(
            f"There is no state of a cloudFiles source in {printable_path(state.uri)}. Name the "
            "checkpoint location of the stream."
        )
    run = newest_run(state)
    options = {key.lower(): (key, value) for key, value in (run.get("options") or {}).items()}
    options |= {key.lower(): (key, value) for key, value in given.option}
    spec = JobSpec(
        kind="clean",
        source=stream.source,
        format=stream.format,
        checkpoint_location=given.checkpoint_location,
        schema_location=run.get("schema_location"),
        target=given.target or run.get("target"),
        options=dict(options.values()),
        clean={
            "dry_run": given.dry_run,
            "trust_checkpoint": given.trust_checkpoint,
            "app_id": given.txn_app_id,
        },
        run_id=f"clean-{uuid.uuid4().hex}",
    )
    return run_job(spec, _TOLD)
