"""Find the batches of a stream in an Iceberg table.

The snapshot of a batch has the stream and the batch's number in its summary. A table property, set
in the same commit, has the newest batch of the stream with its snapshot: it is still there when old
snapshots have expired. A rollback goes back to an older snapshot and leaves the property alone, and
so it is noticed: the snapshot that the property names is then no ancestor of the current one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import LostBatchesError
from airflow_cloudfiles.engine.versions import FIELD, read_note, require_version

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from airflow_cloudfiles.engine.state.sink_log import ExpectedBatch, SinkRecord

STREAM, BATCH, PLAN, WRITE = (f"cloudfiles.{each}" for each in ("stream", "batch", "plan", "write"))
SCHEMA_VERSION, COUNTS = "cloudfiles.schema-version", "cloudfiles.counts"
VERSION, ORIGIN = "cloudfiles.version", "cloudfiles.origin"
"""Keys in the summary of a batch's snapshot."""
NOTE_VERSION = 1
_UPGRADE = "Upgrade the package here."
PROPERTY = "cloudfiles.newest-batch."
"""Table property, with the id of the stream behind it."""


@dataclass(frozen=True, slots=True)
class NotedBatch:
    """A batch, as its commit noted it.

    Attributes:
        batch: Its number.
        plan: Id of its plan; empty where there is none.
        write: Which data files it added (`commit.write_id`).
        snapshot: Id of its snapshot.
        sequence: The sequence number of that, which grows with each commit.
        schema_version: Version of the schema that it was read with; `None` where that is unknown.
        counts: What its tasks have counted; only the snapshot has it.
    """

    batch: int
    plan: str
    write: str
    snapshot: int
    sequence: int
    schema_version: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    def summary(self, stream: str) -> dict[str, str]:
        """Build the note for the summary of the snapshot."""
        return {
            VERSION: str(NOTE_VERSION),
            STREAM: stream,
            BATCH: str(self.batch),
            PLAN: self.plan,
            WRITE: self.write,
            **({} if self.schema_version is None else {SCHEMA_VERSION: str(self.schema_version)}),
            **({COUNTS: json.dumps(dict(self.counts))} if self.counts else {}),
        }

    def properties(self, stream: str) -> dict[str, str]:
        """Build the table property."""
        names = ("batch", "plan", "write", "snapshot", "sequence")
        fields = {name: getattr(self, name) for name in names}
        return {PROPERTY + stream: json.dumps({FIELD: NOTE_VERSION, **fields})}


class SnapshotPresence(Enum):
    """What a table shows of a batch: it has it, never had it, or no longer has it."""

    PRESENT = "present"
    NEVER = "never"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class SnapshotLineage:
    """The snapshots that made a table what it is now.

    Attributes:
        newest: The newest batch of the stream that was ever committed; `None` for none.
        batches: Those found in the current snapshot and its ancestors.
        has_newest: Whether the snapshot of `newest` is, or may be, among the ancestors.
    """

    newest: NotedBatch | None = None
    batches: Mapping[int, NotedBatch] = field(default_factory=dict)
    has_newest: bool = False

    def presence(self, batch: int) -> SnapshotPresence:
        """Find whether the table has a batch; those of a stream are committed in their order."""
        if batch in self.batches:
            return SnapshotPresence.PRESENT
        if self.newest is None or self.newest.batch < batch:
            return SnapshotPresence.NEVER
        return SnapshotPresence.PRESENT if self.has_newest else SnapshotPresence.LOST

    def find(self, batch: int) -> NotedBatch | None:
        """Find what is known of a batch; `None` when its snapshot has expired."""
        is_newest = self.newest is not None and self.newest.batch == batch
        return self.batches.get(batch) or (self.newest if is_newest else None)


