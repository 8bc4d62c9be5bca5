"""Infer the columns of CSV files, and their types.

The names are those of the headers of all files, in the order of their first appearance (B9); a file
without a header has `_c0`, `_c1` and so on (B8). All are strings, for which only the headers are
read, unless `cloudFiles.inferColumnTypes` is set; then every value is looked at, column by column
as long as a column is not a string already.

A column gets the type that would hold its strings.

The order of trial is Spark's (`CSVInferSchema`, Spark 4.3): int, long, decimal without fraction,
double (with `prefersDecimal` a decimal, if it fits), date, timestamp, boolean, string. Spark's
result depends on the order of the values; here each value has a type of its own, and types are
merged, so that it does not.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from airflow_cloudfiles.engine.formats.csv.columns import CsvConverters, PlainReader, without
from airflow_cloudfiles.engine.formats.csv.lines import (
    ODD,
    SKIPPED,
    MalformedRecordError,
    Records,
    Tokenizer,
)
from airflow_cloudfiles.engine.formats.csv.parts import FileParts
from airflow_cloudfiles.engine.formats.csv.reader import has_header
from airflow_cloudfiles.engine.formats.datetimes.default_format import ENGLISH
from airflow_cloudfiles.engine.formats.scalars import (
    MISFIT,
    Cast,
    data_of,
    decimal_text,
    decimal_type,
    integer_type,
    java_double,
    only_has,
)
from airflow_cloudfiles.engine.formats.tables import STRING, TableInference, safe_names
from airflow_cloudfiles.engine.types import MAX_DECIMAL_PRECISION, merge_types

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import OpenedFile
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.options.formats.csv import CsvOptions


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
        finder = StringTypeFinder(self._own).of if options.infer_column_types else None
        super().__init__(options, known, finder)
        self._plain, self._tokens = PlainReader(self._own), Tokenizer(self._own)

    def add_file(self, file: OpenedFile) -> Generator[int]:
        """Learn from one file, block by block.

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
                yield 0
                return
            if wanted:
                for place, strings in self._strings(records, len(names), wanted):
                    self._learn_type(self._matcher.key(names[place]), strings)
            yield len(records.text)

    def _wanted(self, names: list[str]) -> list[int]:
        """List the columns not known to be strings; of several with one name, the first."""
        places: dict[str, int] = {}
        for place, name in enumerate(names):
            places.setdefault(self._matcher.key(name), place)
        return [
            place
            for key, place in places.items()
            if not isinstance(self._types.get(key, STRING), StringType)
        ]

    def _strings(
        self, records: Records, width: int, wanted: list[int]
    ) -> Iterator[tuple[int, pa.StringArray]]:
        """Yield the strings of the wanted columns, of all records."""
        text = records.plain_text()
        if text and self._plain.can_read(text):
            arrays, ragged = self._plain.read(text, width, wanted)
            yield from zip(wanted, arrays, strict=True)
            if ragged:
                records.kinds[(records.kinds == 0).nonzero()[0][ragged]] = ODD
        elif text:
            records.kinds[records.kinds != SKIPPED] = ODD
        odd = [self._values(records, index) for index in records.of_kind(ODD).tolist()]
        for place in wanted if odd else []:
            values = [row[place] if place < len(row) else None for row in odd]
            yield place, without(pa.array(values, pa.string()), self._own.null_value)

    def _values(self, records: Records, index: int) -> list[str | None]:
        """Split one record into values; none if it is not valid, which the reader reports."""
        try:
            return self._tokens.values(records.record(index).decode())
        except (UnicodeDecodeError, MalformedRecordError):
            return []

    def _widest(self, records: Records) -> int:
        """Count the values of the longest record."""
        sep, quote = self._own.sep.encode(), self._own.quote.encode()
        widest = 0
        for index in (records.kinds != SKIPPED).nonzero()[0].tolist():
            record = records.record(index)
            if record.count(sep) >= widest:
                plain = not quote or quote not in record
                width = record.count(sep) + 1 if plain else len(self._values(records, index))
                widest = max(widest, width)
        return widest


