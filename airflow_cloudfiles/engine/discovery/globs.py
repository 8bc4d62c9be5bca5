"""Which paths does a pattern mean?

Patterns are written as for Hadoop: `*`, `?`, `[a-c]`, `[^a]`, `{a,b}`, and a backslash before a
character that is meant as it is. They are translated to regular expressions once.

Auto Loader has two ways to read a pattern in the source path (B90). In Spark's way, the strict one,
a pattern names files and folders part by part, and a folder means everything below it. In the
default way `*` crosses folders, and what the pattern names is only how a path must begin.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

_DISKS = ("file:", "memory:", "sftp:")
_SPECIAL = frozenset("*?[{")
_ANY = r"[\s\S]*"
_ANY_NAME = "[^/]*"


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
    if authority and not uri.startswith(_DISKS):  # to an object store, a//b is another key than a/b
        pattern = uri[len(folder) + 1 : cut] + pattern
    SourcePattern(pattern)
    if folder == "file:":
        folder = "file:///"
    return (_literal(folder) or ("/" if cut else ".")), pattern


def compile_name(pattern: str) -> re.Pattern[str]:
    """Translate a pattern that a whole name has to match (`pathGlobFilter`).

    Raises:
        OptionError: It cannot be read.
    """
    return _compile(pattern, any_text=_ANY_NAME)


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
        """Whether one of them matches a name."""
        if not self.patterns:
            return False
        lower = name.lower()
        if lower.endswith(self._ends) or lower.startswith(self._starts):
            return True
        return any(each.fullmatch(lower) for each in self._others)


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
        self._strict = strict
        start = _first_special(pattern)
        self.prefix = _literal(pattern if start is None else pattern[:start])
        """How every key that matches begins; a listing need not go elsewhere."""
        if strict:
            below = _ANY if pattern.endswith("/") else rf"(?:/{_ANY})?"
            self._whole = _compile(pattern, any_text=_ANY_NAME, suffix=below)
            self._folders = [
                [
                    _compile(part, any_text=_ANY_NAME)
                    for part in _parts(alternative.removesuffix("/"))
                ]
                for alternative in _expand(pattern)
            ]
        else:
            self._whole = _compile(pattern, any_text=_ANY, suffix=_ANY)
            self._folders = [_upper_parts(alternative) for alternative in _expand(pattern)]

    def matches(self, key: str) -> bool:
        """Whether a file is meant."""
        return self._whole.fullmatch(key) is not None

    def may_hold(self, folder: str) -> bool:
        """Whether a file below a folder can be meant; never false where one can."""
        names = folder.split("/")
        return any(
            all(part.fullmatch(name) for part, name in zip(parts, names, strict=False))
            for parts in self._folders
        )


def _upper_parts(pattern: str) -> list[re.Pattern[str]]:
    """What folders must look like under the default reading, as far down as is known.

    Down to the part with the first `*`, which crosses folders; the last part is only a beginning.
    """
    found = []
    parts = _parts(pattern)
    for number, part in enumerate(parts):
        star = _first_star(part)
        if star is not None or number == len(parts) - 1:
            found.append(_compile(part[:star], any_text=_ANY_NAME, suffix=_ANY_NAME))
            break
        found.append(_compile(part, any_text=_ANY_NAME))
    return found


def _compile(pattern: str, *, any_text: str, suffix: str = "") -> re.Pattern[str]:
    return re.compile(_Translation(pattern, any_text).regex() + suffix)


class _Translation:
    """One translation of a pattern to a regular expression."""

    def __init__(self, pattern: str, any_text: str) -> None:
        self._pattern = pattern
        self._any_text = any_text
        self._at = 0
        self._open = 0

    def regex(self) -> str:
        """Translate all of it."""
        found = []
        while self._at < len(self._pattern):
            found.append(self._next())
        if self._open:
            raise self._unreadable("a { has no }")
        return "".join(found)

    def _next(self) -> str:
        """Translate the next character, or class of characters."""
        char = self._take()
        if char == "\\":
            return re.escape(self._escaped())
        if char == "[":
            return self._class()
        if char == "{":
            self._open += 1
            return "(?:"
        if char == "}" and self._open:
            self._open -= 1
            return ")"
        if char == "," and self._open:
            return "|"
        return {"*": self._any_text, "?": "[^/]"}.get(char, re.escape(char))

    def _class(self) -> str:
        """Translate what follows `[`; a class never means a slash."""
        members: list[str] = []
        negated = self._pattern[self._at : self._at + 1] in {"^", "!"}
        self._at += negated
        while self._at < len(self._pattern):
            char = self._take()
            if char == "]" and members:
                text = f"(?!/)[{'^' if negated else ''}{''.join(members)}]"
                try:
                    re.compile(text)
                except re.error as failure:
                    raise self._unreadable(str(failure)) from failure
                return text
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


def _characters(pattern: str) -> list[tuple[int, str]]:
    """The characters with a meaning, outside of classes and escapes, and where they stand."""
    found = []
    at, in_class = 0, -1
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif in_class >= 0:
            if char == "]" and at > in_class + 1:
                in_class = -1
        else:
            found.append((at, char))
            if char == "[":
                negated = pattern[at + 1 : at + 2] in {"^", "!"}
                at += negated
                in_class = at
        at += 1
    return found


def _first_special(pattern: str, after: int = 0) -> int | None:
    """Where the first character stands that makes a text a pattern."""
    found = (at for at, char in _characters(pattern) if char in _SPECIAL and at >= after)
    return next(found, None)


def _address_end(uri: str) -> int:
    """Where an address of IPv6 ends, whose brackets are no pattern: `sftp://[::1]/in`."""
    found = re.match(r"sftp://[^/\[]*\[[^/\]]*\]", uri, re.IGNORECASE)
    return 0 if found is None else found.end()


def _first_star(pattern: str) -> int | None:
    """Where the first `*` stands; where the group begins in which it does."""
    group, depth = 0, 0
    for at, char in _characters(pattern):
        if char == "{":
            group = at if depth == 0 else group
            depth += 1
        elif char == "}":
            depth = max(0, depth - 1)
        elif char == "*":
            return group if depth else at
    return None


def _literal(text: str) -> str:
    """Take the escapes away."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def _parts(pattern: str) -> list[str]:
    """Cut a pattern at its slashes."""
    cuts = [-1, *(at for at, char in _characters(pattern) if char == "/"), len(pattern)]
    return [pattern[cuts[n] + 1 : cuts[n + 1]] for n in range(len(cuts) - 1)]


def _expand(pattern: str) -> list[str]:
    """Write out groups that have a slash in them, so that a pattern can be cut at its slashes."""
    group = _group_with_slash(pattern)
    if group is None:
        return [pattern]
    start, commas, end = group
    cuts = [start, *commas, end]
    return [
        expanded
        for n in range(len(cuts) - 1)
        for expanded in _expand(
            pattern[:start] + pattern[cuts[n] + 1 : cuts[n + 1]] + pattern[end + 1 :]
        )
    ]


def _group_with_slash(pattern: str) -> tuple[int, list[int], int] | None:
    """The first outermost group with a slash: where it begins, its commas, where it ends."""
    start, depth, has_slash = 0, 0, False
    commas: list[int] = []
    for at, char in _characters(pattern):
        if char == "{":
            depth += 1
            if depth == 1:
                start, has_slash, commas = at, False, []
        elif depth and char == "/":
            has_slash = True
        elif depth == 1 and char == ",":
            commas.append(at)
        elif depth and char == "}":
            depth -= 1
            if depth == 0 and has_slash:
                return start, commas, at
    return None
