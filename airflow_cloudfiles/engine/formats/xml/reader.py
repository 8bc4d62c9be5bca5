"""What is in the rows of an XML file?

Rows are cut out of the file (`rows`); those that look alike are read as columns
(`columns`), the others are explained one by one (`explain`). A row is in exactly one place
afterwards: its columns and its rescued data, the corrupt record column, or, as the options say,
dropped and counted, `badRecordsPath`, or the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.formats.base import OpenedFile
from airflow_cloudfiles.engine.formats.record_policy import (
    RecordOutcomes,
    RecordReader,
    require_variant_column,
)
from airflow_cloudfiles.engine.formats.scalars.exact_numbers import NumberRule
from airflow_cloudfiles.engine.formats.xml.block import XmlBlock
from airflow_cloudfiles.engine.formats.xml.casts import TextCasts
from airflow_cloudfiles.engine.formats.xml.columns import Columns
from airflow_cloudfiles.engine.formats.xml.explain import (
    VariantExplainer,
    XmlExplainer,
)
from airflow_cloudfiles.engine.formats.xml.rows import Rows, RowScanner
from airflow_cloudfiles.engine.formats.xml.shape import compile_struct
from airflow_cloudfiles.engine.formats.xml.tree import Fields
from airflow_cloudfiles.engine.formats.xml.validate import RowValidator
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from airflow_cloudfiles.engine.options.formats.xml import XmlOptions

_LARGEST_BATCH: Final = 16_384
"""Rows in a batch: Spark keeps a few of them in memory."""


class XmlReader(RecordReader):
    """Reads XML files with one schema; see `RecordReader`.

    Args:
        data_schema: The columns to fill.
        options: Of the source.
        is_thorough: Whether every row is explained one by one, which is slow and gives the same.

    Raises:
        IncompatibleSchemaError: A column has a type that XML cannot be read into.
        OptionError: A date pattern, a time zone or a locale is none; the extra `xml` is missing.
    """

    def __init__(
        self, data_schema: StructType, options: CloudFilesOptions, *, is_thorough: bool = False
    ) -> None:
        super().__init__(data_schema, options)
        own = cast("XmlOptions", options.format_options)
        self._own = own
        parsed = self._policy.parsed
        casts = TextCasts(own, NumberRule.of(options), exact=self._policy.rescues)
        self._locale = casts.locale
        single = options.single_variant_column
        if single is not None:
            require_variant_column(parsed, single)
        columns = parsed if single is None else StructType([])
        self._shape = compile_struct(columns, casts.converter, options.matcher)
        self._fields = Fields(own)
        self._columns = (
            None
            if is_thorough or single is not None
            else Columns(
                self._shape,
                self._policy.parsed_type,
                own,
                casts,
                case_sensitive=options.reader_case_sensitive,
                ignores_unknown=self._ignores_unknown,
                rescues=self._policy.rescues,
                rescues_unknown=self._policy.rescues and not self._watches,
            )
        )
        self._scanner = RowScanner(own.row_tag, ignore_namespace=own.ignore_namespace)
        path = own.row_validation_xsd_path
        self._validator = None if path is None else RowValidator(path)

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
        outcomes = RecordOutcomes(self._policy)
        return self._counted(
            XmlBlock(outcomes, self._columns, explainer, rows, file_uri).read(), outcomes
        )

    def _explainer(self) -> XmlExplainer | VariantExplainer:
        single = self._options.single_variant_column
        if single is not None:
            return VariantExplainer(single, self._fields, self._locale)
        return XmlExplainer(
            self._shape,
            self._fields,
            case_sensitive=self._options.reader_case_sensitive,
            collects_new=self._watches,
            reserved=self._reserved,
            left_out=self._left_out,
        )
