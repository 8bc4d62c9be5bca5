"""Say what a run asks of the table that it writes to, and know one of Delta.

Into a Delta table tasks write the data files that its layout asks for, and each micro-batch is one
commit (`delta.commit`), or one merge (`extensions.merge.commit`), whose rows are staged first. A
table of another kind is an extension, which has the same methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.registry import extension
from airflow_cloudfiles.engine.state import metadata
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.sink_log import (
    BatchId,
    CommitResult,
    ExpectedBatch,
    FoundBatch,
    SinkLog,
)
from airflow_cloudfiles.engine.storage.vendors import import_with_extra
from airflow_cloudfiles.engine.tables import sink_state
from airflow_cloudfiles.engine.tables.delta.commit import (
    check_target,
    commit_batch,
    has_batch,
    remove_files,
    table_state,
)
from airflow_cloudfiles.engine.tables.delta.data_files import is_compacted
from airflow_cloudfiles.engine.tables.delta.lineage import (
    check_has,
    find_again,
    newest_known,
    newest_of_origin,
)
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.opening import open_table, open_to_write
from airflow_cloudfiles.engine.tables.delta.read.table_state import TableState
from airflow_cloudfiles.engine.tables.delta.write.evolve import WriteRules
from airflow_cloudfiles.engine.tables.delta.write.rows import TableWrite, write_rows
from airflow_cloudfiles.engine.tables.table_writer import TableWriter, TaskWritten

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.options.sink import TableOptions
    from airflow_cloudfiles.engine.reading.splits import Split
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.tables.delta.commit import Appender
    from airflow_cloudfiles.engine.tables.delta.write.former_rows import FormerRows


class TargetTable(ABC):
    """A table that a stream writes to; it may not exist yet.

    All methods raise `SinkError`, or one of its kinds, where the table cannot be opened or is
    something else.

    Args:
        uri: Path or URI of the table, as it was given.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def check_before_run(
        self, state: ObjectStore, source: str | None = None, app_id: str | None = None
    ) -> None:
        """Refuse to start a run into a table that lacks batches of the stream, or has them unknown.

        Args:
            state: The checkpoint location.
            source: What the state knows, or will know, the files' source by; `None` for none.
            app_id: The application id of the commits, if it is not the stream's own.

        Raises:
            LostBatchesError: It lacks some, or a replay has not come to its end.
            CorruptedStateError: The state is new, and the table has batches of this place and
                source.
            SinkError: The table cannot be opened, or is something else.
        """
        if source is not None and read_metadata(state) is None:
            self.refuse_known_origin(state, source)
        app_id = app_id or sink_state.application(state)
        record = None if app_id is None else SinkLog(state).must_have()
        if app_id is not None and record is not None:
            self.check_has(app_id, sink_state.expected_of(state, record))

    def refuse_known_origin(self, state: ObjectStore, source: str | None = None) -> None:
        """Refuse a new state at a place from which a table has batches of another one.

        Args:
            state: The checkpoint location, which has committed nothing.
            source: What the state will know its source by; `None` where it does already.

        Raises:
            CorruptedStateError: It has.
            SinkError: The table cannot be opened, or is something else.
        """
        own, mark = sink_state.identity(state)
        mark = mark if source is None else metadata.origin(state, source)
        newest = self.newest_of_origin(mark, besides=own) if mark else None
        if newest is not None:
            of_place = "of a stream with this checkpoint location and source"
            what = f"{self.uri} has batch {newest} {of_place}"
            raise metadata.without_log(state, what)

    def find_unrecorded(self, state: ObjectStore, batch: int, plan: str) -> FoundBatch | None:
        """Find a batch that has no record, as a run leaves it that was killed before that.

        Its commit is on the disk when this returns.

        Args:
            state: The checkpoint location.
            batch: Number of the batch.
            plan: Id of its plan.

        Returns:
            `None` where the table lacks it, or has another batch of that number, or its history
            does not reach back to it: then its files are read, and the commit decides.

        Raises:
            SinkError: The table cannot be opened, or is something else.
        """
        stream = sink_state.application(state)
        if stream is None:
            return None
        before = SinkLog(state).newest()
        since = 0 if before is None else max(0, before.version)
        found = self.find(stream, batch, since=since)
        return None if found is None or found.plan != plan or not found.counts else found

    @abstractmethod
    def writer(self, options: SinkOptions, **stream: Any) -> TableWriter:
        """Make the writer of a micro-batch.

        Args:
            options: Of the sink.
            stream: What else there is to say of it (`TableWriter`).

        Raises:
            OptionError: An option is not valid.
        """

    @abstractmethod
    def check(self, columns: pa.Schema, options: TableOptions, *, merge_schema: bool) -> str | None:
        """Find out before a run starts whether the table can take rows of a schema.

        Args:
            columns: The schema.
            options: Of the table.
            merge_schema: Whether columns that it lacks are added.

        Returns:
            Where its files are, if the catalog says it rather than the target.

        Raises:
            SchemaMismatchError: Its columns do not fit.
            OptionError: It is partitioned otherwise than it was asked for.
        """

    @abstractmethod
    def check_has(self, stream: str, expected: ExpectedBatch) -> None:
        """Refuse a table that lacks a batch of a stream.

        Raises:
            LostBatchesError: It lacks the batch.
        """

    @abstractmethod
    def has(self, stream: str, batch: int) -> bool:
        """Tell whether the table has committed a micro-batch of a stream, by its number."""

    @abstractmethod
    def find(self, stream: str, batch: int, *, since: int) -> FoundBatch | None:
        """Find a batch of a stream, of whatever plan; its commit is on the disk afterwards.

        Args:
            stream: The stream.
            batch: Number of the batch.
            since: A version older than its commit: what is before it need not be read.

        Returns:
            `None` where the table lacks it, or does not show it.
        """

    @abstractmethod
    def newest_of_origin(self, origin: str, *, besides: str | None) -> int | None:
        """Give the newest batch of a stream of an origin, besides one stream; `None` for none."""

    @abstractmethod
    def newest_version(self) -> int | None:
        """Give the newest version, or sequence number; `None` where there is no table."""


