"""Make columns of strings of the values of plain records.

Arrow's CSV parser takes them apart; what it does not know about nulls and blanks is done here.

A string that fits its column type is converted.

The reference for every value: the conversions of Spark's CSV reader
(`UnivocityParser.makeConverter`, Spark 4.3), one string at a time. The columnar conversions of
`scalars` must agree with it for whatever they take on themselves, and hand the rest to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
from pyspark.sql.types import BinaryType, BooleanType, DataType, DoubleType, FloatType, StringType

from airflow_cloudfiles.engine.errors import IncompatibleSchemaError
from airflow_cloudfiles.engine.formats.csv.lines import BLANKS
from airflow_cloudfiles.engine.formats.datetimes.patterns import TimePatterns
from airflow_cloudfiles.engine.formats.record_policy import SPARK, NumberRule
from airflow_cloudfiles.engine.formats.scalars import (
    Convert,
    to_boolean,
    to_exact_number,
    to_floating,
    to_time,
)
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions
from airflow_cloudfiles.engine.types import short_type

_STAND_INS: Final = [bytes([each]) for each in (0x1F, 0x1E, 0x1D, 0x1C, 1, 2, 3, 4, 5, 6)]
_NO_TEXT: Final = pa.scalar(None, pa.string())


class PlainReader:
    """Reads plain records.

    Args:
        options: How records are written.
    """

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self._sep = options.sep.encode()
        self._has_simple_nulls = not (options.null_value or options.empty_value) and not (
            options.trims_start or options.trims_end
        )

    def can_read(self, text: bytes) -> bool:
        """Tell whether there is a way to read a text of plain records."""
        return self._stand_in(text) is not None

    def read(
        self, text: bytes, width: int, wanted: Sequence[int]
    ) -> tuple[list[pa.StringArray], list[int]]:
        """Read records of `width` values.

        Args:
            text: The records, in UTF-8, each with a line break after it.
            width: How many values each should have.
            wanted: The columns to return, by position.

        Returns:
            One array for each column that was wanted, and the positions of records with another
            number of values, which have no row there.
        """
        ragged: list[int] = []
        sep = self._stand_in(text)
        if sep is None:
            raise AssertionError("can_read was not asked")
        if sep != self._sep:
            text = text.replace(self._sep, sep)

        def note(row: arrow_csv.InvalidRow) -> str:
            ragged.append(row.number - 1)
            return "skip"

        names = [str(place) for place in range(width)]
        chosen = [names[place] for place in wanted] or names[:1]
        table = arrow_csv.read_csv(
            pa.BufferReader(text),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=len(text) + 1, column_names=names
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=sep.decode(),
                quote_char=self._options.quote or False,
                double_quote=self._options.escape == self._options.quote,
                newlines_in_values=self._options.multi_line,
                ignore_empty_lines=False,
                invalid_row_handler=note,
            ),
            convert_options=arrow_csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=chosen,
                strings_can_be_null=True,
                null_values=[""],
                quoted_strings_can_be_null=self._has_simple_nulls,
            ),
        )
        arrays = [_whole(table.column(name)) for name in chosen]
        if sep != self._sep:
            arrays = [_with_separators(each, sep, self._sep) for each in arrays]
        return [self._resolved(each) for each in arrays], ragged

    def _stand_in(self, text: bytes) -> bytes | None:
        """Return the separator, or for one of several characters a byte that does not occur."""
        if len(self._sep) == 1:
            return self._sep
        if not _is_found_by_searching(self._sep):
            return None
        return next((each for each in _STAND_INS if each not in text), None)

    def _resolved(self, array: pa.StringArray) -> pa.StringArray:
        """Apply the options on blanks and nulls to the strings."""
        if self._has_simple_nulls:
            return array
        options = self._options
        if options.trims_start or options.trims_end:
            array = self._trimmed(array)
        if options.empty_value:
            array = pc.if_else(pc.equal(array, ""), options.empty_value, array)
        return without(array, options.null_value)

    def _trimmed(self, array: pa.StringArray) -> pa.StringArray:
        """Trim blanks; a text of nothing else becomes null."""
        trimmed = array
        if self._options.trims_start:
            trimmed = pc.ascii_ltrim(trimmed, characters=BLANKS)
        if self._options.trims_end:
            trimmed = pc.ascii_rtrim(trimmed, characters=BLANKS)
        blank = pc.and_(pc.equal(trimmed, ""), pc.not_equal(array, ""))
        return pc.if_else(blank, _NO_TEXT, trimmed)


def without(array: pa.StringArray, null_value: str) -> pa.StringArray:
    """Replace the strings that stand for null by nulls."""
    return pc.if_else(pc.equal(array, null_value), _NO_TEXT, array)


def _whole(column: pa.ChunkedArray) -> pa.StringArray:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.string())


def _with_separators(array: pa.StringArray, stand_in: bytes, sep: bytes) -> pa.StringArray:
    """Separators inside of quoted values as they were."""
    found = pc.match_substring(array, stand_in.decode())
    if not pc.any(found).as_py():
        return array
    return pc.replace_substring(array, stand_in.decode(), sep.decode())


def _is_found_by_searching(sep: bytes) -> bool:
    """Tell whether univocity, which never steps back in a separator, finds what a search does."""
    if not sep.isascii():
        return False
    return len(set(sep)) == 1 or all(
        not sep[:end].endswith(sep[:length])
        for end in range(2, len(sep))
        for length in range(1, end)
    )


class CsvConverters:
    """The conversions to the types of columns, as the options say.

    Args:
        options: Words for what is no number, patterns and zone of times.
        numbers: Which numbers doubles and floats hold.
        exact: Whether a text that Spark would change does not fit.

    Raises:
        OptionError: A pattern, a zone or a locale that does not exist.
    """

    def __init__(
        self, options: CsvOptions, numbers: NumberRule = SPARK, *, exact: bool = True
    ) -> None:
        self._numbers, self._exact = numbers, exact
        self.times = TimePatterns(options, exact=exact)
        self._words = {
            options.positive_inf: math.inf,
            options.negative_inf: -math.inf,
            options.nan_value: math.nan,
        }

    def to(self, kind: DataType, column: str) -> Convert:
        """Find the conversion to the type of a column.

        Raises:
            IncompatibleSchemaError: A type that no single text is a value of.
        """
        simple: dict[type[DataType], Convert] = {
            StringType: str,
            BinaryType: str.encode,
            BooleanType: to_boolean,
        }
        if isinstance(kind, DoubleType | FloatType):
            is_float = isinstance(kind, FloatType)
            return to_floating(self._numbers, is_float=is_float, words=self._words)
        found = (
            simple.get(type(kind))
            or to_exact_number(kind, self.times.locale, exact=self._exact)
            or to_time(kind, self.times)
        )
        if found is not None:
            return found
        raise IncompatibleSchemaError(
            f"Column {column} has type {short_type(kind)}, but a value of a CSV file is one "
            "text. Give it an atomic type; a nested one can be parsed from a string column."
        )
