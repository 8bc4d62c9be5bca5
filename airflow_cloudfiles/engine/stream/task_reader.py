"""How does a task read its split, and what does it do about what the schema lacks?

The reader of splits only says that there are new fields. Here the evolution mode decides what
follows: the schema log gets the next version where it may, and the task fails (`schema_change`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.formats.base import UnknownFields
from airflow_cloudfiles.engine.reading.split_reader import SplitCounts, SplitReader
from airflow_cloudfiles.engine.stream import schema_change

if TYPE_CHECKING:
    from collections import Counter

    import pyarrow as pa

    from airflow_cloudfiles.engine.reading.file_columns import FileCounts
    from airflow_cloudfiles.engine.reading.splits import Split


class TaskReader:
    """Reads one split of a stream; use once.

    Args:
        split: What to read.
        by_file: Whether to count by file, too.
    """

    def __init__(self, split: Split, *, by_file: bool = False) -> None:
        self._context = split.context
        self._reader = SplitReader(split, by_file=by_file)

    @property
    def arrow_schema(self) -> pa.Schema:
        """Of the batches."""
        return self._reader.arrow_schema

    @property
    def counts(self) -> SplitCounts:
        """What was read; complete when `read` has ended."""
        return self._reader.counts

    @property
    def corrupt_by_file(self) -> Counter[str]:
        """How many corrupt records the files have that have any, by URI; complete as `counts`."""
        return self._reader.corrupt_by_file

    @property
    def missing(self) -> list[str]:
        """URIs of files that were gone and skipped, of some at most; complete as `counts`."""
        return self._reader.missing

    @property
    def by_file(self) -> dict[str, FileCounts]:
        """What was read of each file, by its path, where that is counted; complete as `counts`."""
        return self._reader.by_file

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the split.

        Raises:
            UnknownFieldException: A record has a new field, or values need wider types, in the
                modes that fail on it. In the modes that evolve the schema, the schema log has the
                evolved version by then.
            ReadError: A file cannot be read, or a record is not valid (`FAILFAST`).
        """
        try:
            for batch in self._reader.read():
                self._check_types(batch)
                yield batch
        except UnknownFields as found:
            raise schema_change.react(self._context, found.fields, found.file_uri) from None

    def _check_types(self, batch: pa.RecordBatch) -> None:
        """Fail when rescued values ask for wider types and the schema log has them now."""
        options = self._context.options
        if not schema_change.widens(options):
            return
        rescued = batch.column(options.rescued_data_column).drop_null()
        error = schema_change.widened(self._context, rescued.to_pylist())
        if error is not None:
            raise error
