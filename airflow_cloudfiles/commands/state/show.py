"""`cloudfiles state`: what a checkpoint location holds, packing its logs, and taking it elsewhere.

`cloudfiles state show`, the same as `cloudfiles state`, sums it up; `cloudfiles state files` lists
the files (`files`), `cloudfiles state runs` the runs (`status`). They read, and nothing else.
`cloudfiles state compact` makes it smaller. `export`, `import`, `move` and `relocate` bring it, or
its source, elsewhere; `start-over` removes it.
"""

from __future__ import annotations

import argparse
import json
import socket
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.commands.outcome import (
    Commands,
    Outcome,
    Parser,
    add_command,
    as_text,
)
from airflow_cloudfiles.commands.state import files, status
from airflow_cloudfiles.engine.discovery.listing import state as listing_state
from airflow_cloudfiles.engine.errors import CorruptedStateError, OptionError
from airflow_cloudfiles.engine.extensions.overview.verify import verify_state
from airflow_cloudfiles.engine.extensions.table_run import TableRun
from airflow_cloudfiles.engine.extensions.transfer.archived import export_state, import_state
from airflow_cloudfiles.engine.extensions.transfer.move import move_state
from airflow_cloudfiles.engine.extensions.transfer.relocate import relocate_source
from airflow_cloudfiles.engine.files import START, Offset, printable_path
from airflow_cloudfiles.engine.intake.ledger import snapshots
from airflow_cloudfiles.engine.intake.stream_logs import files_and_bytes
from airflow_cloudfiles.engine.intake.upkeep import compact
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.options.declared import options_of
from airflow_cloudfiles.engine.options.discovery import UpkeepOptions
from airflow_cloudfiles.engine.processes import is_alive
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.locks import run_lock
from airflow_cloudfiles.engine.state.metadata import existing_metadata
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import position
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore


def add_transfer(actions: Commands, parents: list[Parser]) -> None:
    """Add the actions."""
    text = "write the whole state into one archive, with digests"
    found = add_command(actions, "export", _export, help=text, parents=parents)
    found.add_argument("--to", metavar="FILE", required=True, help="a file or an object to create")
    found.add_flag("--damaged", "also a state that verify finds damaged, as it is")
    text = "make a state of an archive, in a location that has nothing"
    found = add_command(actions, "import", _import, help=text, parents=parents)
    found.add_argument(
        "--from", dest="archive", metavar="FILE", required=True, help="what export has written"
    )
    text = "move the state to another location; the old one refuses every run then"
    found = add_command(actions, "move", _move, help=text, parents=parents)
    found.add_location("--to", "a location that has nothing", required=True)
    _add_relocate(actions, parents)
    _add_start_over(actions, parents)


def _add_relocate(actions: Commands, parents: list[Parser]) -> None:
    text = "go on with the same files at another place, under the same relative paths"
    found = add_command(actions, "relocate", _relocate, help=text, parents=parents)
    found.add_location("--source", "where the files are now", required=True)
    found.add_flag("--dry-run", "only compare, and print counts")
    found.add_argument(
        "--sample",
        type=int,
        metavar="N",
        help="look for N recorded files instead of listing the new place",
    )
    found.add_flag("--allow-missing", "go on although recorded files are not at the new place")
    found.add_flag(
        "--allow-overwrites",
        "for streams with cloudFiles.allowOverwrites: the versions at the new place are known",
    )
    found.add_schema_location()


def _add_start_over(actions: Commands, parents: list[Parser]) -> None:
    text = "remove the state, so that the stream ingests everything again; no row of a table goes"
    found = add_command(actions, "start-over", _start_over, help=text, parents=parents)
    found.add_location("--target", "the table to fill: another one, or one that was deleted")
    found.add_flag("--dry-run", "only tell what would be removed")
    found.add_schema_location()


def _start_over(given: argparse.Namespace) -> Outcome:
    names = ("checkpoint_location", "target", "schema_location", "dry_run")
    asked = {name: getattr(given, name) for name in names}
    report = TableRun("start over", asked).wait()
    return Outcome(report, as_text(report))


def _export(given: argparse.Namespace) -> Outcome:
    if not given.damaged:
        _require_whole(
            given.checkpoint_location,
            "Mend it, or export it as it is with --damaged. Nothing is written.",
        )
    return _outcome(export_state(given.checkpoint_location, given.to))


def _import(given: argparse.Namespace) -> Outcome:
    outcome = _outcome(import_state(given.archive, given.checkpoint_location))
    _require_whole(given.checkpoint_location, "It is as it was when it was exported.")
    return outcome


def _require_whole(checkpoint_location: str, what_to_do: str) -> None:
    """Refuse a damaged state.

    Raises:
        CorruptedStateError: It is one.
    """
    damages = verify_state(checkpoint_location).damages
    if damages:
        raise CorruptedStateError(
            f"{printable_path(checkpoint_location)} has {counted(len(damages), 'damage')}, such as "
            f"{damages[0].name}: {damages[0].problem} `cloudfiles verify` lists them. {what_to_do}"
        )


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


