"""`cloudfiles schema`: the versions of a stream's schema, who brought what, and going back."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.commands.outcome import (
    Commands,
    Outcome,
    Parser,
    add_command,
    add_group,
    columns,
)
from airflow_cloudfiles.engine.messages import counted, few, printable
from airflow_cloudfiles.engine.names import quoted
from airflow_cloudfiles.engine.schema.diff import paths_of, type_text
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from airflow_cloudfiles.engine.schema.log_entry import NEW_FIELDS, SchemaEntry
from airflow_cloudfiles.engine.schema.proposals import SchemaProposals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def add_to(commands: Commands, shared: Parser) -> None:
    """Add the command and what it can do."""
    where = Parser(add_help=False)
    location = where.add_mutually_exclusive_group(required=True)
    location.add_argument(
        "--schema-location", dest="location", metavar="URI", help="the folder that has _schemas/"
    )
    location.add_argument(
        "--checkpoint-location",
        "--state",
        dest="location",
        metavar="URI",
        help="the same, when the schema log is in the checkpoint location",
    )
    text = "show how the schema of a stream came about, and put it right"
    actions = add_group(commands, "schema", text)
    for name, run, help_text, adds in _ACTIONS:
        action = add_command(actions, name, run, help=help_text, parents=[shared, where])
        adds(action)


def _list(given: argparse.Namespace) -> Outcome:
    history = SchemaHistory(given.location)
    history.show()  # refuses a location where no schema is
    versions = history.versions()
    value = [_as_json(entry) for entry in versions]
    rows = [
        [
            str(entry.version),
            entry.created[:19],
            str(entry.reason.get("change", "?")) + (" (pinned)" if entry.pin else ""),
            str(shown["columns"]),
            entry.reason.get("by") or "",
            _what(entry),
        ]
        for entry, shown in zip(versions, value, strict=True)
    ]
    head = ["version", "written (UTC)", "change", "columns", "by", "what"]
    return Outcome(value, "\n".join(columns([head, *rows])))


def _show(given: argparse.Namespace) -> Outcome:
    entry = SchemaHistory(given.location).show(given.version)
    value = {
        **_as_json(entry),
        "data_schema": entry.data_schema,
        "partition_schema": entry.partition_schema,
    }
    lines = [f"version {entry.version}, {entry.created}, {entry.reason.get('change', '?')}"]
    if entry.pin:
        lines.append(f"pinned: new fields {entry.pin}")
    for schema, of in ((entry.data_schema, ""), (entry.partition_schema, " (partition)")):
        lines += [
            f"  {quoted(each['name'])}: {type_text(each['type'])}{of}" for each in schema["fields"]
        ]
    return Outcome(value, "\n".join(lines))


def _diff(given: argparse.Namespace) -> Outcome:
    changes = SchemaHistory(given.location).diff(given.old, given.new)
    signs = {"added": "+", "removed": "-", "retyped": "~", "respelled": "~"}
    rows = [
        [signs[each.kind], each.path, " -> ".join(filter(None, (each.before, each.after)))]
        for each in changes
    ]
    text = "\n".join(columns(rows, has_heads=False)) or "no difference"
    return Outcome([asdict(each) for each in changes], text)


def _blame(given: argparse.Namespace) -> Outcome:
    origins = SchemaHistory(given.location).blame(given.version)
    rows = [
        [
            each.path,
            each.type if len(each.type) <= _WIDEST_TYPE else each.type[: _WIDEST_TYPE - 1] + "…",
            ", ".join(map(str, (each.version, *each.retyped_in))),
            each.created[:19],
            each.file or "",
        ]
        for each in origins
    ]
    head = ["column", "type", "version", "written (UTC)", "file"]
    return Outcome([asdict(each) for each in origins], "\n".join(columns([head, *rows])))


def _rollback(given: argparse.Namespace) -> Outcome:
    history = SchemaHistory(given.location)
    return _appended(history.rollback(given.to, pin=given.pin, note=given.note))


def _pin(given: argparse.Namespace) -> Outcome:
    history = SchemaHistory(given.location)
    return _appended(history.pin(given.version, new_fields=given.new_fields, note=given.note))


def _unpin(given: argparse.Namespace) -> Outcome:
    return _appended(SchemaHistory(given.location).unpin(note=given.note))


def _proposed(given: argparse.Namespace) -> Outcome:
    found = SchemaProposals(given.location).waiting()
    if found is None:
        return Outcome(None, "no change of the schema waits")
    value = {
        "proposal": found.number,
        "created": found.created,
        "by": found.by,
        "source": found.source,
        "changes": [asdict(each) for each in found.changes],
        "refused": None
        if found.refused_by is None
        else {"by": found.refused_by, "at": found.refused_at, "note": found.note},
    }
    lines = [f"proposal {found.number}, {found.created}, by {found.by}"]
    if found.refused_by is not None:
        note = f": {found.note}" if found.note else ""
        lines.append(f"refused by {found.refused_by}, {found.refused_at}{note}")
    for each in found.changes:
        lines.append(f"  {each.in_words()}")
        lines += [f"    in {each.file}"] if each.file else []
        lines += [f"    such as {', '.join(each.samples)}"] if each.samples else []
    return Outcome(value, printable("\n".join(lines), but="\n"))


def _accept(given: argparse.Namespace) -> Outcome:
    found = SchemaProposals(given.location)
    return _decided(found.accept(given.hints, proposal=given.proposal, note=given.note))


def _rescue(given: argparse.Namespace) -> Outcome:
    found = SchemaProposals(given.location)
    return _decided(found.rescue(proposal=given.proposal, note=given.note))


def _refuse(given: argparse.Namespace) -> Outcome:
    found = SchemaProposals(given.location)
    return _decided(found.refuse(proposal=given.proposal, note=given.note))


def _decided(entry: SchemaEntry) -> Outcome:
    reason = entry.reason
    text = (
        f"Version {entry.version} is written: proposal {reason['proposal']} is {reason['change']}. "
        "The next start of the stream goes on with that."
    )
    return Outcome(_as_json(entry), text)


def _appended(entry: SchemaEntry) -> Outcome:
    text = (
        f"Version {entry.version} is written ({entry.reason['change']}, columns of version "
        f"{entry.reason['to']}). The next start of the stream reads with it."
    )
    return Outcome(_as_json(entry), text)


def _as_json(entry: SchemaEntry) -> dict[str, Any]:
    """Describe a version for programs, without its columns."""
    fields = (*entry.data_schema["fields"], *entry.partition_schema["fields"])
    return {
        "version": entry.version,
        "created": entry.created,
        "source": entry.source,
        "columns": len(fields),
        "fields": len(paths_of({"type": "struct", "fields": fields})),
        "pin": entry.pin,
        "reason": dict(entry.reason),
    }


def _what(entry: SchemaEntry) -> str:
    """Say in some words why there is a version."""
    reason = entry.reason
    parts = []
    if fields := reason.get("fields"):
        parts.append("new: " + few([quoted(each) for each in fields]))
    if widened := reason.get("widened"):
        parts.append("wider: " + few(widened))
    if "to" in reason:
        parts.append(f"as version {reason['to']}")
    if reason.get("change") == "inferred":
        files = reason.get("files")
        parts.append("from ? files" if files is None else f"from {counted(files, 'file')}")
    if differences := reason.get("differences"):
        parts.append(few(differences))
    parts += _of_proposal(reason)
    if reason.get("note"):
        parts.append(str(reason["note"]))
    return "; ".join(parts)


def _of_proposal(reason: Mapping[str, Any]) -> list[str]:
    """Say what was decided about a proposal."""
    parts = ["stay rescued: " + few(reason["rescued"])] if "rescued" in reason else []
    return parts + ([f"proposal {reason['proposal']}"] if "proposal" in reason else [])


def _version(help_text: str) -> Callable[[Parser], None]:
    def add(found: Parser) -> None:
        found.add_argument("--version", type=int, metavar="N", help=help_text)

    return add


def _old_and_new(found: Parser) -> None:
    found.add_argument("--from", dest="old", type=int, metavar="N", help="the one before")
    found.add_argument("--to", dest="new", type=int, metavar="N", help="the newest")


def _noted(found: Parser) -> None:
    found.add_argument("--note", metavar="TEXT", help="why, for who reads the log later")


def _rolls_back(found: Parser) -> None:
    found.add_argument("--to", type=int, metavar="N", required=True, help="the version to take")
    found.add_argument("--pin", choices=NEW_FIELDS, help="and stay there; see pin --new-fields")
    _noted(found)


def _pins(found: Parser) -> None:
    _version("the version to stay at; the newest")(found)
    found.add_argument(
        "--new-fields",
        choices=NEW_FIELDS,
        default="rescue",
        help="what a field does that the version lacks: go to the rescued data, or fail the stream",
    )
    _noted(found)


def _decides(found: Parser) -> None:
    found.add_argument(
        "--proposal", type=int, metavar="N", help="the one that was looked at; whichever waits"
    )
    _noted(found)


def _accepts(found: Parser) -> None:
    found.add_argument(
        "--hints", metavar="DDL", help="other types for what is new, as in cloudFiles.schemaHints"
    )
    _decides(found)


def _nothing(_: Parser) -> None:
    """Add no arguments."""


_WIDEST_TYPE = 40
_ACTIONS = (
    ("list", _list, "list the versions: when, why, who", _nothing),
    ("show", _show, "show the columns of a version", _version("the newest")),
    ("diff", _diff, "show how two versions differ", _old_and_new),
    ("blame", _blame, "show which version and file brought each column", _version("the newest")),
    ("rollback", _rollback, "go on with the columns of an older version", _rolls_back),
    ("pin", _pin, "stay at a version: new fields no longer become columns", _pins),
    ("unpin", _unpin, "let the schema evolve again", _noted),
    ("proposed", _proposed, "show the change that waits for somebody to decide", _nothing),
    ("accept", _accept, "let the change become the next version", _accepts),
    ("rescue", _rescue, "leave its fields in the rescued data from now on", _decides),
    ("refuse", _refuse, "let the stream fail until its files are corrected or removed", _decides),
)
