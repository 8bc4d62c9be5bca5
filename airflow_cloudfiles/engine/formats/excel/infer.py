"""Infer the columns of workbooks, and their types.

The names are those of the headers of all wanted sheets, in the order of their first appearance; a
sheet without a header has `_c1`, `_c2` and so on. All are strings, for which only headers are read,
unless `cloudFiles.inferColumnTypes` is set; then every cell is looked at.

A column gets the type that would hold its cells.

Workbooks say what a cell is: a number, a boolean, a date. Whole numbers are INT, BIGINT or a
decimal by their size, fractions doubles (with `prefersDecimal` decimals, if they fit). A cell of
text is a string, whatever it looks like, unless `dateFormat` or `timestampFormat` says that texts
are dates: `007` stays as it is.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast

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
    NullType,
    StringType,
    TimestampType,
)

from airflow_cloudfiles.engine.formats.excel.cells import CellConverters, CellKind, kept_digits
from airflow_cloudfiles.engine.formats.excel.workbook import names_of, tables
from airflow_cloudfiles.engine.formats.record_policy import SPARK
from airflow_cloudfiles.engine.formats.scalars import decimal_type
from airflow_cloudfiles.engine.formats.tables import STRING, TableInference
from airflow_cloudfiles.engine.types import MAX_DECIMAL_PRECISION, merge_types

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.formats.base import OpenedFile
    from airflow_cloudfiles.engine.formats.excel.workbook import SheetRows, Table
    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.options.formats.excel import ExcelOptions


class ExcelInference(TableInference["SheetRows"]):
    """Learns the schema of workbooks.

    Args:
        options: Which cells are read, and whether columns are typed.
        known: A schema the files are read with already; what they have besides is appended to it,
            its own types stay.

    Raises:
        OptionError: A pattern, a time zone or a locale that does not exist.
    """

    def __init__(self, options: CloudFilesOptions, known: StructType | None = None) -> None:
        self._own = cast("ExcelOptions", options.format_options)
        finder = CellTypeFinder(self._own) if options.infer_column_types else None
        super().__init__(options, known, finder)

    def add_file(self, file: OpenedFile) -> Generator[int]:
        """Learn from one file, some rows after the other.

        Raises:
            FileUnreadableError: The file is no workbook, damaged, or lacks the sheet.
        """
        for _, table in tables(file, self._own):
            if self._own.header_rows:
                yield from self._learn_header(table)
            else:
                yield from self._learn_positions(table)

    def _learn_header(self, table: Table) -> Generator[int]:
        names: tuple[str, ...] = ()
        for rows in table.rows():
            if not names:
                names = names_of(table, self._matcher)
                self._learn_names(names)
            if self._finder is None:
                yield 0
                return
            first_of: dict[str, int] = {}
            for place, name in enumerate(names, table.first):
                first_of.setdefault(self._matcher.key(name), place)
            self._learn_types(rows, {place: key for key, place in first_of.items()})
            if rows.count:
                yield rows.texts.nbytes
        self._learn_names(names_of(table, self._matcher))

    def _learn_positions(self, table: Table) -> Generator[int]:
        address = self._own.data_address
        if address.left is not None and address.right is not None:
            self._learn_names(f"_c{each + 1}" for each in range(address.right - address.left + 1))
        for rows in table.rows():
            columns = sorted(set(rows.columns.tolist()))
            self._learn_names(f"_c{each + 1}" for each in columns)
            self._learn_types(rows, {each: self._matcher.key(f"_c{each + 1}") for each in columns})
            yield rows.texts.nbytes

    def _learn_types(self, rows: SheetRows, keys: dict[int, str]) -> None:
        if self._finder is None:
            return
        for column, cells in rows.by_column():
            self._learn_type(keys.get(column), cells)


_SIMPLE: Final[dict[CellKind, DataType]] = {
    CellKind.BOOLEAN: BooleanType(),
    CellKind.DATE: DateType(),
    CellKind.TIMESTAMP: TimestampType(),
    CellKind.TIME: STRING,
    CellKind.ERROR: NullType(),
    CellKind.INVALID: NullType(),
}
_WHOLE: Final = r"^-?[0-9]+$"
_LONG_DIGITS: Final = 18


class CellTypeFinder:
    """Finds the types of cells.

    Args:
        options: Patterns of times, and what fractions are.

    Raises:
        OptionError: A pattern, a time zone or a locale that does not exist.
    """

    def __init__(self, options: ExcelOptions) -> None:
        self._options = options
        self._times = CellConverters(options, SPARK, exact=True).times

    def of(self, cells: SheetRows, known: DataType) -> DataType:
        """Find the type that holds these cells and what is of a known type."""
        found = known
        for each in pc.unique(pa.array(cells.kinds)).to_pylist():
            if isinstance(found, StringType):
                break
            found = self.merge(found, self._of_kind(cells, CellKind(each)))
        return found

    def merge(self, left: DataType, right: DataType) -> DataType:
        """Find the type that holds the values of both."""
        if {type(left), type(right)} == {DateType, TimestampType}:
            return TimestampType()
        return merge_types(left, right)

    def _of_kind(self, cells: SheetRows, kind: CellKind) -> DataType:
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        texts = cells.texts.filter(pa.array(cells.kinds == kind))
        return self._of_numbers(texts) if kind is CellKind.NUMBER else self._of_texts(texts)

    def _of_numbers(self, texts: pa.StringArray) -> DataType:
        is_whole = pc.match_substring_regex(texts, _WHOLE)
        found = _of_whole(texts.filter(is_whole))
        fractions = texts.filter(pc.invert(is_whole))
        if not len(fractions):
            return found
        if not self._options.prefers_decimal:
            return self.merge(found, DoubleType())
        for text in kept_digits(fractions).unique().to_pylist():
            found = self.merge(found, decimal_type(Decimal(text)))
            if isinstance(found, DoubleType):
                break
        return found

    def _of_texts(self, texts: pa.StringArray) -> DataType:
        """Return a string, unless there is a pattern that all texts follow."""
        if self._options.date_format is not None and all(
            self._times.date_days(each) is not None for each in texts.unique().to_pylist()
        ):
            return DateType()
        if self._options.timestamp_format is not None and all(
            self._times.timestamp_micros(each) is not None for each in texts.unique().to_pylist()
        ):
            return TimestampType()
        return STRING


def _of_whole(texts: pa.StringArray) -> DataType:
    if not len(texts):
        return NullType()
    digits = pc.max(pc.binary_length(pc.utf8_ltrim(texts, characters="-"))).as_py()
    if digits > _LONG_DIGITS:
        return DecimalType(digits, 0) if digits <= MAX_DECIMAL_PRECISION else DoubleType()
    ends = pc.min_max(texts.cast(pa.int64())).as_py()
    fits = ends["min"] >= -(2**31) and ends["max"] < 2**31
    return IntegerType() if fits else LongType()
