"""Write counts, long lists, untrusted text and progress in messages.

A message is read by a person: the first few of many names, the beginning of a long value, and how
many more there are. All of them are in the log of the task, or in the schema log. No character of
it changes how the rest is shown.

What takes long reports how much of how much is done: a line in the log every few seconds, for a log
that is read later; on a terminal one line that is rewritten.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Final, Self

MOST_NAMES = 5
MOST_CHARACTERS = 60


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """Cut a text that is longer than a message shows."""
    return text if len(text) <= most else text[: most - 3] + "..."


def install(*extras: str) -> str:
    """Say in a sentence how what extras of this package bring is installed.

    No index has the package, so it comes from its wheel or a checkout. The extras are named in
    words, too: Airflow's command line takes a word in brackets for markup, and leaves it out.

    Args:
        extras: Of `airflow-provider-cloudfiles`.
    """
    named = f"{plural(len(extras), 'extra')} {' and '.join(extras)}"
    return (
        f"Install this package with the {named}, from its wheel or a checkout: "
        f"pip install '<path>[{','.join(extras)}]'."
    )


def printable(text: str, *, but: str = "") -> str:
    r"""Make a text safe to show: what is no printable character is written `\x1b`.

    A name of a file may hold any character: those that move the cursor, hide text or turn its
    direction, and line breaks that make one line look like two.

    Args:
        text: Perhaps with such names.
        but: Characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in but else each.encode("unicode_escape").decode()
        for each in text
    )


def short_time(text: str) -> str:
    """Write a time of a state for people, in UTC."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return printable(text)


def few(names: Collection[str], most: int = MOST_NAMES, characters: int = MOST_CHARACTERS) -> str:
    """List the first of many names, and say how many more there are: `a, b and 1,234 more`."""
    first = ", ".join(cut(name, characters) for name in islice(names, most))
    return first + more(len(names) - most)


def more(count: int) -> str:
    """Say how many more there are than were named; nothing where there are none."""
    return f" and {count:,} more" if count > 0 else ""


def few_members(members: Mapping[str, object], most: int = MOST_NAMES) -> dict[str, object]:
    """Select the first members of a JSON object, none longer than a message shows.

    A nested value that is longer becomes the beginning of its JSON.
    """
    return {cut(name): _short(value) for name, value in islice(members.items(), most)}


def _short(value: object) -> object:
    if isinstance(value, str):
        return cut(value)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return value if len(text) <= MOST_CHARACTERS else cut(text)


_MANY: Final = {"was": "were", "is": "are", "has": "have", "it": "they", "stays": "stay"}
"""Words that are no nouns."""
_WORD: Final = re.compile(r"\{(\w+)\}")
_HISSING: Final = ("s", "x", "ch", "sh")
_VOWELS: Final = "aeiou"


def plural(count: float, one: str, many: str | None = None) -> str:
    """Choose the word for that many.

    Args:
        count: How many.
        one: The word for one, such as `file`, `new file`, `was`.
        many: The word for none or several; default: by the rules for English nouns.
    """
    if count == 1:
        return one
    return _several(one) if many is None else many


def counted(count: float, one: str, many: str | None = None) -> str:
    """So many of something: `1 file`, `2 files`; with a comma between thousands."""
    return f"{count:,.0f} {plural(count, one, many)}"


def sentence(count: int, text: str) -> str:
    """Begin a sentence with how many.

    Args:
        count: How many.
        text: What follows, about one; the words that change with the number are in braces:
            `{file} {was} gone`.
    """
    words = _WORD.sub(lambda word: plural(count, word[1], _MANY.get(word[1])), text)
    return f"{count:,} {words}"


def _several(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in _VOWELS:
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(_HISSING) else f"{noun}s"


LOG_SECONDS: Final = 5.0
TERMINAL_SECONDS: Final = 0.5
_log = logging.getLogger(__name__)


class Progress:
    """How many of some files are read; a context in which it is reported.

    Args:
        what: Begins each report: what is done with them.
        files: How many there are.
        size: Their size, in bytes.
        began: When it began, on the monotonic clock; `None` for now.
    """

    def __init__(self, what: str, files: int, size: int, began: float | None = None) -> None:
        self._what = what
        self._all_files = files
        self._all_bytes = size
        self._files = self._bytes = 0
        self._logged = self._shown = time.monotonic()
        self._began = self._logged if began is None else began
        self._terminal = sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        if self._terminal is not None and self._width:
            self._terminal.write("\r" + " " * self._width + "\r")
            self._terminal.flush()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def add(self, files: int, size: int) -> None:
        """Count what was read, and report it when it is time to."""
        self._files += files
        self._bytes += size
        now = time.monotonic()
        if now - self._logged >= LOG_SECONDS:
            self._logged = now
            _log.info("%s", str(self))  # as it is now, whenever it is written
        if self._terminal is not None and now - self._shown >= TERMINAL_SECONDS:
            self._shown = now
            line = str(self)
            self._terminal.write("\r" + line.ljust(self._width))
            self._terminal.flush()
            self._width = len(line)

    def __str__(self) -> str:
        """Describe the progress, for people."""
        speed = self._bytes / max(self.seconds, 1e-9)
        left = f", about {_duration((self._all_bytes - self._bytes) / speed)} left" if speed else ""
        return (
            f"{self._what}: {self._files:,} of {counted(self._all_files, 'file')}, "
            f"{size_text(self._bytes)} of {size_text(self._all_bytes)}, {size_text(speed)}/s{left}"
        )


def size_text(size: float) -> str:
    """Write a number of bytes for people."""
    if size < 10**6:
        return f"{size / 10**3:.0f} kB"
    return f"{size / 10**6:.0f} MB" if size < 10**9 else f"{size / 10**9:.1f} GB"


def _duration(seconds: float) -> str:
    whole = max(1, round(seconds))
    if whole < 120:  # noqa: PLR2004 - two minutes
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"  # noqa: PLR2004
