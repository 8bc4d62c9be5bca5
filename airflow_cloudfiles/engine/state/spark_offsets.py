"""How far has Spark come, in a plain query?

Read from Spark's own checkpoint, in the state or mirrored there: the offset of the last batch that
its commit log names. Where the power failed and that offset is gone, the plan log has it too.
"""

from __future__ import annotations

from airflow_cloudfiles.engine.errors import CorruptedStateError, IncompatibleStateError
from airflow_cloudfiles.engine.files import START, Offset
from airflow_cloudfiles.engine.state import spark_checkpoint
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.spark_checkpoint import COMMITS, OFFSETS
from airflow_cloudfiles.engine.storage import ObjectStore
from airflow_cloudfiles.engine.storage.outage import reaching_state


def offset_of_batch(state: ObjectStore, batch: int) -> Offset:
    """Give the position at which a batch ends that Spark has committed.

    Raises:
        CorruptedStateError: Spark's checkpoint cannot be understood.
    """
    try:
        return _source_offset(state, batch)
    except (CorruptedStateError, IncompatibleStateError):
        # Gone or cut off: the next run rebuilds it from the plan log, so that is what counts.
        is_whole = spark_checkpoint.read_offsets(state, batch) is not None
        plan = None if is_whole else PlanLog(state).get(batch)
        if plan is None:
            raise
        return plan.end


def last_committed_batch(state: ObjectStore) -> int | None:
    """Give the number of the last micro-batch that Spark has committed; `None` for none."""
    with reaching_state(state):
        return max(spark_checkpoint.numbers(state, COMMITS), default=None)


def _source_offset(state: ObjectStore, batch: int) -> Offset:
    """Read our offset from Spark's offset log; `-` is a source that has given nothing yet."""
    _, sources = spark_checkpoint.require_offsets(state, batch)
    for line in sources:
        offset = spark_checkpoint.offset_of(line)
        if offset is not None:
            return offset
    if sources and all(line == "-" for line in sources):
        return START
    name = state.child_uri(f"{OFFSETS}/{batch}")
    msg = f"{name} holds no offset of a cloudFiles source; the checkpoint is another query's."
    raise CorruptedStateError(msg)