def iceberg_table(uri: str) -> TargetTable:
    """Give a table of an Iceberg catalog, whose client is an extra of this package.

    Raises:
        OptionError: The extra is not installed.
    """
    import_with_extra("pyiceberg", "iceberg", needed_for=uri)
    table: TargetTable = extension("iceberg table")(uri)
    return table


class DeltaTargetTable(TargetTable):
    """A Delta table, or the place of one."""

    def writer(self, options: SinkOptions, **stream: Any) -> DeltaWriter:
        """Make the writer of a micro-batch (`TargetTable.writer`)."""
        return DeltaWriter(self, options, **stream)

    def check(self, columns: pa.Schema, options: TableOptions, *, merge_schema: bool) -> str | None:
        """Check that rows fit (`TargetTable.check`); create what needs to be there first."""
        check_target(self.uri, columns, replace(WriteRules.of(options), merge_schema=merge_schema))
        return None

    def check_has(self, stream: str, expected: ExpectedBatch) -> None:
        """Refuse a table that lacks a batch (`TargetTable.check_has`)."""
        check_has(open_to_write(self.uri), self.uri, stream, expected)

    def has(self, stream: str, batch: int) -> bool:
        """Tell whether the table has a batch, or had it (`TargetTable.has`)."""
        table = open_table(self.uri)
        seen = None if table is None else newest_known(table, self.uri, stream)
        return seen is not None and seen >= batch

    def find(self, stream: str, batch: int, *, since: int) -> FoundBatch | None:
        """Find a batch by its note (`TargetTable.find`)."""
        table = open_to_write(self.uri)
        seen = None if table is None else newest_known(table, self.uri, stream, since=since)
        if table is None or seen is None or seen < batch:
            return None
        return find_again(table, DeltaLocation.of(self.uri), BatchId(stream, batch), since=since)

    def newest_of_origin(self, origin: str, *, besides: str | None) -> int | None:
        """Give the newest batch of an origin (`TargetTable.newest_of_origin`)."""
        table = open_to_write(self.uri)
        return None if table is None else newest_of_origin(table, self.uri, origin, besides=besides)

    def newest_version(self) -> int | None:
        """Give the newest version; `None` where there is no table."""
        table = open_table(self.uri)
        return table.version() if table else None


class DeltaWriter(TableWriter):
    """Writes micro-batches of one stream to one Delta table."""

    def __init__(self, table: TargetTable, options: SinkOptions, **stream: Any) -> None:
        super().__init__(table, options, **stream)
        self._rules = WriteRules.of(self._options)
        keys = self._options.merge_keys
        self._merge = extension("merge rule").of(self._options) if keys else None
        self._how = TableWrite(
            self._opened(),
            self._rules,
            target_bytes=self._options.target_file_size,
            is_staged=self._merge is not None,
        )

    def _opened(self) -> TableState | None:
        """Open the table as it is before the micro-batch; the tasks write for it.

        A writer is made anew for each micro-batch. Where another writer changes the table
        meanwhile, the commit notices.
        """
        if self._written == "files":  # the run has checked it
            return table_state(self._target)
        return check_target(self._target, self._arrow_schema, self._rules)

    def write_split(self, split: Split) -> TaskWritten:
        """Write a split (`TableWriter.write_split`), or register files of it as they are."""
        if split.context.options.load_mode == "copy":
            return super().write_split(split)
        written: TaskWritten = extension("register")(
            split, self._how, self._target, self._options.required_columns, super().write_split
        )
        return written

    def _write_rows(self, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> TaskWritten:
        layout = self._how.layout(schema)
        files = write_rows(self._target, schema, rows, layout, self._how.settings)
        crash_point("after-data-files")
        counts = {"rows": sum(file.rows for file in files)}
        return TaskWritten(files, schema, counts, layout=layout)

    def make_visible(
        self,
        batch: BatchId,
        written: Sequence[TaskWritten],
        expected: ExpectedBatch | None,
        former: Sequence[FormerRows],
    ) -> CommitResult:
        """Commit data files (`TableWriter.make_visible`)."""
        lead = written[0] if written else None
        what: dict[str, Any] = {
            "batch": batch,
            "files": [file for message in written for file in message.files],
            "schema": self._arrow_schema if lead is None else lead.schema,
            "rules": self._rules,
            "expected": expected,
        }
        append: Appender | None = None
        if former:
            from airflow_cloudfiles.engine.tables.delta.write.former_rows import (  # noqa: PLC0415 - few do
                refuse_former,
                replace_former,
            )

            if self._merge is not None:
                refuse_former(former, self._target, "its stream merges")
            append = partial(replace_former, former=former)
        if self._merge is not None:
            merged: CommitResult = extension("merge")(self._target, rule=self._merge, **what)
            return merged
        layout = None if lead is None else lead.layout
        return commit_batch(self._target, layout=layout, append=append, **what)

    def _knows(self, batch: BatchId) -> bool:
        return has_batch(open_to_write(self._target), self._target, batch)

    def _remove(self, files: Sequence[Any]) -> None:
        remove_files(self._target, files)

    def _care_for(self) -> dict[str, int]:
        table, asked = self._how.table, self._options.auto_compact
        if asked is None:
            asked = is_compacted(self._rules.properties if table is None else table.configuration)
        if not asked:
            return {}
        counts: dict[str, int] = extension("compact")(self._target, self._options)
        return counts
