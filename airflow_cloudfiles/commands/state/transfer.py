"""`cloudfiles state export`, `import`, `move`, `relocate`: a state, or its source, elsewhere."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from airflow_cloudfiles.commands.running.outcome import Outcome, add_command, as_text
from airflow_cloudfiles.engine.transfer.archived import export_state, import_state
from airflow_cloudfiles.engine.transfer.move import move_state
from airflow_cloudfiles.engine.transfer.relocate import relocate_source

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands


def add_to(actions: Commands, parents: list[argparse.ArgumentParser]) -> None:
    """Add the actions."""
    text = "write the whole state into one archive, with digests"
    found = add_command(actions, "export", _export, help=text, parents=parents)
    found.add_argument("--to", metavar="FILE", required=True, help="a file or an object to create")
    text = "make a state of an archive, in a location that has nothing"
    found = add_command(actions, "import", _import, help=text, parents=parents)
    found.add_argument(
        "--from", dest="archive", metavar="FILE", required=True, help="what export has written"
    )
    text = "move the state to another location; the old one refuses every run then"
    found = add_command(actions, "move", _move, help=text, parents=parents)
    found.add_argument("--to", metavar="URI", required=True, help="a location that has nothing")
    _add_relocate(actions, parents)


def _add_relocate(actions: Commands, parents: list[argparse.ArgumentParser]) -> None:
    text = "go on with the same files at another place, under the same relative paths"
    found = add_command(actions, "relocate", _relocate, help=text, parents=parents)
    found.add_argument("--source", metavar="URI", required=True, help="where the files are now")
    found.add_argument("--dry-run", action="store_true", help="only compare, and print counts")
    found.add_argument(
        "--sample",
        type=int,
        metavar="N",
        help="look for N recorded files instead of listing the new place",
    )
    found.add_argument(
        "--allow-missing",
        action="store_true",
        help="go on although recorded files are not at the new place",
    )
    found.add_argument(
        "--allow-overwrites",
        action="store_true",
        help="for streams with cloudFiles.allowOverwrites: the versions at the new place are known",
    )
    found.add_argument(
        "--schema-location", metavar="URI", help="the folder that has _schemas/, if it is another"
    )


def _export(given: argparse.Namespace) -> Outcome:
    return _outcome(export_state(given.checkpoint_location, given.to))


def _import(given: argparse.Namespace) -> Outcome:
    return _outcome(import_state(given.archive, given.checkpoint_location))


def _move(given: argparse.Namespace) -> Outcome:
    return _outcome(move_state(given.checkpoint_location, given.to))


def _relocate(given: argparse.Namespace) -> Outcome:
    found = relocate_source(
        given.checkpoint_location,
        given.source,
        dry_run=given.dry_run,
        sample=given.sample,
        allow_missing=given.allow_missing,
        allow_overwrites=given.allow_overwrites,
        schema_location=given.schema_location,
    )
    return _outcome(found)


def _outcome(done: object) -> Outcome:
    value = asdict(done)  # type: ignore[call-overload]
    return Outcome(value, as_text(value))
