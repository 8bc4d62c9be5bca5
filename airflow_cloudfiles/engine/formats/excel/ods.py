"""What is in a workbook of OpenDocument (`.ods`)?

One part has all sheets; it is parsed as it comes. Cells and rows that are repeated are written once
with their number, and multiplied a block at a time.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from airflow_cloudfiles.engine.formats.excel.cells import (
    BLOCK_CELLS,
    MAX_COLUMNS,
    MAX_ROWS,
    Cells,
    DamagedWorkbookError,
    Kind,
    boolean,
    plain_number,
)
from airflow_cloudfiles.engine.formats.excel.package import Package, Tags, parse

CONTENT: Final = "content.xml"
_MANIFEST: Final = "META-INF/manifest.xml"
_NUMBERS: Final = frozenset({"float", "percentage", "currency"})
_ERROR_TEXT: Final = re.compile(r"#(?:N/A|DIV/0!|VALUE!|REF!|NAME\?|NUM!|NULL!)|Err:[0-9]{3}")
_PERIOD: Final = re.compile(
    r"(-?)P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(\.\d{1,30})?S)?)?"
)
_OUTSIDE: Final = frozenset({"annotation", "shapes", "frame", "custom-shape", "ruby-text"})
"""Elements in a cell whose text is not its value."""
_LINES: Final = {"line-break": "\n", "tab": "\t"}
_Run = tuple[int, int, Kind, str]
"""A column, how often the cell is repeated, its kind and its value."""


class OdsWorkbook:
    """An open workbook.

    Args:
        package: The archive.
        most_text: The most bytes that a text may have.

    Attributes:
        sheets: The names of the sheets, in their order.

    Raises:
        DamagedWorkbookError: It is no such workbook, damaged, or protected with a password.
    """

    def __init__(self, package: Package, most_text: int) -> None:
        self._package, self._most_text = package, most_text
        if package.has(_MANIFEST) and b"encryption-data" in package.whole(_MANIFEST):
            raise DamagedWorkbookError("it is protected with a password. Save it without one")
        names = _Names()
        pieces = package.pieces(CONTENT)
        for _ in parse(CONTENT, pieces, start=names.start, end=names.end):
            pass
        self.sheets = [*dict.fromkeys(names.found)]

    def cells(self, sheet: str) -> Iterator[Cells]:
        """The cells of a sheet, whole rows at a time.

        Raises:
            DamagedWorkbookError: The sheet is damaged.
        """
        parser = _SheetParser(sheet, self._most_text)
        pieces = self._package.pieces(CONTENT)
        found = Cells()
        for _ in parse(CONTENT, pieces, start=parser.start, end=parser.end, text=parser.text):
            for run in parser.take():
                for row in range(run.first, run.first + run.count):
                    run.add_to(found, row)
                    if len(found) >= BLOCK_CELLS:
                        yield found
                        found = Cells()
        yield found


@dataclass(slots=True)
class _Rows:
    """Rows with the same cells."""

    first: int
    count: int
    cells: list[_Run] = field(default_factory=list)

    def add_to(self, found: Cells, row: int) -> None:
        for column, count, kind, text in self.cells:
            for each in range(column, column + count):
                found.add(row, each, kind, text)


class _Names:
    """The names of the sheets; a table in a cell is none."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._tags, self._depth = Tags(), 0

    def start(self, name: str, given: dict[str, str]) -> None:
        if self._tags[name] == "table":
            if not self._depth:
                self.found.append(given.get("table:name", ""))
            self._depth += 1

    def end(self, name: str) -> None:
        self._depth -= self._tags[name] == "table"


