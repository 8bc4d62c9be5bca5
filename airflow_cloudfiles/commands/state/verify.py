"""`cloudfiles verify`: read all of a state, and say what of it is damaged."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from airflow_cloudfiles.commands.running.outcome import (
    Outcome,
    Toned,
    add_checkpoint_location,
    add_command,
    add_schema_location,
)
from airflow_cloudfiles.engine.extensions.overview.verify import VerifiedState, verify_state
from airflow_cloudfiles.engine.messages import counted

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands


def add_to(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    text = "read all of a state, and say what of it is damaged; nothing is changed"
    found = add_command(commands, "verify", _verify, help=text, parents=[shared])
    add_checkpoint_location(found)
    add_schema_location(found)


def _verify(given: argparse.Namespace) -> Outcome:
    found = verify_state(given.checkpoint_location, schema_location=given.schema_location)
    return Outcome(asdict(found), "", code=1 if found.damages else 0, lines=_lines(found))


def _lines(found: VerifiedState) -> Iterator[str | Toned]:
    for each in found.damages:
        yield Toned(f"{each.name}: {each.problem}", "problem")
    read = (
        counted(found.entries, "entry"),
        counted(found.files, "file"),
        counted(found.batches, "batch"),
        counted(found.schema_versions, "version of the schema", "versions of the schema"),
        counted(found.objects, "other object"),
    )
    yield f"{found.source}: {', '.join(read)}"
    damages = len(found.damages)
    yield f"{counted(damages, 'damage')} found" if damages else "The state is whole."
