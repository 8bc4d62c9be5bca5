"""How does a plain query go on where jobs have been?

A job leaves no checkpoint of Spark's behind: what it has committed is recorded in the state. Before
a plain query starts on such a state, its checkpoint is brought to where the jobs are, as if Spark
had committed their batches: the offsets of the newest one and of the one before it, which Spark
reads, its entry of the commit log, and the id of the query where there is none.

That holds for a query whose only source is ours and which keeps no state of its own. Batches of
other queries are not those of the plan log, so they are refused. So is any plain query over Spark
Connect: nobody who knows of it is at work before Spark has read its checkpoint.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import CorruptedStateError, StateConflictError, StateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.locks.run_lock import RunLock
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.spark.checkpoint_healing import LOCK_PATIENCE_SECONDS
from airflow_cloudfiles.engine.state import spark_checkpoint
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import newest_of_a_job
from airflow_cloudfiles.engine.state.spark_checkpoint import COMMITS, METADATA, OFFSETS
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import Offset
    from airflow_cloudfiles.engine.storage import ObjectStore

_log = logging.getLogger(__name__)


def go_on_after_jobs(spark: ObjectStore, state: ObjectStore, *, sources: int) -> None:
    """Bring a checkpoint to where the jobs on its state are; one that is there is left alone.

    Args:
        spark: Where Spark will read it: the checkpoint location, or its mirror. It is whole.
        state: The state.
        sources: How many streams the query reads.

    Raises:
        StateConflictError: Its batches are not those of the plan log.
        StateLockedError: A job is at work.
        CorruptedStateError: The plan log lacks a batch of the jobs.
        StateError: The checkpoint cannot be written.
    """
    with reaching_state(state):
        if _batches_behind(spark, state) == 0:
            return
    lock = RunLock(state)
    lock.acquire(timeout_seconds=LOCK_PATIENCE_SECONDS)
    with lock, reaching_state(state):
        behind = _batches_behind(spark, state)
        if behind == 0:
            return
        if sources != 1 or next(spark.list("state/"), None) is not None:
            if behind == 1:
                return  # a replay has recorded what the sink had: Spark repeats this batch
            raise StateConflictError(
                f"Jobs have ingested into {printable_path(state.uri)} since this query last ran, "
                f"{counted(behind, 'batch')}. It cannot go on from there, because it has several "
                "sources or keeps state of its own (aggregations, joins). Give it a checkpoint "
                "location of its own."
            )
        try:
            _write(spark, state)
        except OSError as failure:
            name = printable_path(spark.uri)
            raise StateError(f"Spark's checkpoint {name} cannot be written: {failure}") from failure


def refuse_behind_jobs(state: ObjectStore, plans: PlanLog, start: Offset) -> None:
    """Refuse a query that would read once more what jobs have ingested.

    Args:
        state: The state.
        plans: Its plan log.
        start: Where the query begins, by Spark's checkpoint.

    Raises:
        StateConflictError: It does.
    """
    with reaching_state(state):
        job = newest_of_a_job(state)
        if job is None:
            return
        plan = plans.get(job.batch) if job.end is None else None
    end = job.end if plan is None else plan.end
    if end is not None and start < end:
        raise StateConflictError(
            f"Jobs have ingested into {printable_path(state.uri)} up to batch {job.batch}, behind "
            "where this query begins. It would read their files once more. Over Spark Connect a "
            "plain query cannot go on from there: run the job in its place, start the query once "
            "with a session that has a JVM, or give it a checkpoint location of its own."
        )


def _batches_behind(spark: ObjectStore, state: ObjectStore) -> int:
    """How many batches of jobs a checkpoint lacks."""
    job = newest_of_a_job(state)
    if job is None:
        return 0
    committed = max(spark_checkpoint.numbers(spark, COMMITS), default=-1)
    return max(0, job.batch - committed)


def _write(spark: ObjectStore, state: ObjectStore) -> None:
    """Write what Spark needs to go on behind the newest batch of a job; the commit comes last."""
    job, plans = newest_of_a_job(state), PlanLog(state)
    plan = None if job is None else plans.get(job.batch)
    if job is None or plan is None:
        raise CorruptedStateError(
            f"Jobs have committed batches that the plan log in {printable_path(state.uri)} lacks. "
            "Restore the checkpoint location as a whole from a backup."
        )
    known, _ = spark_checkpoint.query_id(spark)
    if known is None:
        content = spark_checkpoint.encode_query_id(str(uuid.uuid4()))
        spark_checkpoint.replace(spark, METADATA, content)
    ends = {plan.number: plan.end} | ({plan.number - 1: plan.start} if plan.number else {})
    for batch, end in sorted(ends.items()):
        if spark_checkpoint.read_offsets(spark, batch) is None:
            content = spark_checkpoint.encode_offsets(spark_checkpoint.new_settings(), end)
            spark_checkpoint.replace(spark, f"{OFFSETS}/{batch}", content)
    spark_checkpoint.replace(spark, f"{COMMITS}/{plan.number}", spark_checkpoint.COMMIT)
    _log.info("The query goes on behind batch %s, which a job has committed", plan.number)
