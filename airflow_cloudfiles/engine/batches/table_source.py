"""Plan the micro-batches of a run from what a Delta table has got.

Nothing is discovered: the log of the table is the list of what is new. The plan log is the
checkpoint that Spark keeps of a query (`state.spark_checkpoint`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.batches.run import PlannedBatch, Task
from airflow_cloudfiles.engine.batches.task_process import log_to_stderr
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.messages import counted
from airflow_cloudfiles.engine.reading.splits import OPEN_COST_BYTES, split_bytes
from airflow_cloudfiles.engine.state.spark_checkpoint import QueryCheckpoint
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.tables.delta.read.files import TablePart, shared_out
from airflow_cloudfiles.engine.tables.delta.stream.commits import TableOffset
from airflow_cloudfiles.engine.tables.delta.stream.evolution import QueryPlace
from airflow_cloudfiles.engine.tables.delta.stream.table_stream import TableStream
from airflow_cloudfiles.engine.tables.delta.stream.tracking import define

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.options.table_stream import TableStreamOptions
    from airflow_cloudfiles.engine.tables.delta.read.actions import AddFile
    from airflow_cloudfiles.engine.tables.table_writer import TableWriter, TaskWritten

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableRange:
    """What a micro-batch reads of a table.

    Attributes:
        start: Where it begins.
        end: Where it ends.
        files: How many data files it has.
        bytes: How large they are.
    """

    start: TableOffset
    end: TableOffset
    files: int
    bytes: int


class TableBatches:
    """The micro-batches of a run whose source is a Delta table (`BatchSource`).

    The run holds the lock of jobs. Should it lose that, another run that plans the same micro-batch
    stops it.

    Args:
        target: The table.
        options: Of the stream.
        checkpoint_location: Where its state is.
        settings: SQL configurations that allow changes of columns (`AllowedChanges`).
        parallelism: How many tasks can run at a time.
        read: Gets what the micro-batches have read that were committed, in their order.
    """

    def __init__(  # noqa: PLR0913 - the parts of a run
        self,
        target: str,
        options: TableStreamOptions,
        checkpoint_location: str,
        *,
        settings: Mapping[str, str],
        parallelism: int,
        read: list[TableRange],
    ) -> None:
        self._parallelism = parallelism
        self._definition = define(target, options)
        place = QueryPlace(checkpoint_location, settings=settings)
        self._stream = TableStream(target, options, self._definition, lambda: place)
        self._checkpoint = QueryCheckpoint(open_store(checkpoint_location))
        self._number = -1
        self._newest_planned = -1
        self._start: TableOffset | None = None
        self._range: TableRange | None = None
        self._read = read

    @property
    def schema(self) -> StructType:
        """The columns of the rows; none is `NOT NULL`."""
        return self._definition.state.public_schema

    def open(self) -> None:
        """Open the state: where the last committed micro-batch ends.

        Raises:
            CorruptedStateError: The checkpoint is damaged.
            StateConflictError: It is that of a stream from another table.
        """
        found = self._checkpoint.open()
        self._number, self._newest_planned = found.committed, found.planned
        if found.committed >= 0:
            self._start = self._stream.read_offset(self._checkpoint.end_of(found.committed))
        self._stream.prepare_available_now()

    def plan(self) -> PlannedBatch | None:
        """Plan the next micro-batch, or take the one that a killed run has planned.

        Raises:
            TableEvolvedError: The table has another schema; the next run goes on with it.
            CloudFilesError: As of `TableStream.latest` and `TableStream.files`.
        """
        number = self._number + 1
        start = self._stream.initial() if self._start is None else self._start
        if number <= self._newest_planned:
            end = self._stream.read_offset(self._checkpoint.end_of(number))
        else:
            end = self._stream.latest(start)
            # The first one is planned even if it has nothing: it says where the stream begins.
            if end == self._start:
                return None
            self._checkpoint.plan(number, end)
        crash_point("after-spark-offset")
        files = self._stream.files(start, end)
        self._range = TableRange(start, end, len(files), sum(each.size for each in files))
        parts = shared_out(self._stream.columns, files, self._tasks(files))
        how_many = counted(len(files), "file"), counted(len(parts), "task")
        _log.info("Planned batch %s: %s, %s", number, *how_many)
        return PlannedBatch(number, parts, end)

    def task(self, writer: TableWriter) -> Task:
        """Build the task that reads the rows of a part, and writes them."""
        return partial(_write, writer, self.rows())

    def rows(self) -> Callable[[TablePart], Iterator[pa.RecordBatch]]:
        """Build the function that reads the rows of a part."""
        return partial(_rows, self.schema)

    def committed(self, planned: PlannedBatch) -> None:
        """Record that the table that is written to has a micro-batch."""
        self._checkpoint.commit(planned.number)
        crash_point("after-spark-commit")
        assert self._range is not None  # noqa: S101 - `plan` sets it
        self._read.append(self._range)
        self._number, self._start = planned.number, planned.end

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def _tasks(self, files: list[AddFile]) -> int:
        """Over how many tasks files are shared out: small ones are packed."""
        cost = sum(each.size + OPEN_COST_BYTES for each in files)
        return -(-cost // split_bytes(cost, self._parallelism))


def _write(
    writer: TableWriter,
    read: Callable[[TablePart], Iterator[pa.RecordBatch]],
    part: TablePart,
) -> TaskWritten:
    """Read the rows of a part and write them, in the process of a task."""
    return writer.write_rows(read(part))


def _rows(schema: StructType, part: TablePart) -> Iterator[pa.RecordBatch]:
    """Read the rows of a part, in the process of a task."""
    crash_point("before-read")
    log_to_stderr()
    yield from part.read(schema)
