"""What do readers of files whose records are rows of a table have in common?

Records with a value for each column, which a header names or which are counted: CSV and workbooks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from airflow_cloudfiles.engine.formats.base import BadRecord, ReadCounts
from airflow_cloudfiles.engine.formats.record_policy import RecordPolicy
from airflow_cloudfiles.engine.formats.tables.header import ColumnMatcher
from airflow_cloudfiles.engine.options.cloud_files import WATCHING_MODES, CloudFilesOptions
from airflow_cloudfiles.engine.types import missing_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.formats.record_policy import RecordOutcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRules:
    """What becomes of records, and of columns that the schema does not have.

    Attributes:
        policy: What becomes of bad records.
        watches: Whether new columns are reported.
        left_out: Names that are no new columns, all the same.
    """

    policy: RecordPolicy
    watches: bool
    left_out: frozenset[str]

    @classmethod
    def of(cls, data_schema: StructType, options: CloudFilesOptions) -> Self:
        """The rules of a reader.

        Raises:
            IncompatibleSchemaError: The corrupt record column is no string.
        """
        policy = RecordPolicy.of(data_schema, options)
        left_out = missing_fields(options.stay_rescued, policy.parsed, options.matcher)
        return cls(
            policy=policy,
            watches=options.schema_evolution_mode in WATCHING_MODES,
            left_out=frozenset(name for name, *_ in left_out),
        )


class TableReader:
    """Reads files with one schema.

    Args:
        data_schema: The columns to fill: without partition columns and rescued data column. A
            column named as `columnNameOfCorruptRecord` takes corrupt records.
        options: Mode, evolution mode, case sensitivity and the names of the special columns.
        first: The number of the first column in a file.

    Attributes:
        arrow_schema: Of the batches: the data columns, then the rescued data column if any.
        counts: What was read so far.
        bad_records: What `badRecordsPath` takes; whoever writes it empties the list.

    Raises:
        IncompatibleSchemaError: The corrupt record column is no string.
    """

    def __init__(
        self, data_schema: StructType, options: CloudFilesOptions, *, first: int = 0
    ) -> None:
        self._options = options
        self._rules = RowRules.of(data_schema, options)
        self._policy = self._rules.policy
        self.arrow_schema: pa.Schema = self._policy.arrow_schema
        self.counts = ReadCounts()
        self.bad_records: list[BadRecord] = []
        self._matcher = ColumnMatcher(
            self._policy.parsed,
            case_sensitive=options.reader_case_sensitive,
            by_position=options.has_schema,
            reserved=(*options.reserved_columns, *self._rules.left_out),
            matcher=options.matcher,
            first=first,
        )

    def _counted(self, batch: pa.RecordBatch, outcomes: RecordOutcomes) -> Iterator[pa.RecordBatch]:
        """A batch, unless it has no rows, with what became of its records counted."""
        self.counts.add(outcomes.counts)
        self.bad_records += outcomes.bad_records
        if batch.num_rows:
            yield batch
