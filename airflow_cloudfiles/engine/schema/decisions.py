"""Decide about a change of the schema that waits.

Each decision is the next version of the schema log, written with put-if-absent: of two people who
decide at once, one learns that the other was first. What is in the table stays as it is.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import StateConflictError, StateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.schema.log_entry import (
    SchemaEntry,
    append_entry,
    author,
    open_log,
    read_entry,
)
from airflow_cloudfiles.engine.schema.proposals import REFUSED, Proposal, waiting_proposal
from airflow_cloudfiles.engine.storage import open_store

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access

__all__ = ["Proposal", "SchemaProposals"]

_log = logging.getLogger(__name__)


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
        found = self._found(proposal)
        data, partitions = found.data_schema, found.partition_schema
        if hints and hints.strip():
            # Only hints need types.
            from airflow_cloudfiles.engine.schema.accepted_types import (  # noqa: PLC0415
                accepted_types,
            )

            data, partitions = accepted_types(found, self._newest().data_schema, hints)
        reason = {**found.reason, "change": "accepted", "proposal": found.number}
        reason["proposedBy"] = found.by
        if hints and hints.strip():
            reason["hints"] = hints
        return self._append(found, reason, by, note, data_schema=data, partition_schema=partitions)

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
        stay = dict.fromkeys((*(self._newest().stay_rescued or ()), *found.paths))
        reason = {"change": "rescued", "proposal": found.number, "rescued": found.paths}
        return self._append(found, reason, by, note, stay_rescued=tuple(stay))

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
