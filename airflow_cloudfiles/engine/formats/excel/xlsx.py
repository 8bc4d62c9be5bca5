"""Read a workbook of Office Open XML (`.xlsx`, `.xlsm`), which is a zip archive of XML.

In pieces, so that a part that is small in the archive and large outside of it takes no memory. XML
is parsed as it comes, without entities of its own, of which a small part could be made large. The
parts name each other by relations (ECMA-376-2, 9).

Sheets are parsed a block of rows at a time: what a sheet says of its size is not believed, and
costs nothing. The texts that cells share are held (ECMA-376, 18.4).
"""

from __future__ import annotations

import datetime as dt
import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import IO, Final, cast
from xml.parsers import expat

from airflow_cloudfiles.engine.formats.excel.cells import (
    BLOCK_CELLS,
    CellKind,
    Cells,
    DamagedWorkbookError,
    boolean,
    built_in,
    shown_by,
)
from airflow_cloudfiles.engine.options.formats.excel import MAX_COLUMNS, MAX_ROWS

PIECE_BYTES: Final = 2**18
_LONGEST_TAG: Final = 2**24
"""No tag with its attributes is longer: a parser must hold it as a whole."""
_SMALL_PART: Final = 2**26
"""What is held as a whole is not larger: the styles, the list of sheets."""
REQUEST_BYTES: Final = 2**20
"""What is asked of a store at once."""
_DAMAGE: Final = (
    *(zipfile.BadZipFile, zlib.error, EOFError, KeyError, IndexError, expat.ExpatError),
    *(NotImplementedError, OverflowError, UnicodeDecodeError, RuntimeError),
)
"""What is raised for bytes that are no archive, no XML, or not what they should be."""


@contextmanager
def damage(what: str) -> Iterator[None]:
    """Turn what is raised for damaged bytes into an error that says which part they are of.

    Raises:
        DamagedWorkbookError: The part is damaged.
    """
    try:
        yield
    except DamagedWorkbookError:
        raise
    except _DAMAGE as error:
        reason = str(error) or type(error).__name__
        raise DamagedWorkbookError(f"its part {what} is damaged ({reason})") from error


class Package:
    """An archive of parts.

    Args:
        content: The file, seekable.

    Raises:
        DamagedWorkbookError: It is no archive.
    """

    def __init__(self, content: IO[bytes]) -> None:
        with damage("the list of all parts"):
            buffered = io.BufferedReader(cast("io.RawIOBase", content), REQUEST_BYTES)
            self._archive = zipfile.ZipFile(buffered)
            names = self._archive.namelist()
            # Some programs write the separator of Windows.
            self._names = {each.lower().replace("\\", "/"): each for each in names}

    def has(self, name: str) -> bool:
        """Tell whether there is such a part; names have no case."""
        return name.lower() in self._names

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield a part from its beginning, in pieces.

        Raises:
            DamagedWorkbookError: It is not there, or damaged.
        """
        if not self.has(name):
            raise DamagedWorkbookError(f"it lacks its part {name}")
        with damage(name), self._archive.open(self._names[name.lower()]) as part:
            while piece := part.read(PIECE_BYTES):
                yield piece

    def whole(self, name: str) -> bytes:
        """Read a small part.

        Raises:
            DamagedWorkbookError: It is not there, damaged, or not small.
        """
        found = bytearray()
        for piece in self.pieces(name):
            found += piece
            if len(found) > _SMALL_PART:
                raise DamagedWorkbookError(f"its part {name} has more than {_SMALL_PART} bytes")
        return bytes(found)


class PackageTags(dict[str, str]):
    """Names of elements without prefixes, by the names with them."""

    def __missing__(self, name: str) -> str:
        found = name.rpartition(":")[2]
        if len(self) < 2**10:
            self[name] = found
        return found


def parse(
    name: str,
    pieces: Iterator[bytes],
    *,
    start: Callable[[str, dict[str, str]], object],
    end: Callable[[str], object],
    text: Callable[[str], object] | None = None,
) -> Iterator[None]:
    """Parse a part as it comes; gives something after each piece.

    Args:
        name: The part, for errors.
        pieces: Its bytes.
        start: Called with the name and the attributes of an element that begins.
        end: Called with the name of an element that ends.
        text: Called with text, which may come in several pieces.

    Raises:
        DamagedWorkbookError: It is no XML, or such as no program writes.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = _refuse_doctype
    if text is not None:
        parser.CharacterDataHandler = text
    given = 0
    with damage(name):
        for piece in pieces:
            parser.Parse(piece, False)
            given += len(piece)
            if given - max(0, parser.CurrentByteIndex) > _LONGEST_TAG:
                raise DamagedWorkbookError(f"its part {name} has a tag that does not end")
            yield
        parser.Parse(b"", True)
    yield


