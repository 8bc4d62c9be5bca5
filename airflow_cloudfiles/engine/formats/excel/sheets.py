"""Which tables does a file hold, and how are its columns named?

What reading and inference share: a file is opened, and each sheet that is wanted is a table of its
own, with its own header.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from airflow_cloudfiles.engine.formats.columnar.reader import content_of, reading
from airflow_cloudfiles.engine.formats.excel.rows import Table
from airflow_cloudfiles.engine.formats.excel.workbook import open_workbook, wanted_sheets
from airflow_cloudfiles.engine.formats.tables.header import safe_names

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.casing import NameMatcher
    from airflow_cloudfiles.engine.formats.base import OpenedFile
    from airflow_cloudfiles.engine.formats.excel.cells import Cells
    from airflow_cloudfiles.engine.options.formats.excel import ExcelOptions

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
