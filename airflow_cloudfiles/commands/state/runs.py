"""Run `cloudfiles state runs`, which says how the newest runs of a stream went.

`cloudfiles runs` is the same, where people look first.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from airflow_cloudfiles.commands.running.outcome import (
    ColoredLine,
    Commands,
    Outcome,
    Parser,
    add_command,
    columns,
)
from airflow_cloudfiles.engine.extensions.overview.runs import Runs, RunSummary, newest_runs
from airflow_cloudfiles.engine.messages import printable, short_time
from airflow_cloudfiles.engine.state.metadata import existing_metadata
from airflow_cloudfiles.engine.storage import open_store

_HEADS = (
    "started", "outcome", "files", "rows", "rescued", "corrupt", "schema", "table",
    "seconds", "run",
)  # fmt: skip
_NUMBERS = range(2, 9)
"""Places of those that are numbers."""
_MOST = 20


def add_action(actions: Commands, parents: list[Parser]) -> None:
    """Add the action."""
    text = "list the newest runs: what each has committed, how long it took, what it failed for"
    found = add_command(actions, "runs", _runs, help=text, parents=parents)
    found.add_argument(
        "--most", type=_number, default=_MOST, metavar="N", help=f"how many at most ({_MOST})"
    )
    found.add_flag("--failed", "of these, only those that failed")


def add_to(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    where = Parser(add_help=False)
    where.add_checkpoint_location()
    add_action(commands, [shared, where])


def _runs(given: argparse.Namespace) -> Outcome:
    state = open_store(given.checkpoint_location)
    existing_metadata(state)
    found = newest_runs(state, given.most)
    shown = [each for each in found.newest if each.error or not given.failed]
    return Outcome(None, "", lines=map(_as_json, shown) if given.json else _table(shown, found))


def _as_json(run: RunSummary) -> str:
    return json.dumps(asdict(run), ensure_ascii=True)


def _table(shown: Sequence[RunSummary], found: Runs) -> Iterator[str | ColoredLine]:
    """Write the runs under a line of names, what one failed for below it."""
    head, *lines = columns([_HEADS, *map(_cells, shown)], right=_NUMBERS)
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


def _cells(run: RunSummary) -> tuple[str, ...]:
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
