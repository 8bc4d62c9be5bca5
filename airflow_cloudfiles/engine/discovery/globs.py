"""Decide which paths a pattern means.

Patterns are written as for Hadoop: `*`, `?`, `[a-c]`, `[^a]`, `{a,b}`, and a backslash before a
character that is meant as it is. Matching takes time linear in the name, for every pattern.

Auto Loader has two ways to read a pattern in the source path (B90). In Spark's way, the strict one,
a pattern names files and folders part by part, and a folder means everything below it. In the
default way `*` crosses folders, and what the pattern names is only how a path must begin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import reduce
from operator import or_
from typing import Final

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.vendors import VENDORS

_SERVERS = tuple(each.scheme for each in VENDORS if each.is_server)
_WITH_FOLDERS = ("file:", "memory:", *(f"{each}:" for each in _SERVERS))
"""Where a//b is the path a/b; to an object store it is another key."""
_SERVER_IN_BRACKETS = re.compile(rf"(?:{'|'.join(_SERVERS)})://[^/\[]*\[[^/\]]*\]", re.IGNORECASE)
_SPECIAL = frozenset("*?[{")
_MOST_TRANSITIONS: Final = 100_000
"""How many steps from character to character one pattern keeps, so that memory is bounded."""


class _Mark(Enum):
    """A step that is no single character."""

    ANY = "any text"
    ANY_NAME = "any text without a slash"
    OPEN = "{"
    COMMA = ","
    CLOSE = "}"


_ANY, _ANY_NAME, _OPEN, _COMMA, _CLOSE = _Mark
_Step = _Mark | Callable[[str], object]
_slash: Final = "/".__eq__


def escape_pattern(text: str) -> str:
    """Make a pattern that matches a text and nothing else."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", text)


def split_pattern(uri: str) -> tuple[str, str | None]:
    r"""Separate the folder to list from the pattern that follows it.

    Args:
        uri: A path or URI; `/data/*/in`, `s3://bucket/2024-{01,02}/`.

    Returns:
        The longest run of folders without patterns, its escapes taken away, and the pattern below
        it, relative to it; `None` when there is no pattern. `/data/*/in` is `/data` and `*/in`.

    Raises:
        OptionError: The pattern is in the name of a bucket or container, or cannot be read.
    """
    start = _first_special(uri, after=_address_end(uri))
    if start is None:
        return _literal(uri), None
    cut = uri.rfind("/", 0, start) + 1
    authority = uri.find("://") + 3 if "://" in uri else 0
    if authority and cut <= authority:
        raise OptionError(
            f"{uri!r} has a pattern in the name of its bucket or container. Write patterns in the "
            f"folders below it, or escape the character with a backslash."
        )
    folder, pattern = uri[:cut].rstrip("/"), uri[cut:].rstrip("/")
    if authority and not uri.startswith(_WITH_FOLDERS):
        pattern = uri[len(folder) + 1 : cut] + pattern
    SourcePattern(pattern)
    if folder == "file:":
        folder = "file:///"
    return (_literal(folder) or ("/" if cut else ".")), pattern


def compile_name(pattern: str) -> Glob:
    """Read a pattern that a whole name has to match (`pathGlobFilter`).

    Raises:
        OptionError: It cannot be read.
    """
    return Glob(_GlobParser(pattern).steps())


def compile_path(pattern: str) -> Glob:
    """Read a pattern that a whole path has to match, of which `*` crosses folders.

    Raises:
        OptionError: It cannot be read.
    """
    return Glob(_GlobParser(pattern, crosses_folders=True).steps())


class NamePatterns:
    """Patterns for names, in any case, one of which has to match the whole name.

    Most are a `*` and a text, or a text and a `*`; those are not compiled, since each name of a
    listing is compared.

    Args:
        patterns: As for `compile_name`.

    Attributes:
        patterns: The same, in lower case.

    Raises:
        OptionError: One cannot be read.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(each.lower() for each in patterns)
        ends = [each for each in self.patterns if each[:1] == "*" and _is_plain(each[1:])]
        starts = [each for each in self.patterns if each[-1:] == "*" and _is_plain(each[:-1])]
        self._ends = tuple(each[1:] for each in ends)
        self._starts = tuple(each[:-1] for each in starts)
        self._others = tuple(
            compile_name(each) for each in self.patterns if each not in {*ends, *starts}
        )

    def match(self, name: str) -> bool:
        """Tell whether one of them matches a name."""
        if not self.patterns:
            return False
        lower = name.lower()
        if lower.endswith(self._ends) or lower.startswith(self._starts):
            return True
        return any(each.matches(lower) for each in self._others)


