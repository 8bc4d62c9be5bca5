"""Open a workbook of whatever kind, and give the sheets that are wanted.

A file is known by its content, whatever its name says. Reading and inference share this: a file is
opened, and each sheet that is wanted is a table of its own, with its own header.

`xlrd` reads it as a whole: a sheet has 65,536 rows of 256 columns at most.

Cells become rows: rows without a cell are rows of nulls in the middle of a sheet, and no rows at
its end. Without a range the first row is the first that is not empty; columns are counted from `A`
on. In a range both are counted from its first cell.
"""

from __future__ import annotations

import io
import logging
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.formats.columnar.reader import content_of, reading
from airflow_cloudfiles.engine.formats.excel.cells import (
    BLOCK_CELLS,
    MAX_COLUMNS,
    MAX_ROWS,
    CellKind,
    Cells,
    DamagedWorkbookError,
    built_in,
    shown_by,
)
from airflow_cloudfiles.engine.formats.excel.package import Package, Relations
from airflow_cloudfiles.engine.formats.excel.xlsx import XlsxWorkbook
from airflow_cloudfiles.engine.formats.recognize import OLE_MARK, ZIP_MARK
from airflow_cloudfiles.engine.formats.tables import safe_names
from airflow_cloudfiles.engine.messages import cut, more

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """

    count: int
    rows: Positions
    columns: Positions
    kinds: Bytes
    texts: pa.StringArray

    def chosen(self, order: Positions) -> SheetRows:
        """Some of the cells, by their positions."""
        return SheetRows(
            self.count,
            self.rows[order],
            self.columns[order],
            self.kinds[order],
            self.texts.take(pa.array(order)),
        )

    def by_column(self) -> Iterator[tuple[int, SheetRows]]:
        """The cells of each column that has any, in the order of columns and of rows."""
        order = np.argsort(self.columns, kind="stable")
        there, begins = np.unique(self.columns[order], return_index=True)
        for column, places in zip(there.tolist(), np.split(order, begins[1:]), strict=False):
            yield column, self.chosen(places)

    def texts_of(self, row: int) -> list[str | None]:
        """The values of one row, as far as it has any."""
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
        """The rows below the header, some at a time; nothing first, when the header is known."""
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
        """The cells in the range."""
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
        )
        at = end


_SHOWN_SHEETS: Final = 10


class Workbook(Protocol):
    """An open workbook of whatever kind."""

    sheets: list[str]
    """The names of the sheets with cells, in their order."""

    def cells(self, sheet: str) -> Iterator[Cells]:
        """The cells of a sheet, whole rows at a time.

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
        from airflow_cloudfiles.engine.formats.excel.workbook import XlsWorkbook  # noqa: PLC0415 - extra

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
    """The sheets that `dataAddress` names: the first one, one by its name, or those of a pattern.

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
    """The wanted sheets of a file, each to be read before the next is asked for.

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
    """The cells of a file, whose name is in what goes wrong with them."""
    with reading(file, FORMAT):
        yield from cells


def names_of(table: Table, matcher: NameMatcher) -> tuple[str, ...]:
    """The names of the columns of a table with a header."""
    return safe_names(table.header or (), "", matcher, first=table.first + 1)


try:
    import xlrd
except ImportError as error:
    raise OptionError(
        "Reading .xls files needs the package xlrd. Install it: "
        "pip install 'airflow-provider-cloudfiles[excel]'."
    ) from error


_ENCRYPTED: Final = "EncryptedPackage".encode("utf-16-le")
"""Names of Open XML workbooks with a password are in such a container, too."""
_UNREADABLE: Final = (
    *(xlrd.XLRDError, xlrd.compdoc.CompDocError, struct.error, AssertionError, EOFError),
    *(LookupError, ArithmeticError, TypeError, ValueError, AttributeError, MemoryError),
    *(RecursionError, NotImplementedError, UnboundLocalError),
)
"""What `xlrd` raises for bytes that are not what they should be."""
_TEXT, _NUMBER, _DATE, _BOOLEAN, _ERROR = 1, 2, 3, 4, 5


class XlsWorkbook:
    """An open workbook.

    Args:
        content: The file.

    Attributes:
        sheets: The names of the sheets with cells, in their order.

    Raises:
        DamagedWorkbookError: It is no such workbook, damaged, or protected with a password.
    """

    def __init__(self, content: IO[bytes]) -> None:
        data = content.read()
        if _ENCRYPTED in data:
            raise DamagedWorkbookError("it is protected with a password. Save it without one")
        self._book = _reading(
            lambda: xlrd.open_workbook(
                file_contents=data,
                on_demand=True,
                formatting_info=True,
                ragged_rows=True,
                logfile=io.StringIO(),
            )
        )
        self.sheets: list[str] = self._book.sheet_names()
        self._shown: dict[int, CellKind] = {}

    def cells(self, sheet: str) -> Iterator[Cells]:
        """The cells of a sheet, whole rows at a time.

        Raises:
            DamagedWorkbookError: The sheet is damaged.
        """
        page = _reading(lambda: self._book.sheet_by_name(sheet))
        found = Cells()
        for row in range(page.nrows):
            _reading(lambda: self._add_row(found, page, row))  # noqa: B023 - called at once
            if len(found) >= BLOCK_CELLS:
                yield found
                found = Cells()
        yield found
        self._book.unload_sheet(sheet)

    def _add_row(self, found: Cells, page: Any, row: int) -> None:
        pairs = zip(page.row_types(row), page.row_values(row), strict=True)
        for column, (kind, value) in enumerate(pairs):
            if kind == _TEXT:
                if value:
                    found.add(row, column, CellKind.TEXT, value)
            elif kind in {_NUMBER, _DATE}:
                shown = self._shown_by(page.cell_xf_index(row, column))
                is_1904 = bool(self._book.datemode)
                found.add_number(row, column, repr(value), shown, is_1904=is_1904)
            elif kind == _BOOLEAN:
                found.add(row, column, CellKind.BOOLEAN, "true" if value else "false")
            elif kind == _ERROR:
                text = xlrd.error_text_from_code.get(value, "#ERROR")
                found.add(row, column, CellKind.ERROR, text)

    def _shown_by(self, style: int) -> CellKind:
        if style not in self._shown:
            number = self._book.xf_list[style].format_key
            found = built_in(number)
            if found is CellKind.NUMBER and number in self._book.format_map:
                found = shown_by(self._book.format_map[number].format_str)
            self._shown[style] = found
        return self._shown[style]


def _reading(use: Callable[[], Any]) -> Any:
    """Use `xlrd`, and turn what it raises into an error of ours."""
    try:
        return use()
    except DamagedWorkbookError:
        raise
    except _UNREADABLE as error:
        if "encrypted" in str(error):
            reason = "it is protected with a password. Save it without one"
        else:
            reason = f"{type(error).__name__}: {error}"
        raise DamagedWorkbookError(reason) from error