def add_compact(actions: Commands, parents: list[Parser]) -> None:
    """Add the action."""
    text = "pack old entries of the logs, as jobs do by themselves; no entry is lost by it"
    found = add_command(actions, "compact", _compact, help=text, parents=parents)
    found.add_flag("--dry-run", "only tell what the first pass would do")
    found.add_argument(
        "--run-retention",
        metavar="INTERVAL",
        default="30 days",
        help="how long specifications and reports of runs stay: '30 days' (the default)",
    )


def _compact(given: argparse.Namespace) -> Outcome:
    retention = options_of(UpkeepOptions)["run_retention_seconds"]
    seconds = retention.kind.read("--run-retention", given.run_retention)
    done = compact(
        open_store(given.checkpoint_location), retention_seconds=seconds, dry_run=given.dry_run
    )
    value = {"is_done": not given.dry_run, **asdict(done)}
    return Outcome(value, as_text(value))


def add_to(commands: Commands, shared: Parser) -> None:
    """Add the command."""
    help_text = "show what a checkpoint location holds, compact or move it"
    found = add_command(commands, "state", _state, help=help_text, parents=[shared])
    # Not required here: it may stand behind the action, too.
    found.add_checkpoint_location(required=False)
    where = Parser(add_help=False)
    where.add_checkpoint_location()
    actions = found.add_subparsers(title="actions", metavar="action")
    add_command(actions, "show", _state, help="sum it up (the default)", parents=[shared, where])
    for add in (files.add_action, status.add_runs_action, add_compact, add_transfer):
        add(actions, [shared, where])


def _state(given: argparse.Namespace) -> Outcome:
    if given.checkpoint_location is None:
        raise OptionError("cloudfiles state needs --checkpoint-location.")
    state = open_store(given.checkpoint_location)
    metadata = existing_metadata(state)
    value = {
        "checkpoint_location": printable_path(state.uri),
        "source": printable_path(metadata.source),
        "format": metadata.format,
        "stream_id": metadata.stream_id,
        **_files(state),
        "plans": _plans(state),
        "snapshots": _snapshots(state),
        "last_listing": _last_listing(state),
        "run_lock": _lock(state, run_lock.KEY),
        "job_lock": _lock(state, run_lock.JOB_KEY),
    }
    return Outcome(value, as_text(value))


def _files(state: ObjectStore) -> dict[str, Any]:
    """Describe what is recorded, and how far it is committed."""
    log = FileLog(state)
    entries = [log.summary(number) for number in range(log.latest() + 1)]
    found_by: Counter[str] = Counter()
    for entry in entries:
        found_by[entry.found_by] += entry.files
    committed = position(state).end
    head = Offset(len(entries), 0)
    ingested, size = files_and_bytes(log, START, head)
    left, left_bytes = files_and_bytes(log, committed, head)
    return {
        "entries": len(entries),
        "newest_entry": entries[-1].created if entries else None,
        "files": ingested,
        "bytes": size,
        "found_by": dict(found_by),
        "committed_files": ingested - left,
        "outstanding_files": left,
        "outstanding_bytes": left_bytes,
    }


def _plans(state: ObjectStore) -> dict[str, Any]:
    latest = PlanLog(state).latest()
    if latest is None:
        return {}
    return {
        "batches": latest.number + 1,
        "files_of_newest": latest.files,
        "end_of_newest": latest.end.to_json(),
    }


def _snapshots(state: ObjectStore) -> list[str]:
    """Folders of the snapshots of the index that are whole."""
    prefix = f"{snapshots.PREFIX}/"
    keys = (entry.path.removeprefix(prefix) for entry in state.list(prefix))
    return [key.partition("/")[0] for key in keys if key.endswith(f"/{snapshots.COMPLETE}")]


def _last_listing(state: ObjectStore) -> dict[str, Any]:
    remembered = listing_state.load_state(state)
    if remembered == listing_state.ListingState():
        return {}
    return {
        "last_full": _time(remembered.full_started),
        "files_of_last_full": remembered.full_listed,
        "incremental_since": remembered.incremental,
        "new_files_come_last": remembered.lexical,
        "is_interrupted": remembered.unfinished is not None,
        "last_notified": _time(remembered.notified),
    }


def _time(seconds: float) -> str | None:
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _lock(state: ObjectStore, key: str) -> str | None:
    """Say who took a lock last, from what it wrote there; looking must not take it."""
    try:
        note = json.loads(state.get(key))
        pid, host, since = int(note["pid"]), str(note["host"]), str(note["since"])
    except (ObjectNotFoundError, ValueError, TypeError, KeyError):
        return None
    if host != socket.gethostname():
        running = "on another host"
    elif is_alive(pid):
        running = "which is running"
    else:
        running = "which has ended"
    return f"taken last by process {pid} on {host} at {since}, {running}"