def parse_whole(
    package: Package, name: str, start: Callable[[str, dict[str, str]], object]
) -> None:
    """Parse a small part of which only the beginnings of elements matter."""
    tags = PackageTags()
    pieces = iter([package.whole(name)])
    for _ in parse(name, pieces, start=lambda tag, given: start(tags[tag], given), end=str):
        pass


def _refuse_doctype(*_: object) -> None:
    raise DamagedWorkbookError("one of its parts has a DOCTYPE, which no workbook has")


class Relations:
    """Which part is meant by which identifier in another part.

    Args:
        package: The archive.
        part: The other part; empty for the archive itself.
    """

    def __init__(self, package: Package, part: str) -> None:
        folder, _, name = part.rpartition("/")
        self._folder = folder
        self.targets: dict[str, tuple[str, str]] = {}
        own = posixpath.join(folder, "_rels", f"{name}.rels")
        if package.has(own):
            parse_whole(package, own, self._start)

    def _start(self, tag: str, given: dict[str, str]) -> None:
        if tag == "Relationship" and given.get("TargetMode") != "External":
            target = given.get("Target", "")
            path = target[1:] if target[:1] == "/" else posixpath.join(self._folder, target)
            found = given.get("Type", ""), posixpath.normpath(path)
            self.targets[given.get("Id", "")] = found

    def first(self, kind: str) -> str | None:
        """Find the first part of a kind, by the end of its type."""
        return next((path for each, path in self.targets.values() if each.endswith(kind)), None)


def format_shows(number: str, code: str | None) -> CellKind:
    """Find what a format shows, by its number and the code that the workbook has for that."""
    if code is not None:
        return shown_by(code)
    return built_in(int(number)) if number.isdecimal() else CellKind.NUMBER


_ESCAPED: Final = re.compile("_x([0-9A-Fa-f]{4})_")
_SHARED_TEXT_BYTES: Final = 64
"""What a text takes besides its characters."""
_TRUE: Final = frozenset({"1", "true"})
_FIRST_HALF, _LAST_HALF = 0xD800, 0xDFFF


class XlsxWorkbook:
    """An open workbook of XML.

    Args:
        package: The archive.
        most_text: How many bytes of texts that cells share are held at most.

    Attributes:
        sheets: The names of the sheets with cells, in their order.

    Raises:
        DamagedWorkbookError: It is no such workbook, or damaged.
    """

    def __init__(self, package: Package, most_text: int) -> None:
        self._package, self._most_text = package, most_text
        self._is_1904 = False
        book = Relations(package, "").first("/officeDocument") or "xl/workbook.xml"
        self._relations = Relations(package, book)
        self._sheets: dict[str, str] = {}
        parse_whole(package, book, self._book)
        self.sheets = [*self._sheets]
        self._styles: list[CellKind] = []
        self._shared: _SharedStrings | None = None

    def cells(self, sheet: str) -> Iterator[Cells]:
        """Yield the cells of a sheet, whole rows at a time.

        Raises:
            DamagedWorkbookError: The sheet, or what it needs, is damaged.
        """
        if self._shared is None:
            styles = _Styles()
            if (path := self._part("/styles")) is not None:
                parse_whole(self._package, path, styles.start)
            self._styles = styles.kinds()
            texts = self._part("/sharedStrings")
            self._shared = _SharedStrings(self._package, texts, self._most_text)
        path = self._sheets[sheet]
        parser = _SheetParser(self._shared, self._styles, is_1904=self._is_1904)
        pieces = self._package.pieces(path)
        enough = 1  # who wants to know the header waits for no more
        for _ in parse(path, pieces, start=parser.start, end=parser.end, text=parser.text):
            if parser.complete >= enough:
                yield parser.take()
                enough = BLOCK_CELLS
        yield parser.take()
        self._shared.finish()

    def _book(self, tag: str, given: dict[str, str]) -> None:
        if tag == "workbookPr":
            self._is_1904 = given.get("date1904") in _TRUE
        elif tag == "sheet":
            identifier = next((each for name, each in given.items() if name.endswith(":id")), "")
            kind, path = self._relations.targets.get(identifier, ("", ""))
            if kind.endswith("/worksheet"):  # others have no cells, such as a chart
                self._sheets[given.get("name", "")] = path

    def _part(self, kind: str) -> str | None:
        """Find the part of a kind that the workbook names, if it is there."""
        path = self._relations.first(kind)
        return path if path is not None and self._package.has(path) else None


