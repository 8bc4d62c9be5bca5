"""Decide about a change of the schema that waits.

Each decision is the next version of the schema log, written with put-if-absent: of two people who
decide at once, one learns that the other was first. What is in the table stays as it is.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import SchemaHintError, StateConflictError, StateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.messages import few
from airflow_cloudfiles.engine.schema.log_entry import (
    SchemaEntry,
    append_entry,
    author,
    open_log,
    read_entry,
)
from airflow_cloudfiles.engine.schema.proposals import (
    ACCEPT,
    REFUSE,
    REFUSED,
    RESCUE,
    Proposal,
    propose,
    waiting_proposal,
)
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_cloudfiles.engine.schema.accepted_types import Schemas
    from airflow_cloudfiles.engine.storage.access import Access

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
        if not left_out and not hints:
            return dict(found.data_schema), dict(found.partition_schema)
        # Only these need types.
        from airflow_cloudfiles.engine.schema.accepted_types import (  # noqa: PLC0415
            accepted_types,
        )

        return accepted_types(found, self._newest().data_schema, ", ".join(hints), left_out)

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