_SAMPLE: Final = 100
"""So many strings are looked at one by one to find a type that the others are then checked for."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ISO_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_ISO_LENGTH: Final = 10
_ISO_DASHES: Final = (4, 7)
_DATES_AS_TIMESTAMPS: Final = frozenset(
    {"yyyy-MM-dd", "yyyy-M-d", "yyyy-M-dd", "yyyy-MM-d", "yyyy-MM", "yyyy-M", "yyyy"}
)
"""Patterns whose dates the default timestamp parser takes too."""
_ARROW: Final[dict[type[DataType], pa.DataType]] = {
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    DoubleType: pa.float64(),
    BooleanType: pa.bool_(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", "UTC"),
}


class StringTypeFinder:
    """Finds the types of strings.

    Args:
        options: Words for what is no number, patterns of times.
    """

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self._converters = CsvConverters(options)
        self._locale = self._converters.times.locale
        self._words = {options.nan_value, options.positive_inf, options.negative_inf}
        self._iso_date = re.compile(_ISO_DATE) if options.date_format is None else None
        self._merges_dates = (
            options.timestamp_format is None
            and (options.date_format or "yyyy-MM-dd") in _DATES_AS_TIMESTAMPS
        )

    def of(self, strings: pa.StringArray, known: DataType) -> DataType:
        """Find the type that holds these strings and what is of a known type.

        Nulls and empty strings say nothing.
        """
        strings = strings.filter(pc.not_equal(strings, ""))
        found = self._of_all(strings[:_SAMPLE], known)
        rest = strings[_SAMPLE:]
        while len(rest) and not isinstance(found, StringType):
            rest = self._unlike(rest, found)
            some = rest[:_SAMPLE]
            found = self._of_all(some, found)
            rest = rest[len(some) :]
        return found

    def _of_all(self, strings: pa.StringArray, known: DataType) -> DataType:
        """Look at each distinct text."""
        found = known
        for text in strings.unique().to_pylist():
            found = self.merge(found, self.of_one(text))
            if isinstance(found, StringType):
                break
        return found

    def _unlike(self, strings: pa.StringArray, kind: DataType) -> pa.StringArray:
        """Select the strings that may not be of a type, at least."""
        if isinstance(kind, DateType) and self._iso_date is not None and not _are_iso(strings):
            like = pc.match_substring_regex(strings, _ISO_DATE)
            if not pc.all(like).as_py():
                return strings.filter(pc.invert(like))
        arrow = _ARROW.get(type(kind))
        if arrow is None or not len(strings):
            return strings
        cast = Cast(arrow, self._converters.to(kind, ""), self._converters.times)
        _, misfits = cast(strings)
        return strings.take(pa.array(misfits))

    def of_one(self, text: str) -> DataType:
        """Find the type of one text that is neither null nor empty."""
        if _INTEGER.fullmatch(text) and len(text) <= MAX_DECIMAL_PRECISION + 1:
            return integer_type(int(text), IntegerType)
        # As in Spark: a comma between thousands is no number of English here.
        plain = text if self._locale is ENGLISH else decimal_text(text, self._locale)
        number = _NUMBER.fullmatch(plain)
        if number is not None and number[2] is None:
            digits = number[1].removesuffix(".").lstrip("0")
            if "." not in digits and len(digits) <= MAX_DECIMAL_PRECISION:
                return DecimalType(max(1, len(digits)), 0)
        if number is not None and self._options.prefers_decimal:
            return decimal_type(Decimal(plain))
        if _NUMBER.fullmatch(text) or text in self._words or java_double(text) is not None:
            return DoubleType()
        if (found := self._time_type(text)) is not None:
            return found
        is_boolean = self._converters.to(BooleanType(), "")(text) is not MISFIT
        return BooleanType() if is_boolean else STRING

    def _time_type(self, text: str) -> DataType | None:
        times = self._converters.times
        is_date = self._options.prefer_date and (
            self._iso_date is None or self._iso_date.fullmatch(text) is not None
        )
        if is_date and times.date_days(text) is not None:
            return DateType()
        return None if times.timestamp_micros(text) is None else TimestampType()

    def merge(self, left: DataType, right: DataType) -> DataType:
        """Find the type that holds the values of both."""
        are_times = {type(left), type(right)} == {DateType, TimestampType}
        if are_times and not self._merges_dates:
            return STRING
        return merge_types(left, right, of_files=True)


def _are_iso(strings: pa.StringArray) -> bool:
    """Tell whether all strings have the shape of `2024-01-31`, if they are dates at all."""
    ends = pc.min_max(pc.binary_length(strings)).as_py()
    if set(ends.values()) != {_ISO_LENGTH} or not only_has(strings, b"-0123456789"):
        return False
    characters = np.frombuffer(data_of(strings), np.uint8).reshape(-1, _ISO_LENGTH)
    return bool((characters[:, _ISO_DASHES] == ord("-")).all())