class _Styles:
    """What the styles of cells show."""

    def __init__(self) -> None:
        self._codes: dict[str, str] = {}
        self._numbers: list[str] = []
        self._in_cells = False

    def start(self, tag: str, given: dict[str, str]) -> None:
        if tag == "numFmt":
            self._codes.setdefault(given.get("numFmtId", ""), given.get("formatCode", ""))
        elif tag in {"cellXfs", "cellStyleXfs", "cellStyles", "dxfs"}:
            self._in_cells = tag == "cellXfs"
        elif tag == "xf" and self._in_cells:
            self._numbers.append(given.get("numFmtId", "0"))

    def kinds(self) -> list[CellKind]:
        """List what each style shows."""
        return [format_shows(each, self._codes.get(each)) for each in self._numbers]


class _SharedStrings:
    """The texts that cells share, read as far as they are asked for.

    Args:
        package: The archive.
        path: Their part, if there is one.
        most: How many bytes are held at most.
    """

    def __init__(self, package: Package, path: str | None, most: int) -> None:
        self._found: list[str] = []
        self._more: Iterator[None] = iter(())
        if path is not None:
            pieces = package.pieces(path)
            self._more = parse(path, pieces, start=self._start, end=self._end, text=self._text)
        self._tags = PackageTags()
        self._parts: list[str] = []
        self._takes = False
        self._phonetic = 0
        self._left = self._most = most

    def text_of(self, place: int) -> str | None:
        """Read the text of a place; `None` where there is none.

        Raises:
            DamagedWorkbookError: They are damaged, or too many.
        """
        while place >= len(self._found):
            try:
                next(self._more)
            except StopIteration:
                return None
        return self._found[place] if place >= 0 else None

    def finish(self) -> None:
        """Read what is left: the archive has a checksum behind it.

        Raises:
            DamagedWorkbookError: They are damaged, or too many.
        """
        for _ in self._more:
            pass

    def _start(self, name: str, _: dict[str, str]) -> None:
        tag = self._tags[name]
        self._takes = tag == "t" and not self._phonetic
        self._phonetic += tag == "rPh"

    def _text(self, text: str) -> None:
        if self._takes:
            self._parts.append(text)
            self._spend(len(text))

    def _end(self, name: str) -> None:
        tag = self._tags[name]
        self._takes = False
        self._phonetic -= tag == "rPh"
        if tag == "si":
            self._spend(_SHARED_TEXT_BYTES)
            self._found.append(unescaped("".join(self._parts)))
            self._parts.clear()

    def _spend(self, size: int) -> None:
        """Hold so many more bytes of texts, unless they are too many."""
        self._left -= size
        if self._left < 0:
            raise DamagedWorkbookError(
                f"its texts take more than {self._most} bytes, which is what is held of one file "
                "(maxRecordBytes)"
            )