def _is_plain(text: str) -> bool:
    return not set("*?[]{}\\") & set(text)


class SourcePattern:
    """A pattern in a source path, relative to the folder that is listed.

    Args:
        pattern: From `split_pattern`.
        strict: Whether it is read as Spark reads it.

    Raises:
        OptionError: It cannot be read.
    """

    def __init__(self, pattern: str, *, strict: bool = False) -> None:
        start = _first_special(pattern)
        self.prefix = _literal(pattern if start is None else pattern[:start])
        """How every key that matches begins; a listing need not go elsewhere."""
        steps = _GlobParser(pattern, crosses_folders=not strict).steps()
        if not strict or pattern.endswith("/"):
            steps.append(_ANY)
        else:  # the file itself, or all that is below a folder of this name
            steps += [_OPEN, _COMMA, _slash, _ANY, _CLOSE]
        self._glob = Glob(steps)

    def matches(self, key: str) -> bool:
        """Tell whether a file is meant."""
        return self._glob.matches(key)

    def may_hold(self, folder: str) -> bool:
        """Tell whether a file below a folder can be meant; never false where one can."""
        return self._glob.may_begin(f"{folder}/")


class Glob:
    """A pattern as an automaton, so that no pattern and no name makes matching slow.

    A regular expression tries one way after the other through stars and groups: `*a*a*a*b` takes
    minutes for a name of a hundred letters. Here all ways are followed at once, in time linear in
    the name. The sets of ways that names have met are kept, so a character is one look-up. Safe to
    use from several threads.

    Args:
        steps: From `_GlobParser`.
    """

    def __init__(self, steps: Sequence[_Step]) -> None:
        self._steps = steps
        self._reached = _reached(steps)
        self._places: dict[int, _GlobState] = {}
        self._transitions = 0
        self._start = self._place(self._reached[0])

    def matches(self, name: str) -> bool:
        """Tell whether the pattern matches the whole name."""
        place = self._start
        for char in name:
            if place.is_settled:
                break
            place = place[char]
        return place.accepts

    def may_begin(self, text: str) -> bool:
        """Tell whether a name that begins with a text can match."""
        place = self._start
        for char in text:
            place = place[char]
        return bool(place.ways)

    def follow(self, place: _GlobState, char: str) -> _GlobState:
        """Give the place after a character."""
        ways, left = 0, place.ways
        while left:
            lowest = left & -left
            left ^= lowest
            at = lowest.bit_length() - 1
            if at == len(self._steps):
                continue
            step = self._steps[at]
            if step is _ANY or (step is _ANY_NAME and char != "/"):
                ways |= self._reached[at]
            elif callable(step) and step(char):
                ways |= self._reached[at + 1]
        found = self._place(ways)
        if self._transitions < _MOST_TRANSITIONS:
            self._transitions += 1
            place[char] = found
        return found

    def _place(self, ways: int) -> _GlobState:
        known = self._places.get(ways)
        if known is None:
            end = 1 << len(self._steps)
            accepts_all = any(
                step is _ANY and ways >> at & 1 and self._reached[at] & end
                for at, step in enumerate(self._steps)
            )
            known = _GlobState(
                self, ways, accepts=bool(ways & end), is_settled=accepts_all or not ways
            )
            if self._transitions < _MOST_TRANSITIONS:
                self._places[ways] = known
        return known


class _GlobState(dict[str, "_GlobState"]):
    """How far a name has come, by the characters that lead on from there.

    Attributes:
        ways: The steps that the next character may be for, as bits.
        accepts: Whether a name may end here.
        is_settled: Whether what follows changes nothing.
    """

    __slots__ = ("_glob", "accepts", "is_settled", "ways")

    def __init__(self, glob: Glob, ways: int, *, accepts: bool, is_settled: bool) -> None:
        super().__init__()
        self._glob = glob
        self.ways = ways
        self.accepts = accepts
        self.is_settled = is_settled

    def __missing__(self, char: str) -> _GlobState:
        return self._glob.follow(self, char)


