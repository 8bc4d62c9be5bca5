"""Write the micro-batches of a stream to a table, of whatever kind.

Tasks write data files that nobody sees; one process commits each micro-batch, and records it in the
state. A task of a run is given what to read, so no row passes another process.
What a run has to know of a table besides, the table says itself (`TargetTable`).
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    ExpectationError,
    OptionError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.intake.stream_logs import name_files
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.reading.split_reader import SplitCounts
from airflow_cloudfiles.engine.reading.splits import Split
from airflow_cloudfiles.engine.registry import extension
from airflow_cloudfiles.engine.state import file_results, run_history
from airflow_cloudfiles.engine.state.file_results import Counted, Place
from airflow_cloudfiles.engine.state.metadata import KEY as METADATA
from airflow_cloudfiles.engine.state.metadata import has_packs, has_quarantine
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.state.plan_log import PREFIX as PLANS
from airflow_cloudfiles.engine.state.sink_log import (
    DECISIONS,
    BatchId,
    CommitResult,
    ExpectedBatch,
    RowsFrom,
    SinkLog,
)
from airflow_cloudfiles.engine.state.sink_log import PREFIX as RECORDS
from airflow_cloudfiles.engine.storage import ObjectStore, open_store
from airflow_cloudfiles.engine.storage.fetched_ahead import OpenedState, at_once
from airflow_cloudfiles.engine.tables import expectations, sink_state
from airflow_cloudfiles.engine.tables.delta.write.layout import FileLayout
from airflow_cloudfiles.engine.tables.expectations import ObservedRows, Observer, UnmetExpectation
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.stream.schema_change import TaskReader
    from airflow_cloudfiles.engine.tables.delta.write.former_rows import FormerRows


Written = Literal["query", "files", "function", "table"]
"""What writes: a query of the user's own; or a run, from files, from what a function has made of
them, or from a table."""
_log = logging.getLogger(__name__)


@dataclass
class TaskWritten:
    """What one task of a micro-batch has written; its files are those of the kind of table.

    `read` is what was read of each file of the source, by its place in the file log.
    """

    files: list[Any]
    schema: pa.Schema
    counts: dict[str, int] = field(default_factory=dict)
    schema_version: int | None = None
    layout: FileLayout | None = None
    observed: ObservedRows = field(default_factory=ObservedRows)
    read: Mapping[Place, Counted] = field(default_factory=dict)
    checked: Any = None
    """What rules for rows have found (`row_rules.checker.CheckedRows`), if there are any."""
    tasks: int = 0
    """How many tasks a query's batch has, where they read its files."""

    def add_read(self, reader: TaskReader, split: Split) -> None:
        """Add what a task has counted when it read the split whose rows these are."""
        self.counts = {**_flat(reader.counts), **self.counts}
        self.schema_version = split.context.schema_version
        self.read = reader.read_files()


class WrittenTable(Protocol):
    """What a writer asks of its table (`target_table.TargetTable`)."""

    uri: str

    def refuse_known_origin(self, state: ObjectStore) -> None:
        """Refuse a new state at a place from which the table has batches of another one."""


