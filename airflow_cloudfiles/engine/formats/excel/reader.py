"""Read workbooks of Excel, and infer their columns and types.

The cells of each wanted sheet become record batches, some rows at a time (`workbook`). A row
is in exactly one place afterwards: in the batch with its rescued data; in the corrupt record
column; or, as the mode says, dropped and counted, or the error.

Cells are converted column by column. What does not fit its column, or has none, goes into the
rescued data column. A row with values beside the columns that a header names is not valid, as a
record of CSV with too many values: the mode says what becomes of it.

The names of inferred columns are those of the headers of all wanted sheets, in the order of their
first appearance; a sheet without a header has `_c1`, `_c2` and so on. All are strings, for which
only headers are read, unless `cloudFiles.inferColumnTypes` is set: then every cell is looked at,
and a column gets the type that would hold its cells.

Workbooks say what a cell is: a number, a boolean, a date. Whole numbers are INT, BIGINT or a
decimal by their size, fractions doubles (with `prefersDecimal` decimals, if they fit). A cell of
text is a string, whatever it looks like, unless `dateFormat` or `timestampFormat` says that texts
are dates: `007` stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
    NullType,
    StringType,
    TimestampType,
)

from airflow_cloudfiles.engine.formats.base import UnknownFields, cut_sample
from airflow_cloudfiles.engine.formats.columnar.reader import content_of
from airflow_cloudfiles.engine.formats.excel.cells import CellConverters, CellKind, kept_digits
from airflow_cloudfiles.engine.formats.excel.workbook import FORMAT, names_of, open_workbook, tables
from airflow_cloudfiles.engine.formats.fixed_columns import SHEETS, FixedColumnsReader
from airflow_cloudfiles.engine.formats.record_policy import (
    MISFIT_REASON,
    SPARK,
    NumberRule,
    RecordOutcomes,
)
from airflow_cloudfiles.engine.formats.scalars import decimal_type
from airflow_cloudfiles.engine.formats.tables import (
    STRING,
    RescuedCells,
    TableInference,
    TableReader,
    spread,
)
from airflow_cloudfiles.engine.messages import cut
from airflow_cloudfiles.engine.options.metadata_columns import SHEET_NAME
from airflow_cloudfiles.engine.types import MAX_DECIMAL_PRECISION, merge_types, to_arrow

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pyspark.sql.types import StructType

    from airflow_cloudfiles.engine.formats.base import OpenedFile, Positions
    from airflow_cloudfiles.engine.formats.excel.workbook import SheetRows, Table
    from airflow_cloudfiles.engine.formats.tables import TabularColumns
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
        finder = CellTypeFinder(self._own).of if options.infer_column_types else None
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
            found = merge_types(found, self._of_kind(cells, CellKind(each)), of_files=True)
        return found

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
            return merge_types(found, DoubleType())
        for text in kept_digits(fractions).unique().to_pylist():
            found = merge_types(found, decimal_type(Decimal(text)))
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


@dataclass(slots=True)
class SheetBlock:
    """Some rows of a sheet, read once.

    Attributes:
        reader: Says how they are read.
        outcomes: What becomes of them, still empty.
        columns: Of the sheet.
        first: Where the first of these columns is.
        rows: The rows.
        file_uri: Their file.
    """

    reader: ExcelReader
    outcomes: RecordOutcomes
    columns: TabularColumns
    first: int
    rows: SheetRows
    file_uri: str
    _rescued: RescuedCells = field(default_factory=RescuedCells)
    _misfits: set[int] = field(default_factory=set)

    def read(self) -> pa.RecordBatch:
        """Read everything.

        Raises:
            UnknownFields: There are new columns, in a mode that must know.
            CorruptRecordError: A record is not valid, in mode `FAILFAST`.
        """
        self._raise_for_new_columns()
        arrays = self._arrays()
        beside = self._rows_beside()
        self._resolve(beside)
        self.outcomes.counts.error_cells = int(
            np.isin(self.rows.kinds, (CellKind.ERROR, CellKind.INVALID)).sum()
        )
        return self._rescued.batch(self.outcomes, arrays, self.rows.count, self.file_uri)

    def _name(self, column: int) -> str:
        """Name a column of the file, also one that the header does not have."""
        place = column - self.first
        names = self.columns.names
        return names[place] if 0 <= place < len(names) else f"_c{column + 1}"

    def _raise_for_new_columns(self) -> None:
        if not self.reader.watches:
            return
        columns, rows = self.columns, self.rows
        there = {}
        if columns.new or columns.is_open:
            at = np.unique(rows.columns, return_index=True)
            there = dict(zip(at[0].tolist(), at[1].tolist(), strict=True))
        places = {self.first + each for each in columns.new}
        if columns.is_open:
            width = len(columns.names)
            places = {each for each in there if each in places or each >= width}
        new: dict[str, object] = {
            self._name(each): _sample(rows, there.get(each))
            for each in sorted(places)
            if self._name(each) not in self.reader.stay_rescued
        }
        if new:
            raise UnknownFields(new, self.file_uri)

    def _arrays(self) -> list[pa.Array]:
        """Build the parsed columns; what does not fit goes to the rescued data."""
        found: dict[int, pa.Array] = {}
        targets = self.columns.targets
        for column, cells in self.rows.by_column():
            place = column - self.first
            target = targets[place] if 0 <= place < len(targets) else None
            if target is None:
                self._lose(column, cells, np.flatnonzero(cells.kinds != CellKind.ERROR))
                continue
            array, lost = self.reader.casts[target](cells.texts, cells.kinds)
            found[target] = spread(array, cells.rows, self.rows.count)
            if len(lost):
                self._lose(column, cells, lost)
                self._misfits.update(cells.rows[lost].tolist())
        return [
            found[target] if target in found else pa.nulls(self.rows.count, cast.kind)
            for target, cast in enumerate(self.reader.casts)
        ]

    def _lose(self, column: int, cells: SheetRows, places: Positions) -> None:
        if self.outcomes.policy.rescues:
            self._rescued.add(
                self._name(column), cells.rows[places], cells.texts.take(pa.array(places))
            )

    def _rows_beside(self) -> list[int]:
        """Find the rows with values beside the columns of the header, or of the given schema."""
        if self.columns.is_open:
            return []
        places = self.rows.columns - self.first
        beside = (places < 0) | (places >= len(self.columns.names))
        beside &= self.rows.kinds != CellKind.ERROR
        found: list[int] = np.unique(self.rows.rows[beside]).tolist()
        return found

    def _resolve(self, beside: Sequence[int]) -> None:
        """Decide about rows that are not valid."""
        width = len(self.columns.names)
        for row in beside:
            text, reason = self._text(row), f"values beside the {width} columns that are named"
            dropped = self.outcomes.is_dropped(self.file_uri, text, reason, place=row, rows=[row])
            if not dropped and self.outcomes.policy.corrupt_position is not None:
                self.outcomes.keep(row, text)
        if not self.outcomes.policy.rescues:
            for row in sorted(self._misfits.difference(beside)):
                text = self._text(row)
                self.outcomes.drop_or_keep(self.file_uri, text, MISFIT_REASON, [row], place=row)

    def _text(self, row: int) -> str:
        """Format a row as a text: its values as JSON."""
        return json.dumps(self.rows.texts_of(row), ensure_ascii=False)


def _sample(rows: SheetRows, place: int | None) -> str | None:
    """Format a value for a message, cut off when it is long."""
    return None if place is None else cut_sample(rows.texts[place].as_py())


_SHEET_CHARACTERS: Final = 60


class ExcelReader(TableReader):
    """Reads workbooks with one schema.

    Reading the same file again gives the same batches; only `counts` goes on growing.

    Args:
        data_schema: The columns to fill: without partition columns and rescued data column. A
            column named as `columnNameOfCorruptRecord` takes corrupt records.
        options: Mode, evolution mode, case sensitivity, the names of the special columns, and
            which cells are read.

    Attributes:
        arrow_schema: Of the batches: the data columns, then the rescued data column if any.
        counts: What was read so far.
        bad_records: What `badRecordsPath` takes; whoever writes it empties the list.
        casts: Of the parsed columns, in their order.

    Raises:
        IncompatibleSchemaError: A column has a type that no cell is a value of.
        OptionError: A pattern, a time zone or a locale that does not exist.
    """

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        super().__init__(data_schema, options, first=1)
        self._own = own = cast("ExcelOptions", options.format_options)
        parsed = self._policy.parsed
        converters = CellConverters(own, NumberRule.of(options), exact=self._policy.rescues)
        self.casts = [
            converters.to(each.dataType, arrow.type, each.name)
            for each, arrow in zip(parsed.fields, to_arrow(parsed), strict=True)
        ]

    def read_file(
        self, file: OpenedFile, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read one file, of which there are no parts.

        Raises:
            UnknownFields: The file has new columns, in a mode that must know.
            CorruptRecordError: A record is not valid, in mode `FAILFAST`.
            FileUnreadableError: The file is no workbook, damaged, or lacks the sheet.
        """
        del end  # of the protocol
        if start:
            return
        for sheet, table in tables(file, self._own):
            for batch in self._batches(table, file.uri, sheet):
                yield of_sheet(batch, sheet, self._options)

    def _batches(self, table: Table, uri: str, sheet: str) -> Iterator[pa.RecordBatch]:
        columns: TabularColumns | None = None
        for rows in table.rows():
            columns = columns or self._columns(table.header, first=table.first + 1)
            outcomes = RecordOutcomes(self._policy)
            batch = SheetBlock(self, outcomes, columns, table.first, rows, uri).read()
            found = outcomes.first_error(int)
            if found is not None and self.first_error is None:
                row, error = found
                reason = f"{error.reason}, in sheet {cut(sheet, _SHEET_CHARACTERS)}"
                self.first_error = replace(error, reason=reason, line=rows.first + row + 1)
            if self._counted(batch, outcomes).num_rows:
                yield batch


class SheetListReader(FixedColumnsReader):
    """Reads which sheets workbooks have, in some or all of the columns of `listSheets`."""

    WHAT = "operation=listSheets"
    COLUMNS = SHEETS

    def __init__(self, data_schema: StructType, options: CloudFilesOptions) -> None:
        super().__init__(data_schema, options)
        self._own = cast("ExcelOptions", options.format_options)

    def read_file(
        self, file: OpenedFile, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read one file: a row for each sheet, in their order.

        Raises:
            FileUnreadableError: The file is no workbook, or damaged.
        """
        del end  # of the protocol
        if start or not file.entry.size:
            return
        with content_of(file, FORMAT) as content:
            names = open_workbook(content, self._own.max_record_bytes).sheets
        for place, name in enumerate(names):
            batch = self._row({"sheetIndex": place, "sheetName": name})
            yield of_sheet(batch, name, self._options)


def of_sheet(batch: pa.RecordBatch, sheet: str, options: CloudFilesOptions) -> pa.RecordBatch:
    """Add to a batch which sheet it is of, where a column asks for it."""
    if not options.metadata_columns:
        return batch
    return batch.replace_schema_metadata({SHEET_NAME: sheet})
