"""Keep the change of the schema that waits for a decision.

With `cloudFiles.requireApproval` a change is at first no version of the schema log, but a proposal:
`_schemas/proposed/<n>`, written once, where `n` is the version that it would change. So one change
waits at a time, whoever finds it. As soon as the log has another version than `n`, whatever for, it
waits no longer. What was decided is that version (`decisions`).

A refusal is a version with the same columns. The change can still be accepted, or its fields
rescued, until there is another version.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    SchemaProposedError,
    SchemaRefusedError,
)
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.messages import counted, few
from airflow_cloudfiles.engine.schema.diff import SchemaChange, in_words
from airflow_cloudfiles.engine.schema.log_entry import PREFIX, open_log, read_entry
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_cloudfiles.engine.state.numbered_log import LogEntry
    from airflow_cloudfiles.engine.storage import ObjectStore

ACCEPT, RESCUE, REFUSE = "accept", "rescue", "refuse"
"""What may be decided, of a change or of a column."""
REFUSED = "refused"
"""Why a version was written that refuses a proposal."""
_FOLDER = f"{PREFIX}/proposed"
_FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class ProposedChange(SchemaChange):
    """One difference that a proposal would make.

    Attributes:
        kind: `added`, or `retyped`.
        path: Which column or field: `a`, `a.b`, `a.element.b`, `a.value.b`.
        before: Its type before, as Spark writes it; `None` when it is added.
        after: Its type after.
        file: URI of a file that has it; `None` when it is not known.
        samples: Some of its values, as JSON that can be printed, cut off when they are long.
    """

    file: str | None = None
    samples: tuple[str, ...] = ()

    def in_words(self) -> str:
        """Say for people what would change."""
        return in_words(self)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of the schema that waits for somebody to decide.

    Attributes:
        number: The version that it would change.
        created: When it was written: ISO 8601, UTC; empty before.
        source: URI of the source.
        by: Who met it.
        changes: What would change.
        reason: What the schema log says of it when it is accepted.
        data_schema: Columns of the records with it, in Spark's schema JSON.
        partition_schema: Columns of the paths with it, in Spark's schema JSON.
        refused_by: Who has refused it; `None` while nobody has.
        refused_at: When: ISO 8601, UTC.
        note: What who refused it has written.
    """

    number: int
    created: str
    source: str
    by: str
    changes: tuple[ProposedChange, ...]
    reason: Mapping[str, Any]
    data_schema: Mapping[str, Any]
    partition_schema: Mapping[str, Any]
    refused_by: str | None = None
    refused_at: str | None = None
    note: str | None = None

    @property
    def paths(self) -> list[str]:
        """The paths of what would change."""
        return [each.path for each in self.changes]

    @property
    def files(self) -> list[str]:
        """URIs of the files that are known to ask for it."""
        return list(dict.fromkeys(each.file for each in self.changes if each.file))

    def in_short(self) -> str:
        """Say for people how much would change, and the first columns: `2 new columns: a, b`."""
        is_new = all(each.kind == "added" for each in self.changes)
        what = counted(len(self.changes), "new column" if is_new else "schema change")
        return f"{what}: {few(self.paths)}"

    def to_body(self) -> bytes:
        """Encode the body of the log's entry."""
        body = {
            "source": self.source,
            "by": self.by,
            "changes": [asdict(each) for each in self.changes],
            "reason": dict(self.reason),
            "dataSchemaJson": self.data_schema,
            "partitionSchemaJson": self.partition_schema,
        }
        return (json.dumps(body, indent=1, ensure_ascii=True) + "\n").encode("ascii")


def propose(store: ObjectStore, proposal: Proposal) -> Proposal:
    """Write a proposal, unless one waits for the same version.

    Returns:
        The one that waits now: this one, or an earlier one.

    Raises:
        CorruptedStateError: The earlier one is damaged.
    """
    log = _log_of(store)
    log.append(proposal.number, {}, proposal.to_body())
    return _read(log, log.read(proposal.number))


def find_proposal(store: ObjectStore, number: int) -> Proposal | None:
    """Read the proposal to change a version; `None` when there is none.

    Raises:
        CorruptedStateError: It is damaged.
    """
    log = _log_of(store)
    entry = log.find(number)
    return None if entry is None else _read(log, entry)


def waiting_proposal(store: ObjectStore) -> Proposal | None:
    """Find the change that waits for a decision, or was refused; `None` when there is none.

    Raises:
        CorruptedStateError: The schema log or a proposal is damaged.
    """
    log = open_log(store)
    newest = log.latest()
    if newest < 0:
        return None
    entry = read_entry(log, newest)
    found = find_proposal(store, newest)
    if found is not None:
        return found
    number = entry.reason.get("proposal")
    if entry.reason.get("change") != REFUSED or not isinstance(number, int):
        return None
    refused = find_proposal(store, number)
    if refused is None:
        return None
    by, note = str(entry.reason.get("by")), entry.reason.get("note")
    return replace(refused, refused_by=by, refused_at=entry.created, note=note)


def error_of(proposal: Proposal, schema_uri: str) -> SchemaProposedError | SchemaRefusedError:
    """Build the error of a run that a proposal stops; it has no value of a record."""
    what = few([each.in_words() for each in proposal.changes])
    where = printable_path(schema_uri)
    files = proposal.files
    file = f", first in {printable_path(files[0])}" if files else ""
    if proposal.refused_by is None:
        return SchemaProposedError(
            f"The schema of {printable_path(proposal.source)} would change: {what}{file}. Proposal "
            f"{proposal.number} waits in {where} for somebody to decide. Nothing of the batch is "
            "committed, and no file is lost. Decide with `cloudfiles schema accept`, `rescue` or "
            f"`refuse` --schema-location {where}, and run the stream again."
        )
    return SchemaRefusedError(
        f"{proposal.refused_by} has refused a change of the schema of "
        f"{printable_path(proposal.source)}, at {str(proposal.refused_at)[:19]} UTC: {what}{file}. "
        "Correct what asks for it, or remove it, and the stream goes on without; or decide anew "
        f"with `cloudfiles schema accept` or `rescue` --schema-location {where}."
    )


def _log_of(store: ObjectStore) -> NumberedLog:
    return NumberedLog(store, _FOLDER, format_version=_FORMAT_VERSION, width=0)


def _read(log: NumberedLog, entry: LogEntry) -> Proposal:
    try:
        body = json.loads(entry.body)
        return Proposal(
            entry.number,
            str(entry.header.get("created")),
            str(body["source"]),
            str(body["by"]),
            tuple(_change(each) for each in body["changes"]),
            dict(body["reason"]),
            dict(body["dataSchemaJson"]),
            dict(body["partitionSchemaJson"]),
        )
    except (ValueError, LookupError, TypeError, AttributeError) as failure:
        raise CorruptedStateError(
            f"{log.name(entry.number)} is not a proposal to change a schema: {failure}. Remove it: "
            "the next run of the stream proposes the change again."
        ) from failure


def _change(written: Mapping[str, Any]) -> ProposedChange:
    samples: Sequence[str] = written.get("samples", ())
    return ProposedChange(
        written["kind"],
        str(written["path"]),
        written["before"],
        written["after"],
        written.get("file"),
        tuple(map(str, samples)),
    )
