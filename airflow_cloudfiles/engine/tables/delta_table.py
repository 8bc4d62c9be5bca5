"""Know a Delta table that a stream writes to, and write its micro-batches to it.

Tasks write the data files that the table's layout asks for, and each micro-batch is one commit
(`delta.commit`), or one merge (`extensions.merge.commit`), whose rows are staged first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.registry import extension
from airflow_cloudfiles.engine.state.sink_log import (
    BatchId,
    CommitResult,
    ExpectedBatch,
    FoundBatch,
)
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
from airflow_cloudfiles.engine.tables.target_table import TargetTable

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.options.sink import TableOptions
    from airflow_cloudfiles.engine.reading.splits import Split
    from airflow_cloudfiles.engine.tables.delta.commit import Appender
    from airflow_cloudfiles.engine.tables.delta.write.former_rows import FormerRows


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
