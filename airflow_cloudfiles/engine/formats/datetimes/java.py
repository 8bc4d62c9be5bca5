"""What does a date or time pattern of Java say, and which moment does a text name by it?

Patterns are those of Java's `DateTimeFormatter` as Spark uses it to parse: the letters Spark takes
(`DateTimeFormatterHelper`), strings compared without case, fields checked strictly, and Spark's
defaults for fields that the pattern does not have. A pattern is compiled into a regular expression
whose parts never give back what they took, as Java's parsers do not.

Ours: an optional era that is missing, and a modified Julian day (`g`), are not taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from airflow_cloudfiles.engine.formats.datetimes.names import Locale
from airflow_cloudfiles.engine.formats.datetimes.zones import ZONE_NAME

_WEEK_BASED: Final = frozenset("YWwuec")
_NOT_PARSED: Final = frozenset("ABnNpEFqQg")
_RESERVED: Final = frozenset("{}#")
_MOST_DIGITS: Final = 19
_MOST_LETTERS: Final = {"y": 6, "M": 4, "L": 4, "D": 3, "S": 9, "X": 5, "x": 5, "Z": 5, "G": 4}
_MOST_OF_OTHERS: Final = {**dict.fromkeys("dhHkKms", 2), "a": 1, "z": 4, "V": 2, "O": 4}
_ZONE_LETTERS: Final = frozenset("XxZOzV")

_PLAIN_OFFSETS: Final = {
    1: r"[+-][0-9]{2}(?:[0-5][0-9])?",
    2: r"[+-][0-9]{2}[0-5][0-9]",
    3: r"[+-][0-9]{2}:[0-5][0-9]",
    4: r"[+-][0-9]{2}[0-5][0-9](?:[0-5][0-9])?",
    5: r"[+-][0-9]{2}:[0-5][0-9](?::[0-5][0-9])?",
}
_LOCALIZED_OFFSETS: Final = {
    1: r"GMT(?:[+-][0-9]{1,2}(?::[0-5][0-9](?::[0-5][0-9])?)?)?",
    4: r"GMT(?:[+-][0-9]{2}:[0-5][0-9](?::[0-5][0-9])?)?",
}
_SHORT_ZONES: Final = {
    "PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "PT": "America/Los_Angeles",
    "MST": "America/Denver", "MDT": "America/Denver", "CST": "America/Chicago",
    "CDT": "America/Chicago", "CT": "America/Chicago", "EST": "America/New_York",
    "EDT": "America/New_York", "ET": "America/New_York", "HST": "Pacific/Honolulu",
    "CET": "Europe/Paris", "CEST": "Europe/Paris", "MSK": "Europe/Moscow", "JST": "Asia/Tokyo",
    "AEST": "Australia/Sydney", "AEDT": "Australia/Sydney",
}  # fmt: skip
"""Short names of zones that are clear; an offset besides, if the name has one, is not looked at."""
_ERAS: Final = {"bc": 0, "ad": 1}
_LONG_ERAS: Final = {"before christ": 0, "anno domini": 1}


@dataclass(frozen=True, slots=True)
class Letters:
    """A run of one letter: a field, so many letters wide."""

    letter: str
    count: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A text that stands for itself."""

    text: str


@dataclass(slots=True)
class Section:
    """What stands in brackets, and may be missing; the whole pattern is one that may not."""

    parts: list[Letters | Literal | Section] = field(default_factory=list)


class PatternError(ValueError):
    """The pattern is none that Spark takes; the message says why."""


def split_pattern(pattern: str) -> Section:
    """Take a pattern apart.

    Raises:
        PatternError: It is none.
    """
    stack = [Section()]
    for part in _tokens(pattern):
        if part == "[":
            stack.append(Section())
            stack[-2].parts.append(stack[-1])
        elif part == "]":
            stack.pop()
            if not stack:
                raise PatternError("it closes a section in brackets that is not open")
        elif isinstance(part, str):
            stack[-1].parts.append(Literal(part))
        else:
            if isinstance(part, Letters):
                _check(part)
            stack[-1].parts.append(part)
    return stack[0]


