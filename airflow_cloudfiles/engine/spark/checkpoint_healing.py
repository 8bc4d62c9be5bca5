"""Mend Spark's checkpoint when it is damaged, or when jobs have gone on without it.

Spark syncs nothing that it writes there, so a power failure may leave any file of it empty or cut
off, and Spark then refuses to start, for ever. But for a query whose only source is ours, and
which keeps no state of its own, everything in it follows from the plan log: the offset of batch `b`
is the end of plan `b`. So before a query starts:

1. What Spark will read is looked at: the newest entry of `commits`, the newest two of `offsets`,
   and `metadata`. If it is whole, nothing happens.
2. `done` is the last batch that is known to be committed: by an entry of `commits` that is whole,
   or because the offsets of the batch behind it are there.
3. Offsets that Spark needs to go on behind `done`, and that are missing, are written from the plan
   log. Entries that are not whole are removed: their batch is run again, with the same number and
   the same files, and the sink of this package leaves out what its table has.

Whatever cannot be proved in this way is refused, by name, and is left as it is.

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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import CorruptedStateError, StateConflictError, StateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.state import spark_checkpoint
from airflow_cloudfiles.engine.state.locks.run_lock import RunLock
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import newest_of_a_job
from airflow_cloudfiles.engine.state.spark_checkpoint import COMMITS, METADATA, OFFSETS
from airflow_cloudfiles.engine.storage import ObjectStore
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import Offset

LOCK_PATIENCE_SECONDS = 20.0
"""How long a damaged checkpoint waits for the run that may be using it."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Damage:
    """What is wrong with a checkpoint, and what it is to become.

    Attributes:
        found: What is wrong, in words; empty when nothing is.
        missing: Batches whose offsets are to be written.
        removed: Files that are not whole and are not needed.
        newest: The newest batch whose offsets are whole; -1 for none.
        has_id: Whether `metadata` is as it must be.
    """

    found: list[str] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    newest: int = -1
    has_id: bool = True


def heal(spark: ObjectStore, state: ObjectStore | None, *, sources: int) -> None:
    """Rebuild a damaged checkpoint of Spark from the plan log, before its query starts.

    Args:
        spark: Where Spark will read it: the checkpoint location, or its mirror.
        state: Where the plan log is; `None` when it is not in the query's checkpoint location.
        sources: How many streams the query reads.

    Raises:
        CorruptedStateError: It is damaged and cannot be rebuilt.
        StateLockedError: It is damaged, and another run is using it.
        StateError: It cannot be written.
    """
    if not _inspect(spark).found:
        return
    if state is None:
        raise _refused(spark, _inspect(spark), "the stream's state is in another location")
    lock = RunLock(state)
    lock.acquire(timeout_seconds=LOCK_PATIENCE_SECONDS)
    with lock:
        damage = _inspect(spark)
        if damage.found:
            _refuse_unprovable(spark, damage, sources)
            try:
                _rebuild(spark, damage, PlanLog(state))
            except OSError as failure:
                name = printable_path(spark.uri)
                msg = f"Spark's checkpoint in {name} is damaged and cannot be written: {failure}"
                raise StateError(msg) from failure


