"""Keep Spark's own checkpoint of a query from one source, without Spark.

The plan log of a run from a Delta table is what Spark writes for a query: `offsets/<n>` before
anything of micro-batch `n` is read, `commits/<n>` when the table has it. Each is created with
put-if-absent, and survives a power failure. So a run goes on where a query has ended or was killed,
and a query where a run did. The newest entries are kept, as Spark keeps them.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import CorruptedStateError, StateLockedError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.state import spark_checkpoint
from airflow_cloudfiles.engine.state.spark_checkpoint import (
    COMMIT,
    COMMITS,
    KEPT_BATCHES,
    METADATA,
    OFFSETS,
)
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import require_conditional_put

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.state.spark_checkpoint import SourceOffset
    from airflow_cloudfiles.engine.storage import ObjectStore


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """How far a query is.

    Attributes:
        committed: The newest micro-batch that was committed; -1 for none.
        planned: The newest one that was planned.
    """

    committed: int
    planned: int


def progress_of(state: ObjectStore) -> QueryProgress:
    """Read how far a query is.

    Where the entry of a commit is lost, the plan of the next batch says that it was committed. The
    newest batch may be taken for uncommitted then: it is run again, and the table knows it.
    """
    return _progress(*_numbers(state))


class QueryCheckpoint:
    """The checkpoint of one query, in the hands of a run that has the lock of its state.

    Args:
        state: The checkpoint location.
    """

    def __init__(self, state: ObjectStore) -> None:
        self._state = state
        self._commits: list[int] = []
        self._offsets: list[int] = []
        self._settings = ""

    def open(self) -> QueryProgress:
        """Read how far the query is; a new one gets its id.

        Raises:
            CorruptedStateError: Its id, or the plan of a batch that was committed, is gone.
            StateError: The store does not keep two writers apart.
            StateUnreachableError: It does not answer.
        """
        with reaching_state(self._state):
            self._commits, self._offsets = _numbers(self._state)
            if self._state.head(METADATA) is None:
                if self._commits or self._offsets:
                    raise self._corrupted(f"{METADATA} is missing")
                require_conditional_put(self._state)
                new = spark_checkpoint.encode_query_id(str(uuid.uuid4()))
                spark_checkpoint.create(self._state, METADATA, new)
        found = _progress(self._commits, self._offsets)
        if found.committed > found.planned:
            raise self._corrupted(f"{OFFSETS}/{found.committed} is missing")
        return found

    def end_of(self, batch: int) -> dict[str, Any]:
        """Where a micro-batch ends, by its plan.

        Raises:
            CorruptedStateError: The plan is gone or damaged, or that of a query from several
                sources.
            IncompatibleStateError: A newer version of Spark wrote it.
        """
        with reaching_state(self._state):
            settings, sources = spark_checkpoint.require_offsets(self._state, batch)
        try:
            [source] = sources
            found = json.loads(source)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._corrupted(f"{OFFSETS}/{batch} is not that of a query from one source")
        self._settings = settings
        return found

    def plan(self, batch: int, end: SourceOffset) -> None:
        """Record where a micro-batch ends.

        Raises:
            StateLockedError: Another run has planned it meanwhile.
            StateUnreachableError: The state does not answer.
        """
        key = f"{OFFSETS}/{batch}"
        self._settings = spark_checkpoint.new_settings(self._settings)
        content = spark_checkpoint.encode_offsets(self._settings, end)
        with reaching_state(self._state):
            # The answer to a put may be lost, so what is there is read back after a no.
            created = spark_checkpoint.create(self._state, key, content)
            if not created and self._state.get(key) != content:
                raise StateLockedError(
                    f"Another run or query has planned batch {batch} of the checkpoint location "
                    f"{printable_path(self._state.uri)} meanwhile. Stop it, and run again."
                )
        self._offsets.append(batch)

    def commit(self, batch: int) -> None:
        """Record that the table has a micro-batch, and remove entries that are old.

        Raises:
            StateUnreachableError: The state does not answer.
        """
        with reaching_state(self._state):
            spark_checkpoint.create(self._state, f"{COMMITS}/{batch}", COMMIT)
            self._commits.append(batch)
            for log, numbers in ((OFFSETS, self._offsets), (COMMITS, self._commits)):
                while numbers[0] < batch - KEPT_BATCHES:
                    spark_checkpoint.remove(self._state, f"{log}/{numbers.pop(0)}")

    def _corrupted(self, what: str) -> CorruptedStateError:
        return CorruptedStateError(
            f"The checkpoint of the query in {printable_path(self._state.uri)} is damaged: {what}. "
            "Restore the checkpoint location as a whole, together with the table, from a backup, "
            "or start with a new one (docs/how-to/recover.md)."
        )


def _numbers(state: ObjectStore) -> tuple[list[int], list[int]]:
    # In this order: a run that goes on meanwhile writes offsets before commits.
    commits = spark_checkpoint.numbers(state, COMMITS)
    return commits, spark_checkpoint.numbers(state, OFFSETS)


def _progress(commits: list[int], offsets: list[int]) -> QueryProgress:
    planned = max(offsets, default=-1)
    return QueryProgress(max([*commits, planned - 1, -1]), planned)
