"""`cloudfiles rescued`: why values are in the rescued data, and what helps."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from airflow_cloudfiles.commands.running.outcome import (
    Outcome,
    add_checkpoint_location,
    add_command,
    add_schema_location,
    as_text,
)
from airflow_cloudfiles.engine.extensions.table_run import TableRun

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands


def add_to(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    text = "say why the newest rescued values of a table do not fit their columns, and what helps"
    found = add_command(commands, "rescued", _rescued, help=text, parents=[shared])
    add_checkpoint_location(found)
    add_schema_location(found)
    found.add_argument("--target", metavar="URI", help="the table (default: the stream's own)")
    found.add_argument("--field", metavar="PATH", help="only this field, or what is inside it")
    found.add_argument("--file", metavar="NAME", help="only rows of this file: name, URI, pattern")


def _rescued(given: argparse.Namespace) -> Outcome:
    names = ("checkpoint_location", "schema_location", "target", "field", "file")
    asked = {name: getattr(given, name) for name in names}
    report = TableRun("explain", asked).wait()
    reasons = report["reasons"]
    text = "\n\n".join(map(as_text, reasons)) or "Nothing is rescued."
    return Outcome(reasons, text)