class _SheetParser:
    """Collects the rows of one sheet."""

    def __init__(self, sheet: str, most_text: int) -> None:
        self._sheet, self._most_text = sheet, most_text
        self._tags = Tags()
        self._rows: list[_Rows] = []
        self._row = _Rows(0, 1)
        self._depth = self._outside = self._text_left = 0
        self._is_wanted = self._takes = False
        self._column, self._paragraphs = 0, 0
        self._cell: dict[str, str] | None = None
        self._parts: list[str] = []

    def take(self) -> list[_Rows]:
        """The rows that are complete."""
        found, self._rows = self._rows, []
        return found

    def start(self, name: str, given: dict[str, str]) -> None:
        tag = self._tags[name]
        if tag == "table":
            self._depth += 1
            if self._depth == 1:
                self._is_wanted = given.get("table:name", "") == self._sheet
                self._row = _Rows(0, 0)
        if not self._is_wanted or self._depth != 1:
            return
        if tag == "table-row":
            first = self._row.first + self._row.count
            self._row = _Rows(first, _repeated(given, "table:number-rows-repeated"))
            self._column = 0
        elif tag in {"table-cell", "covered-table-cell"}:
            self._cell = given
            self._text_left, self._paragraphs = self._most_text, 0
        elif self._cell is not None:
            self._start_in_cell(tag, given)

    def _start_in_cell(self, tag: str, given: dict[str, str]) -> None:
        if tag in _OUTSIDE:
            self._outside += 1
        elif self._outside:
            return
        elif tag == "p":
            if self._paragraphs:
                self._parts.append("\n")
            self._paragraphs += 1
            self._takes = True
        elif tag == "s":
            self.text(" " * min(_repeated(given, "text:c"), self._most_text + 1))
        elif tag in _LINES:
            self.text(_LINES[tag])

    def text(self, text: str) -> None:
        if self._takes and not self._outside:
            self._parts.append(text)
            self._text_left -= len(text)
            if self._text_left < 0:
                raise DamagedWorkbookError(
                    f"a text has more than {self._most_text} bytes (maxRecordBytes)"
                )

    def end(self, name: str) -> None:
        tag = self._tags[name]
        if tag == "table":
            self._depth -= 1
        elif not self._is_wanted or self._depth != 1:
            return
        elif tag in _OUTSIDE and self._cell is not None:
            self._outside -= 1
        elif tag == "p":
            self._takes = False
        elif tag in {"table-cell", "covered-table-cell"} and self._cell is not None:
            self._end_cell(tag, self._cell)
        elif tag == "table-row" and self._row.cells:
            self._end_row()

    def _end_cell(self, tag: str, given: dict[str, str]) -> None:
        count = _repeated(given, "table:number-columns-repeated")
        text = "".join(self._parts)
        self._cell, self._takes, self._outside = None, False, 0
        self._parts.clear()
        column, self._column = self._column, self._column + count
        found = None if tag == "covered-table-cell" else _value(given, text)
        if found is not None:
            if self._column > MAX_COLUMNS:
                raise DamagedWorkbookError(f"it has a value in column {self._column}")
            self._row.cells.append((column, count, *found))

    def _end_row(self) -> None:
        if self._row.first + self._row.count > MAX_ROWS:
            raise DamagedWorkbookError(f"it has a row {self._row.first + self._row.count}")
        self._rows.append(self._row)


def _repeated(given: dict[str, str], name: str) -> int:
    text = given.get(name, "1")
    return max(1, int(text[:9])) if text.isdecimal() else 1


def _value(given: dict[str, str], text: str) -> tuple[Kind, str] | None:
    """The kind and value of a cell; `None` of an empty one."""
    kind = given.get("office:value-type")
    if given.get("calcext:value-type") == "error" or (
        "table:formula" in given and _ERROR_TEXT.fullmatch(text)
    ):
        return Kind.ERROR, text
    if kind in _NUMBERS:
        return plain_number(given.get("office:value", ""))
    if kind == "boolean":
        return boolean(given.get("office:boolean-value", "false"))
    if kind == "date":
        return _date(given.get("office:date-value", ""))
    if kind == "time":
        return _time(given.get("office:time-value", ""))
    text = given.get("office:string-value", text)
    return (Kind.TEXT, text) if kind == "string" and text else None


def _date(raw: str) -> tuple[Kind, str]:
    try:
        found = dt.datetime.fromisoformat(raw[:26])
    except ValueError:
        return Kind.INVALID, raw
    if "T" in raw:
        return Kind.TIMESTAMP, found.isoformat(" ")
    return Kind.DATE, found.date().isoformat()


def _time(raw: str) -> tuple[Kind, str]:
    found = _PERIOD.fullmatch(raw)
    if found is None:
        return Kind.INVALID, raw
    sign, *parts, fraction = found.groups()
    days, hours, minutes, seconds = (int(each or 0) for each in parts)
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    minutes, seconds = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    rest = (fraction or "")[:7].rstrip("0").rstrip(".")
    return Kind.TIME, f"{sign}{hours:02d}:{minutes:02d}:{seconds:02d}{rest}"
