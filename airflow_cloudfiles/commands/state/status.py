"""`cloudfiles status`: one line a stream, and an exit code for monitors."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.commands.running.outcome import (
    Outcome,
    Toned,
    add_checkpoint_location,
    add_command,
    add_schema_location,
    columns,
)
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.overview.status import StreamStatus, stream_status
from airflow_cloudfiles.engine.messages import counted, printable, short_time
from airflow_cloudfiles.engine.options.values import interval

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands
    from airflow_cloudfiles.engine.extensions.streams_file import NamedStream

_AT_ONCE = 8
_HEADS = ("stream", "status", "newest run", "rows", "waiting", "")
_NUMBERS = (3, 4)


def add_to(commands: Commands, shared: argparse.ArgumentParser) -> None:
    """Add the command."""
    text = "say how a stream is, or each of many: a line each; ends with 1 where one needs somebody"
    found = add_command(commands, "status", _status, help=text, parents=[shared])
    add_checkpoint_location(found, required=False)
    add_schema_location(found)
    found.add_argument(
        "--all",
        action="store_true",
        help="all streams of --streams-file; without one, all that Airflow has run",
    )
    found.add_argument(
        "--behind",
        metavar="INTERVAL",
        help="a file that waits longer than this needs somebody: '2 hours'",
    )


def _status(given: argparse.Namespace) -> Outcome:
    behind = timedelta(seconds=interval.read("--behind", given.behind)) if given.behind else None
    if not given.all:
        if given.checkpoint_location is None:
            raise OptionError("cloudfiles status needs --checkpoint-location, --stream or --all.")
        name = given.stream or given.checkpoint_location
        one = stream_status(
            given.checkpoint_location, schema_location=given.schema_location, behind=behind
        )
        return _outcome([(name, one)])
    streams: Sequence[NamedStream] = given.all_streams(given.streams_file)

    def look(stream: NamedStream) -> tuple[str, StreamStatus]:
        location = stream.arguments["checkpoint_location"]
        elsewhere = stream.arguments.get("schema_location")
        status = stream_status(location, stream.access, schema_location=elsewhere, behind=behind)
        return stream.name, status

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return _outcome(list(pool.map(look, streams)))


def _outcome(found: Sequence[tuple[str, StreamStatus]]) -> Outcome:
    troubles = sum(status.is_trouble for _, status in found)
    value: list[dict[str, Any]] = [{"stream": name, **asdict(status)} for name, status in found]
    head, *rows = columns([_HEADS, *(_cells(*each) for each in found)], right=_NUMBERS)
    lines: list[str | Toned] = [Toned(head, "heading")]
    for (_, status), row in zip(found, rows, strict=True):
        lines.append(Toned(row, "problem") if status.is_trouble else row)
    if len(found) > 1:
        lines.append(f"{counted(len(found), 'stream')}, {troubles:,} in trouble")
    return Outcome(value, "", code=1 if troubles else 0, lines=lines)


def _cells(name: str, status: StreamStatus) -> tuple[str, ...]:
    newest, overview = status.newest, status.overview
    waiting = "-"
    if overview is not None:
        waiting = f"{overview.outstanding_files:,}{'' if overview.is_counted else '+'}"
    return (
        printable(name),
        status.standing,
        short_time(newest.started) if newest else "-",
        f"{newest.rows:,}" if newest else "-",
        waiting,
        printable(status.sentence),
    )
