"""Find where a tree of files grows, and where a range of its keys can be cut.

Files mostly land behind those that are there: names carry dates or numbers. Such a tree need not be
listed whole; it is enough to list where it grows. The places are derived from the known paths each
time, not stored, so they cannot be stale:

- Names that differ only in digits (`dt=2024-01-01`, `part-00017.json`) are a *sequence*. It grows
  in its last member and behind it.
- Other names (`region=eu`, `orders`) are a fixed set; each of them may grow.

Each place gives one range of keys: from some known keys before the last one, for files that arrive
a little late, up to the next known key. So the ranges also cover every gap between two members of
a set, where a new one (`region=fr`) would be. What lies inside a sequence is not listed: that is
what is saved, and what only a full listing finds.

Files whose names begin with a time and end at random (`2024-01-01T00-00-00-5f0c.json`) are a fixed
set by this rule. Where only the ends are asked for (`only_ends`), names are a sequence as soon as
they have a digit at the same place, and of other files only the end of their folder is listed.
Which of the two is right for a source, and whether less is enough, is decided in `run.py`.

A range of keys is cut so that another thread reads its upper part. A cut is tried at a string in
the middle, and trying is a request: the first page after that string. If the page has keys of the
range, it is also the first page of the upper part, so nothing was asked in vain; the lower part may
read some of those keys again, one page at most. If it has none, the range is known to end earlier.
Either way a try costs one request more than not trying, which is what `Readers` counts.

What is recorded already shows at no cost where keys are. It need not be true any more, so only the
store's answer makes a cut.

Nothing is known about how keys are spread. Texts are taken as fractions in a number system whose
digits are characters: printable ASCII where the keys are ASCII, else all of Unicode.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.storage.base import UnorderedListingError

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import KnownKeys
    from airflow_cloudfiles.engine.storage import ObjectStore

_DIGITS_AT_ONCE = 4
_FIRST, _LAST_PRINTABLE = 0x20, 0x7E
_SURROGATES = (0xD800, 0xDFFF)
_BEYOND = "\U0010ffff"


def midpoint(low: str, high: str) -> str | None:
    """Give a text half-way between two; `None` when there is none worth using."""
    shared = common(low, high)
    lows, highs = low[shared : shared + _DIGITS_AT_ONCE], high[shared : shared + _DIGITS_AT_ONCE]
    if not highs:
        return None
    if ord(highs[0]) <= _LAST_PRINTABLE + 1:
        found = _middle_of_ascii(lows, highs)
    elif not lows or ord(lows[0]) <= _LAST_PRINTABLE:
        found = chr(_LAST_PRINTABLE + 1)
    else:
        found = _character((ord(lows[0]) + ord(highs[0])) // 2)
    text = high[:shared] + found
    return text if low < text < high else None


def common(first: str, second: str) -> int:
    """Count the characters that two strings have in common at their beginning."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))


def behind(prefix: str) -> str:
    """Build a text that sorts behind everything with a prefix, but for most unusual keys."""
    return prefix + _BEYOND


def above(low: str, shared: int) -> str:
    """Build a text above the keys that begin as `low` does and go on with a like character.

    Its kind is that of the character after the shared ones: a digit, a letter of ASCII, or any.
    """
    character = low[shared : shared + 1]
    if "0" <= character <= "9":
        return low[:shared] + ":"
    if " " <= character <= "~":
        return low[:shared] + ("[" if "A" <= character <= "Z" else chr(_LAST_PRINTABLE + 1))
    return behind(low[:shared])


def _middle_of_ascii(lows: str, highs: str) -> str:
    """Half-way between up to four characters; others than printable ones count as the nearest."""
    base = _LAST_PRINTABLE + 2 - _FIRST + 1

    def value(text: str) -> int:
        found = 0
        for place in range(_DIGITS_AT_ONCE):
            code = ord(text[place]) if place < len(text) else _FIRST - 1
            found = found * base + min(max(code - _FIRST + 1, 0), base - 1)
        return found

    rest = (value(lows) + value(highs)) // 2
    digits = []
    for _ in range(_DIGITS_AT_ONCE):
        rest, digit = divmod(rest, base)
        digits.append(digit)
    found = ""
    for digit in reversed(digits):
        if digit == 0:
            break
        found += chr(min(digit + _FIRST - 1, _LAST_PRINTABLE + 1))
    return found


def _character(code: int) -> str:
    """Return the character of a code; surrogates have none."""
    return chr(_SURROGATES[0] - 1) if _SURROGATES[0] <= code <= _SURROGATES[1] else chr(code)


_GUESSES = 100
"""So often the known keys are asked, which costs no request, before the store is."""


