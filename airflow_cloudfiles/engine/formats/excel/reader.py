"""What is in these workbooks?

The cells of each wanted sheet become record batches, some rows at a time (`rows`, `block`). A row
is in exactly one place afterwards: in the batch with its rescued data; in the corrupt record
column; or, as the mode says, dropped and counted, or the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.base import BadRecord, OpenedFile, ReadCounts
from airflow_cloudfiles.engine.formats.columnar.reader import content_of
from airflow_cloudfiles.engine.formats.excel.block import Parsing, SheetBlock
from airflow_cloudfiles.engine.formats.excel.converters import CellConverters
from airflow_cloudfiles.engine.formats.excel.sheets import FORMAT, names_of, tables
from airflow_cloudfiles.engine.formats.excel.workbook import open_workbook
from airflow_cloudfiles.engine.formats.header import ColumnMatcher
from airflow_cloudfiles.engine.formats.record_policy import (
    RecordOutcomes,
    RecordPolicy,
    batch_schema,
    make_batch,
)
from airflow_cloudfiles.engine.formats.scalars.exact_numbers import NumberRule
from airflow_cloudfiles.engine.options.cloud_files import WATCHING_MODES, CloudFilesOptions
from airflow_cloudfiles.engine.options.metadata_columns import SHEET_NAME
from airflow_cloudfiles.engine.types import missing_fields, to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.formats.excel.rows import Table
    from airflow_cloudfiles.engine.formats.header import FileColumns
    from airflow_cloudfiles.engine.options.formats.excel import ExcelOptions

__all__ = ["ExcelReader", "SheetListReader"]

_SHEETS: Final = {"sheetIndex": pa.int64(), "sheetName": pa.string()}


class ExcelReader:
    """Reads workbooks with one schema.

    Reading the same file again gives the same batches; only `counts` goes on growing.

    Args:
        data_schema: The columns to fill: without partition columns and rescued data column. A
            column named as `columnNameOfCorruptRecord` takes corrupt records.
        options: Mode, evolution mode, case sensitivity, the names of the special columns, and
            which cells are read.

    Attributes:
        arrow_schema: Of the batches: the data columns, then the rescued data column if any.
        counts: What was read so far.
        bad_records: What `badRecordsPath` takes; whoever writes it empties the list.

    Raises:
        IncompatibleSchemaError: A column has a type that no cell is a value of.
        OptionError: A pattern, a time zone or a locale that does not exist.
    """

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        own = cast("ExcelOptions", options.format_options)
        policy = RecordPolicy.of(data_schema, options)
        converters = CellConverters(own, NumberRule.of(options), exact=policy.rescues)
        self.arrow_schema: pa.Schema = policy.arrow_schema
        self.counts = ReadCounts()
        self.bad_records: list[BadRecord] = []
        self._options, self._own = options, own
        left_out = missing_fields(options.stay_rescued, policy.parsed, options.matcher)
        self._parsing = Parsing(
            policy=policy,
            watches=options.schema_evolution_mode in WATCHING_MODES,
            left_out=frozenset(name for name, *_ in left_out),
            casts=tuple(
                converters.to(field.dataType, arrow.type, field.name)
                for field, arrow in zip(policy.parsed.fields, to_arrow(policy.parsed), strict=True)
            ),
        )
        self._matcher = ColumnMatcher(
            policy.parsed,
            case_sensitive=options.reader_case_sensitive,
            by_position=options.has_schema,
            reserved=(*options.reserved_columns, *self._parsing.left_out),
            matcher=options.matcher,
            first=1,
        )

    def read_file(
        self,
        file: OpenedFile,
        start: int = 0,
        end: int | None = None,  # noqa: ARG002 - of the protocol
    ) -> Iterator[pa.RecordBatch]:
        """Read one file, of which there are no parts.

        Raises:
            UnknownFields: The file has new columns, in a mode that must know.
            CorruptRecordError: A record is not valid, in mode `FAILFAST`.
            FileUnreadableError: The file is no workbook, damaged, or lacks the sheet.
        """
        if start:
            return
        for sheet, table in tables(file, self._own):
            for batch in self._batches(table, file.uri):
                yield of_sheet(batch, sheet, self._options)

    def _batches(self, table: Table, uri: str) -> Iterator[pa.RecordBatch]:
        columns: FileColumns | None = None
        for rows in table.rows():
            columns = columns or self._columns(table)
            outcomes = RecordOutcomes(self._parsing.policy)
            batch = SheetBlock(self._parsing, outcomes, columns, table.first, rows, uri).read()
            self.counts.add(outcomes.counts)
            self.bad_records += outcomes.bad_records
            if batch.num_rows:
                yield batch

    def _columns(self, table: Table) -> FileColumns:
        if table.header is None:
            return self._matcher.without_header()
        return self._matcher.of_header(names_of(table, self._options.matcher))


class SheetListReader:
    """Reads which sheets workbooks have (`operation=listSheets`).

    Args:
        data_schema: Some or all of the columns `sheetIndex` and `sheetName`, in any order.
        options: Of the source.

    Attributes:
        arrow_schema: Of the batches: the columns, then the rescued data column if any (NULL).
        counts: What was read so far.
        bad_records: Stays empty.

    Raises:
        IncompatibleSchemaError: There is another column.
    """

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        for field in to_arrow(data_schema):
            if _SHEETS.get(field.name) != field.type:
                raise IncompatibleSchemaError(
                    f"operation=listSheets has no column {field.name} of type {field.type}. Its "
                    "columns are: sheetIndex BIGINT, sheetName STRING."
                )
        self.arrow_schema = batch_schema(data_schema, options)
        self.counts = ReadCounts()
        self.bad_records: list[BadRecord] = []
        self._options = options
        self._own = cast("ExcelOptions", options.format_options)

    def read_file(
        self,
        file: OpenedFile,
        start: int = 0,
        end: int | None = None,  # noqa: ARG002 - of the protocol
    ) -> Iterator[pa.RecordBatch]:
        """Read one file: a row for each sheet, in their order.

        Raises:
            FileUnreadableError: The file is no workbook, or damaged.
        """
        if start or not file.entry.size:
            return
        with content_of(file, FORMAT) as content:
            names = open_workbook(content, self._own.max_record_bytes).sheets
        for place, name in enumerate(names):
            found: dict[str, object] = {"sheetIndex": place, "sheetName": name}
            arrays = [pa.array([found.get(each.name)], each.type) for each in self.arrow_schema]
            self.counts.rows += 1
            yield of_sheet(make_batch(arrays, self.arrow_schema, 1), name, self._options)


def of_sheet(batch: pa.RecordBatch, sheet: str, options: CloudFilesOptions) -> pa.RecordBatch:
    """A batch that says which sheet it is of, where a column asks for it."""
    if not options.metadata_columns:
        return batch
    return batch.replace_schema_metadata({SHEET_NAME: sheet})