def _reached(steps: Sequence[_Step]) -> list[int]:
    """Find which steps can follow each step without a character, as bits; all lie behind it."""
    onward: list[list[int]] = [[] for _ in steps]
    groups: list[tuple[int, list[int]]] = []
    for at, step in enumerate(steps):
        if step is _OPEN:
            groups.append((at, []))
            onward[at].append(at + 1)
        elif step is _COMMA:
            start, commas = groups[-1]
            onward[start].append(at + 1)
            commas.append(at)
        elif step is _CLOSE:
            for comma in groups.pop()[1]:
                onward[comma].append(at)
            onward[at].append(at + 1)
        elif step in {_ANY, _ANY_NAME}:
            onward[at].append(at + 1)
    reached = [0] * len(steps) + [1 << len(steps)]
    for at in reversed(range(len(steps))):
        own = 0 if steps[at] in {_OPEN, _COMMA, _CLOSE} else 1 << at
        reached[at] = reduce(or_, (reached[to] for to in onward[at]), own)
    return reached


class _GlobParser:
    """One reading of a pattern, as steps."""

    def __init__(self, pattern: str, *, crosses_folders: bool = False) -> None:
        self._pattern = pattern
        self._star = _ANY if crosses_folders else _ANY_NAME
        self._at = 0
        self._open = 0

    def steps(self) -> list[_Step]:
        """Read all of it."""
        found = []
        while self._at < len(self._pattern):
            found.append(self._next())
        if self._open:
            raise self._unreadable("a { has no }")
        return found

    def _next(self) -> _Step:
        """Read the next character, or class of characters."""
        char = self._take()
        if char == "\\":
            return self._escaped().__eq__
        if char == "[":
            return self._class()
        if char == "{":
            self._open += 1
            return _OPEN
        if char == "}" and self._open:
            self._open -= 1
            return _CLOSE
        if char == "," and self._open:
            return _COMMA
        of_one: dict[str, _Step] = {"*": self._star, "?": "/".__ne__}
        return of_one.get(char, char.__eq__)

    def _class(self) -> _Step:
        """Read what follows `[`; a class never means a slash."""
        members: list[str] = []
        negated = self._pattern[self._at : self._at + 1] in {"^", "!"}
        self._at += negated
        while self._at < len(self._pattern):
            char = self._take()
            if char == "]" and members:
                text = f"(?!/)[{'^' if negated else ''}{''.join(members)}]"
                try:
                    return re.compile(text).match
                except re.error as failure:
                    raise self._unreadable(str(failure)) from failure
            if char == "-":
                members.append("-")
            else:
                members.append(re.escape(self._escaped() if char == "\\" else char))
        raise self._unreadable("a [ has no ]")

    def _take(self) -> str:
        char = self._pattern[self._at]
        self._at += 1
        return char

    def _escaped(self) -> str:
        if self._at == len(self._pattern):
            raise self._unreadable("nothing follows the backslash at its end")
        return self._take()

    def _unreadable(self, reason: str) -> OptionError:
        return OptionError(
            f"The pattern {self._pattern!r} cannot be read: {reason}. Write a backslash before a "
            f"character that is meant as it is."
        )


def _first_special(pattern: str, after: int = 0) -> int | None:
    """Find the first character, outside of escapes, that makes a text a pattern."""
    at, in_class = 0, -1
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif in_class >= 0:
            if char == "]" and at > in_class + 1:
                in_class = -1
        else:
            if char in _SPECIAL and at >= after:
                return at
            if char == "[":
                negated = pattern[at + 1 : at + 2] in {"^", "!"}
                at += negated
                in_class = at
        at += 1
    return None


def _address_end(uri: str) -> int:
    """Find where an IPv6 address ends, whose brackets are not a pattern: `sftp://[::1]/in`."""
    found = _SERVER_IN_BRACKETS.match(uri)
    return 0 if found is None else found.end()


def _literal(text: str) -> str:
    """Take the escapes away."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