def lineage(
    metadata: TableMetadata, stream: str, recorded: SinkRecord | None = None
) -> SnapshotLineage:
    """Follow the snapshots of a table back to the oldest one that is kept.

    Args:
        metadata: Of the table.
        stream: The stream.
        recorded: The newest batch by the state, for a table whose property another tool removed.

    Raises:
        IncompatibleStateError: A newer version of this package noted a batch of the stream.
    """
    batches: dict[int, NotedBatch] = {}
    ids: set[int] = set()
    oldest = 0
    snapshot = metadata.current_snapshot()
    while snapshot is not None:
        ids.add(snapshot.snapshot_id)
        oldest = snapshot.sequence_number or 0
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        noted = _of_snapshot(summary, snapshot.snapshot_id, oldest, stream)
        if noted is not None:
            batches.setdefault(noted.batch, noted)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else metadata.snapshot_by_id(parent)
    newest = _of_property(metadata, stream) or _of_record(metadata, recorded)
    if newest is None:
        return SnapshotLineage(batches=batches)
    # What came before the oldest ancestor that is kept has expired, or was another history: then
    # its snapshot is still there.
    has_expired = newest.sequence < oldest and metadata.snapshot_by_id(newest.snapshot) is None
    is_shown = newest.snapshot in ids or newest.batch in batches
    return SnapshotLineage(newest, batches, is_shown or has_expired)


def check_has(table: Table | None, target: str, stream: str, expected: ExpectedBatch) -> None:
    """Refuse a table that lacks a batch of the stream.

    Args:
        table: The table; `None` where there is none.
        target: Its URI, for the message.
        stream: The stream.
        expected: The batch that it must have.

    Raises:
        LostBatchesError: It lacks the batch.
    """
    why = _lost(table, stream, expected.record)
    if why is None:
        return
    raise LostBatchesError(
        f"{target} lacks batch {expected.record.batch} of this stream, committed to it before: "
        f"{why}. Nothing is written on top of the gap. Put the table back, for instance by "
        "setting its main branch to the snapshot that has the batch; or ingest everything again "
        f"into a new table, with a checkpoint location other than {expected.state}. See "
        "docs/how-to/iceberg.md."
    )


def _lost(table: Table | None, stream: str, expected: SinkRecord) -> str | None:
    """Say why a batch cannot be in a table; return `None` when it is there."""
    if table is None:
        return "there is no such table"
    if expected.table_id not in {"", str(table.metadata.table_uuid)}:
        return f"it is another table than the one it is in, {expected.table_id}"
    found = lineage(table.metadata, stream, expected)
    presence = found.presence(expected.batch)
    if presence is SnapshotPresence.LOST and found.newest is not None:
        return (
            f"its current snapshot does not come after the one (sequence number "
            f"{found.newest.sequence}) that had batch {found.newest.batch}: it was rolled back, or "
            "replaced"
        )
    if presence is SnapshotPresence.NEVER:
        last = "none" if found.newest is None else f"batch {found.newest.batch}"
        return f"the newest one that its metadata knows is {last}"
    return None


def _of_snapshot(
    summary: Mapping[str, str], snapshot: int, sequence: int, stream: str
) -> NotedBatch | None:
    if summary.get(STREAM) != stream:
        return None
    text = summary.get(VERSION, "1")
    version, name = int(text) if text.isdecimal() else text, f"The snapshot {snapshot}"
    require_version(version, name=name, understood=NOTE_VERSION, what_to_do=_UPGRADE)
    try:
        number = int(summary[BATCH])
        schema_version = int(summary[SCHEMA_VERSION]) if SCHEMA_VERSION in summary else None
        counts = json.loads(summary.get(COUNTS, "{}"))
    except (KeyError, ValueError):
        return None
    plan, write = summary.get(PLAN, ""), summary.get(WRITE, "")
    return NotedBatch(number, plan, write, snapshot, sequence, schema_version, counts)


def _of_property(metadata: TableMetadata, stream: str) -> NotedBatch | None:
    text = metadata.properties.get(PROPERTY + stream)
    if text is None:
        return None
    name = f"The property {PROPERTY}{stream} of the table {metadata.location}"
    try:
        return NotedBatch(
            **read_note(text, name=name, understood=NOTE_VERSION, what_to_do=_UPGRADE)
        )
    except (TypeError, ValueError):
        return None


def _of_record(metadata: TableMetadata, recorded: SinkRecord | None) -> NotedBatch | None:
    """Return what a record in the state says of a table; its version is a sequence number."""
    newest = getattr(metadata, "last_sequence_number", -1)  # format version 1 has none
    if recorded is None or not 0 <= recorded.version <= newest:
        return None
    if recorded.table_id != str(metadata.table_uuid):
        return None
    return NotedBatch(recorded.batch, recorded.plan, "", -1, recorded.version)