class _SheetParser:
    """Collects the cells of a sheet.

    Attributes:
        complete: How many cells there are in rows that are complete.
    """

    def __init__(self, shared: _SharedStrings, styles: list[CellKind], *, is_1904: bool) -> None:
        self._shared, self._styles, self._is_1904 = shared, styles, is_1904
        self._tags = PackageTags()
        self._cells = Cells()
        self.complete = 0
        self._in_data = self._takes = self._has_text = False
        self._phonetic = 0
        self._row = self._column = -1
        self._type: str | None = None
        self._style = 0
        self._parts: list[str] = []

    def take(self) -> Cells:
        """Take the complete rows."""
        found, rest = self._cells.split(self.complete)
        self._cells, self.complete = rest, 0
        return found

    def start(self, name: str, given: dict[str, str]) -> None:
        tag = self._tags[name]
        if not self._in_data:
            self._in_data = tag == "sheetData"
        elif tag == "c":
            self._begin_cell(given)
        elif tag == "v":
            self._takes = not self._has_text
        elif tag == "t":
            self._begin_text()
        elif tag == "row":
            self._begin_row(given)
        elif tag == "rPh":
            self._phonetic += 1

    def text(self, text: str) -> None:
        if self._takes:
            self._parts.append(text)

    def end(self, name: str) -> None:
        tag = self._tags[name]
        self._takes = False
        if tag == "c" and self._in_data:
            if self._parts:
                raw = self._parts[0] if len(self._parts) == 1 else "".join(self._parts)
                self._parts.clear()
                self._end_cell(raw)
        elif tag == "row":
            self.complete = len(self._cells)
        elif tag == "rPh":
            self._phonetic -= 1
        elif tag == "sheetData":
            self._in_data = False

    def _begin_row(self, given: dict[str, str]) -> None:
        said = given.get("r")
        row = self._row + 1 if said is None else int(said) - 1 if said.isdecimal() else -1
        if not self._row < row < MAX_ROWS:
            raise DamagedWorkbookError(f"it has a row {said} where row {self._row + 2} may be")
        self._row, self._column = row, -1

    def _begin_text(self) -> None:
        """Take a text of the cell itself (`is`), for which a value beside it stands in."""
        if not self._has_text:
            self._parts.clear()
        self._takes = not self._phonetic
        self._has_text = True

    def _begin_cell(self, given: dict[str, str]) -> None:
        place = given.get("r")
        column = self._column + 1 if place is None else column_of(place.rstrip("0123456789"))
        if not self._column < column < MAX_COLUMNS or self._row < 0:
            raise DamagedWorkbookError(f"it has a cell {place} in disorder in row {self._row + 1}")
        self._column, self._has_text = column, False
        self._type, style = given.get("t"), given.get("s")
        self._style = int(style) if style is not None and style.isdecimal() else 0

    def _end_cell(self, raw: str) -> None:
        row, column, kind = self._row, self._column, self._type
        if kind is None or kind == "n":
            shown = (
                self._styles[self._style] if self._style < len(self._styles) else CellKind.NUMBER
            )
            self._cells.add_number(row, column, raw, shown, is_1904=self._is_1904)
        elif kind == "s":
            self._add_text(self._shared_text(raw))
        elif kind == "b":
            self._cells.add(row, column, *boolean(raw))
        elif kind == "e":
            self._cells.add(row, column, CellKind.ERROR, raw)
        elif kind == "d":
            self._cells.add(row, column, *_iso(raw))
        else:
            self._add_text(unescaped(raw))

    def _shared_text(self, raw: str) -> str:
        text = self._shared.text_of(int(raw)) if raw.isdecimal() else None
        if text is None:
            raise DamagedWorkbookError(
                f"a cell of row {self._row + 1} names no text ({raw[:20]!r})"
            )
        return text

    def _add_text(self, text: str) -> None:
        if text:
            self._cells.add(self._row, self._column, CellKind.TEXT, text)


@lru_cache(maxsize=2**15)
def column_of(letters: str) -> int:
    """Read the column of its letters, from 0; beyond all columns when they are not any."""
    number = 0
    for each in letters.upper():
        if not "A" <= each <= "Z" or number > MAX_COLUMNS:
            return MAX_COLUMNS
        number = number * 26 + ord(each) - ord("A") + 1
    return number - 1 if number else MAX_COLUMNS


def unescaped(text: str) -> str:
    """Decode the characters of a text that XML cannot hold (`_x000D_`)."""
    if "_x" not in text:
        return text
    return _ESCAPED.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    """Decode the character of an escape; half a character stays as it is written."""
    code = int(found[1], 16)
    return found[0] if _FIRST_HALF <= code <= _LAST_HALF else chr(code)


def _iso(raw: str) -> tuple[CellKind, str]:
    """Parse a date that is written as one (strict Open XML)."""
    try:
        found = dt.datetime.fromisoformat(raw)
    except ValueError:
        return CellKind.TEXT, raw
    if "T" in raw:
        return CellKind.TIMESTAMP, found.isoformat(" ")
    return CellKind.DATE, found.date().isoformat()
