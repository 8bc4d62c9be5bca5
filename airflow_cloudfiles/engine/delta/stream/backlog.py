"""How far has a query from a Delta table come, and is there more to read?

Spark's own checkpoint says it: the offset of the newest micro-batch that was committed. One request
for the newest version of the table, and no Spark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.read.snapshot import TableLog
from airflow_cloudfiles.engine.delta.stream.offsets import BEGIN
from airflow_cloudfiles.engine.state import spark_checkpoint
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

_BEGIN_WRITTEN = -1


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is left to read.

    Attributes:
        newest: The newest version of the table.
        batch: The newest micro-batch that was committed; -1 for none.
        next_version: The version that is read next; `None` where nothing was read yet.
        is_whole: Whether nothing of that version was read.
        is_planned: Whether a micro-batch was planned that is not committed.
    """

    newest: int
    batch: int = -1
    next_version: int | None = None
    is_whole: bool = True
    is_planned: bool = False

    @property
    def has_work(self) -> bool:
        """Whether there is anything to read, or a planned micro-batch to finish."""
        if self.is_planned or self.next_version is None or not self.is_whole:
            return True
        return self.next_version <= self.newest


def backlog(state: ObjectStore, target: str, table: ObjectStore | None = None) -> Backlog:
    """What a query has left to read.

    Args:
        state: The checkpoint location.
        target: The table it reads.
        table: The table's files; opened for `target`, unless given.

    Raises:
        TargetNotDeltaError: There is no Delta table.
        StateUnreachableError: The checkpoint location does not answer.
    """
    newest = TableLog(DeltaLocation.to_read(target), table).listing().latest
    with reaching_state(state):
        commits = spark_checkpoint.numbers(state, spark_checkpoint.COMMITS)
        offsets = spark_checkpoint.numbers(state, spark_checkpoint.OFFSETS)
        batch = commits[-1] if commits else -1
        is_planned = bool(offsets) and offsets[-1] > batch
        found = _offset(state, batch) if batch >= 0 else None
    if found is None:
        return Backlog(newest, batch, is_planned=is_planned)
    is_whole = found.get("index") in {_BEGIN_WRITTEN, BEGIN}
    version = int(found["reservoirVersion"])
    if found.get("isStartingVersion"):
        is_whole = False
    return Backlog(newest, batch, version, is_whole, is_planned)


def read_again(state: ObjectStore, batch: int) -> str | None:
    """How what a query from a table has read from a micro-batch on can be read again.

    Spark's checkpoint goes forward only, so that takes a new one.

    Args:
        state: The checkpoint location.
        batch: Number of the micro-batch.

    Returns:
        Part of a message; `None` where the checkpoint is not that of a query from one table.
    """
    with reaching_state(state):
        offsets = spark_checkpoint.numbers(state, spark_checkpoint.OFFSETS)
        if not offsets or _offset(state, offsets[-1]) is None:
            return None
        before = _offset(state, batch - 1) if batch else None
    new = "with a new checkpoint location"
    if batch == 0:
        return f"read the source again from where the stream began, {new}"
    if before is None:  # Spark keeps the offsets of the newest batches only
        where = ""
    else:
        version = int(before["reservoirVersion"])
        if int(before.get("index", 0)) < 0 and not before.get("isStartingVersion"):
            start = f"{new} and startingVersion={version}"
            return f"read the source again from version {version} on, {start}"
        where = f", which begins in the middle of version {version}"
    return (
        f"read the source again, {new} and into a new table: no version begins with batch {batch}"
        f"{where}"
    )


def _offset(state: ObjectStore, batch: int) -> dict[str, Any] | None:
    """The offset of the only source of a micro-batch; `None` where it is none of a table."""
    try:
        lines = state.get(f"{spark_checkpoint.OFFSETS}/{batch}").decode().splitlines()
        _version, _settings, source = lines
        found = json.loads(source)
    except (ObjectNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and "reservoirVersion" in found else None
