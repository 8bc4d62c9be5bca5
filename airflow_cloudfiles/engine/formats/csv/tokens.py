"""Which values does one CSV record hold?

The reference for every record: what univocity, the parser inside Spark, makes of its quotes,
escapes and blanks, one record at a time. The fast path (`lines`) must agree with it for
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
from dataclasses import dataclass
from typing import Final

from airflow_cloudfiles.engine.options.formats.csv import CsvOptions

BLANKS: Final = "".join(map(chr, range(0x21)))
"""What counts as a blank: control characters and the space."""


class MalformedRecordError(ValueError):
    """A text is no record by the rules of the options; the reason is its message."""


@dataclass(slots=True)
class _Quoted:
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
        """The values of a text that is one record.

        Returns:
            Texts; `None` where there is nothing between two separators.

        Raises:
            MalformedRecordError: A quote that is not escaped, too many or too long values.
        """
        return self.record(text, 0)[0]

    def record(self, text: str, place: int) -> tuple[list[str | None], int]:
        r"""The values of the record that begins at a place, and where it ends.

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
        """One value, and where the separator or the end after it is."""
        if self._options.trims_start:
            while place < len(text) and text[place] in self._blanks:
                place += 1
        if self._is_end(text, place):
            return None, place
        if text[place] != self._quote:
            end = self._end(text, place)
            return self._trimmed(text[place:end]) or None, end
        value, end = self._quoted(_Quoted(text, place + 1))
        return value or self._options.empty_value, end

    def _is_end(self, text: str, place: int) -> bool:
        """Whether a value that reaches a place ends there."""
        return (
            place == len(text) or text[place] == self._line_end or text.startswith(self._sep, place)
        )

    def _end(self, text: str, place: int) -> int:
        """Where the next separator or line break is, or the end."""
        found = self._stop.search(text, place)
        return len(text) if found is None else found.start()

    def _trimmed(self, value: str) -> str:
        return value.rstrip(BLANKS) if self._options.trims_end else value

    def _quoted(self, at: _Quoted) -> tuple[str, int]:
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

    def _step(self, at: _Quoted, taken: list[str]) -> tuple[str, int] | None:
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

    def _is_stray(self, at: _Quoted, character: str) -> bool:
        """Whether an escape follows a quote that is none of its own."""
        return at.before == self._quote != self._escape == character

    def _closed(self, at: _Quoted, taken: list[str]) -> int | None:
        """Where the value ends whose closing quote is before a place; `None` when it goes on."""
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

    def _unescaped(self, at: _Quoted, taken: list[str]) -> tuple[str, int]:
        """Take the text up to the next separator as it stands."""
        if self._options.unescaped_quotes == "RAISE_ERROR":
            raise MalformedRecordError("a quote inside a quoted value that is not escaped")
        end = self._end(at.text, at.place)
        rest = self._quote + at.text[at.place : end]
        return self._trimmed(self._quote + "".join(taken) + rest), end

    def _take_mark(self, at: _Quoted, taken: list[str], character: str) -> None:
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

    def _take_text(self, at: _Quoted, taken: list[str]) -> None:
        """Take what is neither quote nor escape."""
        found = self._marks.search(at.text, at.place)
        end = len(at.text) if found is None else found.start()
        taken.append(at.before + at.text[at.place : end])
        at.before, at.place = at.text[end : end + 1], end + 1
