"""Say what a run asks of the table that it writes to, whatever kind it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.registry import extension
from airflow_cloudfiles.engine.state import metadata
from airflow_cloudfiles.engine.state.metadata import read_metadata
from airflow_cloudfiles.engine.state.sink_log import SinkLog
from airflow_cloudfiles.engine.storage.vendors import import_with_extra
from airflow_cloudfiles.engine.tables import sink_state

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.options.sink import SinkOptions, TableOptions
    from airflow_cloudfiles.engine.state.sink_log import ExpectedBatch, FoundBatch
    from airflow_cloudfiles.engine.storage import ObjectStore
    from airflow_cloudfiles.engine.tables.table_writer import TableWriter


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
