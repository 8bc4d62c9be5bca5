"""Know a Delta table that a stream writes to, and write its micro-batches to it.

Tasks write the data files that the table's layout asks for, and each micro-batch is one commit
(`delta.commit`), or one merge (`delta.merge.commit`), whose rows are staged first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.batches.table_writer import TableWriter, TaskWritten
from airflow_cloudfiles.engine.batches.target_table import TargetTable
from airflow_cloudfiles.engine.crashpoints import crash_point
from airflow_cloudfiles.engine.delta.commit import (
    check_expected,
    check_target,
    commit_batch,
    has_batch,
    remove_files,
    table_state,
)
from airflow_cloudfiles.engine.delta.data_files import is_compacted
from airflow_cloudfiles.engine.delta.lineage import newest_known, newest_of_origin
from airflow_cloudfiles.engine.delta.location import DeltaLocation
from airflow_cloudfiles.engine.delta.opening import open_table, open_to_write
from airflow_cloudfiles.engine.delta.read.table_state import TableState
from airflow_cloudfiles.engine.delta.write.creation import NewTable
from airflow_cloudfiles.engine.delta.write.evolve import Evolution, widening_rule
from airflow_cloudfiles.engine.delta.write.rows import TableWrite, write_rows
from airflow_cloudfiles.engine.options.sink import SinkOptions
from airflow_cloudfiles.engine.state.sink_log import BatchId, Committed, Expected, FoundBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.delta.commit import Appender
    from airflow_cloudfiles.engine.delta.merge.rule import MergeRule
    from airflow_cloudfiles.engine.delta.write.former_rows import FormerRows
    from airflow_cloudfiles.engine.options.sink import TableOptions
    from airflow_cloudfiles.engine.storage import ObjectStore


class DeltaTargetTable(TargetTable):
    """A Delta table, or the place of one."""

    def writer(self, options: SinkOptions, **stream: Any) -> DeltaWriter:
        """Make the writer of a micro-batch (`TargetTable.writer`)."""
        return DeltaWriter(self.uri, options, **stream)

    def check(self, columns: pa.Schema, options: TableOptions, *, merge_schema: bool) -> str | None:
        """Check that rows fit (`TargetTable.check`); create what needs to be there first."""
        check_target(
            self.uri,
            columns,
            merge_schema=merge_schema,
            widening=widening_rule(options, default=False),
            new=NewTable.of(options),
        )
        return None

    def check_has(self, stream: str, expected: Expected) -> None:
        """Refuse a table that lacks a batch (`TargetTable.check_has`)."""
        check_expected(self.uri, stream, expected)

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
        from airflow_cloudfiles.engine.delta.batch_history import (  # noqa: PLC0415 - of killed runs
            find_again,
        )

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

    def __init__(self, target: str, options: SinkOptions, **stream: Any) -> None:
        super().__init__(target, options, **stream)
        self._evolution = Evolution(
            merge_schema=self._options.merge_schema is True,
            widening=widening_rule(self._options, default=False),
        )
        self._new = NewTable.of(self._options)
        self._merge: MergeRule | None = None
        if self._options.merge_keys:
            from airflow_cloudfiles.engine.delta.merge.rule import (  # noqa: PLC0415 - few merge
                MergeRule,
            )

            self._merge = MergeRule.of(self._options)
        self._how = TableWrite(
            self._opened(),
            self._evolution,
            target_bytes=self._options.target_file_size,
            is_staged=self._merge is not None,
        )

    def _refuse_known_origin(self, state: ObjectStore) -> None:
        DeltaTargetTable(self._target).refuse_known_origin(state)

    def _opened(self) -> TableState | None:
        """Open the table as it is before the micro-batch; the tasks write for it.

        A writer is made anew for each micro-batch. Where another writer changes the table
        meanwhile, the commit notices.
        """
        if self._written == "files":  # the run has checked it
            return table_state(self._target)
        return check_target(
            self._target,
            self._arrow_schema,
            merge_schema=self._evolution.merge_schema,
            widening=self._evolution.widening,
            new=self._new,
        )

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
        expected: Expected | None,
        former: Sequence[FormerRows],
    ) -> Committed:
        """Commit data files (`TableWriter.make_visible`)."""
        lead = written[0] if written else None
        what: dict[str, Any] = {
            "batch": batch,
            "files": [file for message in written for file in message.files],
            "schema": self._arrow_schema if lead is None else lead.schema,
            "merge_schema": self._evolution.merge_schema,
            "widening": self._evolution.widening,
            "new": self._new,
            "expected": expected,
        }
        append: Appender | None = None
        if former:
            from airflow_cloudfiles.engine.delta.write.former_rows import (  # noqa: PLC0415 - few do
                refuse_former,
                replace_former,
            )

            if self._merge is not None:
                refuse_former(former, self._target, "its stream merges")
            append = partial(replace_former, former=former)
        if self._merge is not None:
            from airflow_cloudfiles.engine.delta.merge.commit import (  # noqa: PLC0415 - few merge
                merge_batch,
            )

            return merge_batch(self._target, rule=self._merge, **what)
        layout = None if lead is None else lead.layout
        return commit_batch(self._target, layout=layout, append=append, **what)

    def _knows(self, batch: BatchId) -> bool:
        return has_batch(open_to_write(self._target), self._target, batch)

    def _remove(self, files: Sequence[Any]) -> None:
        remove_files(self._target, files)

    def _care_for(self) -> dict[str, int]:
        table, asked = self._how.table, self._options.auto_compact
        if asked is None:
            asked = is_compacted(self._new.properties if table is None else table.configuration)
        if not asked:
            return {}
        from airflow_cloudfiles.engine.delta.optimize import (  # noqa: PLC0415 - few tables
            auto_compact,
        )

        return auto_compact(self._target, self._options)
