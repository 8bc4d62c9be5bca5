"""What became of each micro-batch?

Put together from what is written about it: its plan, the record of the sink, the note of the job,
Spark's commit log. A kill may come before the note, so the record of a job's batch has its counts,
too. Batches are read in their order, some ahead where the state is far away, and not kept: a stream
may have a million of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import CorruptedStateError
from airflow_cloudfiles.engine.files import Offset, printable_path
from airflow_cloudfiles.engine.state import run_history, spark_checkpoint
from airflow_cloudfiles.engine.state.packs import Packs
from airflow_cloudfiles.engine.state.plan_log import Plan, PlanLog
from airflow_cloudfiles.engine.state.sink_log import SinkLog
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once, is_near
from airflow_cloudfiles.engine.storage.outage import reaching_state

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.state.sink_log import Position, SinkRecord
    from airflow_cloudfiles.engine.storage import ObjectStore

_AHEAD = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class BatchState:
    """What is known of one micro-batch.

    Attributes:
        plan: Which files it has.
        planned: When that was decided.
        committed: When it was committed; `None` when it is not.
        run_id: The run that committed it; `None` where no job did, or an older version.
        table_version: A version of the table that has it; `None` where it is not known.
        schema_version: Version of the schema it was read with; `None` where it is not known.
        counts: What its tasks have counted; empty where no job committed it.
    """

    plan: Plan
    planned: datetime
    committed: datetime | None = None
    run_id: str | None = None
    table_version: int | None = None
    schema_version: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


class BatchStates:
    """The micro-batches of a state, up to a position of the past.

    Args:
        state: The checkpoint location.
        committed: How far it was committed.
        planned: How many batches were planned.
        ahead: Whether batches will be asked for one after the other, without gaps.
        spark: When Spark committed batches (`spark_commits`).
    """

    def __init__(
        self,
        state: ObjectStore,
        *,
        committed: Position,
        planned: int,
        ahead: bool = False,
        spark: Mapping[int, int] | None,
    ) -> None:
        self._state = state
        self._plans = PlanLog(state)
        with reaching_state(state):
            self._plans.meet_packs()
        self._sink = SinkLog(state)
        self._packs = Packs(state, run_history.PREFIX)
        self._committed = committed
        self._planned = planned
        self._spark = spark
        self._step = _AHEAD if ahead and not is_near(state) else 1
        self._read: dict[int, tuple[Plan, datetime]] = {}
        self._known: dict[int, BatchState] = {}
        self._current: Plan | None = None

    def begin_behind(self, number: int) -> None:
        """Look for the next position behind a batch first; none below 0."""
        if 0 <= number < self._planned:
            self._current = self.plan(number)

    def plan(self, number: int) -> Plan:
        """Read the plan of a batch."""
        return self._timed(number)[0]

    def plan_at(self, position: Offset) -> Plan:
        """Find the batch that has the file at a position, which is planned."""
        before = self._current
        if before is not None and before.start <= position < before.end:
            return before
        found = None
        if before is not None and position >= before.end and before.number + 1 < self._planned:
            found = self.plan(before.number + 1)
        if found is None or not found.start <= position < found.end:
            numbers = range(self._planned)
            at = bisect_right(numbers, position, key=self._start) - 1
            found = self.plan(max(at, 0))
        if not found.start <= position < found.end:
            raise self._torn(found, position)
        self._current = found
        return found

    def is_committed(self, plan: Plan) -> bool:
        """Whether a batch was committed.

        Raises:
            CorruptedStateError: What is committed ends in the middle of it.
        """
        if plan.start < self._committed.end < plan.end:
            raise self._torn(plan, self._committed.end)
        return plan.end <= self._committed.end

    def of(self, plan: Plan) -> BatchState:
        """Read what is known of a batch."""
        if plan.number not in self._known:
            numbers = range(plan.number, min(plan.number + self._step, self._planned))
            found = at_once(self._state, [partial(self._batch, each) for each in numbers])
            self._known = {batch.plan.number: batch for batch in found}
        return self._known[plan.number]

    def _batch(self, number: int) -> BatchState:
        plan, planned = self._read_one(number)
        if not self.is_committed(plan):
            return BatchState(plan, planned)
        with reaching_state(self._state):
            record = self._sink.find_in_any(number)
            done = run_history.note_of(self._state, number, self._packs)
        if record is not None and record.read_by == "query" and self._spark is None:
            record = None  # of another batch
        version = record.version if record is not None and record.version >= 0 else None
        committed = self._commit_time(number, record)
        known = done or record
        if known is None:
            return BatchState(plan, planned, committed)
        return BatchState(
            plan,
            planned,
            committed,
            known.run_id,
            done.table_version if done is not None and version is None else version,
            known.schema_version,
            known.counts,
        )

    def _commit_time(self, number: int, record: SinkRecord | None) -> datetime | None:
        """When a batch was committed, or else the first time at which it is known to be."""
        if record is not None and record.created:
            return self._time(record.created, f"the record of batch {number}")
        if self._spark is not None and number in self._spark:
            return _EPOCH + timedelta(microseconds=self._spark[number])
        # Spark keeps its newest commits only. It plans a batch when the one before is committed.
        return self._read_one(number + 1)[1] if number + 1 < self._planned else None

    def _start(self, number: int) -> Offset:
        return self._read_one(number)[0].start

    def _read_one(self, number: int) -> tuple[Plan, datetime]:
        return self._read.get(number) or self._with_time(number)

    def _timed(self, number: int) -> tuple[Plan, datetime]:
        """Read a plan, and some behind it."""
        found = self._read.get(number)
        if found is None:
            numbers = range(number, min(number + self._step, self._planned))
            plans = at_once(self._state, [partial(self._with_time, each) for each in numbers])
            self._read = dict(zip(numbers, plans, strict=True))
            found = plans[0]
        return found

    def _with_time(self, number: int) -> tuple[Plan, datetime]:
        plan, written = self._plans.with_time(number)
        return plan, self._time(written, f"the plan of batch {number}")

    def _time(self, text: str, what: str) -> datetime:
        return parsed_time(text, what, self._state)

    def _torn(self, plan: Plan, position: Offset) -> CorruptedStateError:
        return CorruptedStateError(
            f"The plan log in {printable_path(self._state.uri)} does not fit the rest of the "
            f"state: batch {plan.number} is {plan.start.to_json()} to {plan.end.to_json()}, and "
            f"{position.to_json()} is said to be the end or the start of a batch. Restore the "
            "checkpoint location as a whole from a backup."
        )


def parsed_time(text: str, what: str, state: ObjectStore) -> datetime:
    """Read the time at which something of a state was written.

    Raises:
        CorruptedStateError: It is none.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError as failure:
        raise CorruptedStateError(
            f"In {printable_path(state.uri)}, {what} does not say when it was written: {text!r}. "
            "Restore the checkpoint location as a whole from a backup."
        ) from failure
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def spark_commits(state: ObjectStore, committed: Position, plans: PlanLog) -> dict[int, int] | None:
    """Give when Spark committed its batches, in microseconds since 1970, as far as it kept that.

    Returns:
        Nothing of jobs; `None` where the query numbers its batches otherwise than the plan log,
        because it has several sources or keeps state of its own.
    """
    if committed.is_of_a_job or committed.batch < 0:
        return {}
    plan = plans.get(committed.batch)
    if plan is None or plan.end != committed.end:
        return None
    prefix = f"{spark_checkpoint.COMMITS}/"
    with reaching_state(state):
        found = {
            each.path.removeprefix(prefix): each.modification_time_us for each in state.list(prefix)
        }
    return {int(name): time for name, time in found.items() if name.isascii() and name.isdigit()}
