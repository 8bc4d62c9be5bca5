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
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, ObjectStore
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.outage import reaching_state


def offset_of_batch(state: ObjectStore, batch: int) -> Offset:
    """Give the position at which a batch ends that Spark has committed.

    Raises:
        CorruptedStateError: Spark's checkpoint cannot be understood.
    """
    try:
        return _source_offset(state, f"{OFFSETS}/{batch}")
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


def _source_offset(state: ObjectStore, key: str) -> Offset:
    """Read our offset from a file of Spark's offset log.

    Its lines are a version, a line of metadata, and one line for each source of the query, `-` for
    a source that has given nothing yet.
    """
    name = state.child_uri(key)
    try:
        content = state.get(key)
        lines = content.decode("utf-8", "replace").splitlines()
    except ObjectNotFoundError as failure:
        msg = (
            f"Spark's checkpoint has committed a batch whose offsets are missing: {name}. Restore "
            f"the checkpoint location as a whole from a backup."
        )
        raise CorruptedStateError(msg) from failure
    if isinstance(state, LocalStore) and not spark_checkpoint.is_as_written(state, key, content):
        # Elsewhere Hadoop writes no checksums.
        msg = f"{name} does not match its checksum. Restore it from a backup."
        raise CorruptedStateError(msg)
    if not lines or lines[0] != "v1":
        msg = (
            f"{name} has the version {''.join(lines[:1])!r} of Spark's log, and this version of "
            "the package understands v1. Upgrade the package here."
        )
        raise IncompatibleStateError(msg)
    for line in lines[2:]:
        offset = spark_checkpoint.offset_of(line)
        if offset is not None:
            return offset
    if lines[2:] and all(line == "-" for line in lines[2:]):
        return START
    msg = f"{name} holds no offset of a cloudFiles source; the checkpoint is another query's."
    raise CorruptedStateError(msg)
