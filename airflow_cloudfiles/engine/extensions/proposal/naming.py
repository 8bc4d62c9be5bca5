"""Tell what of a path names a table from what only tells its files apart.

A table's files lie in folders and have names that differ in dates, numbers and random identifiers.
What is left of a path without these is the pattern that its files share.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from airflow_cloudfiles.engine.discovery.globs import escape_pattern
from airflow_cloudfiles.engine.reading.splits import COMPRESSED

_UUID: Final = r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}"
_HEX: Final = r"(?<![0-9A-Za-z])(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{8,}(?![0-9A-Za-z])"
_NUMBER: Final = r"[0-9]+(?:[-_.: ]?[THWQM]?[0-9]+)*(?:Z(?![0-9A-Za-z]))?"
_UNUSUAL: Final = r"[\ud800-\udfff\x00-\x1f\x7f\x85\u2028\u2029]+"
"""Bytes that are not UTF-8, and control characters, which a file of streams cannot hold."""
_IDENTIFIER: Final = re.compile(f"{_UUID}|{_HEX}")
_VARYING: Final = re.compile(f"{_NUMBER}|{_UNUSUAL}")
_SEPARATORS: Final = frozenset("-_.: ")
_KEY: Final = re.compile(r"[^=\ud800-\udfff]+=")
ANY: Final = "*"
"""A folder whose name is a date, a number or an identifier."""


@dataclass(frozen=True, slots=True)
class NamePattern:
    """What the names of a table's files share.

    Attributes:
        fixed: The texts between the parts that vary; a single one where nothing varies.
        ending: Of the name, in lower case, without the dot and that of a compression.
    """

    fixed: tuple[str, ...]
    ending: str

    @property
    def varies(self) -> bool:
        """Whether files of other names fit it."""
        return len(self.fixed) > 1

    @property
    def stem(self) -> str:
        """The fixed texts without the ending."""
        text = "".join(self.fixed)
        ending = f".{self.ending}"
        return text[: -len(ending)] if text.lower().endswith(ending) else text

    def glob(self, compressions: frozenset[str] = frozenset({""})) -> str:
        """Write it as a pattern for names.

        Args:
            compressions: The endings of compressions that its files have, with their dots; an empty
                text for none.
        """
        text = "*".join(map(escape_pattern, self.fixed))
        if len(compressions) == 1:
            return text + escape_pattern(next(iter(compressions)))
        return text + "{" + ",".join(map(escape_pattern, sorted(compressions))) + "}"


def split_compression(name: str) -> tuple[str, str]:
    """Separate a name from the ending that says how the file is compressed."""
    place = name.rfind(".")
    is_compressed = place > 0 and name[place:].lower() in COMPRESSED
    return (name[:place], name[place:]) if is_compressed else (name, "")


def name_pattern(name: str) -> NamePattern:
    """Find the pattern of a name without its compression."""
    begin, *others = _VARYING.split(_without_identifiers(name))
    fixed = [begin]
    for at, text in enumerate(others):
        # Between two parts that vary a separator tells nothing.
        if text in _SEPARATORS and at < len(others) - 1:
            continue
        if not text and at < len(others) - 1:
            continue
        fixed.append(text)
    stem, dot, ending = name.rpartition(".")
    is_ending = bool(dot and stem) and ending.isalnum() and not ending.isdigit()
    return NamePattern(tuple(fixed), ending.lower() if is_ending else "")


def _without_identifiers(name: str) -> str:
    """Put a character that varies in the place of identifiers, before numbers are searched for."""
    return _IDENTIFIER.sub("\x00", name)


def folder_step(name: str) -> str | None:
    """Find what stands for a folder in the pattern of its path.

    Returns:
        `None` where the name itself belongs to the pattern; `ANY` for a date, a number or an
        identifier; `key=*` for a partition.
    """
    if key := _KEY.match(name):
        return f"{escape_pattern(key[0])}*"
    if not name:
        return None
    left = _VARYING.sub("", _without_identifiers(name))
    is_varying = left != name and all(each in _SEPARATORS for each in left)
    return ANY if is_varying else None


def folder_pattern(folders: list[str]) -> tuple[str, ...]:
    """Find the pattern of the folder of a table, of folders a file is in.

    Folders at the end that vary only tell files of a table apart, and are left out.

    Args:
        folders: Names, from the root down.

    Returns:
        Patterns of names, those that belong to it escaped.
    """
    steps = [folder_step(each) for each in folders]
    while steps and (steps[-1] is not None or not folders[len(steps) - 1]):
        steps.pop()
    return tuple(
        escape_pattern(name) if step is None else step
        for name, step in zip(folders, steps, strict=False)
    )
