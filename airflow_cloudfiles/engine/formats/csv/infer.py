"""Which columns do these CSV files have, and of which types?

The names are those of the headers of all files, in the order of their first appearance (B9); a file
without a header has `_c0`, `_c1` and so on (B8). All are strings, for which only the headers are
read, unless `cloudFiles.inferColumnTypes` is set; then every value is looked at, column by column
as long as a column is not a string already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from airflow_cloudfiles.engine.formats.csv.columns import PlainReader, without
from airflow_cloudfiles.engine.formats.csv.lines import ODD, SKIPPED, Records
from airflow_cloudfiles.engine.formats.csv.parts import FileParts
from airflow_cloudfiles.engine.formats.csv.reader import has_header
from airflow_cloudfiles.engine.formats.csv.tokens import MalformedRecordError, Tokenizer
from airflow_cloudfiles.engine.formats.csv.types import TypeFinder
from airflow_cloudfiles.engine.formats.tables.header import safe_names
from airflow_cloudfiles.engine.formats.tables.inference import STRING, TableInference

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import OpenedFile
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.options.formats.csv import CsvOptions

__all__ = ["CsvInference"]


class CsvInference(TableInference[pa.StringArray]):
    """Learns the schema of CSV files.

    Args:
        options: How the files are written, and whether columns are typed.
        known: A schema the files are read with already; what they have besides is appended to it,
            its own types stay.

    Raises:
        OptionError: A pattern, a time zone or a locale that does not exist.
    """

    def __init__(self, options: CloudFilesOptions, known: StructType | None = None) -> None:
        self._options = options
        self._own = cast("CsvOptions", options.format_options)
        finder = TypeFinder(self._own) if options.infer_column_types else None
        super().__init__(options, known, finder)
        self._plain, self._tokens = PlainReader(self._own), Tokenizer(self._own)

    def add_file(self, file: OpenedFile) -> None:
        """Learn from one file.

        Raises:
            FileUnreadableError: The header cannot be read.
        """
        parts = FileParts(file, self._own, has_header=has_header(self._options))
        for records in parts.records():
            if parts.header is None:
                names = [f"_c{place}" for place in range(self._widest(records))]
            else:
                names = list(safe_names(parts.header, self._own.null_value, self._matcher))
            self._learn_names(names)
            wanted = self._wanted(names)
            if self._finder is None and parts.header is not None:
                return
            if wanted:
                self._learn_types(records, names, wanted)

    def _wanted(self, names: list[str]) -> list[int]:
        """The columns that are not known to be strings; of several with one name, the first."""
        places: dict[str, int] = {}
        for place, name in enumerate(names):
            places.setdefault(self._matcher.key(name), place)
        return [
            place
            for key, place in places.items()
            if not isinstance(self._types.get(key, STRING), StringType)
        ]

    def _learn_types(self, records: Records, names: list[str], wanted: list[int]) -> None:
        for place, strings in self._strings(records, len(names), wanted):
            self._learn_type(self._matcher.key(names[place]), strings)

    def _strings(
        self, records: Records, width: int, wanted: list[int]
    ) -> Iterator[tuple[int, pa.StringArray]]:
        """The strings of the wanted columns, of all records."""
        text = records.plain_text()
        if text and self._plain.can_read(text):
            plain = self._plain.read(text, width, wanted)
            yield from zip(wanted, plain.arrays, strict=True)
            if plain.ragged:
                records.kinds[(records.kinds == 0).nonzero()[0][plain.ragged]] = ODD
        elif text:
            records.kinds[records.kinds != SKIPPED] = ODD
        odd = [self._values(records, index) for index in records.of_kind(ODD).tolist()]
        for place in wanted if odd else []:
            values = [row[place] if place < len(row) else None for row in odd]
            yield place, without(pa.array(values, pa.string()), self._own.null_value)

    def _values(self, records: Records, index: int) -> list[str | None]:
        """The values of one record; none of one that is not valid, which the reader tells of."""
        try:
            return self._tokens.values(records.record(index).decode())
        except (UnicodeDecodeError, MalformedRecordError):
            return []

    def _widest(self, records: Records) -> int:
        """How many values the longest record has."""
        sep, quote = self._own.sep.encode(), self._own.quote.encode()
        widest = 0
        for index in (records.kinds != SKIPPED).nonzero()[0].tolist():
            record = records.record(index)
            if record.count(sep) >= widest:
                plain = not quote or quote not in record
                width = record.count(sep) + 1 if plain else len(self._values(records, index))
                widest = max(widest, width)
        return widest
