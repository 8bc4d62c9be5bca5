"""Keep which micro-batches the target must have, and tell how far a stream has come.

The sink writes a record of every micro-batch that it has committed: in which table (the id in its
metadata) and at which version. So a table that was deleted, replaced or restored to an older
version is noticed before the next batch is committed on top of the gap.

A record is written after the table's commit and before Spark's. Killed in between, the record is
missing, the batch is repeated, found in the table, and recorded then. For a job the record is the
truth: Spark's own checkpoint ends with its run.

When batches were lost, somebody decides how to go on: a replay of the batches, or the loss. Each
decision begins a new *epoch*, with records of its own, since what the table had before no longer
counts. An epoch without a record is a decision that was not carried out to its end.

Two kinds of queries work on one state, and each says where it is in its own way:

- A job of this package keeps no checkpoint of Spark's. A batch is committed when the sink has
  recorded it; batch `b` is plan `b`, and its end is where that plan ends.
- A plain query has Spark's checkpoint in the state, or mirrored there (`spark_checkpoint`). Of its
  batches, those are committed that Spark's commit log names, whatever the sink has recorded.

Whoever is further has the last word: a job begins where a plain query has ended, and before a plain
query starts, its checkpoint is brought to where the jobs are (`checkpoint_healing`).

What a batch and its commit are to a table, of whatever kind, is described here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    LostBatchesError,
    StateConflictError,
)
from airflow_cloudfiles.engine.files import START, Offset, printable_path
from airflow_cloudfiles.engine.state import spark_checkpoint
from airflow_cloudfiles.engine.state.numbered_log import LogEntry, NumberedLog
from airflow_cloudfiles.engine.state.packs import beyond_repair
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.spark_checkpoint import last_committed_batch
from airflow_cloudfiles.engine.storage.fetched_ahead import side_by_side
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.versions import as_record

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore


@dataclass(frozen=True, slots=True)
class BatchId:
    """Which micro-batch a commit is.

    Attributes:
        app_id: The stream.
        number: Number of its micro-batch.
        plan: Id of the plan log's entry, if there is one: the same number with another plan is
            another batch, of a state that was restored from an older backup.
        replay: Number of the decision to replay it after a loss. The table may still know its
            number from before; so it has an application id of its own.
        schema_version: Version of the schema that it was read with; `None` where that is unknown.
        counts: What its tasks have counted (`run_history.BatchDone`).
        origin: The place of the state and its source (`earlier_life.origin`); empty for none.
    """

    app_id: str
    number: int
    plan: str | None = None
    replay: int | None = None
    schema_version: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict, compare=False)
    origin: str = field(default="", compare=False)

    @property
    def own_app_id(self) -> str:
        """Under which application id the table knows whether it has this very batch."""
        return self.app_id if self.replay is None else f"{self.app_id}.replay-{self.replay}"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit amounted to: the table and its version, and whether this call made it.

    Attributes:
        version: A version of a Delta table, or a sequence number of an Iceberg table, that has the
            batch.
        is_new: Whether this call committed it.
        table_id: Id of the table.
        counts: What a merge, or the replacing of rows, has counted.
    """

    version: int
    is_new: bool
    table_id: str = ""
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """A batch that a table has, as its commit noted it.

    Attributes:
        version: As of `CommitResult`.
        table_id: Of the table.
        plan: Id of its plan; empty or `None` where there is none.
        schema_version: Version of the schema that it was read with; `None` where that is unknown.
        counts: As in the note of a batch (`run_history.BatchDone`).
    """

    version: int
    table_id: str
    plan: str | None
    schema_version: int | None
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ExpectedBatch:
    """What a table must have before a batch is committed to it.

    Attributes:
        record: The batch.
        state: The checkpoint location that has the record, for messages.
        read_again: Says for messages how what was read from a batch on is read again; `None` where
            that is a replay.
    """

    record: SinkRecord
    state: str
    read_again: Callable[[int], str | None]


PREFIX = "_source/sink"
DECISIONS = "_source/replays"
FORMAT_VERSION = 1