def _inspect(spark: ObjectStore) -> _Damage:
    """Look at what Spark will read."""
    damage = _Damage()
    # In this order: a run that goes on meanwhile writes offsets before commits.
    commits = spark_checkpoint.numbers(spark, COMMITS)
    offsets = spark_checkpoint.numbers(spark, OFFSETS)
    committed, torn_commits = _newest(
        commits, lambda batch: spark_checkpoint.is_committed(spark, batch)
    )
    damage.newest, torn_offsets = _newest(offsets, lambda batch: _has_offsets(spark, batch))
    done = max(committed, damage.newest - 1)
    top = max(damage.newest, done)
    needed = [batch for batch in (top - 1, top) if batch >= 0]
    damage.missing = [batch for batch in needed if not _has_offsets(spark, batch)]
    damage.removed = [f"{COMMITS}/{batch}" for batch in torn_commits]
    damage.removed += [f"{OFFSETS}/{batch}" for batch in torn_offsets if batch not in needed]
    damage.found = [f"{key} is cut off or damaged" for key in damage.removed]
    damage.found += [
        f"{OFFSETS}/{batch} is {'cut off or damaged' if batch in offsets else 'missing'}"
        for batch in damage.missing
    ]
    _, damage.has_id = spark_checkpoint.query_id(spark)
    if not damage.has_id:
        is_there = spark.head(METADATA) is not None
        if is_there or offsets or commits:
            damage.found.append(f"{METADATA} is {'cut off or damaged' if is_there else 'missing'}")
        else:
            damage.has_id = True  # a new query
    return damage


def _newest(batches: list[int], is_whole: Callable[[int], bool]) -> tuple[int, list[int]]:
    """Find the newest entry that is whole, and those behind it that are not."""
    torn: list[int] = []
    for batch in reversed(batches):
        if is_whole(batch):
            return batch, torn
        torn.append(batch)
    return -1, torn


def _has_offsets(spark: ObjectStore, batch: int) -> bool:
    return spark_checkpoint.read_offsets(spark, batch) is not None


def _refuse_unprovable(spark: ObjectStore, damage: _Damage, sources: int) -> None:
    """Refuse what does not follow from the plan log."""
    found = spark_checkpoint.read_offsets(spark, damage.newest)
    if sources != 1 or (found is not None and found.sources not in {1, None}):
        raise _refused(spark, damage, "the query has several sources")
    if next(spark.list("state/"), None) is not None:
        raise _refused(spark, damage, "the query keeps state of its own (aggregations, joins)")
    if found is not None and found.ours is None:
        raise _refused(spark, damage, "its other entries are of a form that is not known here")


def _rebuild(spark: ObjectStore, damage: _Damage, plans: PlanLog) -> None:
    """Write what is missing, and then remove what is not whole."""
    found = spark_checkpoint.read_offsets(spark, damage.newest)
    planned = plans.get(damage.newest)
    if found is not None and (planned is None or planned.end != found.ours):
        raise _refused(spark, damage, f"{OFFSETS}/{damage.newest} is not what the plan log has")
    ends = {batch: plans.get(batch) for batch in damage.missing}
    lacks = next((batch for batch, plan in ends.items() if plan is None), None)
    if lacks is not None:
        raise _refused(spark, damage, f"the plan log has no batch {lacks}")
    settings = found.settings if found is not None else spark_checkpoint.new_settings()
    for batch, plan in ends.items():
        if plan is not None:
            content = spark_checkpoint.encode_offsets(settings, plan.end)
            spark_checkpoint.replace(spark, f"{OFFSETS}/{batch}", content)
    for key in damage.removed:
        spark_checkpoint.remove(spark, key)
    if not damage.has_id:
        known, _ = spark_checkpoint.query_id(spark)
        content = spark_checkpoint.encode_query_id(known or str(uuid.uuid4()))
        spark_checkpoint.replace(spark, METADATA, content)
    _log.warning(
        "Spark's checkpoint in %s was damaged (%s); it has been rebuilt from the plan log. Batches "
        "of which it is not known whether they were committed are run again with the same files.",
        printable_path(spark.uri),
        "; ".join(damage.found),
    )


def _refused(spark: ObjectStore, damage: _Damage, why: str) -> CorruptedStateError:
    return CorruptedStateError(
        f"Spark's checkpoint in {printable_path(spark.uri)} is damaged: {'; '.join(damage.found)}. "
        f"It cannot be rebuilt: {why}. Restore the checkpoint location as a whole, together with "
        "the table, from a backup, or start with a new one (docs/how-to/recover.md)."
    )


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
    """Count the batches of jobs that a checkpoint lacks."""
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
