"""Open a workbook of whatever kind, and give the sheets that are wanted.

A file is known by its content, whatever its name says. Reading and inference share this: a file is
opened, and each sheet that is wanted is a table of its own, with its own header.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import IO, TYPE_CHECKING, Final, Protocol

from airflow_cloudfiles.engine.formats.columnar.reader import content_of, reading
from airflow_cloudfiles.engine.formats.excel.cells import Cells, DamagedWorkbookError
from airflow_cloudfiles.engine.formats.excel.package import Package, Relations
from airflow_cloudfiles.engine.formats.excel.rows import Table
from airflow_cloudfiles.engine.formats.excel.xlsx import XlsxWorkbook
from airflow_cloudfiles.engine.formats.recognize import OLE_MARK, ZIP_MARK
from airflow_cloudfiles.engine.formats.tables.reader import safe_names
from airflow_cloudfiles.engine.messages import cut, more

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import OpenedFile
    from airflow_cloudfiles.engine.names import NameMatcher
    from airflow_cloudfiles.engine.options.formats.excel import ExcelOptions

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