class TableWriter:
    """Writes micro-batches of one stream to one table.

    Args:
        table: The table.
        options: Of the sink.
        state: Checkpoint location of the stream; `None` where the table alone says what it has.
        written: What writes.
        schema: Of the rows; `None` where the files that are read say it.
        run_id: Of a run, for the notes on its batches.
        schema_version: The version of the schema that the files are read with, for a function.
        rescued: The name of the rescued data column, for a function; `None` where there is none.

    Raises:
        OptionError: An option is not valid.
    """

    def __init__(  # noqa: PLR0913 - what there is to say of a stream
        self,
        table: WrittenTable,
        options: SinkOptions,
        *,
        state: str | None,
        written: Written = "query",
        schema: StructType | None = None,
        run_id: str | None = None,
        schema_version: int = -1,
        rescued: str | None = None,
    ) -> None:
        self._table = table
        self._target = table.uri
        self._options = options
        self._state = state
        self._written = written
        self._schema = schema
        self._run_id = run_id
        self._schema_version = schema_version
        self._rescued = rescued
        # Its micro-batches are those of the plan log, and only the state says how far it is.
        self._is_of_files = written in {"files", "function"}
        if (options.has_expectations or options.row_rules) and not self._is_of_files:
            raise UnsupportedOptionError(
                "expect.* is for runs that ingest files (CloudFilesIngestOperator, cloudfiles "
                "ingest): in other queries Spark has the rows, and what was rescued is not "
                "counted. Remove it."
            )
        self._is_of_run = written != "query"
        self._row_rules = None
        if options.row_rules:
            self._row_rules = extension("row rules").of(options, table.uri)

    @property
    def _arrow_schema(self) -> pa.Schema:
        """Of the rows, where it is known before any is read."""
        return to_arrow(self._schema) if self._schema is not None else pa.schema([])

    def write_rows(self, rows: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write the rows of a task to data files nobody sees yet.

        What a function has made of others is looked at besides.
        """
        schema = self._arrow_schema
        named = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows)
        if self._written != "function":
            return self._write_rows(schema, named)
        observer = Observer(self._options)
        checker = None if self._row_rules is None else self._row_rules.checker()
        write = self._write_rows if checker is None else checker.written_by(self._write_rows)
        written = write(schema, observer.made(named, self._rescued))
        written.observed = observer.observed
        written.counts = {**written.counts, "rescued_rows": observer.rescued_rows}
        written.schema_version = self._schema_version
        return written

    def write_split(self, split: Split) -> TaskWritten:
        """Read, parse and write a split, to data files nobody sees yet.

        Raises:
            ReadError: A file cannot be read (see `TaskReader`).
            UnknownFieldException: A record has a field that the schema lacks.
            SchemaMismatchError: The columns do not fit the table, or a value is null where none may
                be.
            TargetUnreachableError: The place of the table failed.
        """
        observer = Observer(self._options)
        checker = None if self._row_rules is None else self._row_rules.checker()
        split = split if checker is None else checker.split(split)
        reader = observer.reader(split)
        write = self._write_rows if checker is None else checker.written_by(self._write_rows)
        written = write(reader.arrow_schema, observer.rows(split, reader))
        written.add_read(reader, split)
        written.observed = observer.observed
        return written

    def record_files(self, state: ObjectStore, batch: int, written: Sequence[TaskWritten]) -> None:
        """Record what was read of each file, before the table has the batch.

        Repeating it replaces what was recorded, so the try that is committed is recorded last.
        """
        found = file_results.joined(each.read for each in written)
        file_results.write_results(state, batch, found)
        crash_point("after-file-results")

    @abstractmethod
    def _write_rows(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write rows to data files, and count them."""

    @abstractmethod
    def make_visible(
        self,
        batch: BatchId,
        written: Sequence[TaskWritten],
        expected: ExpectedBatch | None,
        former: Sequence[FormerRows],
    ) -> CommitResult:
        """Commit data files to the table, once however often it is called.

        Args:
            batch: Which micro-batch of which stream.
            written: What its tasks have written.
            expected: The batch that the table must have already.
            former: The rows that those of the batch replace.
        """

    @abstractmethod
    def _knows(self, batch: BatchId) -> bool:
        """Tell whether the table has a batch of this number, or had it: then its commit decides."""

    @abstractmethod
    def _remove(self, files: Sequence[Any]) -> None:
        """Remove data files that will not be committed."""

    def _care_for(self) -> dict[str, int]:
        """Do after a batch what the table needs; what that has counted."""
        return {}

    def commit(self, written: Sequence[TaskWritten], batch: int) -> None:
        """Commit a micro-batch; a batch the table has is recognised and dropped.

        Args:
            written: What its tasks have written.
            batch: Its number in the stream.

        Raises:
            ExpectationError: It is not as expected; its data files are removed.
            CloudFilesError: The table or the state cannot be written.
        """
        if not written and self._written == "files":
            return
        with self._read_ahead(batch, written) as opened:
            state = None if self._state is None else opened.open(self._state)
            done = self._commit(written, batch, state)
        more = self._care_for()
        if more and self._is_of_run and self._state:
            run_history.note(self._state, replace(done, counts={**done.counts, **more}))

    def _commit(
        self, written: Sequence[TaskWritten], batch: int, state: ObjectStore | None
    ) -> run_history.BatchDone:
        """Commit what the tasks have written, record it in the state, and note what it was."""
        app_id, origin = self._identity(state)
        log = None if state is None else SinkLog(state)
        plan, end, planned = self._plan(batch, state)
        schema_version = written[0].schema_version if written else None
        observed = [message.observed for message in written]
        total = planned | run_history.total(message.counts for message in written)
        is_counted = self._is_of_run or _is_all(written)
        if not is_counted:  # a task may be missing, and so may a damaged file
            total = {name: count for name, count in total.items() if name == "rows"}
        counts = expectations.counts_of(self._options, total, observed)
        of_batch = BatchId(
            app_id,
            batch,
            plan,
            schema_version=schema_version,
            counts=counts,
            origin=origin,
        )
        self._check_expected(of_batch, written)
        left_out = file_results.left_out(each.read for each in written)
        former = () if state is None else sink_state.former_rows(state, batch, left_out)
        self._settle_rows(of_batch, written, state, former)
        expected = None if log is None else sink_state.expected(log, batch)
        if log is not None and expected is None and batch == 0:
            self._table.refuse_known_origin(log.state)
        committed = self.make_visible(
            of_batch,
            written,
            expected,
            former,
        )
        done = run_history.BatchDone(
            batch_id=batch,
            table_version=committed.version,
            is_new=committed.is_new,
            schema_version=schema_version,
            counts={**counts, **committed.counts},
            run_id=self._run_id,
            missing=[uri for each in observed for uri in each.missing][: run_history.MOST_MISSING],
        )
        _log.info("%s", done.line())
        if log is not None and self._state is not None:
            record = partial(
                sink_state.note,
                log,
                self._target,
                batch,
                committed,
                plan=plan,
                read_by=self._read_by(),
                end=end,
                # Of a query's batch that is repeated, the files may have been others before.
                done=done if self._is_of_run or (is_counted and committed.is_new) else None,
            )
            # Nothing is decided by the counts, so they need not wait for the record.
            noted = partial(run_history.note, self._state, done)
            at_once(log.state, [record, noted] if self._is_of_run else [record])
        return done

    def _check_expected(self, batch: BatchId, written: Sequence[TaskWritten]) -> None:
        """Refuse a batch that does not meet the expectations, unless the table has it.

        Raises:
            ExpectationError: It does not; its data files are removed.
        """
        found = expectations.unmet(self._options, batch.counts)
        if not found:
            return
        what = expectations.as_text(found, [message.observed for message in written])
        if self._options.on_violation == "warn":
            _log.warning("Batch %s is committed, although expected: %s", batch.number, what)
            return
        if self._knows(batch):
            _log.info("Batch %s was accepted before, although expected: %s", batch.number, what)
            return
        self._remove_files_of(batch.number, written)
        raise self._refusal(batch.number, what, found, [message.observed for message in written])

    def _settle_rows(
        self,
        batch: BatchId,
        written: Sequence[TaskWritten],
        state: ObjectStore | None,
        former: Sequence[FormerRows],
    ) -> None:
        """Do with the rows that violate rules what the rules say, before the batch is committed.

        A stream that had rules may have been killed when rows of this batch were put aside.

        Raises:
            ExpectationError: A rule fails the batch; its data files are removed.
            SinkError: The quarantine table does not take the rows.
        """
        if self._row_rules is not None:
            what = self._row_rules.failure(batch.number, self._target, written)
            if what is not None and not self._knows(batch):
                self._remove_files_of(batch.number, written)
                raise what
        elif state is None or not has_quarantine(state):
            return
        extension("quarantine of rows")(
            self._row_rules,
            batch,
            written,
            state,
            replayed=[uri for each in former for uri in each.files],
            target_has=partial(self._knows, batch),
        )

    def _refusal(
        self,
        batch: int,
        what: str,
        found: Sequence[UnmetExpectation],
        observed: Sequence[ObservedRows],
    ) -> ExpectationError:
        """Build the error for a batch that is not committed, with the files to blame for it."""
        if self._options.on_violation != "quarantine" or self._state is None:
            return expectations.refusal(batch, self._target, what)
        paths = expectations.to_blame(self._options, found, observed)
        blamed = name_files(open_store(self._state), batch, paths)
        names = ", ".join(each.name for each in found if not each.blamed)
        why = f"No file is to blame for {names or 'that'}, so none is quarantined."
        error = expectations.refusal(batch, self._target, what, blames_nobody="" if blamed else why)
        error.blamed = blamed
        return error

    def abort(self, written: Sequence[TaskWritten | None], batch: int) -> None:
        """Remove the data files of a batch of which a task failed; a killed task's stay.

        Where every task has written, the commit has failed, and may have happened although its
        answer was lost: nothing is touched.

        Args:
            written: What each task has written; `None` for one that has not ended.
            batch: Its number in the stream.
        """
        ended = [each for each in written if each is not None]
        if len(ended) == len(written):
            _log.info("Batch %s was given up at its commit; no data file is removed", batch)
            return
        self._remove_files_of(batch, ended)

    def _remove_files_of(self, batch: int, written: Sequence[TaskWritten]) -> None:
        """Remove the data files of a batch that is given up."""
        files = [file for message in written for file in message.files]
        try:
            self._remove(files)
            if self._row_rules is not None:
                self._row_rules.remove(written)
        except (CloudFilesError, OSError) as failure:
            # Not raised: Spark would show it in place of what the batch failed with.
            _log.warning("Until vacuum, %s stay: %s", counted(len(files), "data file"), failure)
            return
        _log.info("Batch %s was given up; %s removed", batch, counted(len(files), "data file"))

    def _read_ahead(
        self, batch: int, written: Sequence[TaskWritten]
    ) -> AbstractContextManager[OpenedState]:
        """Fetch at once what of the state a commit reads, and record meanwhile what was read."""
        opened = OpenedState() if self._state is None else OpenedState.at(self._state)
        numbered = {PLANS: [batch], DECISIONS: [0], f"{RECORDS}/0": [batch, max(0, batch - 1)]}
        keys = {f"{log}/{number:020}" for log, numbers in numbered.items() for number in numbers}
        calls: list[Callable[[], None]] = []
        if opened.ahead is not None:
            calls.append(partial(opened.ahead.fetch, (METADATA, *sorted(keys))))
        if self._state is not None and (self._written == "files" or _is_all(written)):
            state = opened.open(self._state)
            calls.append(partial(self.record_files, state, batch, written))
            at_once(state, calls)
        elif calls:
            calls[0]()
        return opened.until_written()

    def _read_by(self) -> RowsFrom:
        """Whose rows these are (`sink_log.SinkRecord`)."""
        if self._written == "function":
            return "function"
        return "sink" if self._written == "files" else "query"

    def _plan(
        self, batch: int, state: ObjectStore | None
    ) -> tuple[str | None, Offset | None, dict[str, int]]:
        """Find which plan the batch is; its id differs from that of another life of the state.

        Returns:
            Its id; where the batch ends, if the batches of the query are those of the plan log; and
            its files and bytes, where those who write do not count them.

        Raises:
            CorruptedStateError: The batch of a job has no plan.
        """
        if state is None:
            return None, None, {}
        plans = NumberedLog(state, PLANS, is_packed=True)
        if not self._is_of_files:
            plan = plans.find_recent(batch) or (plans.find(batch) if has_packs(state) else None)
            return (None if plan is None else plan.id), None, {}
        found = plans.read(batch)
        names = ("files", "bytes") if self._written == "function" else ()
        planned = {name: int(found.header[name]) for name in names}
        return found.id, Offset.from_json(found.header["end"]), planned

    def _identity(self, state: ObjectStore | None) -> tuple[str, str]:
        """Identify the stream that writes, and the origin that its commits note."""
        found, origin = self._options.txn_app_id, ""
        if state is not None:
            own, origin = sink_state.identity(state)
            found = found or own
        if found is None:
            raise OptionError(
                "The sink does not know which stream writes. Set the option "
                "checkpointLocation, or txnAppId to a name no other stream uses."
            )
        return found, origin


def _is_all(written: Sequence[TaskWritten]) -> bool:
    """Tell whether every task of a query's batch has reported what it has read.

    Spark is given rows only, so a task whose files have none reports nothing.
    """
    return bool(written) and len(written) == written[0].tasks


def _flat(counts: SplitCounts) -> dict[str, int]:
    """Flatten what a reader has counted into one level."""
    numbers = asdict(counts)
    fetched: dict[str, int] = numbers.pop("fetched")
    if not counts.error_cells:  # which most formats cannot have
        del numbers["error_cells"]
    return {**numbers, **fetched}