class KeyBisector:
    """Guesses where a range may be cut.

    Args:
        known: What is recorded.
        prefix: With which all keys start.
        order: The order of the store.
    """

    def __init__(self, known: KnownKeys, prefix: str, order: KeyOrder) -> None:
        self._known = known
        self._prefix = prefix
        self._order = order

    def guess(self, first: str, position: str, end: str, high: str) -> str | None:
        """Give a string to cut at; `None` when there is none worth using.

        Args:
            first: The least key of the whole listing.
            position: The last key that was read of the range.
            end: Where the range ends; empty for no end.
            high: A string behind all keys of the range, as far as earlier tries have shown; empty
                when none was made.
        """
        low = max(position, self._prefix)
        if not self._is_known_after(position, end):
            return self._next(first, low, end, high)
        last = self._known.last(self._prefix)
        high = high or end or behind(last or low)
        for _ in range(_GUESSES):
            text = midpoint(low, high)
            if text is None or self._is_known_after(text, end):
                return text
            high = text
        return None

    def _next(self, first: str, low: str, end: str, high: str) -> str | None:
        """Guess without known keys.

        Where a range has no end, the first guess is that all keys begin with what those so far have
        in common, and go on with a character of the same kind. A cut there parts the others.
        """
        if not high and not end:
            return above(low, max(common(first, low), len(self._prefix)))
        return midpoint(low, high or end)

    def _is_known_after(self, text: str, end: str) -> bool:
        """Tell whether a known key of the range comes after a string."""
        key = self._known.first_after(text)
        if key is None or not key.startswith(self._prefix):
            return False
        return not end or bool(self._order(key) < self._order(end))


def check_order(source: ObjectStore, key: str, *, is_there: bool) -> bool:
    """Check with one request whether a store lists by the bytes of keys, or folder by folder.

    What is in the folder `a` comes after `a.` by the bytes, and before it folder by folder.

    Args:
        source: The store.
        key: Of an object in a folder.
        is_there: Whether it was listed just now.

    Returns:
        Whether that could be decided.

    Raises:
        UnorderedListingError: It lists in another order.
    """
    folder, slash, _ = key.partition("/")
    if not folder or not slash:
        return False
    found = source.key_after(behind(folder + "."))
    if found is not None and found.startswith(folder + "/"):
        return True
    if is_there:
        raise UnorderedListingError(
            f"The store does not list keys in the order of their bytes, as S3 does: nothing in the "
            f"folder {folder!r} comes after {folder + '.'!r}. Some servers list folder by folder."
        )
    return False


OVERLAP_FILES = 500
"""How many known files before the last one are listed again; half a page of S3."""
MAX_EDGES = 1000
"""A tree that grows in more places is listed whole."""
MAX_LOOSE_FOLDERS = 2000
"""How many folders that are in no sequence are listed before that is logged."""
MAX_LOOSE_FILES = 10_000
"""How many files that are in no sequence, such as those with random names in the last day."""
MAX_FILES_FOR_ENDS = 100
"""Where only ends are asked for: behind so many files, a folder is not searched for folders."""

KeyOrder = Callable[[str], Any]
"""Gives what two keys are compared by: the order of the store."""

_LAST = "\U0010ffff"
_DIGITS = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys to list.

    Attributes:
        after: Only keys after this one.
        end: Only keys before this one; empty for no end.
        keys: How many known keys it has at most, while it is being planned.
    """

    after: str = ""
    end: str = ""
    keys: int = field(default=0, compare=False)


class EdgeRanges:
    """Ranges in ascending order that do not overlap.

    Args:
        ranges: Ranges in any order.
        order: What keys are compared by.
    """

    def __init__(self, ranges: list[KeyRange], order: KeyOrder) -> None:
        self._order = order
        self._keys: list[int] = []
        self.ranges: list[KeyRange] = []
        ranges = [self._right_way_round(found) for found in ranges]
        for found in sorted(ranges, key=lambda found: order(found.after)):
            if self.ranges and self._touches(self.ranges[-1], found):
                self.ranges[-1] = KeyRange(self.ranges[-1].after, self._later_end(found))
                self._keys[-1] += found.keys
            else:
                self.ranges.append(KeyRange(found.after, found.end))
                self._keys.append(found.keys)
        self._starts = [order(found.after) for found in self.ranges]

    def cost(self, page_size: int) -> int:
        """Count the requests that listing them takes while nothing is new, at most."""
        return sum(1 + keys // page_size for keys in self._keys)

    def covers(self, key: str) -> bool:
        """Tell whether a file would be listed."""
        place = self._order(key)
        before = bisect_left(self._starts, place)
        if before == 0:
            return False
        end = self.ranges[before - 1].end
        return not end or place < self._order(end)

    def _right_way_round(self, found: KeyRange) -> KeyRange:
        """Order the ends: where the store has another order than the keys, they may be swapped.

        It is then listed to the end.
        """
        is_wrong = found.end and self._order(found.end) <= self._order(found.after)
        return KeyRange(found.after) if is_wrong else found

    def _touches(self, first: KeyRange, second: KeyRange) -> bool:
        return not first.end or self._order(second.after) <= self._order(first.end)

    def _later_end(self, second: KeyRange) -> str:
        first_end = self.ranges[-1].end
        if not first_end or not second.end:
            return ""
        return max(first_end, second.end, key=self._order)


def end_range(known: KnownKeys, last: str) -> KeyRange:
    """Build the range around and behind the last known file at a place."""
    after = known.back(last, OVERLAP_FILES) or ""
    return KeyRange(after, known.first_after(last) or "", OVERLAP_FILES)


def plan_edges(
    known: KnownKeys, prefix: str, order: KeyOrder, *, only_ends: bool = False
) -> EdgeRanges | None:
    """Plan what an incremental listing lists.

    Args:
        known: The known files.
        prefix: How all files of the source begin.
        order: What keys are compared by.
        only_ends: List the end of each folder that may grow, not between its files.

    Returns:
        The ranges; `None` when nothing is known yet, or the tree grows in too many places.
    """
    try:
        return _EdgeSearch(known, prefix, order, only_ends=only_ends).ranges()
    except _TooManyError:
        return None


class _TooManyError(Exception):
    """The tree grows in too many places, or has too many names to find out."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A name in a folder that may grow."""

    name: str
    is_folder: bool
    in_sequence: bool
    first_key: str


