"""`cloudfiles promote`: turn fields of a table's rescued data into columns, and fill them."""

from __future__ import annotations

import argparse
import re
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
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.state.metadata import existing_metadata
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands

_FIELD = re.compile(r"((?:`(?:[^`]|``)*`|[^=`])+)(?:=(.+))?", re.DOTALL)
_TOLD = (
    "columns",
    "rows",
    "values",
    "files_rewritten",
    "bytes_rewritten",
    "schema_version",
    "target_version",
    "warnings",
)


def add_to(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    help_text = "turn fields of the rescued data of a table into columns, and fill them"
    found = add_command(commands, "promote", _promote, help=help_text, parents=[shared])
    add_checkpoint_location(found)
    found.add_argument("--target", required=True, metavar="URI", help="the Delta table")
    found.add_argument(
        "--field",
        type=_field,
        action="append",
        required=True,
        dest="fields",
        metavar="PATH[=TYPE]",
        help="a dotted path, such as user.zip=STRING; without a type, the rescued values tell it; "
        "may be repeated",
    )
    add_schema_location(found)
    add_options(found, "an option of the stream, such as cloudFiles.inferColumnTypes=true")


def _promote(given: argparse.Namespace) -> Outcome:
    state = open_store(given.checkpoint_location)
    stream = existing_metadata(state)
    spec = JobSpec(
        kind="promote",
        source=stream.source,
        format=stream.format,
        checkpoint_location=given.checkpoint_location,
        schema_location=given.schema_location,
        target=given.target,
        options=dict(given.option),
        promote=dict(given.fields),
        run_id=f"promote-{uuid.uuid4().hex}",
    )
    return run_job(spec, _TOLD)


def _field(text: str) -> tuple[str, str | None]:
    """Read a path with or without a type."""
    found = _FIELD.fullmatch(text)
    if found is None:
        msg = f"{text!r} is not written PATH or PATH=TYPE"
        raise argparse.ArgumentTypeError(msg)
    return found[1], found[2]
