"""What is in these workbooks?

The cells of each wanted sheet become record batches, some rows at a time (`rows`, `block`). A row
is in exactly one place afterwards: in the batch with its rescued data; in the corrupt record
column; or, as the mode says, dropped and counted, or the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from airflow_cloudfiles.engine.formats.columnar.reader import content_of
from airflow_cloudfiles.engine.formats.excel.block import SheetBlock, SheetParsing
from airflow_cloudfiles.engine.formats.excel.converters import CellConverters
from airflow_cloudfiles.engine.formats.excel.workbook import FORMAT, names_of, open_workbook, tables
from airflow_cloudfiles.engine.formats.fixed_columns import SHEETS, FixedColumnsReader
from airflow_cloudfiles.engine.formats.record_policy import RecordOutcomes
from airflow_cloudfiles.engine.formats.scalars.exact_numbers import NumberRule
from airflow_cloudfiles.engine.formats.tables.reader import TableReader
from airflow_cloudfiles.engine.options.metadata_columns import SHEET_NAME
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.formats.base import OpenedFile
    from airflow_cloudfiles.engine.formats.excel.rows import Table
    from airflow_cloudfiles.engine.formats.tables.reader import FileColumns
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.options.formats.excel import ExcelOptions

__all__ = ["ExcelReader", "SheetListReader"]


class ExcelReader(TableReader):
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
        super().__init__(data_schema, options, first=1)
        self._own = own = cast("ExcelOptions", options.format_options)
        policy = self._policy
        converters = CellConverters(own, NumberRule.of(options), exact=policy.rescues)
        self._parsing = SheetParsing(
            rules=self._rules,
            casts=tuple(
                converters.to(field.dataType, arrow.type, field.name)
                for field, arrow in zip(policy.parsed.fields, to_arrow(policy.parsed), strict=True)
            ),
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
            outcomes = RecordOutcomes(self._policy)
            batch = SheetBlock(self._parsing, outcomes, columns, table.first, rows, uri).read()
            if self._counted(batch, outcomes).num_rows:
                yield batch

    def _columns(self, table: Table) -> FileColumns:
        if table.header is None:
            return self._matcher.without_header()
        return self._matcher.of_header(names_of(table, self._options.matcher))


class SheetListReader(FixedColumnsReader):
    """Reads which sheets workbooks have, in some or all of the columns of `listSheets`."""

    WHAT = "operation=listSheets"
    COLUMNS = SHEETS

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        super().__init__(data_schema, options)
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
            batch = self._row({"sheetIndex": place, "sheetName": name})
            yield of_sheet(batch, name, self._options)


def of_sheet(batch: pa.RecordBatch, sheet: str, options: CloudFilesOptions) -> pa.RecordBatch:
    """A batch that says which sheet it is of, where a column asks for it."""
    if not options.metadata_columns:
        return batch
    return batch.replace_schema_metadata({SHEET_NAME: sheet})
