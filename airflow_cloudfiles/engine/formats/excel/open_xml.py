"""How are the parts of a workbook of Office Open XML found?

`.xlsx`, `.xlsm` and `.xlsb` have the same parts, which name each other by relations (ECMA-376-2,
9). Only what is in the parts is written in another way.
"""

from __future__ import annotations

import posixpath
from typing import Final

from airflow_cloudfiles.engine.formats.excel.cells import DamagedWorkbookError, Kind
from airflow_cloudfiles.engine.formats.excel.number_formats import built_in, shown_by
from airflow_cloudfiles.engine.formats.excel.package import Package, parse_whole

_SHARED_TEXT_BYTES: Final = 64
"""What a text takes besides its characters."""
_WORKSHEET: Final = "/worksheet"


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
        """The first part of a kind, by the end of its type."""
        return next((path for each, path in self.targets.values() if each.endswith(kind)), None)


class OpenXmlParts:
    """The parts of a workbook.

    Args:
        package: The archive.
        book: The part that lists the sheets, where the archive does not say so.

    Attributes:
        book: The part that lists the sheets.
        sheets: The parts of the sheets with cells, by their names in their order.
    """

    def __init__(self, package: Package, book: str) -> None:
        self.book = Relations(package, "").first("/officeDocument") or book
        self.sheets: dict[str, str] = {}
        self._relations = Relations(package, self.book)

    def add_sheet(self, name: str, identifier: str) -> None:
        """Take a sheet of the list, unless it is one without cells, such as a chart."""
        kind, path = self._relations.targets.get(identifier, ("", ""))
        if kind.endswith(_WORKSHEET):
            self.sheets[name] = path

    @property
    def styles(self) -> str | None:
        """The part of the styles of cells, if the workbook names one."""
        return self._relations.first("/styles")

    @property
    def shared_texts(self) -> str | None:
        """The part of the texts that cells share, if the workbook names one."""
        return self._relations.first("/sharedStrings")


class TextBudget:
    """How many more bytes of texts that cells share may be held.

    Args:
        most: How many in all.
    """

    def __init__(self, most: int) -> None:
        self._left = self._most = most

    def spend(self, size: int) -> None:
        """Hold so many more.

        Raises:
            DamagedWorkbookError: They are too many.
        """
        self._left -= size
        if self._left < 0:
            raise DamagedWorkbookError(
                f"its texts take more than {self._most} bytes, which is what is held of one file "
                "(maxRecordBytes)"
            )

    def spend_text(self) -> None:
        """Hold one more text, whatever its length."""
        self.spend(_SHARED_TEXT_BYTES)


def format_shows(number: str, code: str | None) -> Kind:
    """What a format shows, by its number and the code that the workbook has for that."""
    if code is not None:
        return shown_by(code)
    return built_in(int(number)) if number.isdecimal() else Kind.NUMBER
