"""Which code reads which format?

Modules are imported when they are asked for: nobody pays for a format that is not read.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from airflow_cloudfiles.engine.format_options.json import JsonOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.formats.base import (
        BlockReader,
        FileReader,
        Inference,
        OpenedFile,
    )
    from airflow_cloudfiles.engine.options import CloudFilesOptions

_ROOM: Final = __package__
_READERS: Final = {
    "avro": ("avro_reader", "AvroReader"),
    "binaryFile": ("binary_reader", "BinaryReader"),
    "csv": ("csv_reader", "CsvReader"),
    "json": ("json_reader", "JsonReader"),
    "json document": ("json_document", "JsonDocumentReader"),
    "orc": ("orc_reader", "OrcReader"),
    "parquet": ("parquet_reader", "ParquetReader"),
    "text": ("text_reader", "TextReader"),
    "xml": ("xml_reader", "XmlReader"),
}
_INFERENCES: Final = {
    "avro": ("avro_infer", "AvroInference"),
    "binaryFile": ("binary_reader", "BinaryInference"),
    "csv": ("csv_infer", "CsvInference"),
    "json": ("json_infer", "JsonInference"),
    "json document": ("json_document", "JsonDocumentInference"),
    "orc": ("orc_infer", "OrcInference"),
    "parquet": ("parquet_infer", "ParquetInference"),
    "text": ("text_reader", "TextInference"),
    "xml": ("xml_infer", "XmlInference"),
}
LINES: Final = frozenset({"json"})
"""What is read in blocks of lines of many files; everything else file by file."""
RANDOM_ACCESS: Final = frozenset({"orc", "parquet"})
"""Formats that are not read from their beginning."""


def kind_of(options: CloudFilesOptions) -> str:
    """The format, told apart where options make another one of it."""
    own = options.format_options
    if isinstance(own, JsonOptions) and own.multi_line:
        return "json document"
    return options.format


def open_reader(
    data_schema: StructType, options: CloudFilesOptions
) -> tuple[BlockReader | None, FileReader | None]:
    """Build the reader of a format.

    Args:
        data_schema: The columns to fill: without partition columns and rescued data column.
        options: The options of the source.

    Returns:
        A reader of blocks, or else a reader of files; the other one is `None`.

    Raises:
        IncompatibleSchemaError: A column has a type that the format cannot be read into.
        OptionError: A package that the format needs is not installed.
    """
    kind = kind_of(options)
    reader = _load(*_READERS[kind])(data_schema, options)
    if kind in LINES:
        return cast("BlockReader", reader), None
    return None, cast("FileReader", reader)


def line_blocks(
    file: OpenedFile, options: CloudFilesOptions, start: int = 0, end: int | None = None
) -> Iterator[bytes]:
    """Blocks of lines for a reader of blocks, cut as the options say."""
    own = options.format_options
    if not isinstance(own, JsonOptions):
        return file.blocks(start, end)
    separator = None if own.line_sep is None else own.line_sep.encode()
    return file.blocks(start, end, encoding=own.encoding, separator=separator)


def open_inference(options: CloudFilesOptions, known: StructType | None = None) -> Inference:
    """Build what learns the schema of files.

    Args:
        options: The options of the source.
        known: The schema there is already: a value that does not fit it is a mismatch, and does
            not hide what else is new in the record.
    """
    return cast("Inference", _load(*_INFERENCES[kind_of(options)])(options, known))


def _load(module: str, name: str) -> Any:
    return getattr(import_module(f"{_ROOM}.{module}"), name)
