"""Run `cloudfiles state files` and `cloudfiles file`, which are about single files of a stream.

The first says whether, when and how a file was ingested; the second has files ingested again, left
out, put aside, or forgotten.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Final

from airflow_cloudfiles.commands.outcome import (
    ColoredLine,
    Commands,
    Outcome,
    Parser,
    add_command,
    add_group,
    as_text,
    terminal_width,
)
from airflow_cloudfiles.engine.extensions.table_run import TableRun
from airflow_cloudfiles.engine.intake.file_state_columns import error_text, rows
from airflow_cloudfiles.engine.intake.file_states import (
    STATUSES,
    FileQuery,
    FileStates,
    StateSnapshot,
)
from airflow_cloudfiles.engine.messages import counted, printable

_TIMES = ("discovered_since", "discovered_until", "committed_since", "committed_until")
Shown = Sequence[tuple[str, int]]
"""What a person sees of a file, and how wide."""
_SHOWN: Final[Shown] = (
    ("status", 10),
    ("discovery_time", 19),
    ("commit_time", 19),
    ("batch_id", 8),
    ("size", 12),
    ("rows", 10),
    ("rescued_rows", 12),
    ("corrupt_records", 15),
    ("path", 0),
    ("run_id", 0),
)
_NUMBERS = {"batch_id", "size", "rows", "rescued_rows", "corrupt_records"}
_ACTIONS = {
    "replay": "have files ingested again by the next run, whose rows replace their former ones; "
    "batches that a table has lost: cloudfiles replay",
    "skip": "never ingest files that were not ingested yet",
    "quarantine": "put files aside that make runs fail, until they are released",
    "release": "have files ingested that were skipped or quarantined",
    "forget": "let the stream not know files any more: what is still there is found as new",
}
_OPERATED: Final[Shown] = (
    ("operation", 10),
    ("operation_time", 19),
    ("status", 11),
    ("batch_id", 8),
    ("path", 0),
    ("operation_reason", 0),
)


def add_action(actions: Commands, parents: list[Parser]) -> None:
    """Add the action."""
    text = (
        "list the files that were recorded: how far each is, when, in which batch and run, how "
        "many rows it has, how many of them are rescued or corrupt, and the first error"
    )
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
    return Outcome(None, "", lines=_lines_of(found, _SHOWN, as_json=given.json))


def _lines_of(
    found: Iterator[Mapping[str, Any]], shown: Shown, *, as_json: bool
) -> Iterator[str | ColoredLine]:
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


def _table(found: Iterator[Mapping[str, Any]], shown: Shown) -> Iterator[str | ColoredLine]:
    """Write rows as they come, under a line of names; widths are those that are usual."""
    count = 0
    for row in found:
        if count == 0:
            yield ColoredLine(_line({name: name for name, _ in shown}, shown), "heading")
        count += 1
        yield _line({name: _cell(row[name]) for name, _ in shown}, shown)
        if shown is _SHOWN and (error := error_text(row)):
            yield ColoredLine(f"    {printable(error)}", "caution")
    yield counted(count, "file")


def _line(cells: Mapping[str, str], shown: Shown) -> str:
    """Write a row; what a terminal is too narrow for is below."""
    short = [(name, width) for name, width in shown if width]
    texts = [
        cells[name].rjust(width) if name in _NUMBERS else cells[name].ljust(width)
        for name, width in short
    ]
    long = [cells[name] for name, width in shown if not width]
    line = "  ".join([*texts, *long]).rstrip()
    most = terminal_width()
    if most is None or len(line) <= most:
        return line
    ends = list(accumulate(len(each) + 2 for each in texts))
    fit = sum(end - 2 <= most for end in ends)
    lines = ["  ".join(texts[:fit]).rstrip()]
    if fit < len(short):
        # A line of names has those that are below beside their values.
        rest = [(name, cells[name]) for name, _ in short[fit:] if cells[name] != name]
        lines += ["    " + ", ".join(f"{name} {cell}" for name, cell in rest)] if rest else []
    return "\n".join([*lines, "    " + "  ".join(long)])


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


def add_to(commands: Commands, shared: Parser) -> None:
    """Add the command and what it can do."""
    text = "have single files ingested again, left out, put aside, or forgotten"
    actions = add_group(commands, "file", text)
    for name, help_text in _ACTIONS.items():
        _add(actions, name, help_text, shared)
    text = "list the files to which something was done, and how far they are"
    listed = add_command(actions, "list", _list, help=text, parents=[shared])
    listed.add_checkpoint_location()


def _add(actions: Commands, name: str, help_text: str, shared: Parser) -> None:
    found = add_command(actions, name, _operate, help=help_text, parents=[shared])
    found.set_defaults(action=name)
    found.add_checkpoint_location()
    found.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a file: relative to the source, or its URI; written exactly as it is named",
    )
    found.add_flag(
        "--glob",
        "the paths are patterns or folders, and mean the files to which this applies",
    )
    found.add_argument("--reason", default="", metavar="TEXT", help="why, for people")
    found.add_location("--target", "the table, where no run of a job has written it")
    found.add_txn_app_id()
    found.add_argument(
        "--operation-id",
        default="",
        metavar="NAME",
        help="a name of this operation: it is done once to a file under this name",
    )
    found.add_flag("--dry-run", "only tell what would be done")
    if name == "replay":
        found.add_flag("--append", "former rows stay: the rows of the files are there twice")
        found.add_argument(
            "--path-column",
            metavar="COLUMN",
            help="the column of the table with the URI of a row's file; default: what "
            "cloudFiles.metadataColumns says",
        )


def _operate(given: argparse.Namespace) -> Outcome:
    asked = {
        "checkpoint_location": given.checkpoint_location,
        "action": given.action,
        "paths": given.paths,
        "reason": given.reason,
        "pattern": given.glob,
        "append": getattr(given, "append", False),
        "target": given.target,
        "path_column": getattr(given, "path_column", None),
        "txn_app_id": given.txn_app_id,
        "operation_id": given.operation_id,
        "dry_run": given.dry_run,
    }
    report = TableRun("operate", asked).wait()
    lines = [as_text(report)]
    if given.dry_run and report["files"]:
        lines.append("Nothing was changed. Leave out --dry-run to do it.")
    return Outcome(report, "\n".join(lines))


def _list(given: argparse.Namespace) -> Outcome:
    snapshot = StateSnapshot.take(given.checkpoint_location)
    found = rows(FileStates(snapshot, FileQuery()).operated())
    return Outcome(None, "", lines=_lines_of(found, _OPERATED, as_json=given.json))
