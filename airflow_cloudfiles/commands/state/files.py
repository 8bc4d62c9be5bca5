"""Run `cloudfiles state files`, which says whether, when and how a file was ingested."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.commands.running.outcome import (
    Outcome,
    Toned,
    add_command,
    terminal_width,
)
from airflow_cloudfiles.engine.intake.file_state_columns import rows
from airflow_cloudfiles.engine.intake.file_states import (
    STATUSES,
    FileQuery,
    FileStates,
    StateSnapshot,
)
from airflow_cloudfiles.engine.messages import counted, printable

if TYPE_CHECKING:
    from airflow_cloudfiles.commands.running.outcome import Commands

_TIMES = ("discovered_since", "discovered_until", "committed_since", "committed_until")
Shown = Sequence[tuple[str, int]]
"""What a person sees of a file, and how wide."""
_SHOWN: Final[Shown] = (
    ("status", 10),
    ("discovery_time", 19),
    ("commit_time", 19),
    ("batch_id", 8),
    ("size", 12),
    ("path", 0),
    ("run_id", 0),
)
_NUMBERS = {"batch_id", "size"}


def add_to(actions: Commands, parents: list[argparse.ArgumentParser]) -> None:
    """Add the action."""
    text = "list the files that were recorded: how far each is, when, in which batch and run"
    found = add_command(actions, "files", _files, help=text, parents=parents)
    found.add_argument(
        "--path",
        metavar="PATH",
        help="a file, a folder or a pattern, relative to the source or with all of its URI; "
        "a pattern without a slash is one for names",
    )
    found.add_argument(
        "--status", action="append", default=[], choices=STATUSES, help="may be repeated"
    )
    found.add_argument("--batch", type=int, metavar="N", help="files of this micro-batch")
    found.add_argument(
        "--run", dest="run_id", metavar="ID", help="files that this run has committed"
    )
    for name in _TIMES:
        kind, _, bound = name.partition("_")
        how = "at this time or later" if bound == "since" else "before this time"
        found.add_argument(
            f"--{name.replace('_', '-')}",
            type=_time,
            metavar="TIME",
            help=f"{kind} {how}: 2026-11-23, 2026-11-23T08:00 (UTC), 2026-11-23T09:00+01:00",
        )


def _files(given: argparse.Namespace) -> Outcome:
    query = FileQuery(
        path=given.path,
        status=tuple(given.status),
        batch_id=given.batch,
        run_id=given.run_id,
        **{name: getattr(given, name) for name in _TIMES},
    )
    snapshot = StateSnapshot.take(given.checkpoint_location)
    found = rows(FileStates(snapshot, query).groups())
    return Outcome(None, "", lines=file_lines(found, _SHOWN, as_json=given.json))


def file_lines(
    found: Iterator[Mapping[str, Any]], shown: Shown, *, as_json: bool
) -> Iterator[str | Toned]:
    """Write rows of files, as they come.

    Args:
        found: The rows.
        shown: The columns for a person, and how wide each is.
        as_json: Whether all columns are written, each row as a line of JSON.
    """
    return map(_as_json, found) if as_json else _table(found, shown)


def _as_json(row: Mapping[str, Any]) -> str:
    """Write a row as a line of JSON."""
    return json.dumps(row, default=datetime.isoformat, ensure_ascii=True)


def _table(found: Iterator[Mapping[str, Any]], shown: Shown) -> Iterator[str | Toned]:
    """Write rows as they come, under a line of names; widths are those that are usual."""
    count = 0
    for row in found:
        if count == 0:
            yield Toned(_line({name: name for name, _ in shown}, shown), "heading")
        count += 1
        yield _line({name: _cell(row[name]) for name, _ in shown}, shown)
    yield counted(count, "file")


def _line(cells: Mapping[str, str], shown: Shown) -> str:
    """Write a row; what has no usual width is below, where a terminal is too narrow for it."""
    short = [
        cells[name].rjust(width) if name in _NUMBERS else cells[name].ljust(width)
        for name, width in shown
        if width
    ]
    long = [cells[name] for name, width in shown if not width]
    line = "  ".join([*short, *long]).rstrip()
    most = terminal_width()
    if most is None or len(line) <= most:
        return line
    return "  ".join(short).rstrip() + "\n    " + "  ".join(long)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return printable(str(value))


def _time(text: str) -> datetime:
    """Read a time of the command line; without a zone it is one in UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        msg = f"{text!r} is not a time, such as 2026-11-23 or 2026-11-23T08:00"
        raise argparse.ArgumentTypeError(msg) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
