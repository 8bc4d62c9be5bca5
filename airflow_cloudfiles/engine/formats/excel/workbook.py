"""Open a workbook of whatever kind, and give the sheets that are wanted.

A file is known by its content, whatever its name says. Reading and inference share this: a file is
opened, and each sheet that is wanted is a table of its own, with its own header.

Cells become rows: rows without a cell are rows of nulls in the middle of a sheet, and no rows at
its end. Without a range the first row is the first that is not empty; columns are counted from `A`
on. In a range both are counted from its first cell.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import IO, TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.formats.columnar.reader import content_of, reading
from airflow_cloudfiles.engine.formats.excel.cells import (
    CellKind,
    Cells,
    DamagedWorkbookError,
)
from airflow_cloudfiles.engine.formats.excel.xlsx import Package, Relations, XlsxWorkbook
from airflow_cloudfiles.engine.formats.recognize import OLE_MARK, ZIP_MARK
from airflow_cloudfiles.engine.formats.tables import safe_names
from airflow_cloudfiles.engine.messages import cut, more
from airflow_cloudfiles.engine.options.formats.excel import MAX_COLUMNS, MAX_ROWS

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import Bytes, OpenedFile, Positions
    from airflow_cloudfiles.engine.names import NameMatcher
    from airflow_cloudfiles.engine.options.formats.excel import Address, ExcelOptions

_MOST_ROWS: Final = 2**16
"""Rows of a batch at most, also of empty ones."""


@dataclass(frozen=True, slots=True)
class SheetRows:
    """Some rows of a sheet.

    Attributes:
        count: How many.
        rows: Of each cell, the row, from 0 within these.
        columns: Of each cell, the column, from the first one that is counted.
        kinds: Of each cell, what it holds (`CellKind`).
        texts: Of each cell, the value.
        first: The number of the first row in the sheet, from 0.
    """

    count: int
    rows: Positions
    columns: Positions
    kinds: Bytes
    texts: pa.StringArray
    first: int = 0

    def chosen(self, order: Positions) -> SheetRows:
        """Select some of the cells, by their positions."""
        return SheetRows(
            self.count,
            self.rows[order],
            self.columns[order],
            self.kinds[order],
            self.texts.take(pa.array(order)),
        )

    def by_column(self) -> Iterator[tuple[int, SheetRows]]:
        """Yield the cells of each column that has any, in the order of columns and of rows."""
        order = np.argsort(self.columns, kind="stable")
        there, begins = np.unique(self.columns[order], return_index=True)
        for column, places in zip(there.tolist(), np.split(order, begins[1:]), strict=False):
            yield column, self.chosen(places)

    def texts_of(self, row: int) -> list[str | None]:
        """List the values of one row, as far as it has any."""
        places = np.flatnonzero(self.rows == row)
        found: list[str | None] = [None] * (int(self.columns[places].max(initial=-1)) + 1)
        for column, text in zip(
            self.columns[places].tolist(),
            self.texts.take(pa.array(places)).to_pylist(),
            strict=True,
        ):
            found[column] = text
        return found


class Table:
    """The rows of a range.

    Args:
        cells: Of the sheet, whole rows at a time.
        address: The range.
        has_header: Whether its first row names the columns.

    Attributes:
        header: The names, from the first column that has one on; `None` where there is no header,
            and before the first rows were given.
        first: The column of the first name, and the number of the columns before the first that is
            counted.
    """

    def __init__(self, cells: Iterable[Cells], address: Address, *, has_header: bool) -> None:
        self._cells, self._address = cells, address
        self._has_header = has_header
        self._left = address.left or 0
        self._right = MAX_COLUMNS - 1 if address.right is None else address.right
        self.header: list[str | None] | None = None
        self.first = 0

    def rows(self) -> Iterator[SheetRows]:
        """Yield the rows below the header, some at a time; nothing first, when it is known."""
        at = self._address.top
        needs_header = self._has_header
        for cells in self._cells:
            found = self._within(cells)
            if not len(found.rows):
                if self._is_past(cells):
                    break
                continue
            at = int(found.rows[0]) if at is None else at
            if needs_header:
                needs_header = False
                self._take_header(found, at)
                at += 1
            yield from _cut(found, at)
            at = max(at, int(found.rows[-1]) + 1)
            if self._is_past(cells):
                break

    def _is_past(self, cells: Cells) -> bool:
        bottom = self._address.bottom
        return bottom is not None and bool(cells.rows) and cells.rows[-1] > bottom

    def _within(self, cells: Cells) -> SheetRows:
        """Select the cells in the range."""
        rows = np.array(cells.rows, np.int64)
        columns = np.array(cells.columns, np.int64)
        texts = pa.array(cells.texts, pa.string())
        found = SheetRows(
            0, rows, columns - self._left, np.frombuffer(cells.kinds, np.uint8), texts
        )
        bottom = MAX_ROWS if self._address.bottom is None else self._address.bottom
        inside = (rows >= (self._address.top or 0)) & (rows <= bottom)
        inside &= (columns >= self._left) & (columns <= self._right)
        return found if inside.all() else found.chosen(np.flatnonzero(inside))

    def _take_header(self, found: SheetRows, row: int) -> None:
        places = np.flatnonzero((found.rows == row) & (found.kinds != CellKind.ERROR))
        columns = found.columns[places].tolist()
        names = dict(zip(columns, found.texts.take(pa.array(places)).to_pylist(), strict=True))
        if self._address.right is not None:
            first, last = 0, self._right - self._left
        else:
            first = 0 if self._address.left is not None else min(columns, default=0)
            last = max(columns, default=-1)
        self.first = first
        self.header = [names.get(each) for each in range(first, last + 1)]


def _cut(found: SheetRows, at: int) -> Iterator[SheetRows]:
    """Rows from one on, in pieces that are not too long."""
    last = int(found.rows[-1])
    while at <= last:
        end = min(at + _MOST_ROWS, last + 1)
        begin, stop = np.searchsorted(found.rows, [at, end])
        yield SheetRows(
            end - at,
            found.rows[begin:stop] - at,
            found.columns[begin:stop],
            found.kinds[begin:stop],
            found.texts[int(begin) : int(stop)],
            at,
        )
        at = end


_SHOWN_SHEETS: Final = 10


class Workbook(Protocol):
    """An open workbook of whatever kind."""

    sheets: list[str]
    """The names of the sheets with cells, in their order."""

    def cells(self, sheet: str) -> Iterator[Cells]:
        """Yield the cells of a sheet, whole rows at a time.

        Raises:
            DamagedWorkbookError: The sheet, or what it needs, is damaged.
        """


def open_workbook(content: IO[bytes], most_text: int) -> Workbook:
    """Open a workbook.

    Args:
        content: The file, seekable.
        most_text: How many bytes of texts that cells share are held at most.

    Raises:
        DamagedWorkbookError: It is none, damaged, or protected with a password.
        OptionError: A package that this kind needs is not installed.
    """
    content.seek(0)
    mark = content.read(len(OLE_MARK))
    content.seek(0)
    if mark == OLE_MARK:
        from airflow_cloudfiles.engine.formats.excel.xls import XlsWorkbook  # noqa: PLC0415 - extra

        return XlsWorkbook(content)
    if not mark.startswith(ZIP_MARK):
        raise DamagedWorkbookError("it does not begin as a workbook does")
    package = Package(content)
    book = Relations(package, "").first("/officeDocument") or ""
    other = "OpenDocument (.ods)" if not book and package.has("content.xml") else ""
    if book.endswith(".bin"):
        other = "Excel's binary format (.xlsb)"
    if other:
        raise DamagedWorkbookError(
            f"it is a workbook of {other}, and .xlsx, .xlsm and .xls are read. Save it as .xlsx"
        )
    return XlsxWorkbook(package, most_text)


def wanted_sheets(book: Workbook, pattern: str | None) -> list[str]:
    """List the sheets that `dataAddress` names: the first, one by name, or those of a pattern.

    Raises:
        DamagedWorkbookError: There is no sheet, or none of the name.
    """
    if pattern is None:
        if not book.sheets:
            raise DamagedWorkbookError("it has no sheet with cells")
        return book.sheets[:1]
    if pattern in book.sheets:
        return [pattern]
    folded = pattern.casefold()
    found = [each for each in book.sheets if fnmatchcase(each.casefold(), folded)]
    if not found and not any(each in pattern for each in "*?["):
        names = ", ".join(map(cut, book.sheets[:_SHOWN_SHEETS]))
        rest = more(len(book.sheets) - _SHOWN_SHEETS)
        raise DamagedWorkbookError(
            f"it has no sheet {pattern!r}, which dataAddress names. Its sheets are: {names}{rest}"
        )
    return found


FORMAT: Final = "Excel"
_log = logging.getLogger(__name__)


def tables(file: OpenedFile, options: ExcelOptions) -> Iterator[tuple[str, Table]]:
    """Yield the wanted sheets of a file, each to be read before the next is asked for.

    Raises:
        FileUnreadableError: The file is no workbook, damaged, or lacks the sheet.
    """
    if not file.entry.size:
        return  # without a row, as an empty file of lines
    address = options.data_address
    with content_of(file, FORMAT) as content:
        book = open_workbook(content, options.max_record_bytes)
        wanted = wanted_sheets(book, address.sheet)
        if not wanted:
            _log.warning("%s has no sheet that dataAddress names", file.uri)
        for sheet in wanted:
            cells = _told(file, book.cells(sheet))
            yield sheet, Table(cells, address, has_header=bool(options.header_rows))


def _told(file: OpenedFile, cells: Iterator[Cells]) -> Iterator[Cells]:
    """Yield the cells of a file, whose name is added to what goes wrong with them."""
    with reading(file, FORMAT):
        yield from cells


def names_of(table: Table, matcher: NameMatcher) -> tuple[str, ...]:
    """Read the names of the columns of a table with a header."""
    return safe_names(table.header or (), "", matcher, first=table.first + 1)
