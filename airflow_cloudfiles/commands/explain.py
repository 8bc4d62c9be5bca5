"""`cloudfiles explain`: what do the options of a stream amount to?"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from airflow_cloudfiles.commands.outcome import Outcome, add_command, add_options, printable
from airflow_cloudfiles.engine.options.explained import Explained, explain

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.outcome import Commands


def add_to(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    help_text = "say what the options of a stream amount to; nothing is read or written"
    found = add_command(commands, "explain", _explain, help=help_text, parents=[shared])
    found.add_argument("--source", required=True, metavar="URI", help="where the files land")
    found.add_argument("--format", required=True, metavar="NAME", help="cloudFiles.format")
    found.add_argument("--all", action="store_true", help="list the options not given, too")
    add_options(found, "an option of the stream")


def _explain(given: argparse.Namespace) -> Outcome:
    found = explain(given.source, {"cloudFiles.format": given.format, **dict(given.option)})
    return Outcome(asdict(found), "\n".join(_lines(found, has_all=given.all)))


def _lines(found: Explained, *, has_all: bool) -> list[str]:
    shown = [each for each in found.options if each.is_given or has_all]
    width = max(len(each.name) for each in shown)
    lines = [
        f"{each.name.ljust(width)}  {'given  ' if each.is_given else 'default'}  "
        f"{'-' if each.value is None else printable(each.value)}"
        for each in shown
    ]
    return [*lines, "", *map(printable, found.follows)]
