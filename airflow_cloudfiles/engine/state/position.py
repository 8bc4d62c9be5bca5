"""How far has a stream come?

Two kinds of queries work on one state, and each says where it is in its own way:

- A job of this package keeps no checkpoint of Spark's. A batch is committed when the sink has
  recorded it (`sink_log`); batch `b` is plan `b`, and its end is where that plan ends.
- A plain query has Spark's checkpoint in the state, or mirrored there (`spark_offsets`). Of its
  batches, those are committed that Spark's commit log names, whatever the sink has recorded.

Whoever is further has the last word: a job begins where a plain query has ended, and before a plain
query starts, its checkpoint is brought to where the jobs are (`checkpoint_healing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import CorruptedStateError, StateConflictError
from airflow_cloudfiles.engine.files import START, Offset, printable_path
from airflow_cloudfiles.engine.state import spark_offsets
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import newest_of_a_job
from airflow_cloudfiles.engine.storage.fetched_ahead import side_by_side
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.state.sink_log import SinkRecord
    from airflow_cloudfiles.engine.storage import ObjectStore


@dataclass(frozen=True, slots=True)
class Position:
    """How far a stream is committed.

    Attributes:
        batch: Number of the last committed micro-batch; -1 before the first.
        end: Where it ends in the file log; `START` before the first.
        is_of_a_job: Whether a job has committed it, whose batches are those of the plan log.
    """

    batch: int = -1
    end: Offset = START
    is_of_a_job: bool = False


def position(state: ObjectStore, plans: PlanLog | None = None) -> Position:
    """Give the position up to which a stream is committed.

    Args:
        state: The checkpoint location.
        plans: Its plan log, if the caller has read it.

    Raises:
        CorruptedStateError: The state cannot be understood, or its parts do not belong together.
    """
    with reaching_state(state):
        job, spark = side_by_side(
            state,
            lambda: newest_of_a_job(state),
            lambda: spark_offsets.last_committed_batch(state),
        )
        if job is not None and job.batch >= (-1 if spark is None else spark):
            return Position(job.batch, _end_of(job, state, plans), is_of_a_job=True)
        if spark is None:
            return Position()
        return Position(spark, spark_offsets.offset_of_batch(state, spark))


def position_of_a_job(state: ObjectStore, plans: PlanLog) -> Position:
    """Give the position at which a job goes on, whose batches are those of the plan log.

    Raises:
        StateConflictError: A plain query has numbered its batches otherwise.
        CorruptedStateError: As for `position`.
    """
    found = position(state, plans)
    if found.batch < 0 or found.is_of_a_job:
        return found
    plan = plans.get(found.batch)
    if plan is None or plan.end != found.end:
        raise StateConflictError(
            f"The query that last used the checkpoint location {printable_path(state.uri)} numbers "
            f"its batches otherwise than the plan log: its batch {found.batch} ends at "
            f"{found.end.to_json()}. It has several sources, or keeps state of its own "
            "(aggregations, joins). A job cannot go on from it. Give the job a checkpoint location "
            "of its own."
        )
    return found


def _end_of(record: SinkRecord, state: ObjectStore, plans: PlanLog | None) -> Offset:
    """Where a recorded batch ends: its record says so, or else its plan."""
    if record.end is not None:
        return record.end
    plan = (plans or PlanLog(state)).get(record.batch)
    if plan is None:
        raise CorruptedStateError(
            f"Batch {record.batch} is recorded as committed in {printable_path(state.uri)}, but "
            "the plan log ends before it. Restore the checkpoint location as a whole from a backup."
        )
    return plan.end
