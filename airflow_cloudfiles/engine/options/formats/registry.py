"""Which options belong to which format?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from airflow_cloudfiles.engine.options.formats.avro import AvroOptions
from airflow_cloudfiles.engine.options.formats.base import FormatOptions
from airflow_cloudfiles.engine.options.formats.binary import BinaryOptions
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions
from airflow_cloudfiles.engine.options.formats.excel import ExcelOptions
from airflow_cloudfiles.engine.options.formats.json import JsonOptions
from airflow_cloudfiles.engine.options.formats.orc import OrcOptions
from airflow_cloudfiles.engine.options.formats.parquet import ParquetOptions
from airflow_cloudfiles.engine.options.formats.text import TextOptions
from airflow_cloudfiles.engine.options.formats.xml import XmlOptions

FORMATS: Mapping[str, type[FormatOptions]] = {
    "avro": AvroOptions,
    "binaryFile": BinaryOptions,
    "csv": CsvOptions,
    "excel": ExcelOptions,
    "json": JsonOptions,
    "orc": OrcOptions,
    "parquet": ParquetOptions,
    "text": TextOptions,
    "xml": XmlOptions,
}
"""The option class of each format, by the name in `cloudFiles.format`."""


@cache
def formats_by_option() -> Mapping[str, tuple[str, ...]]:
    """The formats that have an option, by its name in lower case."""
    found: dict[str, tuple[str, ...]] = {}
    for format_name, options in FORMATS.items():
        for name in options.names():
            found[name.lower()] = (*found.get(name.lower(), ()), format_name)
    return found
