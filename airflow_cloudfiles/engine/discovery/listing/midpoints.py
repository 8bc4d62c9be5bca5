"""Which text is half-way between two keys?

Nothing is known about how keys are spread. Texts are taken as fractions in a number system whose
digits are characters: printable ASCII where the keys are ASCII, else all of Unicode.
"""

from __future__ import annotations

_DIGITS = 4
_FIRST, _LAST = 0x20, 0x7E
_SURROGATES = (0xD800, 0xDFFF)
_BEYOND = "\U0010ffff"


def midpoint(low: str, high: str) -> str | None:
    """Give a text half-way between two; `None` when there is none worth using."""
    shared = common(low, high)
    lows, highs = low[shared : shared + _DIGITS], high[shared : shared + _DIGITS]
    if not highs:
        return None
    if ord(highs[0]) <= _LAST + 1:
        found = _middle_of_ascii(lows, highs)
    elif not lows or ord(lows[0]) <= _LAST:
        found = chr(_LAST + 1)
    else:
        found = _character((ord(lows[0]) + ord(highs[0])) // 2)
    text = high[:shared] + found
    return text if low < text < high else None


def common(first: str, second: str) -> int:
    """How many characters two strings begin with alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))


def behind(prefix: str) -> str:
    """A text behind everything that has a prefix, but for what nobody would call a file."""
    return prefix + _BEYOND


def above(low: str, shared: int) -> str:
    """A text behind the keys that begin as `low` does, if they go on with a character of its kind.

    Its kind is that of the character after the shared ones: a digit, a letter of ASCII, or any.
    """
    character = low[shared : shared + 1]
    if "0" <= character <= "9":
        return low[:shared] + ":"
    if " " <= character <= "~":
        return low[:shared] + ("[" if "A" <= character <= "Z" else chr(_LAST + 1))
    return behind(low[:shared])


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
