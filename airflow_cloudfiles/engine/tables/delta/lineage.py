"""Find which micro-batches of a stream a table has.

Every commit of a batch notes the stream and the batch's number, and an application transaction
that outlives the clean-up of the table's log, unless another writer lets transactions expire
(`delta.setTransactionRetentionDuration`): one that is absent shows nothing, and the commits and the
records in the state decide. The history is followed backward from the newest version; a RESTORE
leads to the version that it restored, and what was committed in between is not in the table,
although its transactions still count.

`OPTIMIZE`, `VACUUM`, changed columns and the commits of other writers do not matter here.

The commit of a batch notes its plan and what its tasks have counted; of a merge, the history has
the counts besides. Before anybody relies on the commit, it is put on the disk: the process that
made it may have been killed before it could do so.

`deltalake` (1.6) syncs none of the data files that it writes. So before a commit of it is
acknowledged, its files are looked at, as the log has them, and synced. A power failure before that
may leave a commit whose files are cut: it is named when it is found.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.errors import DataFileLostError, LostBatchesError
from airflow_cloudfiles.engine.state.sink_log import BatchId, ExpectedBatch, FoundBatch
from airflow_cloudfiles.engine.storage.local import sync_file
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import make_durable, open_to_write
from airflow_cloudfiles.engine.tables.delta.read.actions import decode
from airflow_cloudfiles.engine.tables.delta.read.log import LOG, decoded
from airflow_cloudfiles.engine.versions import FIELD, require_version

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from airflow_cloudfiles.engine.state.sink_log import SinkRecord


COMMIT_NOTE = "cloudfiles"
"""Key of the batch in the commit's own metadata; `DeltaTable.history()` shows it."""
BLIND_APPEND = "isBlindAppend"
"""Key there, as Delta has it: the commit only adds files, and would in any version of the table.

By it, a concurrent MERGE of Spark knows that the commit does not stand in its way.
"""
NOTE_VERSION = 1
_TRANSACTIONS = "_cloudfiles_transactions"
"""Attribute of an open table: a version, and what is known of its transactions."""


