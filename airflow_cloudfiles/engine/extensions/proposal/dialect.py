"""Recognize the dialect of a CSV file from its beginning.

Python's `csv.Sniffer` looks for characters that recur, and takes letters for separators. Here the
records are parsed with each separator in question, and one wins that gives nearly all records the
same number of values.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

SEPARATORS: Final = ("\t", ";", "|", ",", "\x01", "^", "~")
"""In question; of two that fit equally, the first: a comma may be that of a decimal number."""
_MOST_RECORDS: Final = 500
_MOST_TITLES: Final = 10
"""So many lines before the header, at most, are taken for titles."""
_ENOUGH: Final = 0.8
"""Of the records, so many have the same number of values."""
_TYPED: Final = re.compile(
    r"\s*(?:[-+]?[\d.,]*\d(?:[eE][-+]?\d+)?%?"
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ].*)?|true|false)\s*",
    re.IGNORECASE,
)

_ZEROS: Final = re.compile(r"0\d+")


@dataclass(slots=True)
class Dialect:
    """How a CSV file is written.

    Attributes:
        options: Options of the reader, also those with default values.
        doubts: What is not certain, in sentences.
        share: Of the records, how many have the same number of values.
        zeros: Names of columns with numbers that begin with zeros, such as postal codes.
    """

    options: dict[str, str]
    doubts: list[str] = field(default_factory=list)
    share: float = 1.0
    zeros: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Parsed:
    sep: str
    quote: str
    rows: Sequence[tuple[int, list[str]]]
    """Records, each with the number of lines before it."""
    width: int
    share: float


def recognize_dialect(text: str, *, is_whole: bool) -> Dialect | None:
    """Recognize the dialect of a text; `None` where its lines are no records of several values.

    Args:
        text: The beginning of a file.
        is_whole: Whether that is all of it.
    """
    if not is_whole:
        text = text[: text.rfind("\n") + 1]
    quotes = ('"', "'") if "'" in text and '"' not in text else ('"',)
    tried = (_parsed(text, sep, quote, is_whole=is_whole) for quote in quotes for sep in SEPARATORS)
    fitting = [each for each in tried if each is not None]
    if not fitting:
        return None
    best = max(fitting, key=lambda each: (round(each.share, 2), each.width))
    found = Dialect({"sep": best.sep}, share=best.share)
    rows = _without_titles(best, found)
    _quotes(text, rows, found, is_single=best.quote == "'")
    _header(rows, found)
    if best.share < 1:
        others = sum(len(row) != best.width for row in rows)
        if others:
            found.doubts.append(
                f"{others} of the {len(rows)} sampled records have not {best.width} values."
            )
    return found


def _parsed(text: str, sep: str, quote: str, *, is_whole: bool) -> _Parsed | None:
    """Parse the records with a separator; `None` where they have not the same number of values."""
    try:
        rows = _records(text, sep, quote) if sep in text else []
    except csv.Error:
        return None
    if not is_whole and 1 < len(rows) < _MOST_RECORDS:
        rows.pop()  # it may be cut
    if not rows:
        return None
    widths = Counter(len(row) for _, row in rows)
    width, count = max(widths.items(), key=lambda each: (each[1], each[0]))
    share = count / max(1, len(rows) - _titles(rows, width))
    found = _Parsed(sep, quote, rows, width, share)
    return found if width > 1 and share >= _ENOUGH else None


def _records(text: str, sep: str, quote: str) -> list[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sep, quotechar=quote)
    rows: list[tuple[int, list[str]]] = []
    before = 0
    for row in reader:
        if any(row):
            rows.append((before, row))
        before = reader.line_num
        if len(rows) >= _MOST_RECORDS:
            break
    return rows


def _titles(rows: Sequence[tuple[int, list[str]]], width: int) -> int:
    """Count the records at the beginning that are shorter than the others."""
    titles = 0
    while titles < min(_MOST_TITLES, len(rows) - 1) and len(rows[titles][1]) < width:
        titles += 1
    return titles


def _without_titles(parsed: _Parsed, found: Dialect) -> list[list[str]]:
    """Find where the records begin, and note what is skipped before."""
    rows = list(parsed.rows)
    titles = _titles(rows, parsed.width)
    if not titles:
        return [row for _, row in rows]
    if all(row[0].lstrip().startswith("#") for _, row in rows[:titles]):
        found.options["comment"] = "#"
    else:
        found.options["skipRows"] = str(rows[titles][0])
        found.doubts.append(
            f"The first {rows[titles][0]} lines look like titles, not like records: skipRows skips "
            "them."
        )
    return [row for _, row in rows[titles:]]


def _quotes(text: str, rows: Sequence[Sequence[str]], found: Dialect, *, is_single: bool) -> None:
    values = [value for row in rows for value in row]
    has_lines = any("\n" in value or "\r" in value for value in values)
    quoted = sum(len(each) > 1 and each[0] == each[-1] == "'" for each in values)
    if has_lines:
        found.options["multiLine"] = "true"
    if is_single or ('"' not in text and quoted and quoted * 4 >= len(values)):
        found.options["quote"] = "'"
        return
    sep = re.escape(found.options["sep"])
    if re.search(rf'""[^"\s{sep}]|[^"\s{sep}]""', text):
        if '\\"' in text:
            found.doubts.append(
                'Quotes inside of values are doubled ("") and have backslashes (\\"): escape is '
                "left at the backslash."
            )
        else:
            found.options["escape"] = '"'


def _header(rows: Sequence[Sequence[str]], found: Dialect) -> None:
    """Decide whether the first record names the columns."""
    first, others = rows[0], rows[1:]
    has_names = all(name.strip() and not _TYPED.fullmatch(name) for name in first)
    is_header = has_names and len(set(first)) == len(first)
    found.options["header"] = "true" if is_header else "false"
    if not is_header:
        found.doubts.append("The first record looks like values, not like names: header is false.")
        return
    columns = zip(
        first, zip(*(row for row in others if len(row) == len(first)), strict=True), strict=False
    )
    found.zeros = [name for name, values in columns if any(map(_ZEROS.fullmatch, values))]
    typed = any(_TYPED.fullmatch(value) for row in others for value in row)
    if not typed:
        found.doubts.append(
            "All values are texts, so that the first record may be values, too: header is true."
        )
    elif any(value == name for row in others for name, value in zip(first, row, strict=False)):
        found.doubts.append("A value is the name of its column: is the header there twice?")