def _unquoted(pattern: str) -> str:
    return "".join(pattern.split("'")[::2])


def _tokens(pattern: str) -> Iterator[str | Letters | Literal]:
    position = 0
    while position < len(pattern):
        character = pattern[position]
        end = position + 1
        if character.isascii() and character.isalpha():
            end += len(pattern[end:]) - len(pattern[end:].lstrip(character))
            yield Letters(character, end - position)
        elif character == "'":
            text, end = _quoted(pattern, position)
            yield Literal(text)
        elif character in _RESERVED:
            raise PatternError(f"{character!r} is reserved; put it in single quotes")
        else:
            yield character
        position = end


def _quoted(pattern: str, begin: int) -> tuple[str, int]:
    """The text in quotes that begins at a position, and where it ends; `''` is a quote."""
    found = re.compile(r"'((?:[^']|'')*)'").match(pattern, begin)
    if found is None:
        raise PatternError("a quote is not closed")
    return found[1].replace("''", "'") or "'", found.end()


def _check(letters: Letters) -> None:
    letter, count = letters.letter, letters.count
    if letter in _WEEK_BASED:
        raise PatternError(f"{letter!r} counts weeks, which is not supported")
    if letter in _NOT_PARSED:
        raise PatternError(f"{letter!r} cannot be parsed")
    most = _MOST_LETTERS.get(letter) or _MOST_OF_OTHERS.get(letter)
    if most is None:
        raise PatternError(f"{letter!r} has no meaning; put strings in single quotes")
    too_few = {"V": {1}, "O": {2, 3}}.get(letter, set())
    if count > most or count in too_few:
        raise PatternError(f"{letter * count!r} has a wrong number of letters")
    if letter == "z" and count > 3:  # noqa: PLR2004 - a form of a name
        raise PatternError("full names of zones ('zzzz') are not supported; use 'z' or 'VV'")


@dataclass(frozen=True, slots=True)
class _Group:
    """A group of the regular expression: which field its text is."""

    letter: str
    count: int
    names: dict[str, int] | None = None


