"""Read a date or time pattern of Java, and texts by it.

Patterns are those of Java's `DateTimeFormatter` as Spark uses it to parse: the letters Spark takes
(`DateTimeFormatterHelper`), strings compared without case, fields checked strictly, and Spark's
defaults for fields that the pattern does not have. A pattern is compiled into a regular expression
whose parts never give back what they took, as Java's parsers do not.

Ours: an optional era that is missing, and a modified Julian day (`g`), are not taken.

The fields of a text make a day and a time of day.

Java's strict rules of resolution, and Spark's defaults for what is missing: 1970, January, the
first, midnight.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from airflow_cloudfiles.engine.formats.datetimes import default_format
from airflow_cloudfiles.engine.formats.datetimes.default_format import (
    ZONE_NAME,
    Locale,
    find_zone,
    offset_of,
)

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
_ZONES: Final = {
    **{("X", count): f"Z|{offset}" for count, offset in _PLAIN_OFFSETS.items()},
    **{("x", count): offset for count, offset in _PLAIN_OFFSETS.items()},
    **dict.fromkeys((("Z", 1), ("Z", 2), ("Z", 3)), _PLAIN_OFFSETS[2]),
    ("Z", 4): _LOCALIZED_OFFSETS[4],
    ("Z", 5): f"Z|{_PLAIN_OFFSETS[5]}",
    **{("O", count): offset for count, offset in _LOCALIZED_OFFSETS.items()},
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
    """Read the text in quotes at a position, and find where it ends; `''` is a quote."""
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
        self._has_era = any("G" in part for part in pattern.split("'")[::2])
        source = self._section(self.root)
        self._regex = re.compile(source, re.IGNORECASE | re.DOTALL)
        self.has_zone = any(each.letter in _ZONE_LETTERS for each in self._groups)

    def fields(self, text: str) -> dict[str, int | str] | None:
        """Match a text and return its fields by name; `None` when it does not match.

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
            return _ZONES.get((letters.letter, letters.count), ZONE_NAME)
        return _number_source(letters, following)

    def _names(self, letters: Letters) -> dict[str, int] | None:
        """List the strings of a field that is written in words."""
        letter, count = letters.letter, letters.count
        if letter == "a":
            return {name.lower(): half for half, name in enumerate(self._locale.halves)}
        if letter == "G":
            return _ERAS if count < 4 else _LONG_ERAS  # noqa: PLR2004 - a form of a name
        if letter in "ML" and count > 2:  # noqa: PLR2004 - a form of a name
            return self._locale.months if count == 4 else self._locale.short_months  # noqa: PLR2004
        return None


def _is_fixed(letters: Letters) -> bool:
    """Tell whether a field is written in digits, always as many."""
    letter, count = letters.letter, letters.count
    return (letter == "D" and count == 3) or (letter in "yMLdHhkKms" and count == 2)  # noqa: PLR2004


def _digits_after(parts: list[Letters | Literal | Section], index: int) -> int:
    """Count the digits of the fixed fields that follow a number without anything between."""
    width = 0
    for part in parts[index + 1 :]:
        if not isinstance(part, Letters) or not _is_fixed(part):
            break
        width += part.count
    return width


def _number_source(letters: Letters, following: int) -> str:
    """Build the expression of a number; `following` digits after it belong to other fields."""
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


Fields = Mapping[str, int | str]

_LIMITS: Final = {
    "M": (1, 12), "D": (1, 366), "d": (1, 31), "H": (0, 23), "k": (1, 24), "h": (1, 12),
    "K": (0, 11), "m": (0, 59), "s": (0, 59), "year_of_era": (1, 999_999_999),
}  # fmt: skip
_DAY_MICROS: Final = 86_400_000_000
_NOON: Final = 12
_MIDNIGHT: Final = 24


def day_of(fields: Fields) -> int | None:
    """Days since 1970-01-01 of what a text says; `None` when there is no such day."""
    if not all(
        low <= int(fields[name]) <= high for name, (low, high) in _LIMITS.items() if name in fields
    ):
        return None
    year = _year(fields)
    if year is None:
        return None
    month, day = fields.get("M"), fields.get("d")
    if "D" in fields:
        return _day_of_year(year, int(fields["D"]), month, day)
    return default_format.days_of(year, int(month or 1), int(day or 1))


def moment_of(fields: Fields, *, exact: bool = True) -> int | None:
    """Local microseconds since 1970-01-01 of what a text says.

    `None` when there is no such moment, or, if it is to be exact, microseconds do not hold it:
    Spark cuts off the rest.
    """
    days, hour = day_of(fields), _hour(fields)
    micros, rest = divmod(int(fields.get("S", 0)), 1000)
    if days is None or hour is None or (exact and rest):
        return None
    clock = (hour * 60 + int(fields.get("m", 0))) * 60 + int(fields.get("s", 0))
    return default_format.in_range(days * _DAY_MICROS + clock * 1_000_000 + micros)


def offset_of_text(zone: str, local_micros: int) -> int | None:
    """Seconds east of UTC that the text of a zone means at a local time."""
    name = zone
    if name[:3].upper() == "GMT":
        name = name[3:] or "Z"
    elif name.upper() == "Z":
        name = "Z"
    found = find_zone(name, any_case=True)
    return None if found is None else offset_of(found, local_micros)


def _year(fields: Fields) -> int | None:
    """Find the year; `None` when only an era could tell it."""
    if "year" in fields:
        return int(fields["year"])
    if "year_of_era" not in fields:
        return 1970
    era = fields.get("era")
    if era is None:
        return None
    return int(fields["year_of_era"]) if era else 1 - int(fields["year_of_era"])


def _day_of_year(
    year: int, number: int, month: int | str | None, day: int | str | None
) -> int | None:
    """Find the day of a year's day number, if month and day, where given, agree."""
    first = default_format.days_of(year, 1, 1)
    after = default_format.days_of(year + 1, 1, 1)
    if first is None or after is None or first + number - 1 >= after:
        return None
    # Months are as long in every 400 years.
    found = date(2000 + year % 400, 1, 1).toordinal() + number - 1
    that = date.fromordinal(found)
    agrees = month in {None, that.month} and day in {None, that.day}
    return first + number - 1 if agrees else None


def _hour(fields: Fields) -> int | None:
    """Find the hour of the day; `None` when the fields contradict each other."""
    hours = {int(fields["H"])} if "H" in fields else set()
    if "k" in fields:
        hours.add(int(fields["k"]) % _MIDNIGHT)
    halves = {int(fields["h"]) % _NOON} if "h" in fields else set()
    if "K" in fields:
        halves.add(int(fields["K"]))
    if len(hours) > 1 or len(halves) > 1:
        return None
    half = fields.get("a")
    if hours:
        hour = hours.pop()
        agrees = half in {None, hour // _NOON} and halves <= {hour % _NOON}
        return hour if agrees else None
    return (halves.pop() if halves else 0) + (_NOON if half == 1 else 0)
