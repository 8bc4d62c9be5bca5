"""Say which options belong to which format, and declare those of binary files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from airflow_cloudfiles.engine.options.formats.base import FormatOptions
from airflow_cloudfiles.engine.options.formats.columnar import (
    AvroOptions,
    OrcOptions,
    ParquetOptions,
)
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions
from airflow_cloudfiles.engine.options.formats.excel import ExcelOptions
from airflow_cloudfiles.engine.options.formats.json import JsonOptions
from airflow_cloudfiles.engine.options.formats.text import TextOptions
from airflow_cloudfiles.engine.options.formats.xml import XmlOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryOptions(FormatOptions):
    """The validated options of binary files: there are none."""

    INFERS_SCHEMA: ClassVar[bool] = False


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
    """List the formats that have an option, by its name in lower case."""
    found: dict[str, tuple[str, ...]] = {}
    for format_name, options in FORMATS.items():
        for name in options.names():
            found[name.lower()] = (*found.get(name.lower(), ()), format_name)
    return found