class _EdgeSearch:
    """One pass over the known files."""

    def __init__(self, known: KnownKeys, prefix: str, order: KeyOrder, *, only_ends: bool) -> None:
        self._known = known
        self._prefix = prefix
        self._order = order
        self._only_ends = only_ends
        self._names = Counter[bool]()
        self._overlapped = ""
        self._found: list[KeyRange] = []

    def ranges(self) -> EdgeRanges | None:
        """Find all ranges."""
        if self._first(self._prefix) is None:
            return None
        self._grow(self._prefix[: self._prefix.rfind("/") + 1])
        found = EdgeRanges(self._found, self._order)
        return None if len(found.ranges) > MAX_EDGES else found

    def _grow(self, folder: str) -> None:
        """Find the ranges in a folder: in and behind each member, and before a set."""
        is_first = True
        files = 0
        for member in self._members(folder):
            files += not member.is_folder
            if self._only_ends and files > MAX_FILES_FOR_ENDS:
                break
            if is_first and not member.in_sequence:
                self._found.append(KeyRange(folder, member.first_key))
            is_first = False
            key = folder + member.name
            if member.is_folder:
                self._grow(key + "/")
            elif member.in_sequence:
                self._edge(key)
            elif not self._only_ends:
                self._found.append(KeyRange(key, self._next(key), 1))
        last = self._known.last(folder)
        if last is not None and last != self._overlapped:
            self._edge(last)

    def _edge(self, last: str) -> None:
        """Add the range around and behind the last known file at a place."""
        self._overlapped = last
        self._found.append(end_range(self._known, last))

    def _members(self, folder: str) -> Iterator[_Member]:
        """Yield the names in a folder that may grow: one for each sequence, and every other one."""
        key = self._first(folder)
        while key is not None:
            name, is_folder = _child(folder, key)
            last = self._end_of_sequence(folder, name, is_folder=is_folder)
            if last is None:
                self._count(is_folder=is_folder)
                yield _Member(name, is_folder, in_sequence=False, first_key=key)
            else:
                name, is_folder = _child(folder, last)
                yield _Member(name, is_folder, in_sequence=True, first_key=key)
            beyond = f"{folder}{name}/{_LAST}" if is_folder else folder + name
            key = self._known.first_after(beyond)
            if key is not None and not key.startswith(folder):
                key = None

    def _end_of_sequence(self, folder: str, name: str, *, is_folder: bool) -> str | None:
        """Find the last known key in the sequence that a name begins; `None` if it begins none.

        A folder with digits that has no like is taken for a sequence of one, such as the first
        year.
        """
        digit = _DIGITS.search(name)
        if digit is None:
            return None
        stem = folder + name[: digit.start()]
        last = self._known.last(stem, before=stem + ":")  # ":" follows "9"
        if last is None:
            return None
        last_name, _ = _child(folder, last)
        is_more = is_folder or last_name != name
        if self._only_ends:
            return last if is_more else None
        return last if is_more and _shape(last_name) == _shape(name) else None

    def _first(self, folder: str) -> str | None:
        """Find the first known key in a folder."""
        key = self._known.first_after(folder)
        return key if key is not None and key.startswith(folder) else None

    def _next(self, key: str) -> str:
        """Find where a range that goes to the next known key ends."""
        return self._known.first_after(key) or ""

    def _count(self, *, is_folder: bool) -> None:
        """Give up when there are more names without an order than are worth listing."""
        self._names[is_folder] += is_folder or not self._only_ends
        if self._names[False] > MAX_LOOSE_FILES or self._names[True] > MAX_LOOSE_FOLDERS:
            raise _TooManyError


def _child(folder: str, key: str) -> tuple[str, bool]:
    """Find the name in a folder that a key is, or is below, and whether that is a folder."""
    name, slash, _ = key[len(folder) :].partition("/")
    return name, bool(slash)


def _shape(name: str) -> str:
    """Replace the digits of a name by one digit."""
    return _DIGITS.sub(lambda digits: "0" * len(digits[0]), name)
