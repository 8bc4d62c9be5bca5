"""Run `cloudfiles explain`, which says what the options of a stream amount to."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from airflow_cloudfiles.commands.running.outcome import Commands, Outcome, Parser, add_command
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.streams_file import read_streams
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.messages import counted, printable
from airflow_cloudfiles.engine.options.explained import StreamExplanation, explain
from airflow_cloudfiles.engine.state.run_history import newest_ingest
from airflow_cloudfiles.engine.storage import open_store


def add_to(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    help_text = "say what the options of a stream amount to; no file is read, nothing written"
    found = add_command(commands, "explain", _explain, help=help_text, parents=[shared])
    found.add_location("--source", "where the files land")
    found.add_argument("--format", metavar="NAME", help="cloudFiles.format")
    found.add_argument(
        "--file",
        metavar="YAML",
        help="check a file of streams (streams_from_file) instead, as a test of a repository",
    )
    found.add_checkpoint_location(required=False, help_text="of a stream: what its newest run has")
    found.add_flag("--all", "list the options not given, too")
    found.add_options("an option of the stream")


def _explain(given: argparse.Namespace) -> Outcome:
    if given.file:
        return _checked(given)
    known: Mapping[str, Any] = {}
    source, name = given.source, given.format
    if given.checkpoint_location and not (source and name):
        known = _newest(given.checkpoint_location)
        source, name = source or known["source"], name or known["format"]
    if not source or not name:
        raise OptionError(
            "Give --source and --format of a stream, the --checkpoint-location of one that has "
            "run, or --file of many."
        )
    options = {**known.get("options", {}), "cloudFiles.format": name, **dict(given.option)}
    found = explain(source, options)
    return Outcome(asdict(found), "\n".join(_lines(found, has_all=given.all)))


def _newest(checkpoint_location: str) -> Mapping[str, Any]:
    """Read the specification of the newest ingestion of a stream."""
    found = newest_ingest(open_store(checkpoint_location))
    if found is None:
        raise OptionError(
            f"No run of {printable_path(checkpoint_location)} is known. Give --source, --format "
            "and the options."
        )
    return found[1]


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


def _lines(found: StreamExplanation, *, has_all: bool) -> list[str]:
    shown = [each for each in found.options if each.is_given or has_all]
    width = max(len(each.name) for each in shown)
    lines = [
        f"{each.name.ljust(width)}  {'given  ' if each.is_given else 'default'}  "
        f"{'-' if each.value is None else printable(each.value)}"
        for each in shown
    ]
    return [*lines, "", *map(printable, found.follows)]
