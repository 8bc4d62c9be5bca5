"""How does a table get back the micro-batches that it has lost?

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
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.delta import sink_state
from airflow_cloudfiles.engine.delta.commit import BatchId, Committed
from airflow_cloudfiles.engine.delta.lineage import (
    CommitLineage,
    Presence,
    lineage,
    transaction_version,
)
from airflow_cloudfiles.engine.delta.opening import open_to_write
from airflow_cloudfiles.engine.errors import LostBatchesError, OptionError, StateError
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.job.replay_batches import BatchReader, check_plan
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.ledger.opening import check_whole
from airflow_cloudfiles.engine.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.state.file_log import FileLog
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.plan_log import PlanLog
from airflow_cloudfiles.engine.state.sink_log import Decision, SinkLog, SinkRecord, position
from airflow_cloudfiles.engine.state.spark_checkpoint import last_committed_batch
from airflow_cloudfiles.engine.storage import normalize_uri, open_store

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Replayed:
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
        `Replayed`, for the report.

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
        self.done = Replayed()

    def run(self) -> Replayed:
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
        """The newest batch that the stream takes for committed."""
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
        """The newest batch that was committed; -1 for none."""
        if read_metadata(self.state) is not None:
            return position(self.state, self.plans).batch
        found = last_committed_batch(self.state)  # of a query that reads no files, as from a table
        return -1 if found is None else found

    def _planned(self) -> int:
        """The newest batch that must have been committed, should its record be lost.

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
        """The batches that the table lacks, of those asked for."""
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
        """Whether a run would go on as it is."""
        try:
            sink_state.check_before_run(self.state, self.target, self.app_id)
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
        """Whether a decision that was begun is the one to carry out.

        If the table has seen a batch under its application id and lacks it, it was lost once more.
        """
        if begun.kind != "replay" or begun.last != self.last:
            return False
        table = open_to_write(self.target)
        own = BatchId(self.app_id, 0, replay=begun.number).own_app_id
        seen = None if table is None else transaction_version(table, own)
        return not lost or seen is None or seen < lost[0]

    def _ingest(self, reader: BatchReader, decision: Decision, lost: Sequence[int]) -> None:
        for batch in lost:
            if batch in self._lineage().batches:
                continue  # another replay was faster
            name = BatchId(
                self.app_id,
                batch,
                reader.plan_id(batch),
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
        committed = Committed(-1, is_new=False)
        if table is not None:
            committed = Committed(table.version(), is_new=False, table_id=str(table.metadata().id))
        self._record(self.last, committed, accepts=accepts)

    def _record(self, batch: int, committed: Committed, *, accepts: bool = False) -> None:
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
