"""`cloudfiles replay`: ingest batches again that a table has lost, or accept their loss."""

from __future__ import annotations

import argparse
import logging
import uuid
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.commands.running.job import run_job
from airflow_cloudfiles.commands.running.outcome import (
    Outcome,
    add_checkpoint_location,
    add_command,
    add_options,
    add_schema_location,
    add_txn_app_id,
)
from airflow_cloudfiles.engine.errors import StateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.run_history import newest_ingest
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands
    from airflow_cloudfiles.engine.storage import ObjectStore

_TOLD = ("is_done", "batches", "present", "files", "rows", "target_version", "warnings")
_log = logging.getLogger(__name__)


def add_to(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    help_text = (
        "ingest batches again that a table has lost, or accept their loss; single files: "
        "cloudfiles file replay"
    )
    found = add_command(commands, "replay", _replay, help=help_text, parents=[shared])
    add_checkpoint_location(found)
    found.add_argument("--target", required=True, metavar="URI", help="the Delta table")
    found.add_argument(
        "--from-batch",
        type=int,
        required=True,
        metavar="N",
        help="the first batch that is missing; those after it that the table has are left alone",
    )
    found.add_argument(
        "--accept-loss",
        action="store_true",
        help="give the missing batches up: nothing is ingested, and the stream goes on without",
    )
    found.add_argument(
        "--dry-run", action="store_true", help="only tell which batches are missing, and check"
    )
    found.add_argument(
        "--as-read",
        action="store_true",
        help="for a query of your own: it writes what it reads, without transformations",
    )
    add_txn_app_id(found)
    add_schema_location(found)
    add_options(found, "an option of the stream, instead of those of its newest run")


def _replay(given: argparse.Namespace) -> Outcome:
    state = open_store(given.checkpoint_location)
    stream = read_metadata(state)
    if stream is None and not given.accept_loss:
        raise StateError(
            f"There is no state of a cloudFiles source in {printable_path(state.uri)}, so there "
            "are no plans to replay. Name the checkpoint location of the stream, or give the "
            "batches up with --accept-loss. Of a stream from a Delta table, the LostBatchesError "
            "of its runs says how to read the versions again."
        )
    run = newest_run(state)
    spec = JobSpec(
        kind="replay",
        source=stream.source if stream else given.checkpoint_location,
        format=stream.format if stream else "json",
        checkpoint_location=given.checkpoint_location,
        schema_location=given.schema_location or run.get("schema_location"),
        target=given.target,
        options=dict(given.option) or run.get("options") or {},
        spark_conf=run.get("spark_conf") or {},
        replay={
            "from_batch": given.from_batch,
            "accept_loss": given.accept_loss,
            "dry_run": given.dry_run,
            "as_read": given.as_read,
            "app_id": given.txn_app_id,
        },
        run_id=f"replay-{uuid.uuid4().hex}",
    )
    return run_job(spec, _TOLD)


def newest_run(state: ObjectStore) -> dict[str, Any]:
    """Read what the newest run of the stream was given; return nothing when there was none."""
    found = newest_ingest(state)
    if found is None:
        return {}
    _log.info("Options are those of run %s", found[1].get("run_id"))
    return found[1]