class Presence(Enum):
    """What the table proves of a batch."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CommitLineage:
    """The commits that made a table what it is now.

    Attributes:
        table_id: Id in the table's metadata; empty where there is no table.
        version: Its newest version; -1 where there is no table.
        transaction: The highest batch of the stream that was ever committed, as far as the log has
            not lost it; `None` for none.
        first: The oldest version whose commit was read; 0 when all were.
        batches: The batches found, each with the version that has it.
        undone: Ranges of versions (both inclusive) that a RESTORE took back.
        is_doubtful: Whether a RESTORE to a time was met: which version that is, is not noted.
    """

    table_id: str = ""
    version: int = -1
    transaction: int | None = None
    first: int = 0
    batches: Mapping[int, int] = field(default_factory=dict)
    undone: tuple[tuple[int, int], ...] = ()
    is_doubtful: bool = False

    def has_version(self, version: int) -> bool:
        """Tell whether what was committed at a version was neither taken back nor removed."""
        taken_back = any(low <= version <= high for low, high in self.undone)
        return version <= self.version and not taken_back

    def presence(self, batch: int, record: SinkRecord | None) -> Presence:
        """Find whether the table has a batch.

        Args:
            batch: Its number.
            record: Its record in the state, if there is one.
        """
        if batch in self.batches:
            return Presence.PRESENT
        if self.is_doubtful:
            return Presence.UNKNOWN
        if self.first == 0 or (self.transaction is not None and self.transaction < batch):
            return Presence.ABSENT
        if record is None or record.version < 0 or record.is_accepted:
            return Presence.UNKNOWN
        is_here = record.table_id == self.table_id and self.has_version(record.version)
        return Presence.PRESENT if is_here and record.version < self.first else Presence.ABSENT


def lineage(table: DeltaTable | None, target: str, app_id: str, *, since: int = 0) -> CommitLineage:
    """Follow the history of a table.

    Args:
        table: The table; `None` where there is none.
        target: Path or URI of the table, for messages.
        app_id: The stream.
        since: The oldest version that matters.

    Raises:
        TargetUnreachableError: Its storage failed.
        IncompatibleStateError: A newer version of this package noted a batch of the stream.
    """
    if table is None:
        return CommitLineage()
    newest = table.version()
    with DeltaLocation.of(target).translate_errors("has a history that cannot be read"):
        commits = table.history(max(0, newest - since) + 1)
    by_version = {int(commit["version"]): commit for commit in commits}
    batches: dict[int, int] = {}
    undone: list[tuple[int, int]] = []
    version, is_doubtful = newest, False
    while version >= since and version in by_version:
        commit = by_version[version]
        note = batch_note(commit, target, app_id)
        if isinstance(note.get("number"), int):
            batches.setdefault(note["number"], version)
        restored = _restored(commit)
        if restored == _TO_A_TIME:
            is_doubtful = True
            break
        if restored is not None:
            undone.append((restored + 1, version - 1))
        version = version - 1 if restored is None else restored
    return CommitLineage(
        table_id=str(table.metadata().id),
        version=newest,
        transaction=transaction_version(table, target, app_id),
        first=min(by_version, default=newest + 1),
        batches=batches,
        undone=tuple(undone),
        is_doubtful=is_doubtful,
    )


def transaction_version(table: DeltaTable, target: str, app_id: str) -> int | None:
    """Give the newest transaction of an application that the version of a table has.

    `deltalake` reads the whole log for that, since its last checkpoint; here it does so once for
    a version.

    Raises:
        TargetUnreachableError: Its storage failed.
    """
    version, found = vars(table).get(_TRANSACTIONS, (-1, {}))
    if version != table.version():
        found = {}
        setattr(table, _TRANSACTIONS, (table.version(), found))
    if app_id not in found:
        with DeltaLocation.of(target).translate_errors("has a history that cannot be read"):
            found[app_id] = table.transaction_version(app_id)
    seen: int | None = found[app_id]
    return seen


def newest_known(table: DeltaTable, target: str, app_id: str, *, since: int = 0) -> int | None:
    """Give the newest batch of a stream that a table shows; `None` for none.

    Args:
        table: The table.
        target: Path or URI of the table, for messages.
        app_id: The stream.
        since: The oldest version that is read where the transaction has expired.

    Raises:
        TargetUnreachableError: Its storage failed.
        IncompatibleStateError: A newer version of this package noted a batch of the stream.
    """
    seen = transaction_version(table, target, app_id)
    if seen is not None:
        return seen
    return max(lineage(table, target, app_id, since=since).batches, default=None)


def newest_of_origin(
    table: DeltaTable, target: str, origin: str, *, besides: str | None = None
) -> int | None:
    """Give the newest batch of a stream of an origin, besides one; `None` for none."""
    with DeltaLocation.of(target).translate_errors("has a history that cannot be read"):
        notes = [commit.get(COMMIT_NOTE) for commit in table.history()]
    numbers = [
        note["number"]
        for note in notes
        if isinstance(note, dict)
        and note.get("origin") == origin
        and note.get("app_id") != besides
        and "number" in note
    ]
    return max(numbers, default=None)


def check_has(
    table: DeltaTable | None, target: str, app_id: str, expected: ExpectedBatch
) -> DeltaTable | None:
    """Refuse a table that lacks a batch of the stream.

    Reads the commits since the batch; without another writer there are none. A table that
    seems to lack it is opened once more: the newest entry of a log may be missing from one look at
    a flaky disk.

    Args:
        table: The table; `None` where there is none.
        target: Path or URI of the table.
        app_id: The stream.
        expected: The batch that it must have.

    Returns:
        The table that has it.

    Raises:
        LostBatchesError: It lacks the batch; the message says which, and what to do.
        TargetUnreachableError: Its storage failed.
    """
    if _lost(table, target, app_id, expected.record) is None:
        return table
    table = open_to_write(target)
    why = _lost(table, target, app_id, expected.record)
    if why is None:
        return table
    found = lineage(table, target, app_id)
    first = last = expected.record.batch
    while first > 0 and found.presence(first - 1, None) is Presence.ABSENT:
        first -= 1
    batches = f"batch {first}" if first == last else f"batches {first} to {last}"
    raise LostBatchesError(
        f"{target} lacks {batches} of this stream, committed to it before: {why}. Nothing is "
        f"written on top of the gap. Put the table back; {_ways_on(target, expected, first)}. See "
        "docs/how-to/recover.md."
    )


def _ways_on(target: str, expected: ExpectedBatch, first: int) -> str:
    """Say what helps other than putting the table back, as part of a message."""
    replay = (
        f"cloudfiles replay --checkpoint-location {expected.state} --target {target} "
        f"--from-batch {first}"
    )
    again = expected.read_again(first)
    if again is not None:
        return f"or {again}; or give the batches up with: {replay} --accept-loss"
    return (
        f"or ingest the batches again with: {replay}; or give them up with the same and "
        "--accept-loss"
    )


def _lost(table: DeltaTable | None, target: str, app_id: str, expected: SinkRecord) -> str | None:
    """Say why a batch cannot be in the table; return `None` when it is there."""
    if expected.is_accepted and not expected.table_id:
        return None
    if table is None:
        return "there is no Delta table"
    table_id = str(table.metadata().id)
    if expected.table_id not in {"", table_id}:
        return f"it is another table than the one they are in, {expected.target}"
    if not expected.is_accepted:
        transaction = transaction_version(table, target, app_id)
        if transaction is None:
            return _untold(table, target, app_id, expected)
        if transaction < expected.batch:
            return f"the newest one that its log knows is batch {transaction}"
    return _taken_back(table, target, app_id, expected)


def _untold(table: DeltaTable, target: str, app_id: str, expected: SinkRecord) -> str | None:
    """Say why a batch cannot be in a table without a transaction of its stream; else `None`.

    Its commit decides, or the lack of one in a complete history; otherwise its record does.
    """
    found = lineage(table, target, app_id)
    if expected.batch in found.batches:
        return None
    if found.first == 0 or expected.version < 0:
        shown = " that it still shows" if found.first else ""
        return f"no commit{shown} is of it, and there is no transaction of the stream"
    return _taken_back(table, target, app_id, expected)


def _taken_back(table: DeltaTable, target: str, app_id: str, expected: SinkRecord) -> str | None:
    """Say how a batch that was in the table got out of it; return `None` when it is there."""
    if 0 <= expected.version == table.version():
        return None
    if table.version() < expected.version:
        return f"its log ends at version {table.version()}, and had {expected.version}"
    found = lineage(table, target, app_id, since=max(0, expected.version))
    if expected.version < 0:
        is_undone = (found.undone or found.is_doubtful) and expected.batch not in found.batches
        return "it was restored to a version that does not have them" if is_undone else None
    if found.is_doubtful:
        return f"it was restored to a time since version {expected.version}, perhaps to before it"
    if not found.has_version(expected.version):
        return f"it was restored to a version before {expected.version}"
    return None


_TO_A_TIME = -2


def _restored(commit: Mapping[str, Any]) -> int | None:
    """Return the version that a commit has restored; `None` for any other commit."""
    if commit.get("operation") != "RESTORE":
        return None
    parameters = commit.get("operationParameters") or {}
    try:
        return int(parameters["version"])
    except (KeyError, TypeError, ValueError):
        return _TO_A_TIME


def batch_note(commit: Mapping[str, Any], target: str, app_id: str) -> Mapping[str, Any]:
    """Return what a commit of a stream notes of its batch; nothing for other commits.

    Args:
        commit: An entry of the table's history.
        target: Path or URI of the table, for messages.
        app_id: The stream.

    Raises:
        IncompatibleStateError: A newer version of this package wrote it.
    """
    note = commit.get(COMMIT_NOTE)
    if isinstance(note, str):
        try:
            note = json.loads(note)
        except ValueError:
            return {}
    if not isinstance(note, dict) or note.get("app_id") != app_id:
        return {}
    require_version(
        note.get(FIELD, 1),
        name=f"The note {COMMIT_NOTE} of version {commit.get('version')} of {target}",
        understood=NOTE_VERSION,
        what_to_do="Upgrade the package here.",
    )
    return note


COUNTS: Final[Mapping[str, str]] = {
    "inserted_rows": "num_target_rows_inserted",
    "updated_rows": "num_target_rows_updated",
    "deleted_rows": "num_target_rows_deleted",
}
"""What a merge counts, and how `deltalake` calls it."""
SUPERSEDED: Final = "superseded_rows"
MERGED: Final = (*COUNTS, SUPERSEDED)
"""What the result of a merge counts."""
COMPACTED: Final = ("compacted_files", "compacted_into_files")
"""What an automatic compaction counts."""
REGISTERED: Final = ("registered_files", "copied_files")
"""What a stream with `cloudFiles.loadMode=reference` counts."""
REPLACED: Final = "replaced_rows"
"""What a commit counts that removes former rows of its files."""


def find_again(
    table: DeltaTable, location: DeltaLocation, batch: BatchId, *, since: int = 0
) -> FoundBatch | None:
    """Find the commit of a batch in a table's history, and put it on the disk.

    Args:
        table: The table.
        location: Where it is.
        batch: The batch; its plan does not matter.
        since: A version that is older than the commit: history before it is not read.

    Returns:
        `None` when the history does not reach back to it.

    Raises:
        TargetUnreachableError: The table's storage failed.
        DataFileLostError: A data file of a merge is not as it was written.
        IncompatibleStateError: A newer version of this package noted it.
    """
    with location.translate_errors("has a history that cannot be read"):
        history = table.history(max(0, table.version() - since) + 1)
    entry = next((each for each in history if _is_of(each, location.target, batch)), None)
    with location.translate_errors("may lose a commit"):
        if entry is not None and entry.get("operation") == "MERGE":
            sync_data_files(location, int(entry["version"]))
        make_durable(location)
    if entry is None:
        return None
    note = batch_note(entry, location.target, batch.app_id)
    return FoundBatch(
        int(entry["version"]),
        str(table.metadata().id),
        note.get("plan"),
        note.get("schema_version"),
        {**(note.get("counts") or {}), **_merged(entry)},
    )


def counts_of(metrics: Mapping[str, Any]) -> dict[str, int]:
    """Read the counts from the metrics of a merge."""
    return {name: int(metrics.get(theirs, 0)) for name, theirs in COUNTS.items()}


def _merged(entry: Mapping[str, Any]) -> dict[str, int]:
    is_merge = entry.get("operation") == "MERGE"
    return counts_of(entry.get("operationMetrics") or {}) if is_merge else {}


def _is_of(entry: Mapping[str, Any], target: str, batch: BatchId) -> bool:
    """Tell whether an entry of a table's history is the commit of a batch."""
    note = batch_note(entry, target, batch.app_id)
    return (note.get("app_id"), note.get("number"), note.get("replay")) == (
        batch.app_id,
        batch.number,
        batch.replay,
    )


def sync_data_files(location: DeltaLocation, version: int) -> None:
    """Put the data files that a version of a table has added on the disk.

    Raises:
        DataFileLostError: One is not as it was written, as a power failure leaves it.
        OSError: The disk failed.
    """
    if location.folder is None:
        return
    folder = Path(location.folder)
    entry = folder / LOG / f"{version:020}.json"
    # It may be cleaned up behind a checkpoint: older than any run.
    actions = decode(entry.read_bytes()) if entry.exists() else ()
    for add in (each.add for each in actions if each.add is not None):
        path = decoded(add.path)
        file = folder / path
        if not file.exists() or file.stat().st_size != add.size:
            raise DataFileLostError(
                f"The data file {path} of version {version} of {location.target} is not as it was "
                "written. Restore the table to the version before, and run again."
            )
        sync_file(os.fsencode(file))
