"""Which rows and columns does a range of a sheet have?

Cells become rows: rows without a cell are rows of nulls in the middle of a sheet, and no rows at
its end. Without a range the first row is the first that is not empty; columns are counted from `A`
on. In a range both are counted from its first cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from airflow_cloudfiles.engine.formats.excel.cells import MAX_COLUMNS, MAX_ROWS, CellKind, Cells

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.formats.base import Bytes, Positions
    from airflow_cloudfiles.engine.options.formats.excel_address import Address

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
