"""How does a message say how many? `1 file`, `2 files`, `1,234 entries`."""

from __future__ import annotations

import re
from typing import Final

_MANY: Final = {"was": "were", "is": "are", "has": "have", "it": "they", "stays": "stay"}
"""Words that are no nouns."""
_WORD: Final = re.compile(r"\{(\w+)\}")
_HISSING: Final = ("s", "x", "ch", "sh")
_VOWELS: Final = "aeiou"


def plural(count: float, one: str, many: str | None = None) -> str:
    """The word for so many.

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
    """A sentence that begins with how many.

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
