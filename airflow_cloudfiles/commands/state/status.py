"""Say how a stream is: `status`, `verify`, `rescued` and `runs`.

`status` has one line a stream, and an exit code for monitors; `verify` reads all of a state, and
says what of it is damaged; `rescued` says why values are in the rescued data, and what helps;
`runs` says how the newest runs went, as `state runs` does.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.commands.outcome import (
    ColoredLine,
    Commands,
    Outcome,
    Parser,
    add_command,
    as_text,
    columns,
)
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.overview.runs import Runs, RunSummary, newest_runs
from airflow_cloudfiles.engine.extensions.overview.status import StreamStatus, stream_status
from airflow_cloudfiles.engine.extensions.overview.verify import VerifiedState, verify_state
from airflow_cloudfiles.engine.extensions.table_run import TableRun
from airflow_cloudfiles.engine.messages import counted, printable, short_time
from airflow_cloudfiles.engine.options.values import interval
from airflow_cloudfiles.engine.state.metadata import existing_metadata
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.extensions.streams_file import NamedStream


_AT_ONCE = 8
_HEADS = ("stream", "status", "newest run", "rows", "waiting", "")
_NUMBERS = (3, 4)


def add_status(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    text = "say how a stream is, or each of many: a line each; ends with 1 where one needs somebody"
    found = add_command(commands, "status", _status, help=text, parents=[shared])
    found.add_checkpoint_location(required=False)
    found.add_schema_location()
    found.add_flag("--all", "all streams of --streams-file; without one, all that Airflow has run")
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
        return _statuses([(name, one)])
    streams: Sequence[NamedStream] = given.all_streams(given.streams_file)

    def look(stream: NamedStream) -> tuple[str, StreamStatus]:
        location = stream.arguments["checkpoint_location"]
        elsewhere = stream.arguments.get("schema_location")
        status = stream_status(location, stream.access, schema_location=elsewhere, behind=behind)
        return stream.name, status

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return _statuses(list(pool.map(look, streams)))


def _statuses(found: Sequence[tuple[str, StreamStatus]]) -> Outcome:
    troubles = sum(status.is_trouble for _, status in found)
    value: list[dict[str, Any]] = [{"stream": name, **asdict(status)} for name, status in found]
    head, *rows = columns([_HEADS, *(_cells(*each) for each in found)], right=_NUMBERS)
    lines: list[str | ColoredLine] = [ColoredLine(head, "heading")]
    for (_, status), row in zip(found, rows, strict=True):
        lines.append(ColoredLine(row, "problem") if status.is_trouble else row)
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


def add_verify(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    text = "read all of a state, and say what of it is damaged; nothing is changed"
    found = add_command(commands, "verify", _verify, help=text, parents=[shared])
    found.add_checkpoint_location()
    found.add_schema_location()


def _verify(given: argparse.Namespace) -> Outcome:
    found = verify_state(given.checkpoint_location, schema_location=given.schema_location)
    return Outcome(asdict(found), "", code=1 if found.damages else 0, lines=_damages(found))


def _damages(found: VerifiedState) -> Iterator[str | ColoredLine]:
    for each in found.damages:
        yield ColoredLine(f"{each.name}: {each.problem}", "problem")
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


def add_rescued(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    text = "say why the newest rescued values of a table do not fit their columns, and what helps"
    found = add_command(commands, "rescued", _rescued, help=text, parents=[shared])
    found.add_checkpoint_location()
    found.add_schema_location()
    found.add_location("--target", "the table (default: the stream's own)")
    found.add_argument("--field", metavar="PATH", help="only this field, or what is inside it")
    found.add_argument("--file", metavar="NAME", help="only rows of this file: name, URI, pattern")


def _rescued(given: argparse.Namespace) -> Outcome:
    names = ("checkpoint_location", "schema_location", "target", "field", "file")
    asked = {name: getattr(given, name) for name in names}
    report = TableRun("explain", asked).wait()
    reasons = report["reasons"]
    text = "\n\n".join(map(as_text, reasons)) or "Nothing is rescued."
    return Outcome(reasons, text)


_RUN_HEADS = (
    "started", "outcome", "files", "rows", "rescued", "corrupt", "schema", "table",
    "seconds", "run",
)  # fmt: skip
_RUN_NUMBERS = range(2, 9)
"""Places of those that are numbers."""
_MOST = 20


def add_runs_action(actions: Commands, parents: list[Parser]) -> None:
    """Add the action."""
    text = "list the newest runs: what each has committed, how long it took, what it failed for"
    found = add_command(actions, "runs", _runs, help=text, parents=parents)
    found.add_argument(
        "--most", type=_number, default=_MOST, metavar="N", help=f"how many at most ({_MOST})"
    )
    found.add_flag("--failed", "of these, only those that failed")


def add_runs(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    where = Parser(add_help=False)
    where.add_checkpoint_location()
    add_runs_action(commands, [shared, where])


def _runs(given: argparse.Namespace) -> Outcome:
    state = open_store(given.checkpoint_location)
    existing_metadata(state)
    found = newest_runs(state, given.most)
    shown = [each for each in found.newest if each.error or not given.failed]
    return Outcome(
        None, "", lines=map(_as_json, shown) if given.json else _table_of_runs(shown, found)
    )


def _as_json(run: RunSummary) -> str:
    return json.dumps(asdict(run), ensure_ascii=True)


def _table_of_runs(shown: Sequence[RunSummary], found: Runs) -> Iterator[str | ColoredLine]:
    """Write the runs under a line of names, what one failed for below it."""
    head, *lines = columns([_RUN_HEADS, *map(_run_cells, shown)], right=_RUN_NUMBERS)
    if lines:
        yield ColoredLine(head, "heading")
    for run, line in zip(shown, lines, strict=True):
        yield ColoredLine(line, "problem") if run.error else line
        if run.error:
            why = f"{run.message} {run.section}".rstrip()
            yield f"    {printable(run.error)}: {printable(why)}"
        if run.others:
            yield f"    Also {run.others}"
        for warning in run.warnings:
            yield ColoredLine(f"    {printable(warning)}", "caution")
    yield f"{len(lines):,} of {found.kept:,} {'run' if found.kept == 1 else 'runs'}"


def _run_cells(run: RunSummary) -> tuple[str, ...]:
    counts = (run.files, run.rows, run.rescued_rows, run.corrupt_records)
    numbers = (*counts, run.schema_version, run.target_version)
    return (
        short_time(run.started),
        printable(f"{run.kind} {run.outcome}"),
        *("-" if each is None else f"{each:,}" for each in numbers),
        "-" if run.seconds is None else f"{run.seconds:,.1f}",
        printable(run.run_id),
    )


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        msg = f"{text!r} is not a number of runs, such as {_MOST}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)
