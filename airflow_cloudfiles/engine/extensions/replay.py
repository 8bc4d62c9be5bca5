"""Give a table back the micro-batches that it has lost.

1. The table is asked which batches it has (`delta.lineage`); those it has are left alone, and where
   it cannot tell, nothing is done.
2. The decision is appended to the state, which begins a new epoch of the sink's records: until it
   is carried out, no run writes to the table.
3. Batch by batch, in their order, the files of the plan are read again, as the newest schema says,
   and committed under an application id of this decision.
4. The record of the newest batch ends it.

Each step finds out by itself what is done. So a replay can be killed anywhere and run again, and
run twice at once. It needs no Spark: this machine's processes read and write.

Accepting the loss is steps 1, 2 and 4.

The files of a planned micro-batch are read and committed as a run does, with the same readers and
writers. The schema is the
newest version of the schema log; a field that it lacks adds a version in the modes that do, and the
batch is read once more.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.batches.file_source import split_up, write_split
from airflow_cloudfiles.engine.batches.local import LocalProcesses, cores
from airflow_cloudfiles.engine.batches.run import TaskFailure
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    FileMissingError,
    FileUnreachableError,
    LostBatchesError,
    OptionError,
    SchemaInferenceError,
    StateError,
    UnknownFieldException,
)
from airflow_cloudfiles.engine.extensions.merge.source_rows import MergeRule
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.intake.ledger.opening import check_whole
from airflow_cloudfiles.engine.intake.opening import locate
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.job.target import check_target, new_writer, target_table
from airflow_cloudfiles.engine.messages import counted, plural
from airflow_cloudfiles.engine.schema.log import SchemaLog
from airflow_cloudfiles.engine.state import file_results
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import (
    BatchId,
    CommitResult,
    Decision,
    SinkLog,
    SinkRecord,
    position,
)
from airflow_cloudfiles.engine.state.spark_checkpoint import last_committed_batch
from airflow_cloudfiles.engine.storage import normalize_uri, open_store
from airflow_cloudfiles.engine.stream import definition
from airflow_cloudfiles.engine.tables import sink_state
from airflow_cloudfiles.engine.tables.delta.lineage import (
    CommitLineage,
    Presence,
    lineage,
    transaction_version,
)
from airflow_cloudfiles.engine.tables.delta.opening import open_table, open_to_write
from airflow_cloudfiles.engine.tables.delta.read.columns import schema_of
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.files import FileEntry
    from airflow_cloudfiles.engine.state.plan_log import Plan
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.tables.table_writer import TableWriter, TaskWritten

SCHEMA_TRIES = 100
"""How many schema changes one batch may meet."""
LOOKS = 16
"""Files that are looked for side by side."""
NAMED = 20
"""How many missing files an error names."""


class BatchReader:
    """Reads planned batches of a stream and commits them to its table.

    Args:
        spec: The stream, as a run has it.
        state: Its state.
        files: Its file log.
        plans: Its plan log.

    Attributes:
        source: The folder the files land in.
        name: What the state knows the source by.
        state: The state.
    """

    def __init__(self, spec: JobSpec, state: ObjectStore, files: FileLog, plans: PlanLog) -> None:
        self._spec = spec
        self.state = state
        self._files = files
        self._plans = plans
        self._options = spec.parsed()
        merge = MergeRule.of(spec.table_options)
        if merge is not None and merge.order_by is None:
            raise OptionError(
                "Batches of a merge without mergeOrderBy cannot be replayed: they would replace "
                "rows that later batches have merged. Give --option mergeOrderBy=COLUMN."
            )
        if spec.table_options.quarantines_rows:
            raise OptionError(
                "Batches of a stream that quarantines rows cannot be replayed by its rules: rows "
                "that were put back would be twice in the table. Give --option "
                "expect.row.<name>.onViolation=drop or warn for each such rule."
            )
        place = locate(spec.source, state)
        self.name = place.name
        self.source = open_store(place.root)

    def files(self, batch: int) -> list[FileEntry]:
        """List the files of a batch."""
        plan = self._plans.at(batch)
        return list(self._files.slice(plan.start, plan.end))

    def require_files(self, batches: Sequence[int]) -> None:
        """Refuse batches of which files are gone, unless missing files are to be ignored.

        Raises:
            FileMissingError: Names them.
            FileUnreachableError: The source does not answer.
        """
        if self._options.ignore_missing_files:
            return
        gone: list[str] = []
        with ThreadPoolExecutor(LOOKS, thread_name_prefix="cloudfiles-head") as pool:
            for batch in batches:
                files = self.files(batch)
                try:
                    there = pool.map(partial(_is_there, self.source), files)
                    gone += [
                        f"{self.source.child_uri(file.path)} (batch {batch})"
                        for file, is_there in zip(files, there, strict=True)
                        if not is_there
                    ]
                except OSError as error:
                    raise FileUnreachableError(
                        f"{self.source.uri} does not answer: {error}. Run again."
                    ) from error
        if gone:
            more = f" and {len(gone) - NAMED} more" if len(gone) > NAMED else ""
            raise FileMissingError(
                f"{counted(len(gone), 'file')} of the batches {plural(len(gone), 'is', 'are')} "
                f"gone from the source: {', '.join(gone[:NAMED])}{more}. Put what is missing back, "
                "or replay the rest with --option ignoreMissingFiles=true."
            )

    def ingest(self, batch: BatchId) -> tuple[CommitResult, int]:
        """Read a batch and commit it, with the rows it has.

        Raises:
            UnknownFieldException: A field that the schema lacks, in the modes that fail on it.
            ReadError: A file cannot be read.
            SinkError: The table does not take it.
        """
        written, writer = self._written_at_last(self._plans.at(batch.number))
        left_out = file_results.left_out(each.read for each in written)
        former = sink_state.former_rows(self.state, batch.number, left_out)
        writer.record_files(self.state, batch.number, written)
        committed = writer.make_visible(batch, written, None, former)
        return committed, sum(each.counts.get("rows", 0) for each in written)

    def _written_at_last(self, plan: Plan) -> tuple[list[TaskWritten], TableWriter]:
        """Write a batch, again after each change of the schema."""
        for _ in range(SCHEMA_TRIES):
            try:
                return self._written(plan)
            except UnknownFieldException as error:
                if not error.is_retryable:
                    raise
                _log.info("%s", error)
        return self._written(plan)

    def _written(self, plan: Plan) -> tuple[list[TaskWritten], TableWriter]:
        """Write a batch as the newest schema says, and with what it was written."""
        resolved = self._resolved()
        start, end = plan.start, plan.end
        context = definition.batch_context(self._options, resolved, self, start, end)
        schema = resolved.full_schema(context.options)
        check_target(self._spec, to_arrow(schema))
        writer = new_writer(self._spec, written="files", schema=schema)
        placed = list(self._files.placed(start, end))
        splits = split_up(self.source, placed, context, cores())
        try:
            with LocalProcesses(cores()) as processes:
                task = partial(write_split, writer)
                return processes.carry(task, splits, plan.number), writer
        except TaskFailure as failed:
            raise failed.failure from failed

    def _resolved(self) -> definition.ResolvedSchema:
        """Find the newest schema: of the log, or where a query gave it, of the table."""
        location = str(self._spec.schema_location or self._spec.checkpoint_location)
        latest = SchemaLog(open_store(location), self.name).latest()
        if latest is not None:
            return definition.resolve_schema(self._options)
        table = open_table(str(self._spec.target))
        if table is None:
            raise SchemaInferenceError(
                f"There is no schema in {location}, and no table to take it from. Name the "
                "stream's schema location; or, if its query gave the schema, create the empty "
                f"table {self._spec.target} with it."
            )
        return definition.given_schema(schema_of(table), self._options)


def _is_there(store: ObjectStore, file: FileEntry) -> bool:
    return store.head(file.path) is not None


def check_plan(plans: PlanLog, batch: int, noted: str) -> None:
    """Refuse a plan that is not the one which was committed under a number.

    Raises:
        CorruptedStateError: It is another.
    """
    if noted and plans.id_of(batch) != noted:
        raise CorruptedStateError(
            f"The plan of batch {batch} is not the one that was committed under this number. "
            "Restore the checkpoint location as a whole from a backup."
        )


_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ReplayResult:
    """What a replay amounted to.

    Attributes:
        batches: The batches that the table lacked.
        present: How many of the batches asked for it had.
        files: Files of the batches it lacked.
        rows: Rows that were written.
        target_version: The newest version of the table; `None` where there is none.
        is_done: Whether anything was done; false for a dry run.
        warnings: For people.
    """

    batches: list[int] = field(default_factory=list)
    present: int = 0
    files: int = 0
    rows: int = 0
    target_version: int | None = None
    is_done: bool = False
    warnings: list[str] = field(default_factory=list)


def replay(spec: JobSpec) -> dict[str, Any]:
    """Carry out what `spec.replay` asks for.

    Its keys: `from_batch`; `accept_loss`, `dry_run` and `as_read`, false when left out.

    Returns:
        `ReplayResult`, for the report.

    Raises:
        OptionError: There is no such batch.
        LostBatchesError: The table cannot tell what it has, or more is missing than was asked for.
        FileMissingError: Files of the batches are gone from the source; names them.
        StateLockedError: A run is working on the state.
    """
    state = open_store(spec.checkpoint_location)
    with ExitStack() as stack:
        for lock in (RunLock(state, JOB_KEY), RunLock(state)):
            stack.enter_context(lock)
        done = _Replay(spec).run()
    return asdict(done)


class _Replay:
    """One replay, under the locks of the state."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.target = str(spec.target)
        self.state = open_store(spec.checkpoint_location)
        self.files, self.plans = FileLog(self.state), PlanLog(self.state)
        check_whole(self.state, self.files, self.plans)
        app_id = sink_state.application(self.state)
        if app_id is None:
            raise StateError(
                f"There is no stream in {printable_path(self.state.uri)}. Name the checkpoint "
                "location of the stream that writes the table."
            )
        self.app_id = str(spec.replay.get("app_id") or app_id)
        self.log = SinkLog(self.state)
        self.first = int(spec.replay["from_batch"])
        self.last = self._last()
        self.done = ReplayResult()

    def run(self) -> ReplayResult:
        found = self._lineage()
        lost = self._lost(found)
        self.done.batches = lost
        self.done.present = self.last - self.first + 1 - len(lost)
        self.done.target_version = found.version if found.version >= 0 else None
        accepts = bool(self.spec.replay.get("accept_loss"))
        reader = None if accepts or not lost else self._reader(lost)
        if reader is not None:
            self.done.files = sum(len(reader.files(batch)) for batch in lost)
            reader.require_files(lost)
        if self.spec.replay.get("dry_run") or (not lost and self._is_whole()):
            return self.done
        self.done.is_done = True
        decision = self._decided(lost, accepts=accepts)
        crash_point("after-replay-decision")
        if reader is not None:
            self._ingest(reader, decision, lost)
        self._finish(accepts=accepts)
        return self.done

    def _last(self) -> int:
        """Find the newest batch that the stream takes for committed."""
        record = self.log.newest()
        decision = self.log.decision()
        known = [
            -1 if record is None else record.batch,
            -1 if decision is None else decision.last,
            self._planned(),
        ]
        last = max(*known, self._committed())
        if not 0 <= self.first <= last:
            raise OptionError(
                f"There is no committed batch {self.first} in {printable_path(self.state.uri)}: "
                + (f"the newest is {last}." if last >= 0 else "nothing was committed yet.")
            )
        return last

    def _committed(self) -> int:
        """Find the newest batch that was committed; -1 for none."""
        if read_metadata(self.state) is not None:
            return position(self.state, self.plans).batch
        found = last_committed_batch(self.state)  # of a query that reads no files, as from a table
        return -1 if found is None else found

    def _planned(self) -> int:
        """Find the newest batch that must have been committed, should its record be lost.

        It is the one before the newest that is planned; or that one, if the table has seen it.
        """
        latest = self.plans.latest()
        if latest is None:
            return -1
        found = self._lineage()
        seen = max(found.batches, default=-1) if found.transaction is None else found.transaction
        return latest.number - (seen < latest.number)

    def _lineage(self) -> CommitLineage:
        return lineage(open_to_write(self.target), self.target, self.app_id)

    def _presence(self, found: CommitLineage, batch: int) -> Presence:
        # A record helps only where the table's own history does not reach.
        is_told = batch in found.batches or found.first == 0
        return found.presence(batch, None if is_told else self.log.find(batch))

    def _lost(self, found: CommitLineage) -> list[int]:
        """List the batches that the table lacks, of those asked for."""
        accepts = bool(self.spec.replay.get("accept_loss"))
        before = self.first - 1
        while before >= 0 and self.log.epoch == 0:
            if self._presence(found, before) is not Presence.ABSENT:
                break
            before -= 1
        if self.log.epoch == 0 and before + 1 < self.first:
            raise LostBatchesError(
                f"{self.target} lacks batch {self.first - 1} as well. Begin with --from-batch "
                f"{before + 1}."
            )
        presence = {
            batch: self._presence(found, batch) for batch in range(self.first, self.last + 1)
        }
        unknown = [batch for batch, each in presence.items() if each is Presence.UNKNOWN]
        if unknown and not accepts:
            raise LostBatchesError(
                f"The history of {self.target} no longer shows whether it has the batches "
                f"{_short(unknown)}, so ingesting them might double their rows. Compare the rows "
                "(_source/plans and _source/files name their files); then begin with a later "
                "batch, or give them up with --accept-loss."
            )
        return [batch for batch, each in presence.items() if each is not Presence.PRESENT]

    def _reader(self, lost: Sequence[int]) -> BatchReader:
        records = {batch: self.log.find_in_any(batch) for batch in lost}
        for batch, record in records.items():
            if record is not None:
                check_plan(self.plans, batch, record.plan)
        if not self.spec.replay.get("as_read"):
            mine = [batch for batch, each in records.items() if each and each.read_by != "sink"]
            if mine:
                raise OptionError(
                    f"Batches {_short(mine)} were written by a query of your own, or by a "
                    "run with a function over micro-batches (transform): what that makes of their "
                    "rows is not known here. If it changes nothing, confirm that with --as-read; "
                    "otherwise ingest their files with it into the table yourself, and then use "
                    "--accept-loss."
                )
        return BatchReader(self.spec, self.state, self.files, self.plans)

    def _is_whole(self) -> bool:
        """Tell whether a run would go on as it is."""
        try:
            target_table(self.target).check_before_run(self.state, app_id=self.app_id)
        except LostBatchesError:
            return False
        return True

    def _decided(self, lost: Sequence[int], *, accepts: bool) -> Decision:
        """Append the decision, unless this very one was begun already."""
        while True:
            begun = self.log.unfinished()
            if begun is not None and not accepts and self._goes_on(begun, lost):
                return begun
            decision = Decision(
                number=self.log.epoch,
                kind="acceptLoss" if accepts else "replay",
                first=self.first,
                last=self.last,
                batches=tuple(lost),
                target=normalize_uri(self.target),
            )
            if self.log.decide(decision):
                _log.info("%s of the batches %s in %s", decision.kind, _short(lost), self.target)
                return decision

    def _goes_on(self, begun: Decision, lost: Sequence[int]) -> bool:
        """Tell whether a decision that was begun is the one to carry out.

        If the table has seen a batch under its application id and lacks it, it was lost once more.
        """
        if begun.kind != "replay" or begun.last != self.last:
            return False
        table = open_to_write(self.target)
        own = BatchId(self.app_id, 0, replay=begun.number).own_app_id
        seen = None if table is None else transaction_version(table, self.target, own)
        return not lost or seen is None or seen < lost[0]

    def _ingest(self, reader: BatchReader, decision: Decision, lost: Sequence[int]) -> None:
        for batch in lost:
            if batch in self._lineage().batches:
                continue  # another replay was faster
            name = BatchId(
                self.app_id,
                batch,
                self.plans.id_of(batch),
                replay=decision.number,
                origin=sink_state.identity(self.state)[1],
            )
            committed, rows = reader.ingest(name)
            self.done.rows += rows
            crash_point("after-replay-commit")
            self._record(batch, committed)
            _log.info(
                "Batch %s: %s; table version %s", batch, counted(rows, "row"), committed.version
            )

    def _finish(self, *, accepts: bool) -> None:
        """Write the record that lets runs go on."""
        table = open_to_write(self.target)
        self.done.target_version = None if table is None else table.version()
        committed = CommitResult(-1, is_new=False)
        if table is not None:
            committed = CommitResult(
                table.version(), is_new=False, table_id=str(table.metadata().id)
            )
        self._record(self.last, committed, accepts=accepts)

    def _record(self, batch: int, committed: CommitResult, *, accepts: bool = False) -> None:
        self.log.add(
            SinkRecord(
                batch=batch,
                table_id=committed.table_id,
                version=committed.version,
                target=normalize_uri(self.target),
                is_accepted=accepts,
            )
        )


def _short(batches: Sequence[int]) -> str:
    """Name batches, as ranges."""
    ranges: list[list[int]] = []
    for batch in batches:
        if ranges and batch == ranges[-1][1] + 1:
            ranges[-1][1] = batch
        else:
            ranges.append([batch, batch])
    named = [str(low) if low == high else f"{low} to {high}" for low, high in ranges[:10]]
    return ", ".join(named) + (", ..." if len(ranges) > len(named) else "")
