"""Which text is half-way between two keys?

Nothing is known about how keys are spread. Texts are taken as fractions in a number system whose
digits are characters: printable ASCII where the keys are ASCII, else all of Unicode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_DIGITS = 4
_FIRST, _LAST = 0x20, 0x7E
_SURROGATES = (0xD800, 0xDFFF)
_BEYOND = "\U0010ffff"
_LONGEST = 1024


def midpoint(low: str, high: str) -> str | None:
    """Give a text half-way between two; `None` when there is none to speak of."""
    common = _common(low, high)
    lows, highs = low[common : common + _DIGITS], high[common : common + _DIGITS]
    if not highs:
        return None
    if ord(highs[0]) <= _LAST + 1:
        found = _middle_of_ascii(lows, highs)
    elif not lows or ord(lows[0]) <= _LAST:
        found = chr(_LAST + 1)
    else:
        found = _character((ord(lows[0]) + ord(highs[0])) // 2)
    text = high[:common] + found
    return text if low < text < high else None


def _common(first: str, second: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))


def last_text(low: str, prefix: str, has_key_after: Callable[[str], bool]) -> str:
    """Find a text behind all keys, as close to them as the characters they share.

    The keys behind `low` share some of its beginning. How much is found by halving: six probes for
    a key of 60 characters.

    Args:
        low: A key.
        prefix: With which all keys start.
        has_key_after: Whether a key with the prefix comes after a text.
    """
    shared, longest = len(prefix), min(len(low), _LONGEST)
    while shared < longest:
        middle = (shared + longest) // 2
        if has_key_after(_behind(low[: middle + 1])):
            longest = middle
        else:
            shared = middle + 1
    return _behind(low[:shared])


def _behind(prefix: str) -> str:
    """A text behind everything that has a prefix, but for what nobody would call a file."""
    return prefix + _BEYOND


def _middle_of_ascii(lows: str, highs: str) -> str:
    """Half-way between up to four characters; others than printable ones count as the nearest."""
    base = _LAST + 2 - _FIRST + 1

    def value(text: str) -> int:
        found = 0
        for place in range(_DIGITS):
            code = ord(text[place]) if place < len(text) else _FIRST - 1
            found = found * base + min(max(code - _FIRST + 1, 0), base - 1)
        return found

    rest = (value(lows) + value(highs)) // 2
    digits = []
    for _ in range(_DIGITS):
        rest, digit = divmod(rest, base)
        digits.append(digit)
    found = ""
    for digit in reversed(digits):
        if digit == 0:
            break
        found += chr(min(digit + _FIRST - 1, _LAST + 1))
    return found


def _character(code: int) -> str:
    """The character of a code; surrogates are none."""
    return chr(_SURROGATES[0] - 1) if _SURROGATES[0] <= code <= _SURROGATES[1] else chr(code)