RowsFrom = Literal["sink", "query", "function"]
DecisionKind = Literal["replay", "acceptLoss"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRecord:
    """A micro-batch that the target has.

    Attributes:
        batch: Its number.
        table_id: Id of the Delta table; empty when it is not known, or there was no table.
        version: A version of the table that has it; -1 when it is not known.
        target: URI of the table, for messages.
        is_accepted: Whether the table may lack this batch and those before it, because their loss
            was accepted; what the table had at `version` it must have nevertheless.
        plan: Id of its plan; empty where there is none.
        read_by: Who read its files: the tasks of the `sink`, whose rows are those of the files, or
            a `query`, which may have changed them; or, in a job, a `function`, which has.
        end: Where it ends in the file log; `None` where that is not known. The record of a job's
            batch is what says that the batch is committed (`position`).
        run_id: The run of a job that committed it; `None` where no job did.
        schema_version: Version of the schema that it was read with; `None` where that is unknown.
        counts: What its tasks have counted, as in its note (`run_history.BatchDone`), which a kill
            may keep from being written; empty where those that wrote it did not read files.
        created: When it was written (ISO 8601, UTC); empty for one that is not yet.
    """

    batch: int
    table_id: str = ""
    version: int = -1
    target: str = ""
    is_accepted: bool = False
    plan: str = ""
    read_by: RowsFrom = "sink"
    end: Offset | None = None
    run_id: str | None = None
    schema_version: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    created: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How to go on after a loss.

    Attributes:
        number: Its number; the epoch that it begins is one more.
        kind: `replay` the batches, or `acceptLoss`.
        first: The first batch that it is about.
        last: The last one (inclusive): the newest batch that was committed.
        batches: The batches that the table lacked when it was made.
        target: URI of the table.
    """

    number: int
    kind: DecisionKind
    first: int
    last: int
    batches: tuple[int, ...]
    target: str


class SinkLog:
    """The records of one stream, in its state.

    Args:
        state: The checkpoint location.

    Attributes:
        state: The same.
    """

    def __init__(self, state: ObjectStore) -> None:
        self.state = state
        self._decisions = NumberedLog(state, DECISIONS, format_version=FORMAT_VERSION)
        self._epoch: int | None = None
        self._logs: dict[int, NumberedLog] = {}

    @property
    def epoch(self) -> int:
        """How many decisions there are, when this was first asked."""
        if self._epoch is None:
            # Nearly always there is none, which one request shows.
            has_any = self._decisions.find(0) is not None
            self._epoch = self._decisions.latest() + 1 if has_any else 0
        return self._epoch

    def find(self, batch: int) -> SinkRecord | None:
        """Read the record of a batch in this epoch."""
        log = self._records()
        entry = log.find(batch)
        return None if entry is None else _record(log, entry)

    def find_in_any(self, batch: int) -> SinkRecord | None:
        """Read the record of a batch in the newest epoch that has one."""
        for epoch in range(self.epoch, -1, -1):
            log = self._records(epoch)
            entry = log.find(batch)
            if entry is not None:
                return _record(log, entry)
        return None

    def newest(self) -> SinkRecord | None:
        """Read the newest record of this epoch."""
        number = self._records().newest()
        return None if number < 0 else self.find(number)

    def expected(self, batch: int) -> SinkRecord | None:
        """Give the batch that the target must have when another one is to be committed.

        Args:
            batch: Number of the batch that is to be committed.

        Returns:
            The batch itself if it was committed before, else the one before it, else the newest;
            `None` when nothing was committed yet.

        Raises:
            LostBatchesError: A replay has not come to its end.
        """
        found = self._recent(batch) or (self._recent(batch - 1) if batch else None) or self.newest()
        if self.epoch > 0:
            return self._finished(found)
        if found is None and batch > 0:
            # Committed before there were records: Spark begins a batch when it has committed the
            # one before.
            return SinkRecord(batch=batch - 1)
        return found

    def must_have(self) -> SinkRecord | None:
        """Give the batch that the target must have before a run starts; `None` for none.

        Raises:
            LostBatchesError: A replay has not come to its end.
        """
        found = self.newest()
        if self.epoch > 0:
            return self._finished(found)
        if found is not None:
            return found
        # The records may be lost. A batch is planned when the one before it is committed.
        latest, spark = PlanLog(self.state).latest(), last_committed_batch(self.state)
        last = max(-1 if latest is None else latest.number - 1, -1 if spark is None else spark)
        return None if last < 0 else SinkRecord(batch=last)

    def unfinished(self) -> Decision | None:
        """Give the newest decision if it was not carried out to its end."""
        decision, newest = self.decision(), self.newest()
        is_open = decision is not None and (newest is None or newest.batch < decision.last)
        return decision if is_open else None

    def add(self, record: SinkRecord) -> None:
        """Write the record of a batch; one that is there stays."""
        header = {
            "batch": record.batch,
            "table_id": record.table_id,
            "version": record.version,
            "target": record.target,
            "accepted": record.is_accepted,
            "plan": record.plan,
            "read_by": record.read_by,
            "end": None if record.end is None else record.end.to_json(),
        }
        if record.counts:
            done = ("run_id", "schema_version", "counts")
            header |= {name: getattr(record, name) for name in done}
        self._records().append(record.batch, header)

    def decision(self) -> Decision | None:
        """Read the newest decision."""
        return None if self.epoch == 0 else self._decision(self.epoch - 1)

    def given_up(self) -> frozenset[int]:
        """Give the batches whose loss was accepted and that no later decision replays."""
        lost: set[int] = set()
        for number in range(self.epoch):
            made = self._decision(number)
            if made.kind == "acceptLoss":
                lost.update(made.batches)
            else:
                lost.difference_update(made.batches)
        return frozenset(lost)

    def _decision(self, number: int) -> Decision:
        header = self._decisions.read(number).header
        try:
            return as_record({**header, "number": number}, Decision)
        except ValueError as failure:
            raise _damaged(self._decisions.name(number)) from failure

    def decide(self, decision: Decision) -> bool:
        """Write a decision.

        Returns:
            Whether it is this one that has the number; if not, read again.
        """
        header = asdict(decision)
        won = self._decisions.append(header.pop("number"), header)
        self._epoch = None
        return won

    def _finished(self, found: SinkRecord | None) -> SinkRecord | None:
        """Refuse to go on in the middle of a replay."""
        decision = self.decision()
        if decision is None or (found is not None and found.batch >= decision.last):
            return found
        accepts = decision.kind == "acceptLoss"
        what, more = ("Accepting the loss", " --accept-loss") if accepts else ("A replay", "")
        raise LostBatchesError(
            f"{what} of the batches {decision.first} to {decision.last} into {decision.target} "
            "has begun and not ended. Run it again, with the same arguments: "
            f"cloudfiles replay --checkpoint-location {printable_path(self.state.uri)} --target "
            f"{decision.target} --from-batch {decision.first}{more}."
        )

    def _recent(self, batch: int) -> SinkRecord | None:
        """Read the record of a batch, if it is one of the newest, with one request."""
        log = self._records()
        entry = log.find_recent(batch)
        return None if entry is None else _record(log, entry)

    def _records(self, epoch: int | None = None) -> NumberedLog:
        number = self.epoch if epoch is None else epoch
        if number not in self._logs:
            self._logs[number] = _log_of(self.state, number)
        return self._logs[number]


def _log_of(state: ObjectStore, epoch: int) -> NumberedLog:
    return NumberedLog(state, f"{PREFIX}/{epoch}", format_version=FORMAT_VERSION, is_packed=True)


def newest_of_a_job(state: ObjectStore) -> SinkRecord | None:
    """Read the record of the newest batch, in any epoch, if a job has committed it.

    After a plain query it is Spark's checkpoint that says how far the stream is, and it covers what
    jobs had committed before.
    """
    newest = _newest(entry.path for entry in state.list(f"{PREFIX}/"))
    if newest is None:
        return None
    batch, epoch = newest
    log = _log_of(state, epoch)
    record = _record(log, log.read(batch))
    return None if record.read_by == "query" else record


def newest_batch(state: ObjectStore) -> int:
    """Give the number of the newest batch that has a record, in any epoch; -1 for none."""
    newest = _newest(entry.path for entry in state.list(f"{PREFIX}/"))
    return -1 if newest is None else newest[0]


def newest_key(keys: Iterable[str]) -> str | None:
    """Find, of the keys below `PREFIX`, that of the newest batch; `None` for none."""
    newest = _newest(keys)
    return None if newest is None else f"{PREFIX}/{newest[1]}/{newest[0]:020}"


def _newest(keys: Iterable[str]) -> tuple[int, int] | None:
    """Find the newest batch that has a record, and the epoch of that."""
    names = (key.removeprefix(f"{PREFIX}/").split("/") for key in keys)
    numbers = (
        (int(name[1]), int(name[0]))
        for name in names
        if len(name) == 2 and all(each.isascii() and each.isdigit() for each in name)  # noqa: PLR2004
    )
    return max(numbers, default=None)


def _record(log: NumberedLog, entry: LogEntry) -> SinkRecord:
    header = entry.header
    try:
        end = header.get("end")
        return SinkRecord(
            batch=int(header["batch"]),
            table_id=str(header["table_id"]),
            version=int(header["version"]),
            target=str(header["target"]),
            is_accepted=bool(header["accepted"]),
            plan=str(header["plan"]),
            read_by=header["read_by"],
            end=None if end is None else Offset.from_json(end),
            run_id=header.get("run_id"),
            schema_version=header.get("schema_version"),
            counts=dict(header.get("counts") or {}),
            created=str(header.get("created", "")),
        )
    except (KeyError, TypeError, ValueError) as failure:
        raise _damaged(log.name(entry.number)) from failure


def _damaged(name: str) -> CorruptedStateError:
    return beyond_repair(
        f"{name} cannot be read: its header does not describe a batch of the target."
    )


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
            lambda: spark_checkpoint.last_committed_batch(state),
        )
        if job is not None and job.batch >= (-1 if spark is None else spark):
            return Position(job.batch, _end_of(job, state, plans), is_of_a_job=True)
        if spark is None:
            return Position()
        return Position(spark, spark_checkpoint.offset_of_batch(state, spark))


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
    """Find where a recorded batch ends: its record says so, or else its plan."""
    if record.end is not None:
        return record.end
    plan = (plans or PlanLog(state)).get(record.batch)
    if plan is None:
        raise beyond_repair(
            f"Batch {record.batch} is recorded as committed in {printable_path(state.uri)}, but "
            "the plan log ends before it."
        )
    return plan.end
