"""How much of a long list does a message show?

A message is read by a person: the first few of many names, the beginning of a long value, and how
many more there are. All of them are in the log of the task, or in the schema log. No character of
it changes how the rest is shown.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from itertools import islice

MOST_NAMES = 5
MOST_CHARACTERS = 60


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """The beginning of a text that is longer than a message shows."""
    return text if len(text) <= most else text[: most - 3] + "..."


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


def few(names: Collection[str], most: int = MOST_NAMES, characters: int = MOST_CHARACTERS) -> str:
    """The first of many names, and how many more there are: `a, b and 1,234 more`."""
    first = ", ".join(cut(name, characters) for name in islice(names, most))
    return first + more(len(names) - most)


def more(count: int) -> str:
    """How many more there are than were named; nothing where there is none."""
    return f" and {count:,} more" if count > 0 else ""


def few_members(members: Mapping[str, object], most: int = MOST_NAMES) -> dict[str, object]:
    """The first members of a JSON object, none of them longer than a message shows.

    A nested value that is longer becomes the beginning of its JSON.
    """
    return {cut(name): _short(value) for name, value in islice(members.items(), most)}


def _short(value: object) -> object:
    if isinstance(value, str):
        return cut(value)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return value if len(text) <= MOST_CHARACTERS else cut(text)
