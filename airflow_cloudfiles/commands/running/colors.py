"""Which lines does a terminal show in colors, and which terminal?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TextIO

Tone = Literal["problem", "caution", "heading"]
_CODES: Final[Mapping[Tone, str]] = {"problem": "31", "caution": "33", "heading": "1"}
"""Red, yellow and bold: those that every terminal and every theme has."""


@dataclass(frozen=True, slots=True)
class Toned:
    """A line that a terminal shows in a color.

    Attributes:
        text: The line.
        tone: What it is to the reader.
    """

    text: str
    tone: Tone


def has_colors(stream: TextIO) -> bool:
    """Whether colors are written to a stream.

    `NO_COLOR` and `FORCE_COLOR` decide if they are set to anything (https://no-color.org,
    https://force-color.org); otherwise a terminal that is not `dumb` gets colors.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def colored(text: str, tone: Tone | None, stream: TextIO) -> str:
    """Write a text in the color of its tone, if the stream shows colors.

    Args:
        text: Printable already: escapes in it would be obeyed.
        tone: `None` for a text like most.
        stream: Where it goes.
    """
    if tone is None or not has_colors(stream):
        return text
    return f"\x1b[{_CODES[tone]}m{text}\x1b[0m"
