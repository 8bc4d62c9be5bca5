"""Read the parts of a workbook of Office Open XML, which is a zip archive.

In pieces, so that a part that is small in the archive and large outside of it takes no memory. XML
is parsed as it comes, without entities of its own, of which a small part could be made large.

The parts name each other by relations (ECMA-376-2, 9).
"""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Final, cast
from xml.parsers import expat

from airflow_cloudfiles.engine.formats.excel.cells import (
    CellKind,
    DamagedWorkbookError,
    built_in,
    shown_by,
)

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
