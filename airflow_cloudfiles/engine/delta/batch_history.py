"""Find the commit of a micro-batch in the history of a table, and put it on the disk.

The commit of a batch notes its plan and what its tasks have counted; of a merge, the history has
the counts besides. Before anybody relies on the commit, it is put on the disk: the process that
made it may have been killed before it could do so.

Data files that the library has written are synced before their commit is acknowledged.

`deltalake` (1.6) syncs none of them. So before a commit of it is acknowledged, its files are looked
at, as the log has them, and synced. A power failure before that may leave a commit whose files are
cut: it is named when it is found.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from airflow_cloudfiles.engine.delta.durability import LOG, make_durable
from airflow_cloudfiles.engine.delta.lineage import batch_note
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.errors import DataFileLostError
from airflow_cloudfiles.engine.state.sink_log import BatchId, FoundBatch
from airflow_cloudfiles.engine.storage.local import sync_file

if TYPE_CHECKING:
    from deltalake import DeltaTable


COUNTS: Final[Mapping[str, str]] = {
    "inserted_rows": "num_target_rows_inserted",
    "updated_rows": "num_target_rows_updated",
    "deleted_rows": "num_target_rows_deleted",
}
"""What a merge counts, and how `deltalake` calls it."""


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
    for path, size in _added(folder / LOG / f"{version:020}.json"):
        file = folder / path
        if not file.exists() or file.stat().st_size != size:
            raise DataFileLostError(
                f"The data file {path} of version {version} of {location.target} is not as it was "
                "written. Restore the table to the version before, and run again."
            )
        sync_file(os.fsencode(file))


def _added(entry: Path) -> Iterator[tuple[str, int]]:
    """Yield the data files that an entry of a log adds, with their sizes."""
    if not entry.exists():  # cleaned up behind a checkpoint: older than any run
        return
    for line in entry.read_bytes().splitlines():
        add = json.loads(line).get("add") if line.strip() else None
        if add is not None:
            yield unquote(add["path"]), int(add["size"])
