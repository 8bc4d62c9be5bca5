"""Run `cloudfiles explain`, which says what the options of a stream amount to."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from airflow_cloudfiles.commands.running.outcome import Outcome, add_command, add_options
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.messages import counted, printable
from airflow_cloudfiles.engine.options.explained import Explained, explain
from airflow_cloudfiles.engine.streams_file import read_streams

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands


def add_to(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    help_text = "say what the options of a stream amount to; nothing is read or written"
    found = add_command(commands, "explain", _explain, help=help_text, parents=[shared])
    found.add_argument("--source", metavar="URI", help="where the files land")
    found.add_argument("--format", metavar="NAME", help="cloudFiles.format")
    found.add_argument(
        "--file",
        metavar="YAML",
        help="check a file of streams (streams_from_file) instead, as a test of a repository",
    )
    found.add_argument("--all", action="store_true", help="list the options not given, too")
    add_options(found, "an option of the stream")


def _explain(given: argparse.Namespace) -> Outcome:
    if given.file:
        return _checked(given)
    if not given.source or not given.format:
        raise OptionError("Give --source and --format of a stream, or --file of many.")
    found = explain(given.source, {"cloudFiles.format": given.format, **dict(given.option)})
    return Outcome(asdict(found), "\n".join(_lines(found, has_all=given.all)))


def _checked(given: argparse.Namespace) -> Outcome:
    """Check a file of streams, and describe the streams of one without mistakes."""
    if given.source or given.format or given.option:
        raise OptionError("--file has the streams: leave out --source, --format and --option.")
    streams = read_streams(given.file)
    width = max((len(name) for name in streams), default=0)
    lines = [
        f"{name.ljust(width)}  {printable(str(stream['source']))} -> "
        f"{printable(str(stream['target']))}"
        for name, stream in streams.items()
    ]
    return Outcome({"streams": streams}, "\n".join([*lines, counted(len(streams), "stream")]))


def _lines(found: Explained, *, has_all: bool) -> list[str]:
    shown = [each for each in found.options if each.is_given or has_all]
    width = max(len(each.name) for each in shown)
    lines = [
        f"{each.name.ljust(width)}  {'given  ' if each.is_given else 'default'}  "
        f"{'-' if each.value is None else printable(each.value)}"
        for each in shown
    ]
    return [*lines, "", *map(printable, found.follows)]
