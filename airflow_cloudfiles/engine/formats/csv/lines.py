"""Tell the records of a block that Arrow reads as univocity does, and read the others one by one.

A block is cut into records, and each record is of one of three kinds:

- *plain*: quotes stand only around whole values, escaped (if at all) by being doubled. Arrow reads
  plain records as univocity does.
- *odd*: anything else. It is read by itself (`records`).
- *skipped*: a blank line or a comment.

What is plain is found with a few vectorised passes, most of which clean files do not need.

The reference for every record is what univocity, the parser inside Spark, makes of its quotes,
escapes and blanks, one record at a time. The fast path must agree with it for
whatever it takes on itself, and hands the rest to it.

A quoted value is read in these steps:

1. Up to its closing quote, the one that is followed by a separator, a blank or the end. Escaped
   quotes and escaped escapes are taken as what they stand for.
2. Blanks after the closing quote are left out.
3. Something else after a quote: that quote was not escaped. `unescapedQuoteHandling` says whether
   the value goes on to the next separator, to a closing quote, or makes the record invalid.

A record that ends inside quotes ends the value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from airflow_cloudfiles.engine.formats.base import with_line_breaks
from airflow_cloudfiles.engine.options.formats.csv import CsvOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_cloudfiles.engine.formats.base import Bools, Bytes, Positions

BLANKS: Final = "".join(map(chr, range(0x21)))
"""What counts as a blank: control characters and the space."""


class MalformedRecordError(ValueError):
    """A text is no record by the rules of the options; the reason is its message."""


@dataclass(slots=True)
class _QuotedValue:
    """A quoted value being read."""

    text: str
    place: int
    before: str = ""
    """The character before `place` when that still matters: a quote or an escape."""


class Tokenizer:
    """Takes records apart.

    Args:
        options: Separator, quotes, escapes and what to do with blanks.

    Attributes:
        ended_in_quotes: Whether the record that was read last ended before a closing quote.
    """

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self._sep, self._quote, self._escape = options.sep, options.quote, options.escape
        self._line_end = "\n" if options.multi_line else ""
        stops = filter(None, (options.sep, self._line_end))
        self._stop = re.compile("|".join(map(re.escape, stops)))
        marks = {options.quote, options.escape, options.escape_of_escape} - {""}
        self._marks = re.compile("|".join(map(re.escape, sorted(marks))) or "(?!)")
        self.ended_in_quotes = False
        self._blanks = BLANKS.replace(self._line_end, "").replace(options.sep, "")

    def values(self, text: str) -> list[str | None]:
        """Split a text that is one record into values.

        Returns:
            Texts; `None` where there is nothing between two separators.

        Raises:
            MalformedRecordError: A quote that is not escaped, too many or too long values.
        """
        return self.record(text, 0)[0]

    def record(self, text: str, place: int) -> tuple[list[str | None], int]:
        r"""Split the record that begins at a place into values, and find where it ends.

        The end is the end of the text, or with `multiLine` a line break (`\n`) outside of quotes.
        """
        values: list[str | None] = []
        self.ended_in_quotes = False
        while True:
            value, place = self._value(text, place)
            values.append(value)
            if not text.startswith(self._sep, place):
                break
            place += len(self._sep)
        if len(values) > self._options.max_columns:
            raise MalformedRecordError(
                f"{len(values)} values, more than maxColumns={self._options.max_columns}"
            )
        self._check_lengths(values)
        return values, place

    def _check_lengths(self, values: list[str | None]) -> None:
        most = self._options.max_chars
        if most is None:
            return
        longest = max(len(value or "") for value in values)
        if longest > most:
            raise MalformedRecordError(
                f"a value of {longest} characters, more than maxCharsPerColumn={most}"
            )

    def _value(self, text: str, place: int) -> tuple[str | None, int]:
        """Read one value, and find where the separator or the end after it is."""
        if self._options.trims_start:
            while place < len(text) and text[place] in self._blanks:
                place += 1
        if self._is_end(text, place):
            return None, place
        if text[place] != self._quote:
            end = self._end(text, place)
            return self._trimmed(text[place:end]) or None, end
        value, end = self._quoted(_QuotedValue(text, place + 1))
        return value or self._options.empty_value, end

    def _is_end(self, text: str, place: int) -> bool:
        """Tell whether a value that reaches a place ends there."""
        return (
            place == len(text) or text[place] == self._line_end or text.startswith(self._sep, place)
        )

    def _end(self, text: str, place: int) -> int:
        """Find where the next separator or line break is, or the end."""
        found = self._stop.search(text, place)
        return len(text) if found is None else found.start()

    def _trimmed(self, value: str) -> str:
        return value.rstrip(BLANKS) if self._options.trims_end else value

    def _quoted(self, at: _QuotedValue) -> tuple[str, int]:
        """Read on after the opening quote."""
        taken = [""]
        if at.place == len(at.text):
            self.ended_in_quotes = True
            return self._quote, at.place
        while at.place < len(at.text):
            found = self._step(at, taken)
            if found is not None:
                return found
        if at.before != self._quote:
            self.ended_in_quotes = True
            taken.append(at.before)
        return "".join(taken), len(at.text)

    def _step(self, at: _QuotedValue, taken: list[str]) -> tuple[str, int] | None:
        """Take what comes next; the value and its end when that was the end of it."""
        character = at.text[at.place]
        if at.before == self._quote and self._may_close(at.text, at.place):
            end = self._closed(at, taken)
            return None if end is None else ("".join(taken), end)
        if character in {self._quote, self._escape}:
            if self._is_stray(at, character):
                return self._unescaped(at, taken)
            self._take_mark(at, taken, character)
        elif at.before == self._quote:
            if self._options.unescaped_quotes != "STOP_AT_CLOSING_QUOTE":
                return self._unescaped(at, taken)
            taken.append(self._quote + character)
            at.before, at.place = "", at.place + 1
        else:
            self._take_text(at, taken)
        return None

    def _may_close(self, text: str, place: int) -> bool:
        return text[place] <= " " or text.startswith(self._sep, place)

    def _is_stray(self, at: _QuotedValue, character: str) -> bool:
        """Tell whether an escape follows a quote that does not belong to it."""
        return at.before == self._quote != self._escape == character

    def _closed(self, at: _QuotedValue, taken: list[str]) -> int | None:
        """Find where the value ends whose closing quote is before a place; `None` if it goes on."""
        text, place = at.text, at.place
        while place < len(text) and text[place] in self._blanks:
            place += 1
        if self._is_end(text, place):
            return place
        if self._options.unescaped_quotes != "STOP_AT_CLOSING_QUOTE":
            value, end = self._unescaped(at, taken)
            taken[:] = [value]
            return end
        taken.append(self._quote + text[at.place : place])
        at.before, at.place = "", place
        return None

    def _unescaped(self, at: _QuotedValue, taken: list[str]) -> tuple[str, int]:
        """Take the text up to the next separator as it stands."""
        if self._options.unescaped_quotes == "RAISE_ERROR":
            raise MalformedRecordError("a quote inside a quoted value that is not escaped")
        end = self._end(at.text, at.place)
        rest = self._quote + at.text[at.place : end]
        return self._trimmed(self._quote + "".join(taken) + rest), end

    def _take_mark(self, at: _QuotedValue, taken: list[str], character: str) -> None:
        """Take a quote or an escape that may stand for itself."""
        after = character
        if character == self._escape and at.before == self._options.escape_of_escape != "":
            taken.append(character)
            after = ""
        elif at.before == self._escape != "":
            taken.append(self._quote if character == self._quote else at.before)
            after = "" if character == self._quote else character
        elif character == self._quote == at.before:
            taken.append(character)
        elif at.before:
            taken.append(at.before)
        at.before, at.place = after, at.place + 1

    def _take_text(self, at: _QuotedValue, taken: list[str]) -> None:
        """Take what is neither quote nor escape."""
        found = self._marks.search(at.text, at.place)
        end = len(at.text) if found is None else found.start()
        taken.append(at.before + at.text[at.place : end])
        at.before, at.place = at.text[end : end + 1], end + 1


PLAIN: Final = 0
ODD: Final = 1
SKIPPED: Final = 2

_BREAK: Final = ord("\n")
_SPACE: Final = ord(" ")
_MARK: Final = b"\xef\xbb\xbf"
_PLACEHOLDER: Final = b"?"


@dataclass(slots=True)
class Records:
    r"""The records of a block.

    Attributes:
        text: All of them, each with a line break (`\n`) after it.
        starts: Where each begins.
        ends: Where the line break after each is.
        kinds: Of which kind each is.
        strings: What some records really are, for which `text` has a placeholder.
        line: How many lines of the file come before them; `None` where they are of a part of it
            that begins later.
        block: What they were cut out of, where they are of such a part.
        block_begin: Where in the file that begins.
    """

    text: bytes
    starts: Positions
    ends: Positions
    kinds: Bytes
    strings: dict[int, bytes] = field(default_factory=dict)
    line: int | None = 0
    block: bytes = b""
    block_begin: int = 0

    def record(self, index: int) -> bytes:
        """Return the bytes of one record, without the line break after it."""
        found = self.strings.get(index)
        return self.text[self.starts[index] : self.ends[index]] if found is None else found

    def first(self, count: int) -> Records:
        """Select the first of them."""
        end = int(self.ends[count - 1]) + 1 if count < len(self.ends) else len(self.text)
        strings = {index: line for index, line in self.strings.items() if index < count}
        return Records(
            self.text[:end],
            self.starts[:count],
            self.ends[:count],
            self.kinds[:count].copy(),
            strings,
        )

    def of_kind(self, kind: int) -> Positions:
        """Find the records of a kind."""
        return np.flatnonzero(self.kinds == kind)

    def plain_text(self) -> bytes:
        """Join the plain records."""
        plain = self.kinds == PLAIN
        if plain.all():
            return self.text
        edges = np.flatnonzero(np.diff(plain.astype(np.int8), prepend=0, append=0))
        runs = edges.reshape(-1, 2).tolist()
        view = memoryview(self.text)
        return b"".join(view[self.starts[a] : self.ends[b - 1] + 1] for a, b in runs)


class Splitter:
    """Cuts blocks into lines, each of which is a record.

    Args:
        options: What ends a line, and which lines are plain.
    """

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        self._line_end = None if options.line_sep is None else options.line_sep.encode()
        self._shape = PlainRecordFinder(options)

    def split(self, block: bytes) -> Records:
        """Cut complete lines, which need not have a line end after the last one."""
        text, strings = self._lines(block)
        array = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(array == _BREAK)
        starts = np.empty_like(ends)
        starts[:1] = 0
        starts[1:] = ends[:-1] + 1
        records = Records(text, starts, ends, np.zeros(len(ends), np.uint8), strings)
        records.kinds[list(strings)] = ODD
        self._shape.find_odd(records, array)
        self._skip(records, array)
        return records

    def _lines(self, block: bytes) -> tuple[bytes, dict[int, bytes]]:
        """End each line with a line feed; keep lines apart that hold line feeds."""
        end = self._line_end
        has_others = b"\r" in block or (end != b"\n" and b"\n" in block)
        if end is None or not has_others:
            return with_line_breaks(block if end is None else block.replace(end, b"\n")), {}
        lines = block.split(end)
        if not lines[-1]:
            lines.pop()
        strings = {
            index: line for index, line in enumerate(lines) if b"\n" in line or b"\r" in line
        }
        return b"".join(
            (_PLACEHOLDER if index in strings else line) + b"\n" for index, line in enumerate(lines)
        ), strings

    def _skip(self, records: Records, array: Bytes) -> None:
        """Skip lines of nothing but blanks, and comments."""
        first = array[records.starts]
        last = array[np.maximum(records.ends - 1, records.starts)]
        for index in np.flatnonzero((first <= _SPACE) & (last <= _SPACE)).tolist():
            if not records.record(index).strip(_BLANK_BYTES):
                records.kinds[index] = SKIPPED
        skip_comments(records, first, self._options.comment.encode())
        for index, line in records.strings.items():
            if not line.strip(_BLANK_BYTES):
                records.kinds[index] = SKIPPED


_BLANK_BYTES: Final = bytes(range(0x21))


def skip_comments(records: Records, first: Bytes, mark: bytes) -> None:
    """Skip records that begin with a mark, if there is one; `first` has their first bytes."""
    for index in np.flatnonzero(first == mark[0]).tolist() if mark else ():
        if records.record(index).startswith(mark):
            records.kinds[index] = SKIPPED


class PlainRecordFinder:
    """Knows plain records by their bytes."""

    def __init__(self, options: CsvOptions) -> None:
        self.quote = options.quote.encode()
        self._escape = options.escape.encode()
        self._doubles = options.escape == options.quote
        self.escapes = _escapes(options)
        self._sep = options.sep.encode()
        self._trims = options.trims_start or options.trims_end
        self._max_chars = options.max_chars
        self.is_simple = len(self.quote) <= 1 and all(
            each.isascii() for each in (self.quote, self._sep, self._escape)
        )

    def find_odd(self, records: Records, array: Bytes) -> None:
        """Mark the records that are not plain."""
        if not len(records.ends):
            return
        if not self.is_simple:
            records.kinds[:] = ODD
            return
        self._find_strange_bytes(records)
        if self._max_chars is not None:
            records.kinds[records.ends - records.starts > self._max_chars] = ODD
        if self.quote and self.quote in records.text:
            quotes = np.flatnonzero(array == self.quote[0])
            firsts = np.searchsorted(quotes, records.starts)
            counts = np.diff(firsts, append=len(quotes))
            records.kinds[(counts & 1).astype(np.bool_)] = ODD
            closes = (np.arange(len(quotes)) - np.repeat(firsts, counts)) & 1
            strange = quotes[self.are_strange(records.text, array, quotes, closes.astype(np.bool_))]
            records.kinds[np.searchsorted(records.starts, strange, side="right") - 1] = ODD
            self._find_escapes(records, counts > 0)

    @staticmethod
    def _find_strange_bytes(records: Records) -> None:
        """Find records that are not UTF-8, and a first one that Arrow would take a mark off."""
        text = records.text
        if text.startswith(_MARK):
            records.kinds[0] = ODD
        if text.isascii():
            return
        try:
            text.decode()
        except UnicodeDecodeError:
            for index in range(len(records.ends)):
                try:
                    records.record(index).decode()
                except UnicodeDecodeError:
                    records.kinds[index] = ODD

    def are_strange(self, text: bytes, array: Bytes, quotes: Positions, closes: Bools) -> Bools:
        """Find which quotes stand elsewhere than around a whole value.

        Args:
            text: The records, with a line break after the last one.
            array: The same.
            quotes: Where quotes are.
            closes: Which of them are there to close a value; the others open one.
        """
        before, after = array[quotes - 1], array[quotes + 1]
        begins = (before == _BREAK) | (quotes == 0)
        opens_well = begins | (before == self._sep[-1])
        closes_well = (after == _BREAK) | (after == self._sep[0])
        if len(self._sep) > 1:
            opens_well, closes_well = self._beside_separators(
                text, quotes, begins, opens_well, closes_well
            )
        if self._doubles:
            opens_well |= (before == self.quote[0]) & ~begins
            closes_well |= after == self.quote[0]
        well = np.where(closes, closes_well, opens_well)
        if self._trims:
            well &= np.where(closes, before, after) > _SPACE
        strange: Bools = ~well
        return strange

    def _beside_separators(
        self, text: bytes, quotes: Positions, begins: Bools, opens: Bools, closes: Bools
    ) -> tuple[Bools, Bools]:
        """Tell whether the whole of a separator of several characters is before, or after."""
        sep, size = self._sep, len(self._sep)
        for number in np.flatnonzero(opens & ~begins).tolist():
            place = int(quotes[number])
            opens[number] = text[max(0, place - size) : place] == sep
        for number in np.flatnonzero(closes).tolist():
            place = int(quotes[number]) + 1
            closes[number] = text[place] == _BREAK or text.startswith(sep, place)
        return opens, closes

    def _find_escapes(self, records: Records, has_quotes: Bools) -> None:
        """Find records with quotes and escapes that mean something."""
        for escape in self.escapes:
            for place in _occurrences(records.text, escape):
                index = int(np.searchsorted(records.ends, place))
                if has_quotes[index]:
                    records.kinds[index] = ODD


def _escapes(options: CsvOptions) -> list[bytes]:
    """List the strings that mean an escape when they are inside quotes."""
    quote, escape, above = options.quote, options.escape, options.escape_of_escape
    if escape == quote:
        return [above.encode()] if above else []
    if not escape:
        return []
    return [(escape + quote).encode(), (escape + above if above == escape else above).encode()]


def _occurrences(text: bytes, wanted: bytes) -> Iterable[int]:
    place = text.find(wanted)
    while place >= 0:
        yield place
        place = text.find(wanted, place + 1)
