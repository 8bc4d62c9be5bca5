"""Say which options belong to which format, and declare those of plain text and binary files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.declared import option
from airflow_cloudfiles.engine.options.formats.base import (
    UTF8,
    FormatOptions,
    charset,
    overlaps_itself,
)
from airflow_cloudfiles.engine.options.formats.columnar import (
    AvroOptions,
    OrcOptions,
    ParquetOptions,
)
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions
from airflow_cloudfiles.engine.options.formats.excel import ExcelOptions
from airflow_cloudfiles.engine.options.formats.nested import JsonOptions, XmlOptions
from airflow_cloudfiles.engine.options.values import GIB, boolean, record_size, separator


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions(FormatOptions):
    """The validated options of plain text."""

    encoding: str = option(
        "encoding", replace(charset, ignores_empty=False), default=UTF8, also=("charset",)
    )
    """Encoding of the files, for instance `UTF-16LE` or `ISO-8859-1`. Only UTF-8 is read in parts.
    A file with the byte order mark of UTF-16 or UTF-32 is read as that where none is given."""
    line_sep: str | None = option("lineSep", separator, default=None, shown=r"`\n`, `\r\n` or `\r`")
    """What ends a line."""
    max_record_bytes: int = option("maxRecordBytes", record_size, default=GIB, shown="1g")
    """The most bytes of a line, or of a file with `wholeText`; `1g` at most. Ours.
    A small compressed file may describe a record of any size, and reading it takes about five times
    as much memory."""
    whole_text: bool = option("wholeText", boolean, default=False)
    """Whether a file is one row, with its whole content; otherwise a line is."""

    INFERS_SCHEMA: ClassVar[bool] = False

    def _check(self) -> None:
        if self.whole_text and self.line_sep is not None:
            raise OptionError(
                f"lineSep={self.line_sep!r} splits a file into many rows, wholeText=true makes it "
                "one. Leave one of them out."
            )

    def can_split(self) -> bool:
        """Tell whether large files may be read in parts."""
        cannot_be_found = self.line_sep is not None and overlaps_itself(self.line_sep.encode())
        return not self.whole_text and self.encoding == UTF8 and not cannot_be_found


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryOptions(FormatOptions):
    """The validated options of binary files."""

    whole_file: bool = option("wholeFile", boolean, default=True)
    """Whether an archive is one row, with its bytes; otherwise each file in it is a row. As in
    Spark 4.3."""

    INFERS_SCHEMA: ClassVar[bool] = False

    def reads_archives(self) -> bool:
        """Tell whether of an archive its members are read, rather than itself."""
        return not self.whole_file


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
