"""What is in these CSV files?

Blocks of a file become record batches. The fast path hands plain records to Arrow (`lines`,
`columns`) and converts whole columns (`casts`). A record with quotes or escapes that Arrow would
read otherwise is taken apart by itself (`tokens`), a value that is not easily converted too
(`csv.converters`). A record is in exactly one place afterwards: its row, with the rescued
data; the corrupt record column; or, as the mode says, dropped and counted, or the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from airflow_cloudfiles.engine.formats.csv.block import CsvBlock, CsvParsing, records_left
from airflow_cloudfiles.engine.formats.csv.columns import CsvConverters, PlainReader
from airflow_cloudfiles.engine.formats.csv.parts import FileParts
from airflow_cloudfiles.engine.formats.csv.tokens import Tokenizer
from airflow_cloudfiles.engine.formats.record_policy import NumberRule, RecordOutcomes
from airflow_cloudfiles.engine.formats.scalars.string_casts import Cast
from airflow_cloudfiles.engine.formats.tables.reader import FileColumns, TableReader, safe_names
from airflow_cloudfiles.engine.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.formats.base import OpenedFile
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.options.formats.csv import CsvOptions

__all__ = ["CsvReader"]


class CsvReader(TableReader):
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
        super().__init__(data_schema, options)
        self._own = own = cast("CsvOptions", options.format_options)
        policy = self._policy
        numbers = NumberRule.of(options)
        converters = CsvConverters(own, numbers, exact=policy.rescues)
        conversions = [converters.to(each.dataType, each.name) for each in policy.parsed.fields]
        self._parsing = CsvParsing(
            rules=self._rules,
            null_value=own.null_value,
            casts=tuple(
                Cast(field.type, convert, converters.times, numbers)
                for field, convert in zip(to_arrow(policy.parsed), conversions, strict=True)
            ),
            plain=PlainReader(own),
            tokens=Tokenizer(own),
            is_thorough=is_thorough,
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
            outcomes = RecordOutcomes(self._policy)
            batch = CsvBlock(self._parsing, outcomes, columns, records, file.uri).read()
            if self._counted(batch, outcomes).num_rows:
                yield batch

    def _columns(self, header: list[str | None] | None) -> FileColumns:
        if header is None:
            return self._matcher.without_header()
        names = safe_names(header, self._own.null_value, self._options.matcher)
        return self._matcher.of_header(names)


def has_header(options: CloudFilesOptions) -> bool:
    """Whether files have a header: as the option says, else whether the schema is inferred."""
    own = cast("CsvOptions", options.format_options)
    return not options.has_schema if own.header is None else own.header
