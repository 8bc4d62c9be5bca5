"""Read the cells of `.xls` workbooks by `xlrd`, an extra that other workbooks do without.

`xlrd` reads a file as a whole: a sheet has 65,536 rows of 256 columns at most.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from typing import IO, Any, Final

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.formats.excel.cells import (
    BLOCK_CELLS,
    CellKind,
    Cells,
    DamagedWorkbookError,
    built_in,
    shown_by,
)
from airflow_cloudfiles.engine.messages import install

try:
    import xlrd
except ImportError as error:
    raise OptionError(f"Reading .xls files needs the package xlrd. {install('excel')}") from error


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
        """Yield the cells of a sheet, whole rows at a time.

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