class Pattern:
    """A compiled pattern.

    Args:
        pattern: For instance `yyyy-MM-dd HH:mm:ss[.SSS][XXX]`.
        locale: Language of names.

    Attributes:
        root: Its parts.
        has_zone: Whether strings may name their zone.

    Raises:
        PatternError: Spark would refuse it.
    """

    def __init__(self, pattern: str, locale: Locale) -> None:
        self.root = split_pattern(pattern)
        self._locale = locale
        self._groups: list[_Group] = []
        self._has_era = "G" in _unquoted(pattern)
        source = self._section(self.root)
        self._regex = re.compile(source, re.IGNORECASE | re.DOTALL)
        self.has_zone = any(each.letter in _ZONE_LETTERS for each in self._groups)

    def fields(self, text: str) -> dict[str, int | str] | None:
        """The fields of a text by name; `None` when it does not match.

        Names are `year`, `year_of_era`, `era`, and the letters `M d D H k h K m s a`; `S` is
        nanoseconds; `zone` is the text of a zone.
        """
        found = self._regex.fullmatch(text)
        if found is None or not text:
            return None
        fields: dict[str, int | str] = {}
        for group, part in zip(self._groups, found.groups(), strict=True):
            if part is None:
                continue
            name, value = self._value(group, part)
            if value is None or fields.setdefault(name, value) != value:
                return None
        return fields

    def _value(self, group: _Group, part: str) -> tuple[str, int | str | None]:
        letter = group.letter
        if group.names is not None:
            return {"L": "M", "G": "era"}.get(letter, letter), group.names.get(part.lower())
        if letter in _ZONE_LETTERS:
            return "zone", _SHORT_ZONES.get(part.upper(), part) if letter == "z" else part
        if letter == "S":
            return "S", int(part.ljust(9, "0"))
        number = int(part)
        if letter == "y":
            number += 2000 if group.count == 2 else 0  # noqa: PLR2004 - `yy`
            return "year_of_era" if self._has_era else "year", number
        return "M" if letter == "L" else letter, number

    # Compiling ---------------------------------------------------------------------------

    def _section(self, section: Section) -> str:
        sources: list[str] = []
        parts = section.parts
        for index, part in enumerate(parts):
            if isinstance(part, Literal):
                sources.append(re.escape(part.text))
            elif isinstance(part, Section):
                sources.append(f"(?>{self._section(part)})?+")
            else:
                sources.append(f"((?>{self._letters(part, _digits_after(parts, index))}))")
        return "".join(sources)

    def _letters(self, letters: Letters, following: int) -> str:
        names = self._names(letters)
        self._groups.append(_Group(letters.letter, letters.count, names))
        if names is not None:
            return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        if letters.letter == "S":
            return rf"[0-9]{{1,{letters.count}}}"
        if letters.letter in _ZONE_LETTERS:
            return _zone_source(letters)
        return _number_source(letters, following)

    def _names(self, letters: Letters) -> dict[str, int] | None:
        """The strings of a field that is written in words."""
        letter, count = letters.letter, letters.count
        if letter == "a":
            return {name.lower(): half for half, name in enumerate(self._locale.halves)}
        if letter == "G":
            return _ERAS if count < 4 else _LONG_ERAS  # noqa: PLR2004 - a form of a name
        if letter in "ML" and count > 2:  # noqa: PLR2004 - a form of a name
            return self._locale.months if count == 4 else self._locale.short_months  # noqa: PLR2004
        return None


def _is_fixed(letters: Letters) -> bool:
    """Whether a field is written in digits, always as many."""
    letter, count = letters.letter, letters.count
    return (letter == "D" and count == 3) or (letter in "yMLdHhkKms" and count == 2)  # noqa: PLR2004


def _digits_after(parts: list[Letters | Literal | Section], index: int) -> int:
    """How many digits the fixed fields take that follow a number without anything between."""
    width = 0
    for part in parts[index + 1 :]:
        if not isinstance(part, Letters) or not _is_fixed(part):
            break
        width += part.count
    return width


def _number_source(letters: Letters, following: int) -> str:
    """The expression of a number; `following` digits after it belong to other fields."""
    letter, count = letters.letter, letters.count
    if _is_fixed(letters):
        return rf"[0-9]{{{count}}}"
    if letter == "D" and count > 1:
        return rf"[0-9]{{{count},3}}"
    at_end = rf"(?=[0-9]{{{following}}}(?![0-9]))" if following else ""
    minus = r"-(?=0*+[1-9])"
    if letter == "y" and count > 3:  # noqa: PLR2004 - `yyyy`
        longer = rf"[0-9]{{{count + 1},{_MOST_DIGITS}}}{at_end}"
        exact = rf"[0-9]{{{count}}}"
        return rf"\+{longer}|{minus}(?:{longer}|{exact})|{exact}(?![0-9]{{{following + 1}}})"
    digits = rf"[0-9]{{{count},{_MOST_DIGITS}}}{at_end}"
    least = rf"|[0-9]{{{count}}}" if following else ""
    return rf"(?:{minus})?(?:{digits}{least})"


def _zone_source(letters: Letters) -> str:
    letter, count = letters.letter, letters.count
    if letter == "X":
        return f"Z|{_PLAIN_OFFSETS[count]}"
    if letter == "x":
        return _PLAIN_OFFSETS[count]
    if letter == "Z":
        return {4: _LOCALIZED_OFFSETS[4], 5: f"Z|{_PLAIN_OFFSETS[5]}"}.get(count, _PLAIN_OFFSETS[2])
    if letter == "O":
        return _LOCALIZED_OFFSETS[count]
    return ZONE_NAME
