"""Find the code that reads a format.

Modules are imported when they are asked for: nobody pays for a format that is not read.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.sql.types import StructField, StructType

from airflow_cloudfiles.engine.formats.fixed_columns import BINARY_FILE, SHEETS, TEXT
from airflow_cloudfiles.engine.options.formats.excel import ExcelOptions
from airflow_cloudfiles.engine.options.formats.nested import JsonOptions
from airflow_cloudfiles.engine.types import VariantType

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import BlockReader, FileReader, Inference
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

_READERS: Final = {
    "avro": "avro.reader.AvroReader",
    "binaryFile": "fixed_columns.BinaryReader",
    "csv": "csv.reader.CsvReader",
    "excel": "excel.reader.ExcelReader",
    "excel sheets": "excel.reader.SheetListReader",
    "json": "json.reader.JsonReader",
    "json document": "json.document.JsonDocumentReader",
    "json variant": "json.document.JsonVariantReader",
    "orc": "orc.OrcReader",
    "parquet": "parquet.file.ParquetReader",
    "text": "fixed_columns.TextReader",
    "xml": "xml.reader.XmlReader",
}
_INFERENCES: Final = {
    "avro": "avro.reader.AvroInference",
    "csv": "csv.infer.CsvInference",
    "excel": "excel.reader.ExcelInference",
    "json": "json.infer.JsonInference",
    "json document": "json.document.JsonDocumentInference",
    "orc": "orc.OrcInference",
    "parquet": "parquet.file.ParquetInference",
    "xml": "xml.infer.XmlInference",
}


def kind_of(options: CloudFilesOptions) -> str:
    """Name the format, distinguished where options make another one of it."""
    own = options.format_options
    if isinstance(own, JsonOptions) and own.multi_line:
        return "json document"
    if isinstance(own, ExcelOptions) and own.lists_sheets:
        return "excel sheets"
    return options.format


def open_reader(data_schema: StructType, options: CloudFilesOptions) -> BlockReader | FileReader:
    """Build the reader of a format.

    Args:
        data_schema: The columns to fill: without partition columns and rescued data column.
        options: The options of the source.

    Raises:
        IncompatibleSchemaError: A column has a type that the format cannot be read into.
        OptionError: A package that the format needs is not installed.
    """
    kind = kind_of(options)
    if kind == "json" and options.single_variant_column is not None:
        kind = "json variant"
    return cast("BlockReader | FileReader", _load(_READERS[kind])(data_schema, options))


def fixed_schema(options: CloudFilesOptions) -> StructType | None:
    """Return the columns of a format whose files all have the same ones, otherwise `None`.

    As Spark's own sources for `text` and `binaryFile` (B14); one column with `singleVariantColumn`;
    a row for each sheet with `operation=listSheets`.
    """
    if options.single_variant_column is not None:
        return StructType([StructField(options.single_variant_column, VariantType())])
    if kind_of(options) == "excel sheets":
        return SHEETS
    if options.format == "text":
        return TEXT
    if options.format == "binaryFile":
        return BINARY_FILE
    return None


def open_inference(options: CloudFilesOptions, known: StructType | None = None) -> Inference:
    """Build what learns the schema of files.

    Args:
        options: The options of the source.
        known: The schema there is already: a value that does not fit it is a mismatch, and does
            not hide what else is new in the record.
    """
    return cast("Inference", _load(_INFERENCES[kind_of(options)])(options, known))


def _load(place: str) -> Any:
    module, _, name = place.rpartition(".")
    return getattr(import_module(f"{__package__}.{module}"), name)
