"""What is in the rows of an XML file?

Rows are cut out of the file (`rows`); those that look alike are read as columns
(`columns`), the others are explained one by one (`explain`). A row is in exactly one place
afterwards: its columns and its rescued data, the corrupt record column, or, as the options say,
dropped and counted, `badRecordsPath`, or the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from airflow_cloudfiles.engine.formats.base import (
    BadRecord,
    OpenedFile,
    ReadCounts,
    UnknownFields,
)
from airflow_cloudfiles.engine.formats.record_policy import check_corrupt_column
from airflow_cloudfiles.engine.formats.scalars.exact_numbers import NumberRule
from airflow_cloudfiles.engine.formats.xml.block import Block, Rules
from airflow_cloudfiles.engine.formats.xml.casts import TextCasts
from airflow_cloudfiles.engine.formats.xml.columns import Columns
from airflow_cloudfiles.engine.formats.xml.explain import Explainer
from airflow_cloudfiles.engine.formats.xml.fields import Fields
from airflow_cloudfiles.engine.formats.xml.rows import Rows, RowScanner
from airflow_cloudfiles.engine.formats.xml.shape import compile_struct
from airflow_cloudfiles.engine.formats.xml.validate import RowValidator
from airflow_cloudfiles.engine.formats.xml.variant import VariantExplainer, check_column
from airflow_cloudfiles.engine.options.cloud_files import WATCHING_MODES, CloudFilesOptions
from airflow_cloudfiles.engine.options.formats.xml import XmlOptions
from airflow_cloudfiles.engine.types import to_arrow

_LARGEST_BATCH: Final = 16_384
"""Rows in a batch: Spark keeps a few of them in memory."""


class XmlReader:
    """Reads XML files with one schema.

    Args:
        data_schema: The columns to fill: without partition columns and rescued data column. A
            column named as `columnNameOfCorruptRecord` takes corrupt records.
        options: Mode, evolution mode, case sensitivity, names of the special columns, `rowTag`.
        is_thorough: Whether every row is explained one by one, which is slow and gives the same.

    Attributes:
        arrow_schema: Of the batches: the data columns, then the rescued data column if any.
        counts: What was read so far.
        bad_records: Corrupt records, where `badRecordsPath` is set; whoever stores them empties it.

    Raises:
        IncompatibleSchemaError: A column has a type that XML cannot be read into.
        OptionError: A date pattern, a time zone or a locale is none; the extra `xml` is missing.
    """

    def __init__(
        self, data_schema: StructType, options: CloudFilesOptions, *, is_thorough: bool = False
    ) -> None:
        own = cast("XmlOptions", options.format_options)
        rescued, corrupt = options.rescued_data_column, options.corrupt_record_column
        check_corrupt_column(data_schema, corrupt)
        extra = [] if rescued is None else [StructField(rescued, StringType())]
        self.arrow_schema: pa.Schema = to_arrow(StructType([*data_schema.fields, *extra]))
        self.counts = ReadCounts()
        self.bad_records: list[BadRecord] = []
        self._options = options
        self._own = own
        parsed = StructType([each for each in data_schema.fields if each.name != corrupt])
        casts = TextCasts(own, NumberRule.of(options), exact=rescued is not None)
        self._locale = casts.locale
        place = self.arrow_schema.get_field_index(corrupt)
        single = options.single_variant_column
        if single is not None:
            check_column(parsed, single)
        columns = parsed if single is None else StructType([])
        self._shape = compile_struct(columns, casts.converter, options.matcher)
        self._fields = Fields(own)
        self._rules = Rules(
            mode=options.mode,
            rescues=rescued is not None,
            keeps_bad_records=options.bad_records_path is not None,
            corrupt_name=corrupt,
            corrupt_place=place if place >= 0 else None,
            arrow_schema=self.arrow_schema,
            parsed_type=pa.struct(list(to_arrow(parsed))),
        )
        # Unknown fields nobody wants to see again need not be looked at, unless one of them may
        # be a column in another case.
        ignores = (
            options.schema_evolution_mode == "none"
            and rescued is None
            and options.reader_case_sensitive
        )
        self._columns = (
            None
            if is_thorough or single is not None
            else Columns(
                self._shape,
                self._rules.parsed_type,
                own,
                casts,
                case_sensitive=options.reader_case_sensitive,
                ignores_unknown=ignores,
            )
        )
        self._scanner = RowScanner(own.row_tag, ignore_namespace=own.ignore_namespace)
        path = own.row_validation_xsd_path
        self._validator = None if path is None else RowValidator(path)
        self._reserved = options.matcher.keys(options.reserved_columns)

    def read_file(
        self, file: OpenedFile, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read one file.

        Reading it again gives the same batches; only `counts` and `bad_records` go on growing.

        Args:
            file: The file.
            start: 0: a file is read whole.
            end: `None`.

        Raises:
            UnknownFields: There are new fields, in a mode that must know.
            CorruptRecordError: A row is no record, in mode `FAILFAST`.
            FileUnreadableError: The file is damaged, or a row is larger than `MAX_ROW_BYTES`.
        """
        if start or end is not None:
            raise ValueError("an XML file is read whole")
        for rows in self._scanner.rows(file, self._own.encoding):
            if self._validator is not None:
                self._validator.check(rows)
            for part in rows.parts(_LARGEST_BATCH):
                yield self._read(part, file.uri)

    def _read(self, rows: Rows, file_uri: str) -> pa.RecordBatch:
        explainer = self._explainer()
        block = Block(self._rules, self._columns, explainer, rows, file_uri)
        batch = block.read()
        if explainer.new_fields:
            raise UnknownFields(explainer.new_fields, file_uri)
        self.bad_records += block.bad_records
        self.counts.rows += block.counts.rows
        self.counts.rescued_rows += block.counts.rescued_rows
        self.counts.corrupt_records += block.counts.corrupt_records
        self.counts.dropped_records += block.counts.dropped_records
        return batch

    def _explainer(self) -> Explainer | VariantExplainer:
        single = self._options.single_variant_column
        if single is not None:
            return VariantExplainer(single, self._fields, self._locale)
        return Explainer(
            self._shape,
            self._fields,
            case_sensitive=self._options.reader_case_sensitive,
            collects_new=self._options.schema_evolution_mode in WATCHING_MODES,
            reserved=self._reserved,
        )
