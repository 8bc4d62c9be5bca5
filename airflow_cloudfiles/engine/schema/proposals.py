"""Keep the change of the schema that waits for a decision, and decide about it.

With `cloudFiles.requireApproval` a change is at first no version of the schema log, but a proposal:
`_schemas/proposed/<n>`, written once, where `n` is the version that it would change. So one change
waits at a time, whoever finds it. As soon as the log has another version than `n`, whatever for, it
waits no longer.

Each decision is the next version of the schema log, written with put-if-absent: of two people who
decide at once, one learns that the other was first. What is in the table stays as it is. A refusal
is a version with the same columns. The change can still be accepted, or its fields rescued, until
there is another version.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    SchemaHintError,
    SchemaProposedError,
    SchemaRefusedError,
    StateConflictError,
    StateError,
)
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.messages import counted, few
from airflow_cloudfiles.engine.schema.diff import SchemaChange, in_words
from airflow_cloudfiles.engine.schema.log_entry import (
    PREFIX,
    SchemaEntry,
    append_entry,
    author,
    open_log,
    read_entry,
)
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_cloudfiles.engine.schema.inference import Schemas
    from airflow_cloudfiles.engine.state.numbered_log import LogEntry
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.storage.access import Access


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


__all__ = ["Proposal", "SchemaProposals"]

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class _Choice:
    """What is decided about the columns of a change: the others are accepted as proposed.

    Attributes:
        hints: Other types, each as DDL.
        rescued: Paths that stay in the rescued data.
        refused: Paths that fail the stream.
    """

    hints: Sequence[str] = ()
    rescued: Sequence[str] = ()
    refused: Sequence[str] = ()

    @classmethod
    def of(cls, found: Proposal, columns: Mapping[str, str]) -> _Choice:
        """Sort what is decided by path.

        Raises:
            SchemaHintError: A path is none of the change.
        """
        if unknown := [path for path in columns if path not in found.paths]:
            raise SchemaHintError(
                f"The decision names {few(unknown)}, which this change does not have. It has "
                f"{few(found.paths)}."
            )
        word = {path: text.strip() for path, text in columns.items()}
        hints = [
            f"{each.path} {word[each.path]}"
            for each in found.changes
            if word.get(each.path, ACCEPT) not in {ACCEPT, each.after, RESCUE, REFUSE}
        ]
        return cls(
            hints,
            [path for path in found.paths if word.get(path) == RESCUE],
            [path for path in found.paths if word.get(path) == REFUSE],
        )


class SchemaProposals:
    """The changes of a stream's schema that wait for somebody to decide.

    They are there with the option `cloudFiles.requireApproval`. After a decision, the next start of
    the stream goes on with it.

    Args:
        location: Path or URI of `cloudFiles.schemaLocation`, or of the checkpoint location that
            serves as one: the folder that has `_schemas/`.
        access: How its cloud is reached; `None` for the environment's own chain.

    Raises:
        OptionError: It is no location.
    """

    def __init__(self, location: str, *, access: Access | None = None) -> None:
        self._store = open_store(location, access)
        self.uri = self._store.uri

    def waiting(self) -> Proposal | None:
        """Give the change that waits, or was refused and may be decided anew; `None` for none.

        Raises:
            StateError: The schema log cannot be read.
        """
        return waiting_proposal(self._store)

    def accept(
        self,
        hints: str | None = None,
        *,
        proposal: int | None = None,
        by: str | None = None,
        note: str | None = None,
    ) -> SchemaEntry:
        """Let the change become the next version.

        Args:
            hints: Other types for what is new, as in `cloudFiles.schemaHints`; they may name only
                what the change adds or widens.
            proposal: The number of the proposal that was looked at; `None` for whichever waits.
            by: Who decides; default is the Airflow task, or the user and the host.
            note: Why, for readers of the log.

        Raises:
            SchemaHintError: A hint cannot be read, or names something else.
            StateConflictError: Somebody else has decided.
            StateError: No change waits.
        """
        choice = _Choice([hints] if hints and hints.strip() else [])
        return self._accept(self._found(proposal), choice, by, note)

    def decide(
        self,
        columns: Mapping[str, str],
        *,
        proposal: int | None = None,
        by: str | None = None,
        note: str | None = None,
    ) -> SchemaEntry:
        """Decide about each column of the change by itself.

        What is refused is proposed anew, for the version with what is accepted, and refused. Killed
        before that, the next run proposes it.

        Args:
            columns: By paths of the change: `accept`, `rescue`, `refuse`, or a type in DDL to
                accept it with. A path that is left out is accepted.
            proposal: The number of the proposal that was looked at; `None` for whichever waits.
            by: Who decides; default is the Airflow task, or the user and the host.
            note: Why, for readers of the log.

        Returns:
            The version with what is accepted; of a refusal where nothing is.

        Raises:
            SchemaHintError: A type cannot be read or does not fit, or a path is none of the change.
            StateConflictError: Somebody else has decided.
            StateError: No change waits.
        """
        found = self._found(proposal)
        choice = _Choice.of(found, columns)
        if len(choice.refused) == len(found.changes):
            return self.refuse(proposal=found.number, by=by, note=note)
        entry = self._accept(found, choice, by, note)
        if choice.refused and self._propose_rest(found, choice, entry.version):
            self.refuse(proposal=entry.version, by=by, note=note)
        return entry

    def check(self, columns: Mapping[str, str], *, proposal: int | None = None) -> None:
        """Refuse what `decide` refuses, and decide nothing.

        Raises:
            SchemaHintError: A type cannot be read or does not fit, or a path is none of the change.
            StateConflictError: Somebody else has decided.
            StateError: No change waits.
        """
        found = self._found(proposal)
        choice = _Choice.of(found, columns)
        for hint in choice.hints:  # each by itself, so that the error is about one column
            self._schemas(found, [hint], ())
        self._schemas(found, choice.hints, [*choice.rescued, *choice.refused])

    def _schemas(self, found: Proposal, hints: Sequence[str], left_out: Sequence[str]) -> Schemas:
        """Build the columns of the records and of the paths with what is accepted."""
        schemas = dict(found.data_schema), dict(found.partition_schema)
        if not left_out and not hints:
            return schemas
        # Only these need types.
        from airflow_cloudfiles.engine.schema.inference import (  # noqa: PLC0415
            accepted_types,
        )

        before = self._newest().data_schema
        return accepted_types(schemas, found.paths, before, ", ".join(hints), left_out)

    def _accept(
        self, found: Proposal, choice: _Choice, by: str | None, note: str | None
    ) -> SchemaEntry:
        """Write the version with what is accepted."""
        left_out = [*choice.rescued, *choice.refused]
        data, partitions = self._schemas(found, choice.hints, left_out)
        change = "rescued" if len(left_out) == len(found.changes) else "accepted"
        reason = {**found.reason, "change": change, "proposal": found.number}
        reason["proposedBy"] = found.by
        if choice.hints:
            reason["hints"] = ", ".join(choice.hints)
        changes: dict[str, Any] = {"data_schema": data, "partition_schema": partitions}
        if choice.rescued:
            reason["rescued"] = list(choice.rescued)
            changes["stay_rescued"] = self._stay_rescued(choice.rescued)
        return self._append(found, reason, by, note, **changes)

    def _propose_rest(self, found: Proposal, choice: _Choice, version: int) -> bool:
        """Propose what is refused for the version that was written.

        Returns:
            Whether that waits now; `False` where a run was first, and has proposed more.
        """
        data, partitions = self._schemas(found, choice.hints, choice.rescued)
        rest = dataclasses.replace(
            found,
            number=version,
            changes=tuple(each for each in found.changes if each.path in choice.refused),
            data_schema=data,
            partition_schema=partitions,
        )
        return set(propose(self._store, rest).paths) <= set(choice.refused)

    def _stay_rescued(self, paths: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*(self._newest().stay_rescued or ()), *paths)))

    def rescue(
        self, *, proposal: int | None = None, by: str | None = None, note: str | None = None
    ) -> SchemaEntry:
        """Leave the fields in the rescued data, from now on and in every run.

        They become columns all the same when a hint names them, when the schema is inferred again,
        or when they are promoted. Other new fields are proposed as before.

        Args:
            proposal: The number of the proposal that was looked at; `None` for whichever waits.
            by: Who decides; default is the Airflow task, or the user and the host.
            note: Why, for readers of the log.

        Raises:
            StateConflictError: Somebody else has decided.
            StateError: No change waits.
        """
        found = self._found(proposal)
        reason = {"change": "rescued", "proposal": found.number, "rescued": found.paths}
        stay = self._stay_rescued(found.paths)
        return self._append(found, reason, by, note, stay_rescued=stay)

    def refuse(
        self, *, proposal: int | None = None, by: str | None = None, note: str | None = None
    ) -> SchemaEntry:
        """Let the stream fail as long as files ask for the change.

        It continues when they are corrected or removed, or when somebody accepts or rescues after
        all.

        Args:
            proposal: The number of the proposal that was looked at; `None` for whichever waits.
            by: Who decides; default is the Airflow task, or the user and the host.
            note: Why, for readers of the log, and for who meets the error.

        Raises:
            StateConflictError: Somebody else has decided, or it is refused already.
            StateError: No change waits.
        """
        found = self._found(proposal)
        if found.refused_by is not None:
            raise StateConflictError(
                f"{found.refused_by} has refused proposal {found.number} already. It can still be "
                "accepted, or its fields rescued."
            )
        reason = {"change": REFUSED, "proposal": found.number}
        return self._append(found, reason, by, note)

    def _found(self, number: int | None) -> Proposal:
        """Find the proposal to decide on."""
        found = self.waiting()
        if found is not None and number in {None, found.number}:
            return found
        if number is not None:
            self._refuse_second(number)
        waits = "" if found is None else f"; proposal {found.number} does"
        asked = "No change of the schema" if number is None else f"No proposal {number}"
        raise StateError(f"{asked} waits for a decision in {printable_path(self.uri)}{waits}.")

    def _refuse_second(self, number: int) -> None:
        """Refuse a decision about what was decided.

        Raises:
            StateConflictError: It was.
        """
        log = open_log(self._store)
        for version in log.numbers(after=number):
            entry = read_entry(log, version)
            if entry.reason.get("proposal") == number:
                raise _decided(entry)

    def _newest(self) -> SchemaEntry:
        log = open_log(self._store)
        return read_entry(log, log.latest())

    def _append(
        self,
        found: Proposal,
        reason: dict[str, Any],
        by: str | None,
        note: str | None,
        **changes: Any,
    ) -> SchemaEntry:
        """Append what was decided, behind the version that the proposal was found for."""
        reason = {**reason, "by": by or author()} | ({"note": note} if note else {})
        log = open_log(self._store)
        newest = read_entry(log, log.latest())
        still = waiting_proposal(self._store)
        if still != found:
            raise _decided(self._newest())
        entry = dataclasses.replace(newest, version=newest.version + 1, reason=reason, **changes)
        if not append_entry(log, entry):
            raise _decided(read_entry(log, entry.version))
        _log.info("Schema version %s: %s", entry.version, reason["change"])
        return read_entry(log, entry.version)


def _decided(entry: SchemaEntry) -> StateConflictError:
    """Build the error for whoever decides second."""
    change, by = entry.reason.get("change"), entry.reason.get("by")
    return StateConflictError(
        f"This was decided meanwhile: schema version {entry.version} is there ({change}, by {by})."
    )
