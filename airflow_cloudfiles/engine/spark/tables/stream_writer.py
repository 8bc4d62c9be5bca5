"""What do the stream writers of all kinds of tables share?

Tasks write data files that nobody sees; one process beside the driver commits each micro-batch, and
records it in the state. When the source emits splits instead of rows, the tasks read, parse and
write in one process, and no row enters the JVM.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType  # noqa: TC002 - Spark reads the annotations of none

from airflow_cloudfiles.engine.counted import counted
from airflow_cloudfiles.engine.delta import sink_state
from airflow_cloudfiles.engine.delta.commit import BatchId, Committed
from airflow_cloudfiles.engine.delta.lineage import Expected
from airflow_cloudfiles.engine.delta.write.former_rows import FormerRows, replaced_by
from airflow_cloudfiles.engine.delta.write.layout import FileLayout
from airflow_cloudfiles.engine.errors import (
    CloudFilesError,
    ExpectationError,
    OptionError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.files import Offset
from airflow_cloudfiles.engine.intake import batch_files
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.reading.split_reader import SplitCounts
from airflow_cloudfiles.engine.reading.splits import Split
from airflow_cloudfiles.engine.spark import split_rows
from airflow_cloudfiles.engine.spark.error_marks import marking_errors
from airflow_cloudfiles.engine.spark.source import log_to_stderr
from airflow_cloudfiles.engine.spark.tables import expectations
from airflow_cloudfiles.engine.spark.tables.expectations import Observed, Unmet
from airflow_cloudfiles.engine.state import progress
from airflow_cloudfiles.engine.state.metadata import KEY as METADATA
from airflow_cloudfiles.engine.state.metadata import has_packs
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.state.plan_log import PREFIX as PLANS
from airflow_cloudfiles.engine.state.sink_log import DECISIONS, RowsFrom, SinkLog
from airflow_cloudfiles.engine.state.sink_log import PREFIX as RECORDS
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.fetched_ahead import at_once, fetched_ahead
from airflow_cloudfiles.engine.types import to_arrow

STATE = "cloudFiles.internal.state"
"""Option of the sink: where the stream's state is, if Spark's checkpoint is somewhere else."""
FIRST_BATCH = "cloudFiles.internal.firstBatch"
"""Option of the sink: the number of the batch that Spark calls 0. A job begins with an empty
checkpoint of Spark's, so Spark counts the batches of the run, and this makes them those of the
stream."""
NOTES = "cloudFiles.internal.notes"
"""Option of the sink: a job runs the query, so what each batch did is noted in the state."""
FUNCTION = "cloudFiles.internal.function"
"""Option of the sink: the function that a job has made of the micro-batches of files what is
written; its rows are no splits, and its batches are those of the plan log."""
SCHEMA_VERSION = "cloudFiles.internal.schemaVersion"
"""Option of the sink, with `FUNCTION`: the version of the schema that the files are read with."""
RESCUED = "cloudFiles.internal.rescuedColumn"
"""Option of the sink, with `FUNCTION`: the name of the rescued data column, where there is one."""
RUN = "cloudFiles.internal.runId"
"""Option of the sink: the run of a job, for the notes on its batches."""
_log = logging.getLogger(__name__)


@dataclass
class TaskWritten(WriterCommitMessage):
    """What one task of a micro-batch has written; its files are those of the kind of table."""

    files: list[Any]
    schema: pa.Schema
    counts: dict[str, int] = field(default_factory=dict)
    schema_version: int | None = None
    layout: FileLayout | None = None
    observed: Observed = field(default_factory=Observed)


def _split_token(options: dict[str, str], schema: StructType) -> str | None:
    """The token of the query when its rows are splits; `None` when they are rows of a table.

    Only the job decides, never the name of a column: a file may have a column of any name.
    """
    token = options.get(split_rows.SPLIT_TOKEN.lower())
    if token is None:
        return None
    if schema.fieldNames() != split_rows.SPLIT_SCHEMA.fieldNames():
        raise OptionError(f"{split_rows.SPLIT_TOKEN} is set by this package itself; remove it.")
    return split_rows.check_token(token)


@marking_errors
class TableStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query to one table.

    Args:
        target: Path or URI of the table.
        options: As strings, by their names in lower case.
        schema: Of the rows; of a job, of its splits.

    Raises:
        OptionError: An option is not valid.
    """

    def __init__(self, target: str, options: dict[str, str], schema: StructType) -> None:
        self._target = target
        self._options = SinkOptions.read(options)
        self._state = options.get(STATE.lower()) or self._options.checkpoint_location
        self._schema = schema
        self._first_batch = int(options.get(FIRST_BATCH.lower(), 0))
        self._run_id = options.get(RUN.lower())
        self._split_token = _split_token(options, schema)
        self._reads_splits = self._split_token is not None
        self._is_transformed = FUNCTION.lower() in options
        self._schema_version = int(options.get(SCHEMA_VERSION.lower(), -1))
        self._rescued = options.get(RESCUED.lower())
        # Its micro-batches are those of the plan log, and only the state says how far it is.
        self._is_of_files = self._reads_splits or self._is_transformed
        if self._options.has_expectations and not self._is_of_files:
            raise UnsupportedOptionError(
                "expect.* is for runs that ingest files (CloudFilesIngestOperator, cloudfiles "
                "ingest): in other queries Spark has the rows, and nobody counts what was rescued. "
                "Remove it."
            )
        self._is_of_job = self._is_of_files or options.get(NOTES.lower()) == "true"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write this task's rows to data files nobody sees yet."""
        if self._split_token is None:
            schema = to_arrow(self._schema)
            rows = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in iterator)
            return self._write_transformed(rows) if self._is_transformed else self._write_rows(rows)
        log_to_stderr()
        return self._write_splits(
            [
                split_rows.decode(row.as_py(), self._split_token)
                for batch in iterator
                for row in batch.column(0)
            ]
        )

    def _write_transformed(self, rows: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write the rows that a function has made of others, and look at them."""
        log_to_stderr()
        observer = expectations.Observer(self._options)
        written = self._write_rows(observer.made(rows, self._rescued))
        written.observed = observer.observed
        written.counts = {**written.counts, "rescued_rows": observer.rescued_rows}
        written.schema_version = self._schema_version
        return written

    @abstractmethod
    def _write_rows(self, rows: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Write rows to data files."""

    @abstractmethod
    def _write_splits(self, splits: Sequence[Split]) -> TaskWritten:
        """Read, parse and write in this task."""

    @abstractmethod
    def _make_visible(
        self,
        batch: BatchId,
        written: Sequence[TaskWritten],
        expected: Expected | None,
        former: Sequence[FormerRows],
    ) -> Committed:
        """Commit data files to the table, once however often it is called.

        Args:
            batch: Which micro-batch of which stream.
            written: What its tasks have written.
            expected: The batch that the table must have already.
            former: The rows that those of the batch replace.
        """

    @abstractmethod
    def _knows(self, batch: BatchId) -> bool:
        """Whether the table has a batch of this number, or had it: then its commit decides."""

    @abstractmethod
    def _remove(self, files: Sequence[Any]) -> None:
        """Remove data files that will not be committed."""

    def _care_for(self) -> dict[str, int]:
        """Do after a batch what the table needs; what that has counted."""
        return {}

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Commit a micro-batch; a batch the table has is recognised and dropped."""
        log_to_stderr()
        written = [message for message in messages if isinstance(message, TaskWritten)]
        if not written and self._reads_splits:
            return
        batch = self._first_batch + batchId
        with self._read_ahead(batch):
            done = self._commit(written, batch)
        more = self._care_for()
        if more and self._is_of_job and self._state:
            progress.note(self._state, replace(done, counts={**done.counts, **more}))

    def _commit(self, written: Sequence[TaskWritten], batch: int) -> progress.BatchDone:
        """Commit what the tasks have written, record it in the state, and note what it was."""
        app_id = self._application()
        log = None if self._state is None else SinkLog(open_store(self._state))
        plan, end, planned = self._plan(batch)
        schema_version = written[0].schema_version if written else None
        observed = [message.observed for message in written]
        total = {**planned, **_total(written)}
        counts = expectations.counts_of(self._options, total, observed)
        of_batch = BatchId(app_id, batch, plan, schema_version=schema_version, counts=counts)
        self._check_expected(of_batch, written)
        committed = self._make_visible(
            of_batch,
            written,
            None if log is None else sink_state.expected(log, batch),
            () if log is None else replaced_by(log.state, batch),
        )
        done = progress.BatchDone(
            batch_id=batch,
            table_version=committed.version,
            is_new=committed.is_new,
            schema_version=schema_version,
            counts={**counts, **committed.counts},
            run_id=self._run_id,
            missing=[uri for each in observed for uri in each.missing][: progress.MOST_MISSING],
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
                done=done if self._is_of_job else None,
            )
            # Nothing is decided by the counts, so they need not wait for the record.
            noted = partial(progress.note, self._state, done)
            at_once(log.state, [record, noted] if self._is_of_job else [record])
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

    def _refusal(
        self, batch: int, what: str, found: Sequence[Unmet], observed: Sequence[Observed]
    ) -> ExpectationError:
        """The error for a batch that is not committed, with the files that are to blame for it."""
        if self._options.on_violation != "quarantine" or self._state is None:
            return expectations.refusal(batch, self._target, what)
        paths = expectations.to_blame(self._options, found, observed)
        blamed = batch_files.name_files(open_store(self._state), batch, paths)
        names = ", ".join(each.name for each in found if not each.blamed)
        why = f"No file is to blame for {names or 'that'}, so none is quarantined."
        error = expectations.refusal(batch, self._target, what, blames_nobody="" if blamed else why)
        error.blamed = blamed
        return error

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Remove the data files of a batch of which a task failed; a killed task's stay.

        Spark calls this after a commit that failed, too. Then every task has written, and the
        commit may have happened although its answer was lost: nothing is touched.
        """
        batch = self._first_batch + batchId
        written = [message for message in messages if isinstance(message, TaskWritten)]
        if len(written) == len(messages):
            _log.info("Batch %s was given up at its commit; no data file is removed", batch)
            return
        self._remove_files_of(batch, written)

    def _remove_files_of(self, batch: int, written: Sequence[TaskWritten]) -> None:
        """Remove the data files of a batch that is given up."""
        files = [file for message in written for file in message.files]
        try:
            self._remove(files)
        except (CloudFilesError, OSError) as failure:
            # Not raised: Spark would show it in place of what the batch failed with.
            _log.warning("Until vacuum, %s stay: %s", counted(len(files), "data file"), failure)
            return
        _log.info("Batch %s was given up; %s removed", batch, counted(len(files), "data file"))

    def _read_ahead(self, batch: int) -> AbstractContextManager[object]:
        """Fetch at once what of the state a commit reads."""
        if self._state is None:
            return nullcontext()
        numbered = {PLANS: [batch], DECISIONS: [0], f"{RECORDS}/0": [batch, max(0, batch - 1)]}
        keys = {f"{log}/{number:020}" for log, numbers in numbered.items() for number in numbers}
        return fetched_ahead(self._state, keys=(METADATA, *sorted(keys)))

    def _read_by(self) -> RowsFrom:
        """Whose rows these are (`sink_log.SinkRecord`)."""
        if self._is_transformed:
            return "function"
        return "sink" if self._reads_splits else "query"

    def _plan(self, batch: int) -> tuple[str | None, Offset | None, dict[str, int]]:
        """Which plan the batch is: its id tells it from one of another life of the state.

        Returns:
            Its id; where the batch ends, if the batches of the query are those of the plan log; and
            its files and bytes, where those who write do not count them.

        Raises:
            CorruptedStateError: The batch of a job has no plan.
        """
        if self._state is None:
            return None, None, {}
        state = open_store(self._state)
        plans = NumberedLog(state, PLANS, is_packed=True)
        if not self._is_of_files:
            plan = plans.find_recent(batch) or (plans.find(batch) if has_packs(state) else None)
            return (None if plan is None else plan.id), None, {}
        found = plans.read(batch)
        names = ("files", "bytes") if self._is_transformed else ()
        planned = {name: int(found.header[name]) for name in names}
        return found.id, Offset.from_json(found.header["end"]), planned

    def _application(self) -> str:
        """Which stream writes."""
        store = open_store(self._state) if self._state else None
        found = self._options.txn_app_id or (
            None if store is None else sink_state.application(store)
        )
        if found is None:
            raise OptionError(
                "The sink does not know which stream writes. Set the option "
                "checkpointLocation, or txnAppId to a name no other stream uses."
            )
        return found


def lead_of(written: Sequence[TaskWritten]) -> TaskWritten | None:
    """A task that knows the columns of the rows: one that has read none does not."""
    with_columns = (each for each in written if each.schema.names)
    return next(with_columns, written[0] if written else None)


def flat(counts: SplitCounts) -> dict[str, int]:
    """What a reader has counted, in one level."""
    numbers = asdict(counts)
    fetched: dict[str, int] = numbers.pop("fetched")
    if not counts.error_cells:  # which most formats cannot have
        del numbers["error_cells"]
    return {**numbers, **fetched}


def added(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    """Counts of both, name by name."""
    return {key: left.get(key, 0) + right.get(key, 0) for key in {**left, **right}}


def _total(written: Sequence[TaskWritten]) -> dict[str, int]:
    total: dict[str, int] = {}
    for message in written:
        total = added(total, message.counts)
    return total
