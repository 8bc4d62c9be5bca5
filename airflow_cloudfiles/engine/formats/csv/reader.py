"""What is in these CSV files?

Blocks of a file become record batches. The fast path hands plain records to Arrow (`lines`,
`columns`) and converts whole columns (`casts`). A record with quotes or escapes that Arrow would
read otherwise is taken apart by itself (`tokens`), a value that is not easily converted too
(`formats.scalars.strings`). A record is in exactly one place afterwards: its row, with the rescued
data; the corrupt record column; or, as the mode says, dropped and counted, or the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from pyspark.sql.types import StringType, StructField, StructType

from airflow_cloudfiles.engine.formats.base import BadRecord, OpenedFile, ReadCounts
from airflow_cloudfiles.engine.formats.csv.block import Block, Rules, records_left
from airflow_cloudfiles.engine.formats.csv.casts import Cast
from airflow_cloudfiles.engine.formats.csv.columns import PlainReader
from airflow_cloudfiles.engine.formats.csv.header import ColumnMatcher, FileColumns, safe_names
from airflow_cloudfiles.engine.formats.csv.parts import FileParts
from airflow_cloudfiles.engine.formats.csv.tokens import Tokenizer
from airflow_cloudfiles.engine.formats.record_policy import check_corrupt_column
from airflow_cloudfiles.engine.formats.scalars.exact_numbers import NumberRule
from airflow_cloudfiles.engine.formats.scalars.strings import Converters
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CsvReader"]


class CsvReader:
    """Reads CSV files with one schema.

    Reading the same file again gives the same batches; only `counts` goes on growing.

    Args:
        data_schema: The columns to fill: without partition columns and rescued data column. A
            column named as `columnNameOfCorruptRecord` takes corrupt records.
        options: Mode, evolution mode, case sensitivity, the names of the special columns, and how
            the files are written.
        is_thorough: Read every record and every value by itself. The result is the same; tests
            compare it with the fast path's.

    Attributes:
        arrow_schema: Of the batches: the data columns, then the rescued data column if any.
        counts: What was read so far.
        bad_records: What `badRecordsPath` takes; whoever writes it empties the list.

    Raises:
        IncompatibleSchemaError: A column has a type that CSV cannot be read into.
        OptionError: A pattern, a time zone or a locale that does not exist.
    """

    def __init__(
        self, data_schema: StructType, options: CloudFilesOptions, *, is_thorough: bool = False
    ) -> None:
        own = cast("CsvOptions", options.format_options)
        rescued, corrupt = options.rescued_data_column, options.corrupt_record_column
        check_corrupt_column(data_schema, corrupt)
        parsed = StructType([each for each in data_schema.fields if each.name != corrupt])
        numbers = NumberRule.of(options)
        converters = Converters(own, numbers, exact=rescued is not None)
        conversions = [converters.to(each.dataType, each.name) for each in parsed.fields]
        extra = [] if rescued is None else [StructField(rescued, StringType())]
        self.arrow_schema: pa.Schema = to_arrow(StructType([*data_schema.fields, *extra]))
        self.counts = ReadCounts()
        self.bad_records: list[BadRecord] = []
        place = self.arrow_schema.get_field_index(corrupt)
        self._options, self._own = options, own
        self._rules = Rules(
            options=options,
            null_value=own.null_value,
            arrow_schema=self.arrow_schema,
            casts=tuple(
                Cast(field.type, convert, converters.times, numbers)
                for field, convert in zip(to_arrow(parsed), conversions, strict=True)
            ),
            corrupt_place=place if place >= 0 else None,
            plain=PlainReader(own),
            tokens=Tokenizer(own),
            is_thorough=is_thorough,
        )
        self._matcher = ColumnMatcher(
            parsed,
            case_sensitive=options.reader_case_sensitive,
            by_position=options.has_schema,
            reserved=options.reserved_columns,
            matcher=options.matcher,
        )

    def read_file(
        self, file: OpenedFile, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read one file, or the lines of it that start in a range of bytes.

        Raises:
            UnknownFields: The file has new columns, in a mode that must know.
            CorruptRecordError: A record is not valid, in mode `FAILFAST`.
            FileUnreadableError: The header cannot be read.
        """
        parts = FileParts(file, self._own, has_header=has_header(self._options))
        columns: FileColumns | None = None
        for records in parts.records(start, end):
            if not records_left(records):
                continue
            if columns is None:
                columns = self._columns(parts.header)
            if parts.header is None:
                columns = columns.with_width(parts.width_of(records))
            block = Block(self._rules, columns, records, file.uri)
            batch = block.read()
            self._count(block)
            if batch.num_rows:
                yield batch

    def _columns(self, header: list[str | None] | None) -> FileColumns:
        if header is None:
            return self._matcher.without_header()
        names = safe_names(header, self._own.null_value, self._options.matcher)
        return self._matcher.of_header(names)

    def _count(self, block: Block) -> None:
        self.bad_records += block.bad_records
        self.counts.rows += block.counts.rows
        self.counts.rescued_rows += block.counts.rescued_rows
        self.counts.corrupt_records += block.counts.corrupt_records
        self.counts.dropped_records += block.counts.dropped_records


def has_header(options: CloudFilesOptions) -> bool:
    """Whether files have a header: as the option says, else whether the schema is inferred."""
    own = cast("CsvOptions", options.format_options)
    return not options.has_schema if own.header is None else own.header
