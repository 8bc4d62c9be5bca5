"""What is in a binary workbook (`.xlsb`)?

The same parts as of `.xlsx`, but records instead of XML ([MS-XLSB]): a type, a length, the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from airflow_cloudfiles.engine.formats.excel.cells import (
    BLOCK_CELLS,
    MAX_COLUMNS,
    MAX_ROWS,
    Cells,
    DamagedWorkbookError,
    Kind,
)
from airflow_cloudfiles.engine.formats.excel.package import (
    OpenXmlWorkbook,
    Package,
    TextBudget,
    damage,
    format_shows,
)

_LONGEST_RECORD: Final = 2**24
"""No record is longer; a text has 65,534 bytes at most."""
_NO_TEXT: Final = 0xFFFFFFFF
_ROW, _SHARED_TEXT, _FORMAT, _STYLE = 0, 19, 44, 47
_BEGIN_DATA, _END_DATA = 145, 146
_BOOK, _SHEET = 153, 156
_BEGIN_STYLES, _END_STYLES = 617, 618
_RICH_TEXT: Final = 62
_SHORT: Final = 11
"""What is added to the type of a cell that stands behind the one before it."""
_FIRST_SHORT, _LAST_SHORT = 12, 18
_ERRORS: Final = {
    0x00: "#NULL!",
    0x07: "#DIV/0!",
    0x0F: "#VALUE!",
    0x17: "#REF!",
    0x1D: "#NAME?",
    0x24: "#NUM!",
    0x2A: "#N/A",
    0x2B: "#GETTING_DATA",
}
_REAL: Final = struct.Struct("<d")


class XlsbWorkbook(OpenXmlWorkbook):
    """An open workbook of binary parts."""

    BOOK = "xl/workbook.bin"
    _shared: list[str] | None = None

    def _read_book(self) -> None:
        with damage(self._parts.book):
            for kind, data in records(self._package, self._parts.book):
                if kind == _BOOK:
                    self._is_1904 = bool(data[0] & 1)
                elif kind == _SHEET:
                    self._add_sheet(data)

    def cells(self, sheet: str) -> Iterator[Cells]:
        """The cells of a sheet, whole rows at a time.

        Raises:
            DamagedWorkbookError: The sheet, or what it needs, is damaged.
        """
        if self._shared is None:
            with damage("of texts or of styles"):
                self._styles = self._read_styles()
                self._shared = self._read_shared()
        path = self._parts.sheets[sheet]
        with damage(path):
            yield from self._of_records(records(self._package, path))

    def _of_records(self, found: Iterator[tuple[int, bytes]]) -> Iterator[Cells]:
        sheet = _SheetCells(self._shared or [], self._styles, is_1904=self._is_1904)
        is_data = False
        for kind, data in found:
            if kind in {_BEGIN_DATA, _END_DATA}:
                is_data = kind == _BEGIN_DATA
            elif is_data and kind == _ROW:
                if len(sheet.cells) >= BLOCK_CELLS:
                    yield sheet.take()
                sheet.begin_row(data)
            elif is_data:
                sheet.add(kind, data)
        yield sheet.take()

    def _add_sheet(self, data: bytes) -> None:
        identifier, end = _text(data, 8)
        name, _ = _text(data, end)
        self._parts.add_sheet(name, identifier)

    def _read_styles(self) -> list[Kind]:
        path = self._parts.styles
        codes: dict[int, str] = {}
        found: list[Kind] = []
        is_cell = False
        for kind, data in records(self._package, path) if path else ():
            if kind == _FORMAT:
                codes[int.from_bytes(data[:2], "little")] = _text(data, 2)[0]
            elif kind in {_BEGIN_STYLES, _END_STYLES}:
                is_cell = kind == _BEGIN_STYLES
            elif kind == _STYLE and is_cell:
                number = int.from_bytes(data[2:4], "little")
                found.append(format_shows(str(number), codes.get(number)))
        return found

    def _read_shared(self) -> list[str]:
        path = self._parts.shared_texts
        found: list[str] = []
        budget = TextBudget(self._most_text)
        for kind, data in records(self._package, path) if path else ():
            if kind == _SHARED_TEXT:
                found.append(_text(data, 1)[0])
                budget.spend_text()
                budget.spend(len(data))
        return found


class _SheetCells:
    """Collects the cells of a sheet."""

    def __init__(self, shared: list[str], styles: list[Kind], *, is_1904: bool) -> None:
        self._shared, self._styles, self._is_1904 = shared, styles, is_1904
        self.cells = Cells()
        self._row = self._column = -1
        self._readers: dict[int, Callable[[bytes, Kind], None]] = {
            2: self._add_short_number,
            3: self._add_error,
            4: self._add_boolean,
            5: self._add_number,
            6: self._add_text,
            7: self._add_shared,
            8: self._add_text,
            9: self._add_number,
            10: self._add_boolean,
            11: self._add_error,
            _RICH_TEXT: lambda data, shown: self._add_text(data[1:], shown),
        }

    def take(self) -> Cells:
        """What there is."""
        found, self.cells = self.cells, Cells()
        return found

    def begin_row(self, data: bytes) -> None:
        """Go to the next row."""
        row = int.from_bytes(data[:4], "little")
        if not self._row < row < MAX_ROWS:
            raise DamagedWorkbookError(f"it has a row {row + 1} behind row {self._row + 1}")
        self._row, self._column = row, -1

    def add(self, kind: int, data: bytes) -> None:
        """Add what a record holds, if that is a cell."""
        is_short = _FIRST_SHORT <= kind <= _LAST_SHORT
        if not is_short and kind not in self._readers and kind != 1:
            return
        column = self._column + 1 if is_short else int.from_bytes(data[:4], "little")
        data = data if is_short else data[4:]
        if not self._column < column < MAX_COLUMNS or self._row < 0:
            raise DamagedWorkbookError(f"it has a cell in disorder in row {self._row + 1}")
        self._column = column
        read = self._readers.get(kind - _SHORT if is_short else kind)
        if read is not None:
            style = int.from_bytes(data[:3], "little")
            known = style < len(self._styles)
            read(data[4:], self._styles[style] if known else Kind.NUMBER)

    def _add_short_number(self, data: bytes, shown: Kind) -> None:
        whole = int.from_bytes(data[:4], "little", signed=True)
        if whole & 2:
            number = float(whole >> 2)
        else:
            number = _REAL.unpack(b"\0\0\0\0" + (whole & ~3 & 0xFFFFFFFF).to_bytes(4, "little"))[0]
        self._add(number / 100 if whole & 1 else number, shown)

    def _add_number(self, data: bytes, shown: Kind) -> None:
        self._add(_REAL.unpack_from(data)[0], shown)

    def _add(self, number: float, shown: Kind) -> None:
        raw = repr(number)
        self.cells.add_number(self._row, self._column, raw, shown, is_1904=self._is_1904)

    def _add_error(self, data: bytes, _: Kind) -> None:
        self.cells.add(self._row, self._column, Kind.ERROR, _ERRORS.get(data[0], "#ERROR"))

    def _add_boolean(self, data: bytes, _: Kind) -> None:
        self.cells.add(self._row, self._column, Kind.BOOLEAN, "true" if data[0] else "false")

    def _add_text(self, data: bytes, _: Kind) -> None:
        if text := _text(data, 0)[0]:
            self.cells.add(self._row, self._column, Kind.TEXT, text)

    def _add_shared(self, data: bytes, _: Kind) -> None:
        if text := self._shared[int.from_bytes(data[:4], "little")]:
            self.cells.add(self._row, self._column, Kind.TEXT, text)


def records(package: Package, part: str) -> Iterator[tuple[int, bytes]]:
    """The records of a part.

    Raises:
        DamagedWorkbookError: It is not there, or damaged.
    """
    buffer = bytearray()
    with damage(part):
        for piece in package.pieces(part):
            buffer += piece
            at = 0
            while (head := _head(buffer, at)) is not None:
                kind, begin, size = head
                if size > _LONGEST_RECORD:
                    raise DamagedWorkbookError(f"its part {part} has a record of {size} bytes")
                if begin + size > len(buffer):
                    break
                yield kind, bytes(buffer[begin : begin + size])
                at = begin + size
            del buffer[:at]
        if buffer:
            raise DamagedWorkbookError(f"its part {part} ends within a record")


def _head(buffer: bytearray, at: int) -> tuple[int, int, int] | None:
    """The type of the next record, where its bytes begin, and how many they are."""
    end = len(buffer)
    if at >= end:
        return None
    kind = buffer[at]
    at += 1
    if kind & 0x80:
        if at >= end:
            return None
        kind = (kind & 0x7F) | (buffer[at] & 0x7F) << 7
        at += 1
    size = 0
    for shift in (0, 7, 14, 21):
        if at >= end:
            return None
        each = buffer[at]
        at += 1
        size |= (each & 0x7F) << shift
        if not each & 0x80:
            break
    return kind, at, size


def _text(data: bytes, at: int) -> tuple[str, int]:
    """A text with its length before it, and where it ends."""
    count = int.from_bytes(data[at : at + 4], "little")
    if count == _NO_TEXT:
        return "", at + 4
    end = at + 4 + 2 * count
    if end > len(data):
        raise DamagedWorkbookError("a text is longer than its record")
    return data[at + 4 : end].decode("utf-16-le"), end
