"""`cloudfiles infer`: write the schema of a stream, or infer it again with the options of now."""

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
    add_schema_location,
)
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands

_TOLD = (
    "schema_version",
    "created",
    "schema",
    "sampled_files",
    "sampled_bytes",
    "partition_columns",
    "hints",
    "changes",
    "warnings",
)


def add_to(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    help_text = "infer the schema of a stream and write it to its schema log, unless it has one"
    found = add_command(commands, "infer", _infer, help=help_text, parents=[shared])
    add_checkpoint_location(found)
    add_schema_location(found)
    found.add_argument(
        "--source", metavar="URI", help="where the files land; needed before the first run"
    )
    found.add_argument(
        "--format", metavar="NAME", help="cloudFiles.format; needed before the first run"
    )
    add_options(found, "an option of the stream, such as cloudFiles.inferColumnTypes=true")
    found.add_argument(
        "--again",
        action="store_true",
        help="infer also where there is a schema: what differs is a new version, in which a column "
        "that the sample lacks is gone; needs the same options as the stream",
    )


def _infer(given: argparse.Namespace) -> Outcome:
    source, file_format = _stream(given)
    spec = JobSpec(
        kind="infer",
        source=source,
        format=file_format,
        checkpoint_location=given.checkpoint_location,
        schema_location=given.schema_location,
        options=dict(given.option),
        infer_again=given.again,
        run_id=f"infer-{uuid.uuid4().hex}",
    )
    return run_job(spec, _TOLD)


def _stream(given: argparse.Namespace) -> tuple[str, str]:
    """Source and format: as given, else as the state has them."""
    if given.source and given.format:
        return given.source, given.format
    state = open_store(given.checkpoint_location)
    known = read_metadata(state)
    if known is None:
        raise OptionError(
            f"There is no state in {printable_path(state.uri)} yet, so the source and the "
            "format are not known. Give --source and --format."
        )
    return given.source or known.source, given.format or known.format
